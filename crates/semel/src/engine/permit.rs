//! Permits: the right to act, and the duty to say what came of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::ledger::{AttemptKind, Command, Fence, Grant, Record, Renew, Reply, Settle, Spec};
use semel_core::queue::RETRY_AFTER_MAX;
use semel_core::{
    AttemptId, Digest, Effect, Key, Lease, Note, Outcome, Payload, Timestamp, Verdict,
};
use serde::Serialize;
use tokio::time::Instant;

use super::Inner;
use super::claim::Claim;
use super::ledger::{Applied, Brought, Bytes, Subject};
use super::renew::Renewal;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::receipt::{Receipt, policy_kept};
use crate::store::{Chunk, Current, Place, StoreError, make_notes};

/// The right to act once, until its deadline.
///
/// A permit must be ended by [`done`](Permit::done), [`failed`](Permit::failed),
/// [`not_done`](Permit::not_done) or [`unknown`](Permit::unknown), or by
/// [`commit`](Permit::commit) in a transaction that holds the effect. Dropping it is a doubt: the
/// effect may have happened, so the key is not free.
#[derive(Debug)]
#[must_use = "a dropped permit leaves its operation in doubt"]
pub struct Permit {
    held: Arc<Held>,
    /// Whether the caller has it: before that, nothing can have been done with it.
    handed: bool,
    ended: bool,
}

/// What a permit, its renewal and its report share.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) inner: Arc<Inner>,
    pub(crate) subject: Subject,
    pub(crate) key: Key,
    pub(crate) attempt: AttemptId,
    pub(crate) fence: Fence,
    pub(crate) number: u32,
    pub(crate) kind: AttemptKind,
    pub(crate) lease: Lease,
    /// What this call asked for; the first one's policies stand.
    asked: Arc<Spec>,
    /// Whether pieces of an answer were stored before its end.
    appended: AtomicBool,
    state: Mutex<HeldState>,
}

#[derive(Debug)]
struct HeldState {
    current: Current,
    deadline: Instant,
    /// Whether the lease may still be renewed: not after it was lost, nor after the report.
    renewable: bool,
    renewal: Option<Renewal>,
}

impl Permit {
    /// Makes a permit whose deadline counts from before the claim was sent.
    pub(super) fn granted(claim: &Claim, grant: Grant, current: Current, sent: Instant) -> Self {
        let (inner, begin) = (&claim.inner, &claim.begin);
        let (spec, lease) = (&begin.spec, begin.lease);
        let deadline = sent + lease.length();
        let held = Arc::new(Held {
            inner: Arc::clone(inner),
            subject: Subject::new(&spec.namespace, &spec.key),
            key: spec.key.clone(),
            attempt: begin.attempt.clone(),
            fence: grant.fence,
            number: grant.number,
            kind: grant.kind,
            lease,
            asked: Arc::clone(&begin.spec),
            appended: AtomicBool::new(false),
            state: Mutex::new(HeldState {
                current,
                deadline,
                renewable: true,
                renewal: None,
            }),
        });
        held.renew_again(deadline - lease.length() * 2 / 3);
        Self {
            held,
            handed: false,
            ended: false,
        }
    }

    /// As [`Permit::granted`], with the end of the lease by the store's clock.
    pub(super) fn granted_until(
        claim: &Claim,
        grant: Grant,
        current: Current,
        sent: Instant,
    ) -> (Self, Timestamp) {
        let lease_until = grant.lease_until;
        (Self::granted(claim, grant, current, sent), lease_until)
    }

    /// Leaves it to another process, which keeps the attempt itself.
    pub(super) fn let_go(mut self) {
        self.ended = true;
        self.held.stop_renewing();
    }

    pub(crate) fn hand_over(mut self) -> Self {
        self.handed = true;
        self
    }

    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// From now on dropping it reports nothing.
    pub(super) fn set_ended(&mut self) {
        self.ended = true;
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.held.key
    }

    /// Returns the fence: an upstream that keeps the highest one it saw can refuse older attempts.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// Returns the attempt's number, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.held.number
    }

    /// Returns the attempt's id.
    #[must_use]
    pub fn attempt_id(&self) -> &AttemptId {
        &self.held.attempt
    }

    /// Says whether the permit is to look up only, and to touch nothing.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.held.kind == AttemptKind::Probe
    }

    /// Returns the digest of the probe that the first call brought.
    #[must_use]
    pub fn probe_digest(&self) -> Option<Digest> {
        let state = self.held.lock();
        let operation = state.current.record()?.operation()?;
        operation.spec.probe_digest
    }

    /// Returns a key for an upstream that honours keys: the same for every attempt of this operation, and that of no
    /// other one, in this ledger or elsewhere, whatever its key and namespace are.
    #[must_use]
    pub fn upstream_key(&self) -> String {
        let state = self.held.lock();
        let operation = state.current.record().and_then(Record::operation);
        let created_at = operation.map_or(Timestamp(0), |operation| operation.created_at);
        self.held.subject.hash.upstream_key(created_at)
    }

    /// Returns until when an effect may be started; it moves while the lease is renewed.
    #[must_use]
    pub fn deadline(&self) -> std::time::Instant {
        self.held.deadline().into_std()
    }

    /// Says whether an effect may still be started.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Instant::now() < self.held.deadline()
    }

    /// Renews the lease now; permits are renewed by themselves at a third of their lease.
    ///
    /// # Errors
    /// `fenced` when the lease has ended: start nothing new, finish what runs, and report it.
    pub async fn renew(&self) -> Result<()> {
        self.held.renew(self.held.lease).await
    }

    /// Renews the lease once for longer, before this process is stopped for a while.
    ///
    /// # Errors
    /// As [`Permit::renew`].
    pub async fn renew_for(&self, lease: Lease) -> Result<()> {
        self.held.renew(lease).await
    }

    /// Takes a lock for a child process that is to carry the effect out: while the child lives, the
    /// operation is in flight, even when this process is gone and the lease has ended.
    ///
    /// # Errors
    /// Fails when the lock's file cannot be made, or the store has no directory for it.
    pub fn hold(&self) -> std::io::Result<Hold> {
        let directory = make_notes(&*self.held.inner.ledger.store)?;
        Hold::take(directory, &self.held.subject.hash, self.held.fence)
    }

    /// Stores the next pieces of what the action produces, before it ends.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn append(&self, chunks: Vec<Chunk>) -> Result<()> {
        let place = self.held.place()?;
        self.held.appended.store(true, Ordering::Relaxed);
        let store = &self.held.inner.ledger.store;
        Ok(store.append(place, self.held.fence, chunks).await?)
    }

    /// Reports that the action succeeded, with this effect and answer.
    ///
    /// # Errors
    /// [`Error::Unstored`] when the store cannot take it: then the operation is in doubt.
    pub async fn done<T: Serialize + ?Sized>(self, effect: Effect, data: &T) -> Result<Receipt> {
        let bytes = to_json(data)?;
        self.finish(true, effect, Some(bytes)).await
    }

    /// Reports that the action ran to its end and failed; a retry gets the same answer.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn failed<T: Serialize + ?Sized>(self, effect: Effect, data: &T) -> Result<Receipt> {
        let bytes = to_json(data)?;
        self.finish(false, effect, Some(bytes)).await
    }

    /// Reports the end of the action with an answer of any bytes, or none.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn finish(
        self,
        ok: bool,
        effect: Effect,
        payload: Option<Vec<u8>>,
    ) -> Result<Receipt> {
        let stored = payload.as_deref().map(Payload::of);
        let verdict = Verdict::Done(Outcome {
            ok,
            effect,
            payload: stored,
        });
        let held = Arc::clone(&self.held);
        let payload = payload.map(|bytes| Bytes::Here(bytes.into()));
        let receipt = self.end(verdict, payload).await?;
        if held.appended.load(Ordering::Relaxed) {
            // The answer has all of it. If this fails, the pieces go with the operation's retention.
            let store = &held.inner.ledger.store;
            drop(store.discard(held.place()?, held.fence).await);
        }
        Ok(receipt)
    }

    /// Reports the end of an action whose answer was stored piece by piece; `payload` is what the
    /// pieces amount to.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn finish_streamed(
        self,
        ok: bool,
        effect: Effect,
        payload: Payload,
    ) -> Result<Receipt> {
        let fence = self.held.fence;
        let verdict = Verdict::Done(Outcome {
            ok,
            effect,
            payload: Some(payload),
        });
        self.end(verdict, Some(Bytes::Streamed(fence))).await
    }

    /// Reports that the action provably did not happen: it is safe to try again.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn not_done(self, error: impl ToString) -> Result<Receipt> {
        let error = Note::from_lossy(&error.to_string());
        self.end(
            Verdict::NotDone {
                reject: false,
                error,
                retry_after: None,
            },
            None,
        )
        .await
    }

    /// As [`Permit::not_done`]; a task of a queue waits at least this long before its next attempt.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn not_done_for(self, error: impl ToString, wait: Duration) -> Result<Receipt> {
        let error = Note::from_lossy(&error.to_string());
        self.end(
            Verdict::NotDone {
                reject: false,
                error,
                retry_after: Some(wait.min(RETRY_AFTER_MAX)),
            },
            None,
        )
        .await
    }

    /// Reports that the action did not happen and never will: the operation is dead.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn reject(self, error: impl ToString) -> Result<Receipt> {
        let error = Note::from_lossy(&error.to_string());
        self.end(
            Verdict::NotDone {
                reject: true,
                error,
                retry_after: None,
            },
            None,
        )
        .await
    }

    /// Reports that nobody can tell what happened: a probe or a person resolves it.
    ///
    /// # Errors
    /// As [`Permit::done`].
    pub async fn unknown(self, error: impl ToString) -> Result<Receipt> {
        let error = Note::from_lossy(&error.to_string());
        self.end(Verdict::Unknown { error }, None).await
    }

    async fn end(mut self, verdict: Verdict, payload: Option<Bytes>) -> Result<Receipt> {
        self.ended = true;
        let held = Arc::clone(&self.held);
        let report = async move { held.report(verdict, payload).await };
        // Once begun, a report is finished even when the caller goes away.
        super::finish::Finish::new(self.held.inner.runtime.clone(), report).await
    }
}

pub(super) fn to_json<T: Serialize + ?Sized>(data: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(data).map_err(|error| {
        Error::InvalidInput(format!("the answer cannot be written as JSON: {error}"))
    })
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let verdict = if self.handed || self.is_probe() {
            // A probe that did not look must not say `not_done`: that would be about the attempt
            // which it was to look up.
            Verdict::Unknown {
                error: Note::from_lossy("the permit was dropped"),
            }
        } else {
            // The caller went away before it got the permit: nothing was done with it.
            Verdict::NotDone {
                reject: false,
                error: Note::from_lossy("the caller went away"),
                retry_after: None,
            }
        };
        let held = Arc::clone(&self.held);
        // If the runtime is gone too, the lease runs out, and that is the same doubt later.
        self.held
            .inner
            .runtime
            .spawn(async move { held.report(verdict, None).await });
    }
}

/// The first pause before a failed report is tried again, and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

impl Held {
    fn lock(&self) -> std::sync::MutexGuard<'_, HeldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.lock().deadline
    }

    /// Says when the lease is to be renewed next; `None` when it is not.
    pub(crate) fn renew_at(&self) -> Option<Instant> {
        let state = self.lock();
        state
            .renewable
            .then(|| state.deadline - self.lease.length() * 2 / 3)
    }

    /// Plans the next renewal, unless the permit has ended.
    pub(crate) fn renew_again(self: &Arc<Self>, at: Instant) {
        let mut state = self.lock();
        if state.renewable {
            state.renewal = Some(self.inner.renewals.add(at, self));
        }
    }

    pub(super) fn stop_renewing(&self) {
        let mut state = self.lock();
        state.renewable = false;
        if let Some(renewal) = state.renewal.take() {
            self.inner.renewals.remove(renewal);
        }
    }

    /// What is known of the record.
    pub(super) fn current(&self) -> Current {
        self.lock().current.clone()
    }

    fn place(&self) -> Result<Place> {
        match &self.lock().current {
            Current::Stored(stored) => Ok(stored.place),
            Current::Absent(_) => {
                Err(StoreError::Corrupt("a claimed operation is not there".to_owned()).into())
            }
        }
    }

    pub(crate) async fn renew(&self, lease: Lease) -> Result<()> {
        let sent = Instant::now();
        let (attempt, fence) = (self.attempt.clone(), self.fence);
        let command = Command::Renew(Renew {
            attempt,
            fence,
            lease,
        });
        let renewed = self.apply(&command, &Brought::default()).await;
        let mut state = self.lock();
        match renewed {
            Ok(Applied {
                reply: Reply::Renewed { .. },
                current,
                ..
            }) => {
                state.deadline = state.deadline.max(sent + lease.length());
                state.current = current;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                if error.rejection().is_some() {
                    state.renewable = false;
                }
                Err(error)
            }
        }
    }

    /// Makes the command that reports a verdict.
    pub(super) fn settle(&self, verdict: Verdict) -> Command {
        Command::Settle(Settle {
            attempt: self.attempt.clone(),
            fence: self.fence,
            verdict,
        })
    }

    pub(super) async fn apply(&self, command: &Command, brought: &Brought) -> Result<Applied> {
        let assumed = self.current();
        self.inner
            .ledger
            .apply(&self.subject, Some(assumed), command, brought)
            .await
    }

    /// Reports a verdict, again and again while the lease lasts if the store fails.
    pub(super) async fn report(
        self: Arc<Self>,
        verdict: Verdict,
        payload: Option<Bytes>,
    ) -> Result<Receipt> {
        let current = self.current();
        let operation = current.record().and_then(Record::operation);
        let command = self.settle(self.inner.budgeted(operation, verdict));
        let brought = Brought {
            payload,
            ..Brought::default()
        };
        // A note, or an answer that could not be stored, has no secrets in it either.
        let (command, brought) = self.inner.ledger.redacted(&command, &brought);
        // As of now: renewals may go on while the report fails, and the caller must not wait for ever.
        let give_up = self.deadline();
        let mut pause = RETRY_FIRST;
        let failure = loop {
            match self.apply(&command, &brought).await {
                Ok(applied) => {
                    self.stop_renewing();
                    return self.receipt(&applied, &brought).await;
                }
                Err(Error::Store(
                    failure @ (StoreError::Unavailable(_) | StoreError::Unknown(_)),
                )) => {
                    if Instant::now() + pause >= give_up {
                        break failure;
                    }
                }
                Err(Error::Store(failure)) => break failure,
                Err(other) => {
                    self.stop_renewing();
                    return self.fenced(other).await;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        };
        self.stop_renewing();
        let noted = match &failure {
            // No store will ever take it, so a note could never be delivered.
            StoreError::TooLarge { .. } => false,
            StoreError::Unavailable(_)
            | StoreError::Unknown(_)
            | StoreError::Corrupt(_)
            | StoreError::Refused(_)
            | StoreError::Unusable { .. }
            | StoreError::Unauthorized(_)
            | StoreError::Forbidden(_) => {
                let store = &*self.inner.ledger.store;
                super::note::keep(store, &self.subject, &command, &brought).is_ok()
            }
        };
        let payload = match brought.into_owned().payload {
            Some(Bytes::Here(bytes)) => Some(bytes),
            Some(Bytes::Streamed(_)) | None => None,
        };
        Err(Error::Unstored {
            payload,
            noted,
            source: failure,
        })
    }

    /// Makes the receipt of a report that was taken.
    pub(super) async fn receipt(&self, applied: &Applied, brought: &Brought) -> Result<Receipt> {
        let mut receipt = self.inner.reported(applied, brought).await?;
        receipt.policy_kept = policy_kept(&self.asked, &applied.current);
        Ok(receipt)
    }

    /// Answers a refused report.
    pub(super) async fn fenced(&self, error: Error) -> Result<Receipt> {
        self.inner.outcome_instead(&self.subject, error).await
    }
}
