//! What an agent does with a permit: it acts while the permit is alive, and says only what it knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use semel::store::Chunk;
use semel::{Admission, Attempt, Effect, Error, Failure, Found, OnDoubt, Permit, Receipt};
use semel_core::ledger::Fence;
use semel_core::{Digest, Payload};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::agent::{Agent, Call, Next};
use super::bugs::Bug;
use super::checker::Told;
use super::process::Point;
use super::trace::Seen;
use super::world::{Answer, payload_of};

impl Agent {
    /// Claims and reports by hand.
    pub(crate) async fn by_permit(&self, call: Call, parent: Option<(usize, Fence)>) -> Next {
        self.process.point(Point::BeforeClaim).await;
        let since = self.sim.with(|s| s.checker.tick());
        let plan = self.plan(call.key);
        let mut request = plan.request(call.stranger).wait(call.wait);
        if let Some((parent, fence)) = parent {
            request = request.parent(self.plan(parent).key.clone(), fence);
        }
        let Some(begun) = self
            .patiently(call.patience, self.engine.begin(request))
            .await
        else {
            return Next::Again;
        };
        match begun {
            Ok(Admission::Execute(permit)) => {
                self.saw(Seen::Told("execute"));
                self.admitted(call, since);
                self.execute(call, permit, since).await
            }
            Ok(Admission::Probe(permit)) => {
                self.saw(Seen::Told("probe"));
                self.admitted(call, since);
                self.look(call, permit, since).await
            }
            Ok(Admission::Replay(receipt)) => {
                self.admitted(call, since);
                self.hear(call.key, since, &receipt);
                Next::Rest
            }
            Ok(Admission::Wait { .. }) => {
                self.saw(Seen::Told("wait"));
                self.unclaimed(Bug::LoserExecutes, call.key).await
            }
            Ok(Admission::InDoubt(_)) => {
                self.saw(Seen::Told("in_doubt"));
                self.unclaimed(Bug::DoubtIgnored, call.key).await
            }
            Err(error) => {
                self.fail(&error);
                if matches!(error, Error::Store(_)) {
                    return self.unclaimed(Bug::FailedClaimExecutes, call.key).await;
                }
                Next::Again
            }
        }
    }

    /// Acts without a permit, if that is the planted bug.
    async fn unclaimed(&self, bug: Bug, key: usize) -> Next {
        if self.sim.has(bug) {
            let answer = self.sim.send(&self.process, key, None);
            self.hear_world(answer).await;
        }
        Next::Again
    }

    async fn execute(&self, call: Call, permit: Permit, since: u64) -> Next {
        let key = call.key;
        self.process.point(Point::AfterClaim).await;
        if self.sim.sometimes(200) {
            // Slow work: the library renews the lease meanwhile.
            self.sim.nap(300, 4_000).await;
            self.process.gate().await;
        }
        if self.sim.sometimes(60) {
            // A renewal that is refused shows in the deadline.
            let renewed = permit.renew().await.is_ok();
            self.saw(Seen::Did(if renewed {
                "renewed"
            } else {
                "was not renewed"
            }));
        }
        self.do_step(key, permit.fence()).await;
        if !permit.is_alive() && !self.sim.has(Bug::EffectAfterDeadline) {
            self.saw(Seen::Did("came too late to act"));
            let report = permit.not_done("too late");
            let reported = self.patiently(call.patience, report).await;
            return self.reported(key, since, None, reported);
        }
        let fence = permit.fence();
        let answer = self.sim.send(&self.process, key, Some(fence));
        let answer = self.hear_world(answer).await;
        self.process.point(Point::AfterEffect).await;
        if self.sim.sometimes(40) {
            self.saw(Seen::Did("dropped a permit"));
            drop(permit);
            return Next::Again;
        }
        let report = self.report(permit, answer);
        let reported = self.patiently(call.patience, report).await;
        self.process.point(Point::AfterSettle).await;
        if let (Some(Answer::Done(serial)), true) = (answer, self.sim.has(Bug::AnswersFromMemory)) {
            let told = Told {
                ok: true,
                effect: Effect::Created,
                data: Some(Digest::of(&payload_of(serial))),
            };
            self.sim.with(|s| s.checker.told(key, since, told));
        }
        self.reported(key, since, answer.map(|answer| (answer, fence)), reported)
    }

    /// Does a step of the operation, if it has one.
    async fn do_step(&self, key: usize, fence: Fence) {
        let keys = &self.sim.plan.keys;
        let Some(step) = keys.iter().position(|plan| plan.parent == Some(key)) else {
            return;
        };
        if self.sim.sometimes(700) {
            let call = Call::plain(step, false);
            // A step that came to nothing is the next attempt's to do.
            let _ = Box::pin(self.by_permit(call, Some((key, fence)))).await;
        }
    }

    /// Waits for the world's answer, as long as this caller does.
    pub(crate) async fn hear_world(&self, answer: oneshot::Receiver<Answer>) -> Option<Answer> {
        self.process.point(Point::MidEffect).await;
        let patience = self.sim.draw(|rng| {
            let longest = rng.pick(&[200, 4_000]);
            rng.millis(20, longest)
        });
        let heard = tokio::time::timeout(patience, answer).await;
        self.process.gate().await;
        heard.ok().and_then(Result::ok)
    }

    async fn report(&self, permit: Permit, answer: Option<Answer>) -> semel::Result<Receipt> {
        let chance = self.sim.draw(|rng| rng.below(1_000));
        match answer {
            Some(Answer::Done(serial)) if chance < 120 => self.stream(permit, serial).await,
            Some(Answer::Done(serial)) => permit.done(Effect::Created, &serial).await,
            Some(Answer::FailedDirty(serial)) => permit.failed(Effect::Unknown, &serial).await,
            Some(Answer::FailedClean) => permit.failed(Effect::Noop, "declined").await,
            Some(Answer::Refused) if chance < 120 => permit.reject("refused").await,
            Some(Answer::Refused) => permit.not_done("refused").await,
            None if self.sim.has(Bug::LostReplyIsNotDone) => permit.not_done("no reply").await,
            None => permit.unknown("no reply").await,
        }
    }

    /// Stores the answer piece by piece first.
    async fn stream(&self, permit: Permit, serial: u64) -> semel::Result<Receipt> {
        let bytes = payload_of(serial);
        let payload = Payload::of(&bytes);
        let chunk = Chunk { stream: 1, bytes };
        match permit.append(vec![chunk]).await {
            Ok(()) => {
                self.saw(Seen::Did("streamed"));
                permit.finish_streamed(true, Effect::Created, payload).await
            }
            Err(_) => permit.done(Effect::Created, &serial).await,
        }
    }

    /// Takes the receipt of a report, and nothing else, as the answer.
    fn reported(
        &self,
        key: usize,
        since: u64,
        acted: Option<(Answer, Fence)>,
        reported: Option<semel::Result<Receipt>>,
    ) -> Next {
        match reported {
            None => Next::Again,
            Some(Ok(receipt)) => {
                self.hear(key, since, &receipt);
                Next::Rest
            }
            Some(Err(error)) => {
                let done = acted.filter(|(answer, _)| *answer != Answer::Refused);
                if let (Error::Refused(_), Some((_, fence))) = (&error, done) {
                    self.sim.with(|s| s.checker.refused_done(key, fence));
                }
                self.fail(&error)
            }
        }
    }

    async fn look(&self, call: Call, permit: Permit, since: u64) -> Next {
        let key = call.key;
        if self.sim.has(Bug::ProbeActs) {
            let answer = self.sim.send(&self.process, key, Some(permit.fence()));
            let answer = self.hear_world(answer).await;
            let reported = self.report(permit, answer).await;
            return self.reported(key, since, None, Some(reported));
        }
        let found = self.look_up(key, permit.fence()).await;
        let report = async {
            match found {
                Found::Done(serial) => permit.done(Effect::Created, &serial).await,
                Found::NotDone => permit.not_done("not found").await,
                Found::Unknown => permit.unknown("cannot tell").await,
            }
        };
        let reported = self.patiently(call.patience, report).await;
        self.process.point(Point::AfterSettle).await;
        self.reported(key, since, None, reported)
    }

    /// Looks whether a doubted effect happened.
    pub(crate) async fn look_up(&self, key: usize, fence: Fence) -> Found {
        self.process.point(Point::BeforeLook).await;
        let upstream = self.plan(key).upstream;
        let (found, shrugs) = self.sim.with(|s| {
            let attempts = s.checker.open_attempts(key);
            let found = s.world.look(key, upstream, Some(fence), &attempts);
            s.say(
                &self.process.name,
                format_args!("looks for {attempts:?} of k{key} and finds {found:?}"),
            );
            (found, !s.calm && s.rng.chance(100))
        });
        self.process.point(Point::AfterLook).await;
        if self.sim.has(Bug::ProbeDoesNotLook) {
            return Found::NotDone;
        }
        match found {
            _ if shrugs => Found::Unknown,
            Some(serial) => Found::Done(serial.into()),
            None => Found::NotDone,
        }
    }

    /// Describes an action and lets the library run it.
    pub(crate) async fn by_run(&self, call: Call) -> Next {
        let (key, plan) = (call.key, self.plan(call.key));
        self.process.point(Point::BeforeClaim).await;
        let since = self.sim.with(|s| s.checker.tick());
        let amount = if call.stranger { 2 } else { 1 };
        let mut action = self
            .engine
            .effect("pay", plan.key.clone())
            .input(&BTreeMap::from([("amount", amount)]))
            .on_doubt(plan.on_doubt)
            .settle_delay(plan.settle_delay)
            .effect(Effect::Created)
            .retention(plan.retention)
            .lease(plan.lease)
            .wait(call.wait);
        if let Some(limit) = plan.max_attempts {
            action = action.max_attempts(limit);
        }
        if plan.on_doubt == OnDoubt::Probe {
            let agent = self.clone();
            action = action
                .probe(move |attempt| async move { agent.look_up(key, attempt.fence()).await });
        }
        let acted = Arc::new(Mutex::new(None));
        let (agent, ours) = (self.clone(), Arc::clone(&acted));
        let run = action.run(move |attempt| async move { agent.act(key, &attempt, &ours).await });
        let Some(run) = self.patiently(call.patience, run).await else {
            return Next::Again;
        };
        self.process.point(Point::AfterSettle).await;
        let acted = *acted.lock().expect("nobody panics with it");
        match run {
            Ok(completed) => self.reported(key, since, acted, Some(Ok(completed.receipt))),
            Err(Error::Failed(receipt) | Error::Interrupted { receipt, .. }) => {
                self.reported(key, since, acted, Some(Ok(*receipt)))
            }
            Err(error) => self.reported(key, since, acted, Some(Err(error))),
        }
    }

    /// The action itself: it starts nothing after its deadline, and says only what it knows.
    async fn act(
        &self,
        key: usize,
        attempt: &Attempt,
        acted: &Mutex<Option<(Answer, Fence)>>,
    ) -> Result<u64, Failure> {
        self.process.point(Point::AfterClaim).await;
        let late = Instant::now().into_std() >= attempt.deadline();
        if late && !self.sim.has(Bug::EffectAfterDeadline) {
            return Err(Failure::not_applied("too late"));
        }
        let answer = self.sim.send(&self.process, key, Some(attempt.fence()));
        let answer = self.hear_world(answer).await;
        self.process.point(Point::AfterEffect).await;
        *acted.lock().expect("nobody panics with it") =
            answer.map(|answer| (answer, attempt.fence()));
        match answer {
            Some(Answer::Done(serial)) => Ok(serial),
            Some(Answer::FailedDirty(serial)) => Err(Failure::failed(serial.to_string())),
            Some(Answer::FailedClean) => Err(Failure::failed_noop("declined")),
            Some(Answer::Refused) => Err(Failure::not_applied("refused")),
            None if self.sim.has(Bug::LostReplyIsNotDone) => Err(Failure::not_applied("no reply")),
            None => Err(Failure::unknown("no reply")),
        }
    }
}
