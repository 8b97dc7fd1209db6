//! What an engine did since it started, counted: for those who watch it.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::ledger::{Event, Rejection};

use super::Engine;

/// The codes that a command can be refused with.
const CODES: [&str; 8] = [
    "key_reused",
    "in_flight",
    "in_doubt",
    "dead",
    "expired",
    "fenced",
    "not_found",
    "breaker_open",
];

/// Counts what was written and what was refused. Transactions of a caller's own are not counted.
#[derive(Debug, Default)]
pub struct Tally {
    events: [AtomicU64; Event::ALL.len()],
    refusals: [AtomicU64; CODES.len()],
}

/// The events of one change, small enough to be kept while the store has the change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happened(u32);

impl Happened {
    pub(super) fn of(events: &[Event]) -> Self {
        Self(events.iter().fold(0, |all, event| all | 1 << event.code()))
    }
}

impl Tally {
    pub(super) fn wrote(&self, happened: Happened) {
        for (code, count) in self.events.iter().enumerate() {
            if happened.0 & (1 << code) != 0 {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn refused(&self, rejection: Rejection) {
        let index = CODES.iter().position(|code| *code == rejection.code());
        if let Some(count) = index.map(|index| &self.refusals[index]) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how often each event was written.
    pub fn events(&self) -> impl Iterator<Item = (Event, u64)> {
        let counts = self.events.iter().map(|it| it.load(Ordering::Relaxed));
        Event::ALL.into_iter().zip(counts)
    }

    /// Returns how many commands were refused with each code.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refusals.iter().map(|it| it.load(Ordering::Relaxed));
        CODES.into_iter().zip(counts)
    }
}

impl Engine {
    /// Returns what this engine did since it started.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.inner.ledger.tally
    }
}

#[cfg(test)]
mod tests {
    use semel_core::Key;
    use semel_core::ledger::StateKind;

    use super::*;
    use crate::{Admission, Effect, Request};

    #[test]
    fn every_rejection_has_its_code_here_and_every_event_fits() {
        for rejection in [
            Rejection::KeyReused,
            Rejection::InFlight { until: None },
            Rejection::InDoubt {
                own: false,
                probe_at: None,
            },
            Rejection::Dead,
            Rejection::Expired,
            Rejection::Fenced,
            Rejection::Refused {
                state: StateKind::Dead,
            },
            Rejection::NotFound,
            Rejection::BreakerOpen { retry_at: None },
        ] {
            assert!(CODES.contains(&rejection.code()), "{rejection:?}");
        }
        assert!(Event::ALL.len() <= 32);
    }

    #[tokio::test]
    async fn what_is_written_and_what_is_refused_is_counted_once() {
        let engine = Engine::open("memory:").await.expect("it opens");
        let request = || Request::new("a", Key::new("k").expect("it is a key"));
        let Ok(Admission::Execute(permit)) = engine.begin(request()).await else {
            panic!("nobody else acts");
        };
        assert!(engine.begin(request().input(&1)).await.is_err());
        permit
            .done(Effect::Created, &1)
            .await
            .expect("it is stored");
        engine.begin(request()).await.expect("it is a replay");
        let events: Vec<_> = engine.tally().events().filter(|it| it.1 > 0).collect();
        assert_eq!(events, [(Event::Begun, 1), (Event::Settled, 1)]);
        let refusals: Vec<_> = engine.tally().refusals().filter(|it| it.1 > 0).collect();
        assert_eq!(refusals, [("key_reused", 1)]);
    }
}
