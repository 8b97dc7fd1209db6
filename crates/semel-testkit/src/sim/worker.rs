//! A worker that speaks the protocol itself: it sends a command again when its reply is lost, looks
//! whether the present holder is gone, and may report `unknown` first and `done` much later.

use semel::core::{Verdict, VerdictKind};
use semel::store::{Current, NewPayload};
use semel::{AttemptId, Effect, Note, Outcome};
use semel_core::Payload;
use semel_core::ledger::{
    AttemptKind, Begin, Command, Fence, Grant, Record, Rejection, Renew, Reply, Settle, Sighting,
};
use tokio::time::Instant;

use super::agent::{Agent, Next};
use super::bugs::Bug;
use super::checker::Told;
use super::process::Point;
use super::raw::Failed;
use super::rng::Rng;
use super::trace::Seen;
use super::world::{Answer, payload_of};

/// How often a command is sent again when the store does not answer.
const SENDS: usize = 3;

/// A permit, as a worker keeps it.
struct Held {
    key: usize,
    attempt: AttemptId,
    grant: Grant,
    /// Counted from before the claim was first sent.
    deadline: Instant,
}

impl Agent {
    /// Claims, acts and reports by commands of its own.
    pub(crate) async fn by_protocol(&self, key: usize, stranger: bool) -> Next {
        self.process.point(Point::BeforeClaim).await;
        let since = self.sim.with(|s| s.checker.tick());
        let plan = self.plan(key);
        let attempt = AttemptId::from_random(self.sim.draw(Rng::wide));
        let begin = Command::Begin(Begin {
            spec: plan.spec(stranger, None),
            attempt: attempt.clone(),
            lease: plan.lease,
            holder: None,
            worker: true,
            sighting: self.sight(key),
        });
        let deadline = Instant::now() + plan.lease.length();
        let (reply, current) = match self.send_again(key, &begin, &NewPayload::Keep).await {
            Ok(answered) => answered,
            Err(Failed::Refused(rejection)) => {
                self.saw(Seen::Told(rejection.code()));
                return Next::Again;
            }
            Err(Failed::Store) => return Next::Again,
        };
        match reply {
            Reply::Granted(grant) => {
                let held = Held {
                    key,
                    attempt,
                    grant,
                    deadline,
                };
                match grant.kind {
                    AttemptKind::Act => self.work(held, since).await,
                    AttemptKind::Probe => self.work_out(held, since).await,
                }
            }
            Reply::Replay => {
                self.hear_record(key, since, &current);
                Next::Rest
            }
            Reply::Breaker(_)
            | Reply::Submitted { .. }
            | Reply::Renewed { .. }
            | Reply::Reported(_)
            | Reply::Ordered(_)
            | Reply::Kept
            | Reply::Refused(_) => Next::Again,
        }
    }

    /// Looks whether the holder of the present lease is a process that is gone, or one that lives.
    fn sight(&self, key: usize) -> Option<Sighting> {
        let looks = self.sim.sometimes(500);
        self.sim.with(|s| {
            let (fence, process) = s.checker.latest_holder(key)?;
            let alive = !s.lives[process].is_dead();
            looks.then_some(Sighting { fence, alive })
        })
    }

    /// Sends a command until it is answered, or the worker gives up.
    async fn send_again(
        &self,
        key: usize,
        command: &Command,
        payload: &NewPayload,
    ) -> Result<(Reply, Current), Failed> {
        let mut sends = 0;
        loop {
            sends += 1;
            match self.raw.apply(key, command, payload).await {
                Ok(answered) => return Ok((answered.reply, answered.current)),
                Err(Failed::Store) if sends < SENDS => {
                    self.saw(Seen::Did("sent a command again"));
                    self.sim.nap(1, 500).await;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    async fn work(&self, mut held: Held, since: u64) -> Next {
        let (key, fence) = (held.key, held.grant.fence);
        self.process.point(Point::AfterClaim).await;
        self.dawdle().await;
        if self.sim.sometimes(200) {
            self.renew(&mut held).await;
        }
        if Instant::now() >= held.deadline && !self.sim.has(Bug::EffectAfterDeadline) {
            return self.say(&held, verdict(None, true), since).await;
        }
        let answer = self.sim.send(&self.process, key, Some(fence));
        let answer = self.hear_world(answer).await;
        self.process.point(Point::AfterEffect).await;
        self.dawdle().await;
        let lied = self.sim.has(Bug::LostReplyIsNotDone);
        let said = self.say(&held, verdict(answer, lied), since).await;
        if answer.is_none() && self.sim.sometimes(500) {
            // The answer turns up after all.
            self.sim.nap(100, 6_000).await;
            self.process.gate().await;
            let found = self.sim.with(|s| {
                let effects = s.world.effects(key).iter();
                let own = effects.rev().find(|effect| effect.fence == Some(fence));
                own.map(|effect| effect.serial)
            });
            if let Some(serial) = found {
                self.saw(Seen::Did("learned it late"));
                let late = verdict(Some(Answer::Done(serial)), false);
                return self.say(&held, late, since).await;
            }
        }
        said
    }

    /// Takes its time, now and then more than its lease.
    async fn dawdle(&self) {
        if self.sim.sometimes(350) {
            self.sim.nap(300, 4_500).await;
            self.process.gate().await;
        }
    }

    async fn renew(&self, held: &mut Held) {
        let sent = Instant::now();
        let lease = self.plan(held.key).lease;
        let renew = Command::Renew(Renew {
            attempt: held.attempt.clone(),
            fence: held.grant.fence,
            lease,
        });
        if let Ok(answered) = self.raw.apply(held.key, &renew, &NewPayload::Keep).await
            && matches!(answered.reply, Reply::Renewed { .. })
        {
            held.deadline = held.deadline.max(sent + lease.length());
        }
    }

    /// Looks a doubt up.
    async fn work_out(&self, held: Held, since: u64) -> Next {
        let found = self.look_up(held.key, held.grant.fence).await;
        let verdict = match found {
            semel::Found::Done(serial) => {
                let serial = serial.as_u64().unwrap_or_default();
                verdict(Some(Answer::Done(serial)), false)
            }
            semel::Found::NotDone => verdict(Some(Answer::Refused), false),
            semel::Found::Unknown => verdict(None, false),
        };
        self.say(&held, verdict, since).await
    }

    /// Reports a verdict, and takes what the ledger answers for the answer.
    async fn say(&self, held: &Held, said: (Verdict, NewPayload), since: u64) -> Next {
        let (verdict, payload) = said;
        let done = verdict.kind() == VerdictKind::Done && held.grant.kind == AttemptKind::Act;
        let settle = Command::Settle(Settle {
            attempt: held.attempt.clone(),
            fence: held.grant.fence,
            verdict,
        });
        let said = self.send_again(held.key, &settle, &payload).await;
        self.process.point(Point::AfterSettle).await;
        match said {
            Ok((_, current)) => {
                self.hear_record(held.key, since, &current);
                Next::Rest
            }
            Err(Failed::Refused(rejection)) => {
                self.refused(held.key, held.grant.fence, done, rejection);
                Next::Again
            }
            Err(Failed::Store) => Next::Again,
        }
    }

    fn refused(&self, key: usize, fence: Fence, done: bool, rejection: Rejection) {
        self.sim.with(|s| {
            s.seen.note(Seen::Told(rejection.code()));
            if done {
                s.checker.refused_done(key, fence);
            }
        });
    }

    /// A caller is answered from the record that its command was decided on.
    fn hear_record(&self, key: usize, since: u64, current: &Current) {
        let operation = current.record().and_then(Record::operation);
        let Some(operation) = operation else { return };
        self.sim.with(|s| {
            s.seen.note(Seen::Told(operation.state.kind().as_str()));
            if let Some(settled) = operation.settled() {
                s.checker.told(key, since, Told::of(&settled.outcome));
            }
        });
    }
}

/// Makes the verdict and the payload of what the world answered; without an answer nobody knows.
fn verdict(answer: Option<Answer>, none_is_not_done: bool) -> (Verdict, NewPayload) {
    let done = |ok, effect, bytes: Vec<u8>| {
        let payload = Payload::of(&bytes);
        let outcome = Outcome {
            ok,
            effect,
            payload: Some(payload),
        };
        let brought = NewPayload::Bytes {
            bytes: bytes.into(),
            replaces: false,
        };
        (Verdict::Done(outcome), brought)
    };
    let not_done = Verdict::NotDone {
        reject: false,
        error: Note::from_lossy("not applied"),
        retry_after: None,
    };
    match answer {
        Some(Answer::Done(serial)) => done(true, Effect::Created, payload_of(serial)),
        Some(Answer::FailedDirty(serial)) => done(false, Effect::Unknown, payload_of(serial)),
        Some(Answer::FailedClean) => done(false, Effect::Noop, b"\"declined\"".to_vec()),
        Some(Answer::Refused) => (not_done, NewPayload::Keep),
        None if none_is_not_done => (not_done, NewPayload::Keep),
        None => {
            let error = Note::from_lossy("no reply");
            (Verdict::Unknown { error }, NewPayload::Keep)
        }
    }
}
