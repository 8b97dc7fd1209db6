//! What operators do: each command names the version that it was decided on.

use std::sync::Arc;

use semel_core::ledger::{
    Attempt, Command, Expire, Fence, Order, Record, Reply, Resolution, Resolve, Version,
};
use semel_core::{Effect, Key, Label, Namespace, Note, Outcome, Payload};

use super::Engine;
use super::ledger::{Brought, Bytes, Subject};
use crate::error::Result;
use crate::receipt::Receipt;
use crate::store::Current;

/// A person, or a program on a person's behalf, who decides about one operation.
#[derive(Clone, Debug)]
pub struct Operator {
    engine: Engine,
    subject: Subject,
    order: Order,
}

impl Engine {
    /// Starts an operator's command on what was read: on another version it is refused.
    #[must_use]
    pub fn operator(
        &self,
        namespace: &Namespace,
        key: &Key,
        version: Version,
        by: Label,
    ) -> Operator {
        Operator {
            engine: self.clone(),
            subject: Subject::new(namespace, key),
            order: Order {
                version,
                by,
                note: None,
            },
        }
    }

    /// Says whether a process that an attempt started is provably alive, though its holder may be
    /// gone.
    #[must_use]
    pub fn is_held(&self, namespace: &Namespace, key: &Key, fence: Fence) -> bool {
        let subject = Subject::new(namespace, key);
        self.inner.ledger.is_held(&subject, fence)
    }

    /// Says whether a process that an attempt started may be alive. Where this user may not look, it
    /// may be.
    #[must_use]
    pub fn may_be_held(&self, namespace: &Namespace, key: &Key, fence: Fence) -> bool {
        let subject = Subject::new(namespace, key);
        self.inner.ledger.may_be_held(&subject, fence)
    }

    /// Says whether the process that holds an attempt, and what it started, are provably gone.
    #[must_use]
    pub fn is_gone(&self, namespace: &Namespace, key: &Key, attempt: &Attempt) -> bool {
        let subject = Subject::new(namespace, key);
        self.inner.ledger.is_gone(&subject, attempt)
    }

    /// Stores the doubt of a running operation whose holder is provably gone, so that it can be
    /// resolved before the lease ends; returns what is stored then.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn notice_gone(
        &self,
        namespace: &Namespace,
        key: &Key,
    ) -> Result<Option<Arc<Record>>> {
        let subject = Subject::new(namespace, key);
        let ledger = &self.inner.ledger;
        let current = ledger.store.load(&subject.hash).await?;
        let gone = current
            .record()
            .and_then(Record::operation)
            .and_then(|operation| {
                operation.lease_until()?;
                let attempt = operation.latest()?;
                let gone = ledger.is_gone(&subject, attempt);
                gone.then_some(attempt.fence)
            });
        let current = if gone.is_some() {
            let expire = Command::Expire(Expire { gone });
            let applied = ledger
                .apply(&subject, None, &expire, &Brought::default())
                .await?;
            applied.current
        } else {
            current
        };
        Ok(match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(stored.record),
        })
    }
}

impl Operator {
    /// Says why.
    #[must_use]
    pub fn note(mut self, note: Note) -> Self {
        self.order.note = Some(note);
        self
    }

    /// Settles a doubt: the effect happened.
    ///
    /// # Errors
    /// `fenced` on another version or in a state that has no doubt; `in_flight` while an attempt
    /// runs.
    pub async fn resolve_done(
        self,
        ok: bool,
        effect: Effect,
        data: Option<Vec<u8>>,
    ) -> Result<Receipt> {
        let payload = data.as_deref().map(Payload::of);
        let resolution = Resolution::Done(Outcome {
            ok,
            effect,
            payload,
        });
        let order = self.order.clone();
        self.give(Command::Resolve(Resolve { order, resolution }), data)
            .await
    }

    /// Settles a doubt: the effect did not happen.
    ///
    /// # Errors
    /// As [`Operator::resolve_done`].
    pub async fn resolve_not_done(self) -> Result<Receipt> {
        let order = self.order.clone();
        let resolution = Resolution::NotDone;
        self.give(Command::Resolve(Resolve { order, resolution }), None)
            .await
    }

    /// Gives a failed or dead operation fresh attempts.
    ///
    /// # Errors
    /// `in_doubt` for a doubtful operation: resolve it first.
    pub async fn retry(self) -> Result<Receipt> {
        let command = Command::Retry(self.order.clone());
        self.give(command, None).await
    }

    /// Ends an operation that was not applied.
    ///
    /// # Errors
    /// `in_flight` or `in_doubt` when it may have been.
    pub async fn cancel(self) -> Result<Receipt> {
        let command = Command::Cancel(self.order.clone());
        self.give(command, None).await
    }

    /// Erases a settled operation: its key may be used for something else.
    ///
    /// # Errors
    /// `fenced` when it is not settled.
    pub async fn forget(self) -> Result<()> {
        let command = Command::Forget(self.order.clone());
        let ledger = &self.engine.inner.ledger;
        ledger
            .apply(&self.subject, None, &command, &Brought::default())
            .await?;
        Ok(())
    }

    async fn give(self, command: Command, data: Option<Vec<u8>>) -> Result<Receipt> {
        let inner = &self.engine.inner;
        let brought = Brought {
            payload: data.map(|bytes| Bytes::Here(bytes.into())),
            ..Brought::default()
        };
        let applied = inner
            .ledger
            .apply(&self.subject, None, &command, &brought)
            .await?;
        let replayed = matches!(applied.reply, Reply::Replay);
        let mut receipt = inner
            .receipt(&applied.current, replayed, None, applied.at)
            .await?;
        if let Reply::Ordered(ordered) = applied.reply {
            receipt.previous_effect = ordered.previous_effect;
            // What is not over cannot have failed: the order itself was carried out.
            receipt.ok |= receipt.state.is_open();
        }
        Ok(receipt)
    }
}
