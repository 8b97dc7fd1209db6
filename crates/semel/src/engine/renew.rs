//! One task that renews every lease of an engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::permit::Held;

/// How soon a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// The most leases that are renewed at once.
const TOGETHER_MAX: usize = 64;

/// The permits whose leases are renewed, by when.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    due: Mutex<Due>,
    earlier: Notify,
}

/// A registered renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal(Instant, u64);

#[derive(Debug, Default)]
struct Due {
    permits: BTreeMap<(Instant, u64), Weak<Held>>,
    next_number: u64,
    /// Until when the task sleeps.
    asleep_until: Option<Instant>,
}

impl Renewals {
    /// Registers a lease to be renewed at this time; it must be removed when its permit ends.
    pub(crate) fn add(&self, at: Instant, held: &Arc<Held>) -> Renewal {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let number = due.next_number;
        due.next_number += 1;
        due.permits.insert((at, number), Arc::downgrade(held));
        if due.asleep_until.is_none_or(|until| at < until) {
            due.asleep_until = Some(at);
            self.earlier.notify_one();
        }
        Renewal(at, number)
    }

    pub(crate) fn remove(&self, renewal: Renewal) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.permits.remove(&(renewal.0, renewal.1));
    }

    /// Takes what is due now, and says when the next one is.
    fn take_due(&self, now: Instant) -> (Vec<Weak<Held>>, Option<Instant>) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = vec![];
        while let Some(first) = due.permits.first_entry() {
            let at = first.key().0;
            if at > now || taken.len() == TOGETHER_MAX {
                break;
            }
            taken.push(first.remove());
        }
        due.asleep_until = due.permits.first_key_value().map(|((at, _), _)| *at);
        (taken, due.asleep_until)
    }

    /// Renews leases for ever; ends when the engine is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let (taken, next) = self.take_due(Instant::now());
            let renewed: Vec<_> = taken
                .iter()
                .filter_map(Weak::upgrade)
                .map(|held| tokio::spawn(renew(held)))
                .collect();
            for task in renewed {
                // A task that panicked or was cancelled leaves its lease to run out.
                if let Ok(Some((at, held))) = task.await {
                    held.renew_again(at);
                }
            }
            if next.is_some_and(|next| next <= Instant::now()) {
                continue;
            }
            let notified = self.earlier.notified();
            match next {
                Some(next) => {
                    tokio::select! {
                        biased;
                        () = notified => {}
                        () = tokio::time::sleep_until(next) => {}
                    }
                }
                None => notified.await,
            }
        }
    }
}

/// Renews one lease and says when it is due again.
async fn renew(held: Arc<Held>) -> Option<(Instant, Arc<Held>)> {
    held.renew_at()?;
    let renewed = held.renew(held.lease).await;
    let next = held.renew_at()?;
    let at = if renewed.is_ok() {
        next
    } else {
        Instant::now() + RETRY
    };
    (Instant::now() < held.deadline()).then_some((at, held))
}
