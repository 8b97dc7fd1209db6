//! Breakers as users see them.

use semel_core::breaker::{Breaker, Counts, Phase, Settings};
use semel_core::{Key, Label, Namespace, Note, Timestamp};
use serde::Serialize;

use crate::receipt::{as_text, as_text_option};

/// A breaker as of a moment. Serialized, it is the Breaker object; what is absent is null.
#[derive(Clone, Debug, Serialize)]
pub struct BreakerView {
    /// The wall.
    #[serde(serialize_with = "as_text")]
    pub namespace: Namespace,
    /// Its name.
    #[serde(serialize_with = "as_text")]
    pub name: Key,
    /// Where it stands: `closed`, `open` or `half_open`.
    pub state: &'static str,
    /// Since when.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// When a call may be tried that is refused now; null when none is, or a person must close it.
    #[serde(serialize_with = "as_text_option")]
    pub retry_at: Option<Timestamp>,
    /// The calls that count, while it is closed.
    pub calls: u32,
    /// How many of them failed.
    pub failures: u32,
    /// How many failed since the last that did not.
    pub failures_in_row: u32,
    /// How often it opened since it was last closed.
    pub times_opened: u32,
    /// Who opened it, if a person did.
    #[serde(serialize_with = "as_text_option")]
    pub by: Option<Label>,
    /// Why.
    #[serde(serialize_with = "as_text_option")]
    pub note: Option<Note>,
    /// Its thresholds, as whoever called last had them.
    pub settings: SettingsView,
    /// Counts the changes of its state.
    pub fence: u64,
    /// Counts the accepted commands.
    pub version: u64,
}

/// Thresholds as users see them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SettingsView {
    /// The part of the calls that may fail.
    pub failure_rate: f64,
    /// With fewer calls the rate says nothing.
    pub minimum: u32,
    /// How far back calls count.
    pub window_ms: u64,
    /// How many failures in a row open it.
    pub failures: Option<u32>,
    /// How long it stays open the first time.
    pub cool_down_ms: u64,
    /// How long it stays open at most.
    pub cool_down_max_ms: u64,
}

impl BreakerView {
    /// Shows a breaker.
    #[must_use]
    pub fn of(breaker: &Breaker, now: Timestamp) -> Self {
        let settings = &breaker.settings;
        let (counts, in_row) = match &breaker.phase {
            Phase::Closed(window) => (
                window.counts(settings, now),
                window.failures_in_row(settings, now),
            ),
            Phase::Open(_) | Phase::HalfOpen(_) => (Counts::default(), 0),
        };
        let (times, forced) = match &breaker.phase {
            Phase::Closed(_) => (0, None),
            Phase::Open(open) => (open.times, open.forced.as_ref()),
            Phase::HalfOpen(probe) => (probe.times, None),
        };
        Self {
            namespace: breaker.namespace.clone(),
            name: breaker.name.clone(),
            state: breaker.kind().as_str(),
            since: breaker.since,
            retry_at: breaker.next_try(),
            calls: counts.calls(),
            failures: counts.failed,
            failures_in_row: in_row,
            times_opened: times,
            by: forced.map(|forced| forced.by.clone()),
            note: forced.and_then(|forced| forced.note.clone()),
            settings: SettingsView::of(settings),
            fence: breaker.fence.0,
            version: breaker.version.0,
        }
    }
}

impl SettingsView {
    fn of(settings: &Settings) -> Self {
        let millis =
            |length: std::time::Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self {
            failure_rate: f64::from(settings.failure_permille) / 1_000.0,
            minimum: settings.minimum.get(),
            window_ms: millis(settings.window),
            failures: settings.failures.map(std::num::NonZero::get),
            cool_down_ms: millis(settings.cool_down),
            cool_down_max_ms: millis(settings.cool_down_max),
        }
    }
}
