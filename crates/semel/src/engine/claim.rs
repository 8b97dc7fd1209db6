//! Claims: asking to carry an operation out, and waiting for whoever does.

use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::{
    Begin, Command, Expire, Grant, Record, Rejection, Reply, Sighting, StateKind,
};
use tokio::time::Instant;

use super::finish::Finish;
use super::ledger::{Applied, Brought, Subject};
use super::replays::{Saved, Saver, took};
use super::{Inner, wait};
use crate::error::{Error, Result};
use crate::receipt::{Receipt, policy_kept};
use crate::store::{Current, StoreError};

/// What a claim came to; `G` is what its caller is given to act with.
#[derive(Debug)]
pub enum Claimed<G> {
    /// Act, or look up, and say what came of it.
    Granted(G),
    /// It was done before: this is the answer.
    Replay(Receipt),
    /// Another attempt runs: come back then.
    Wait {
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// Nobody knows whether an earlier attempt took effect.
    InDoubt(Arc<Record>),
}

/// Makes what the caller is given from what was granted; the instant is from before it was asked for.
pub(super) type Give<G> = fn(&Claim, Grant, Current, Instant) -> G;

/// How long a caller is told to wait when nothing better is known.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Inner {
    /// Begins, waiting for a running duplicate until the deadline.
    pub(super) async fn claimed<G: Send + 'static>(
        &self,
        mut claim: Claim,
        deadline: Instant,
        give: Give<G>,
    ) -> Result<Claimed<G>> {
        let mut pause = wait::POLL_FIRST;
        loop {
            let waiter = (Instant::now() < deadline)
                .then(|| self.ledger.waiters.register(claim.subject.hash));
            let notified = waiter.as_ref().map(wait::Waiter::notified);
            // Once sent, a claim is followed to its end: a permit that nobody takes is given back.
            // Between two claims a caller that goes away leaves nothing behind.
            let sent = Finish::new(self.runtime.clone(), claim.send(give));
            let answer;
            (claim, answer) = sent.await;
            let retry_after = match answer? {
                Claimed::Wait { retry_after } => retry_after,
                answer @ (Claimed::Granted(_) | Claimed::Replay(_) | Claimed::InDoubt(_)) => {
                    return Ok(answer);
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(notified) = notified.filter(|_| !left.is_zero()) else {
                return Ok(Claimed::Wait { retry_after });
            };
            claim.inner.listens();
            tokio::select! {
                biased;
                () = notified => {}
                () = tokio::time::sleep(pause.min(left)) => {}
            }
            pause = (pause * 2).min(wait::POLL_MAX);
        }
    }
}

/// The pauses before a claim is sent again whose fate is not known.
const UNKNOWN_PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
];

/// For how long a claim whose fate is not known is sent again: a store that takes that long to say so has
/// tried by itself.
const UNKNOWN_WITHIN: Duration = Duration::from_secs(10);

/// A claim on its way.
pub(super) struct Claim {
    pub(super) inner: Arc<Inner>,
    pub(super) subject: Subject,
    pub(super) begin: Begin,
    pub(super) brought: Brought,
    /// What a replay is counted for; `None` where its door counts itself.
    pub(super) saver: Option<Saver>,
}

impl Claim {
    /// Begins once, and hands itself back for another time.
    async fn send<G: Send + 'static>(mut self, give: Give<G>) -> (Self, Result<Claimed<G>>) {
        let answer = self.once(give).await;
        (self, answer)
    }

    /// Begins once, and once more when the present holder turns out to be gone.
    async fn once<G: Send + 'static>(&mut self, give: Give<G>) -> Result<Claimed<G>> {
        let sent = Instant::now();
        let command = Command::Begin(self.begin.clone());
        let applied = self.claim(None, &command).await;
        let refusal = match applied {
            Ok(applied) => return self.answer(applied, sent, give).await,
            Err(Error::Refused(refusal)) => refusal,
            Err(other) => return Err(other),
        };
        match refusal.rejection {
            Rejection::InFlight { until } => {
                if let Some(sighting) = self.sight(refusal.record.as_deref()) {
                    // The doubt is stored, not only answered: nobody could resolve it otherwise
                    // before the lease ends.
                    let gone = Some(sighting.fence);
                    let expire = Command::Expire(Expire { gone });
                    let ledger = &self.inner.ledger;
                    ledger
                        .apply(&self.subject, None, &expire, &Brought::default())
                        .await?;
                    self.begin.sighting = Some(sighting);
                    return Box::pin(self.once(give)).await;
                }
                let now = self.inner.ledger.store.now();
                let retry_after = until.map_or(RETRY_AFTER, |until| until.since(now));
                Ok(Claimed::Wait {
                    retry_after: retry_after.min(RETRY_AFTER),
                })
            }
            Rejection::InDoubt { .. } => match refusal.record {
                Some(record) => Ok(Claimed::InDoubt(record)),
                None => Err(Error::Refused(refusal)),
            },
            Rejection::KeyReused
            | Rejection::Dead
            | Rejection::Expired
            | Rejection::Fenced
            | Rejection::Refused { .. }
            | Rejection::NotFound
            | Rejection::BreakerOpen { .. } => Err(Error::Refused(refusal)),
        }
    }

    /// Begins what was just found; whoever was overtaken is refused.
    pub(super) async fn assuming<G>(
        &self,
        found: Option<Current>,
        give: Give<G>,
    ) -> Result<Claimed<G>> {
        let sent = Instant::now();
        let command = Command::Begin(self.begin.clone());
        let applied = self.claim(found, &command).await?;
        self.answer(applied, sent, give).await
    }

    /// Sends the claim; when nobody knows whether it was stored it is sent again, as the same attempt
    /// gets the same grant, and a claim that nobody holds would be a doubt about nothing.
    async fn claim(&self, assumed: Option<Current>, command: &Command) -> Result<Applied> {
        let ledger = &self.inner.ledger;
        let first = Instant::now();
        for pause in UNKNOWN_PAUSES {
            match ledger
                .apply(&self.subject, assumed.clone(), command, &self.brought)
                .await
            {
                Err(Error::Store(StoreError::Unknown(_))) if first.elapsed() < UNKNOWN_WITHIN => {
                    tokio::time::sleep(pause).await;
                }
                answer => return answer,
            }
        }
        ledger
            .apply(&self.subject, None, command, &self.brought)
            .await
    }

    /// Finds out whether the present holder is provably gone, unless that was said already.
    fn sight(&self, record: Option<&Record>) -> Option<Sighting> {
        let operation = record?.operation()?;
        let attempt = operation
            .latest()
            .filter(|_| operation.state.kind() == StateKind::Running)?;
        let said = self
            .begin
            .sighting
            .is_some_and(|sighting| sighting.fence == attempt.fence);
        let gone = !said && self.inner.ledger.is_gone(&self.subject, attempt);
        gone.then_some(Sighting {
            fence: attempt.fence,
            alive: false,
        })
    }

    async fn answer<G>(
        &self,
        applied: Applied,
        sent: Instant,
        give: Give<G>,
    ) -> Result<Claimed<G>> {
        match applied.reply {
            Reply::Granted(grant) => Ok(Claimed::Granted(give(self, grant, applied.current, sent))),
            Reply::Replay => {
                let mut receipt = self
                    .inner
                    .receipt(&applied.current, true, None, applied.at)
                    .await?;
                if let (Some(saver), Some(record)) = (&self.saver, applied.current.record()) {
                    let saved = Saved::call(took(record), None);
                    self.inner.replays.add(saver, &saved);
                }
                receipt.policy_kept = policy_kept(&self.begin.spec, &applied.current);
                Ok(Claimed::Replay(receipt))
            }
            Reply::Submitted { .. }
            | Reply::Renewed { .. }
            | Reply::Reported(_)
            | Reply::Ordered(_)
            | Reply::Breaker(_)
            | Reply::Kept
            | Reply::Refused(_) => {
                let text = "a claim was answered with something else".to_owned();
                Err(StoreError::Corrupt(text).into())
            }
        }
    }
}
