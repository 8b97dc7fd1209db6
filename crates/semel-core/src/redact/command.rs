//! Commands: what people read of them is redacted before they are decided.

use std::borrow::Cow;
use std::sync::Arc;

use super::Redactor;
use crate::breaker::{self, Act, Ask};
use crate::ledger::{Adopt, Begin, Command, Order, Resolve, Settle, Spec, Submit};
use crate::text::Note;
use crate::verdict::Verdict;

impl Redactor {
    /// Returns a command whose texts have no secrets: errors, notes, and who is behind it.
    ///
    /// What makes it work stays: namespace, key, name, fingerprint, queue, ids and digests.
    #[must_use]
    pub fn command<'a>(&self, command: &'a Command) -> Cow<'a, Command> {
        let redacted = match command {
            Command::Submit(submit) => self.spec(&submit.spec).map(|spec| {
                let submit = submit.clone();
                Command::Submit(Submit { spec, ..submit })
            }),
            Command::Begin(begin) => self.spec(&begin.spec).map(|spec| {
                let begin = begin.clone();
                Command::Begin(Begin { spec, ..begin })
            }),
            Command::Settle(settle) => self.verdict(&settle.verdict).map(|verdict| {
                let settle = settle.clone();
                Command::Settle(Settle { verdict, ..settle })
            }),
            Command::Resolve(resolve) => self.order(&resolve.order).map(|order| {
                let resolution = resolve.resolution;
                Command::Resolve(Resolve { order, resolution })
            }),
            Command::Retry(order) => self.order(order).map(Command::Retry),
            Command::Cancel(order) => self.order(order).map(Command::Cancel),
            Command::Forget(order) => self.order(order).map(Command::Forget),
            Command::Adopt(adopt) => self.finds(adopt.by.as_str()).then(|| {
                let by = self.label(&adopt.by);
                let fence_step = adopt.fence_step;
                Command::Adopt(Adopt { fence_step, by })
            }),
            Command::Breaker(ask) => self.ask(ask).map(|ask| Command::Breaker(Box::new(ask))),
            Command::Renew(_)
            | Command::Expire(_)
            | Command::Bury(_)
            | Command::Drop(_)
            | Command::Deliver(_) => None,
        };
        redacted.map_or(Cow::Borrowed(command), Cow::Owned)
    }

    fn spec(&self, spec: &Arc<Spec>) -> Option<Arc<Spec>> {
        let labels = [&spec.door, &spec.principal].into_iter().flatten();
        let mut labels = labels.filter(|label| self.finds(label.as_str()));
        labels.next()?;
        Some(Arc::new(Spec {
            door: spec.door.as_ref().map(|door| self.label(door)),
            principal: spec.principal.as_ref().map(|label| self.label(label)),
            ..Spec::clone(spec)
        }))
    }

    fn verdict(&self, verdict: &Verdict) -> Option<Verdict> {
        match verdict {
            Verdict::Done(_) => None,
            Verdict::NotDone {
                reject,
                error,
                retry_after,
            } => {
                let error = self.changed(error.as_ref()?)?;
                let reject = *reject;
                Some(Verdict::NotDone {
                    reject,
                    error,
                    retry_after: *retry_after,
                })
            }
            Verdict::Unknown { error } => {
                let error = self.changed(error.as_ref()?)?;
                Some(Verdict::Unknown { error })
            }
        }
    }

    fn order(&self, order: &Order) -> Option<Order> {
        let note = order.note.as_ref().and_then(|note| self.changed(note));
        if note.is_none() && !self.finds(order.by.as_str()) {
            return None;
        }
        Some(Order {
            by: self.label(&order.by),
            note: note.unwrap_or_else(|| order.note.clone()),
            ..order.clone()
        })
    }

    fn ask(&self, ask: &Ask) -> Option<Ask> {
        let act = match &ask.act {
            Act::Admit(_) | Act::Report(_) => None,
            Act::Open(order, length) => {
                let order = self.breaker_order(order);
                order.map(|order| Act::Open(order, *length))
            }
            Act::Close(order) => self.breaker_order(order).map(Act::Close),
            Act::Reset(order) => self.breaker_order(order).map(Act::Reset),
        };
        act.map(|act| Ask { act, ..ask.clone() })
    }

    fn breaker_order(&self, order: &breaker::Order) -> Option<breaker::Order> {
        let note = order.note.as_ref().and_then(|note| self.changed(note));
        if note.is_none() && !self.finds(order.by.as_str()) {
            return None;
        }
        Some(breaker::Order {
            by: self.label(&order.by),
            note: note.unwrap_or_else(|| order.note.clone()),
            ..order.clone()
        })
    }

    /// Returns what a note is to be, where that is something else.
    fn changed(&self, note: &Note) -> Option<Option<Note>> {
        let redacted = self.note(note);
        (redacted.as_ref() != Some(note)).then_some(redacted)
    }
}
