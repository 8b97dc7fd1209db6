//! Attempts that their callers keep themselves: processes that speak by attempt id and fence.

use std::sync::Arc;

use semel_core::ledger::{
    AttemptKind, Command, Decision, Fence, Grant, Record, Renew, Reply, Settle, StateKind,
};
use semel_core::{AttemptId, Digest, Key, Namespace, Timestamp, Verdict};
use tokio::time::Instant;

use super::claim::{Claim, Claimed};
use super::ledger::{Applied, Brought, Bytes, Subject, payload_of};
use super::{Engine, Inner, Request};
use crate::error::{Error, Result};
use crate::receipt::{Receipt, policy_kept};
use crate::store::{Current, StoreError};

/// The terms of an attempt.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The attempt's id.
    pub attempt_id: AttemptId,
    /// Whether it is to look up only, and to touch nothing.
    pub is_probe: bool,
    /// Its fence.
    pub fence: Fence,
    /// Its number, from 1.
    pub attempt: u32,
    /// Until when it may act.
    pub lease_until: Timestamp,
    /// The digest of the probe that the first call brought.
    pub probe_digest: Option<Digest>,
    /// The policies that stand, where this call asked for others.
    pub policy_kept: Option<String>,
}

impl Granted {
    fn give(claim: &Claim, grant: Grant, current: Current, _sent: Instant) -> Self {
        let operation = current.record().and_then(Record::operation);
        Self {
            attempt_id: claim.begin.attempt.clone(),
            is_probe: grant.kind == AttemptKind::Probe,
            fence: grant.fence,
            attempt: grant.number,
            lease_until: grant.lease_until,
            probe_digest: operation.and_then(|operation| operation.spec.probe_digest),
            policy_kept: policy_kept(&claim.begin.spec, &current),
        }
    }
}

/// What a command would do.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// What is stored now.
    pub record: Option<Arc<Record>>,
    /// The state as of now.
    pub before: Option<StateKind>,
    /// The state that it would lead to; `None` when nothing would change.
    pub after: Option<StateKind>,
    /// As of when.
    pub at: Timestamp,
}

impl Engine {
    /// Asks to carry an operation out, for a caller that keeps its attempt itself: it renews the
    /// lease and reports by the attempt's id and fence. Asking again with the same id, because the
    /// reply was lost, gets the same grant.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub async fn claim(
        &self,
        request: Request,
        attempt: Option<AttemptId>,
    ) -> Result<Claimed<Granted>> {
        let deadline = Instant::now() + request.wait;
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => AttemptId::from_random(self.inner.ids.next()?),
        };
        let claim = self.claim_of(request, attempt, None).await?;
        self.inner.claimed(claim, deadline, Granted::give).await
    }

    /// Renews the lease of an attempt that its caller keeps; returns the new end.
    ///
    /// # Errors
    /// `fenced` when the lease has ended, or the attempt is not the running one.
    pub async fn renew_attempt(
        &self,
        namespace: &Namespace,
        key: &Key,
        renew: Renew,
    ) -> Result<Timestamp> {
        let subject = Subject::new(namespace, key);
        let command = Command::Renew(renew);
        let applied = self
            .inner
            .ledger
            .apply(&subject, None, &command, &Brought::default())
            .await?;
        match applied.reply {
            Reply::Renewed { lease_until } => Ok(lease_until),
            _ => Err(unexpected("a renewal")),
        }
    }

    /// Takes the report of an attempt that its caller keeps; `data` is the answer whose digest the
    /// verdict names. The same report again gets the same receipt.
    ///
    /// # Errors
    /// `fenced` when the attempt may not settle, or is none of this operation's.
    pub async fn report(
        &self,
        namespace: &Namespace,
        key: &Key,
        settle: Settle,
        data: Option<Vec<u8>>,
    ) -> Result<Receipt> {
        let subject = Subject::new(namespace, key);
        let settle = self.budgeted(&subject, settle).await?;
        let brought = Brought {
            payload: data.map(|bytes| Bytes::Here(bytes.into())),
            ..Brought::default()
        };
        let command = Command::Settle(settle);
        let ledger = &self.inner.ledger;
        let applied = ledger.apply(&subject, None, &command, &brought).await?;
        self.inner.reported(&applied, &brought).await
    }

    /// A task that is to be tried again keeps to its queue's budget.
    async fn budgeted(&self, subject: &Subject, settle: Settle) -> Result<Settle> {
        if !matches!(settle.verdict, Verdict::NotDone { reject: false, .. }) {
            return Ok(settle);
        }
        let current = self.inner.ledger.store.load(&subject.hash).await?;
        let operation = current.record().and_then(Record::operation);
        let verdict = self.inner.budgeted(operation, settle.verdict);
        Ok(Settle { verdict, ..settle })
    }

    /// Says what a command would do; nothing is written, and nothing is promised.
    ///
    /// # Errors
    /// As the command itself.
    pub async fn rehearse(
        &self,
        namespace: &Namespace,
        key: &Key,
        command: &Command,
    ) -> Result<Rehearsal> {
        let ledger = &self.inner.ledger;
        let subject = Subject::new(namespace, key);
        let current = ledger.store.load(&subject.hash).await?;
        let at = ledger.store.now();
        let command = ledger.redactor.command(command);
        let decision = (ledger.rules)(current.record(), &command, at);
        let after = match decision.map_err(|rejection| subject.refused(rejection, &current))? {
            Decision::Write(write) => match write.reply {
                Reply::Refused(rejection) => return Err(subject.refused(rejection, &current)),
                Reply::Replay => None,
                _ => write.next.as_ref().map(Record::kind),
            },
            Decision::Answer(_) => None,
        };
        let record = match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(stored.record),
        };
        let before = record.as_deref().map(|record| record.kind_at(at));
        Ok(Rehearsal {
            record,
            before,
            after,
            at,
        })
    }
}

impl Inner {
    /// Answers a report from what the store said, never from what this process holds in memory.
    pub(super) async fn reported(&self, applied: &Applied, brought: &Brought) -> Result<Receipt> {
        let (conflict, repeated) = match &applied.reply {
            Reply::Reported(reported) => (reported.conflict, reported.repeated),
            _ => (false, false),
        };
        let stored = applied.current.record().and_then(payload_of);
        // What was brought may be more than what was stored.
        let exact = !stored.is_some_and(|payload| payload.redacted);
        let own = match &brought.payload {
            Some(Bytes::Here(bytes)) if !conflict && !repeated && exact => Some(Arc::clone(bytes)),
            Some(_) | None => None,
        };
        self.receipt(&applied.current, conflict, own, applied.at)
            .await
    }

    /// Answers a refused report with the stored outcome, if there is one.
    pub(super) async fn outcome_instead(&self, subject: &Subject, error: Error) -> Result<Receipt> {
        let Error::Refused(refusal) = &error else {
            return Err(error);
        };
        let settled = refusal.record.as_ref().is_some_and(|record| {
            matches!(record.kind(), StateKind::Succeeded | StateKind::Failed)
        });
        if !settled {
            return Err(error);
        }
        let current = self.ledger.store.load(&subject.hash).await?;
        let now = self.ledger.store.now();
        self.receipt(&current, true, None, now).await
    }
}

fn unexpected(what: &str) -> Error {
    StoreError::Corrupt(format!("{what} was answered with something else")).into()
}
