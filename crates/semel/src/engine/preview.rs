//! Dry runs: what a call would do, without doing or writing anything.

use std::sync::Arc;
use std::time::Duration;

use semel_core::AttemptId;
use semel_core::ledger::{AttemptKind, Begin, Command, Decision, Record, Rejection, Reply};

use super::claim::RETRY_AFTER;
use super::ledger::Subject;
use super::{Engine, Request};
use crate::error::Result;
use crate::receipt::Receipt;
use crate::store::{Current, StoreError};

/// What a call would be told.
#[derive(Debug)]
pub enum Preview {
    /// It would act, as the attempt of this number.
    Execute {
        /// The number.
        attempt: u32,
    },
    /// It would look up what came of an earlier attempt first.
    Probe,
    /// It was done before: this is the answer.
    Replay(Receipt),
    /// Another attempt runs.
    Wait {
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// Nobody knows whether an earlier attempt took effect.
    InDoubt(Arc<Record>),
}

impl Engine {
    /// Says what [`Engine::begin`] would answer now; nothing is written, and nothing is promised.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub async fn preview(&self, request: Request) -> Result<Preview> {
        let ledger = &self.inner.ledger;
        let request = request.settled_in(self.namespace());
        let subject = Subject::new(&request.namespace, &request.key);
        let command = Command::Begin(Begin {
            spec: request.spec()?,
            attempt: AttemptId::from_random(self.inner.ids.next()?),
            lease: request.lease,
            holder: self.inner.holder.clone(),
            worker: false,
            sighting: None,
        });
        let current = ledger.store.load(&subject.hash).await?;
        let now = ledger.store.now();
        let seen = ledger.seen_alive(&subject, current.record(), &command, now);
        let decision = ledger.decide(current.record(), seen.as_ref().unwrap_or(&command), now);
        match decision {
            Ok(Decision::Write(write)) => match write.reply {
                Reply::Granted(grant) => Ok(match grant.kind {
                    AttemptKind::Act => Preview::Execute {
                        attempt: grant.number,
                    },
                    AttemptKind::Probe => Preview::Probe,
                }),
                _ => self.replay_of(&current).await,
            },
            Ok(Decision::Answer(_)) => self.replay_of(&current).await,
            Err(Rejection::InFlight { until }) => {
                let retry_after = until.map_or(RETRY_AFTER, |until| until.since(now));
                Ok(Preview::Wait { retry_after })
            }
            Err(rejection) => match (rejection, &current) {
                (Rejection::InDoubt { .. }, Current::Stored(stored)) => {
                    Ok(Preview::InDoubt(Arc::clone(&stored.record)))
                }
                _ => Err(subject.refused(rejection, &current)),
            },
        }
    }

    async fn replay_of(&self, current: &Current) -> Result<Preview> {
        let now = self.inner.ledger.store.now();
        let settled = current.record().and_then(Record::operation);
        if settled.is_none_or(|operation| operation.settled().is_none()) {
            // Evidence of a late attempt would settle it; that needs a write, which is not done here.
            let text = "what a dry run would answer is not stored yet".to_owned();
            return Err(StoreError::Unavailable(text).into());
        }
        let receipt = self.inner.receipt(current, true, None, now).await?;
        Ok(Preview::Replay(receipt))
    }
}
