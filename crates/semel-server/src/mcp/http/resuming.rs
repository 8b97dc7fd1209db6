//! Answers that broke off on their way to a client of the older protocol, and can be asked for again.
//!
//! The first event of an answer has an id and nothing else. A client whose stream breaks asks for the rest with it, and
//! waits for the answer on another stream. Nothing is sent to the server by that. The exchange stays one that was lost: the
//! gateway does not learn that the answer arrived after all, so the same call gets the recorded answer once more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use bytes::Bytes;

use super::desk::Call;
use super::headers::{LAST_EVENT, VERSION};
use crate::locked::locked;

/// How our ids begin; all others are the server's.
const PREFIX: &str = "semel-event-";

/// The version of the protocol whose clients know events without data.
const SINCE: &str = "2025-11-25";

/// The most answers that are kept for those who ask for the rest; the oldest are given up beyond it. Their calls get the
/// recorded answer when they come again.
const KEPT_MAX: usize = 256;

/// How long they are kept: clients that come back do so at once.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// How soon a client asks for the rest, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// An answer that somebody may ask for again.
pub(super) struct Kept {
    event: String,
    whose: String,
    since: Instant,
    /// The request's id, as its client wrote it.
    pub(super) id: String,
    /// The same for identical calls.
    pub(super) about: u64,
    pub(super) call: Arc<dyn Call>,
}

/// The answers that somebody may ask for again, the oldest first.
#[derive(Clone, Default)]
pub(super) struct Resumes(Arc<Mutex<VecDeque<Kept>>>);

impl fmt::Debug for Resumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resumes({})", locked(&self.0).len())
    }
}

impl Resumes {
    /// Keeps an answer; returns the id of its first event. `None` when the system gives no randomness.
    pub(super) fn keep(
        &self,
        whose: &str,
        (id, about): (&str, u64),
        call: &Arc<dyn Call>,
    ) -> Option<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let event = format!("{PREFIX}{:032x}", u128::from_be_bytes(random));
        let since = Instant::now();
        let mut kept = locked(&self.0);
        while kept.len() >= KEPT_MAX || kept.front().is_some_and(|it| it.is_over(since)) {
            kept.pop_front();
        }
        kept.push_back(Kept {
            event: event.clone(),
            whose: whose.to_owned(),
            since,
            id: id.to_owned(),
            about,
            call: Arc::clone(call),
        });
        Some(event)
    }

    /// Gives an answer to whoever asks for the rest of it; nobody else gets it.
    pub(super) fn take(&self, event: &str, whose: &str) -> Option<Kept> {
        let mut kept = locked(&self.0);
        let is_it = |it: &Kept| it.event == event && it.whose == whose;
        let at = kept.iter().position(is_it)?;
        kept.remove(at)
    }

    /// Takes note that an answer was written.
    pub(super) fn written(&self, event: &str) {
        locked(&self.0).retain(|it| it.event != event);
    }
}

impl Kept {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) > KEPT_FOR
    }
}

/// Says whether a client knows what an event without data is for.
pub(super) fn knows(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_some_and(|it| it == SINCE)
}

/// Returns the event of ours after which a client asks for the rest.
pub(super) fn asked_for(headers: &HeaderMap) -> Option<&str> {
    let last = headers.get(LAST_EVENT)?.to_str().ok()?;
    last.starts_with(PREFIX).then_some(last)
}

/// Writes the first event of an answer.
pub(super) fn first(event: &str) -> Bytes {
    format!("id: {event}\nretry: {RETRY_MS}\ndata: \n\n").into()
}
