//! HTTP requests that take effect once, whoever retries them.
//!
//! A [`Guard`] stands between callers and an [`Upstream`]: the one implementation behind `semel proxy` and the tower
//! [`OnceLayer`](layer::OnceLayer). What is pure about it (keys, fingerprints, what a status means, profiles) is in
//! [`semel_core::http`]; which operation a request is for is found by a [`Doorway`](crate::door::Doorway).
//!
//! ```text
//!  request ─▶ key, body, fingerprint ─▶ Doorway ─┬─▶ execute ─▶ Upstream ─▶ recorded ─▶ answer
//!                                                ├─▶ replay, or join an answer that is under way
//!                                                └─▶ refuse: in flight, in doubt, another request, expired
//! ```

mod ask;
mod body;
mod breaking;
mod carry;
mod dry_run;
mod guard;
pub mod layer;
mod live;
mod lookup;
mod received;
mod recorder;
mod refusal;
mod replay;
mod rules;
mod running;
mod saved;
mod stored;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::Namespace;
use semel_core::identity::Observation;

pub use http::HeaderMap;

pub use self::body::{Body, BodyError};
pub use self::guard::Guard;
pub use self::lookup::look_up;
pub use self::refusal::{Refusal, SEMEL_ERROR, error_type};
pub use self::rules::{DeriveFrom, Forward, IDEMPOTENCY_KEY, Keyless, Limits, Rules, Sameness};
pub use self::stored::named_by_connection;
use crate::door::Ticket;

/// What comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What carries requests out.
///
/// It sends a request at most once, follows no redirect and undoes no coding: what it returns is what came.
pub trait Upstream: Send + Sync + 'static {
    /// Sends a request, and returns the head of its answer; the rest comes as its body, which ends in an error where
    /// the answer was cut off.
    ///
    /// # Errors
    /// Says whether anything of the request can have left.
    fn send(
        &self,
        request: http::Request<Body>,
    ) -> Later<'static, Result<http::Response<Body>, SendError>>;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No byte of the request left: names not found, connections and handshakes refused, streams turned away.
    #[error("{0}")]
    NotSent(String),
    /// Something of it left, and nobody knows what became of it.
    #[error("{0}")]
    Lost(String),
}

/// What a door sees of the connections of those who call; without it only the future and the body tell.
pub trait Watch: Send + Sync + 'static {
    /// Looks at what is known of identical calls before one without a key is judged: at those that wait, whether their
    /// callers have left, and for a moment at those that were answered, whether the answer was received.
    fn settle(&self, about: u64) -> Later<'_, ()>;

    /// Takes note that this connection's request was let in: what is seen of it from now on is told to its seat.
    fn admitted(&self, seat: Arc<Seat>, about: u64);
}

/// The place of one request at the doorway, through which its door says what it sees of the answer.
///
/// When the last one drops it, its caller is taken to have left.
#[derive(Debug)]
pub struct Seat(Mutex<Option<Ticket>>);

impl Seat {
    fn new(ticket: Ticket) -> Self {
        Self(Mutex::new(Some(ticket)))
    }

    /// Takes note of something that was seen.
    pub fn see(&self, seen: Observation) {
        let ticket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ticket) = &*ticket {
            ticket.see(seen);
        }
    }

    /// Takes the request back as if it had not been let in. Returns whether its caller was seen to have left.
    fn withdraw(&self) -> bool {
        let mut ticket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ticket.take().is_some_and(Ticket::withdraw)
    }
}

/// On whose behalf a request comes, and how.
#[derive(Clone, Default)]
pub struct Caller {
    /// Who it is, named so that nobody can read credentials from it.
    pub principal: Option<String>,
    /// Where its operation lives; the engine's own namespace unless said.
    pub namespace: Option<Namespace>,
    /// What is seen of the connection.
    pub watch: Option<Arc<dyn Watch>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("principal", &self.principal)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It was sent on, and nothing is known of it.
    Passed,
    /// It was sent on for this caller, and this is what came of it.
    Executed,
    /// It got the answer that was recorded before.
    Replayed,
    /// It got the answer to a request that was under way.
    Joined,
    /// It was only said what would become of it.
    Rehearsed,
    /// Nothing was sent for it: the answer has a code.
    Refused,
}

impl Became {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Passed,
        Self::Executed,
        Self::Replayed,
        Self::Joined,
        Self::Rehearsed,
        Self::Refused,
    ];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Joined => "joined",
            Self::Rehearsed => "rehearsed",
            Self::Refused => "refused",
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// What is to be sent.
    pub response: http::Response<Body>,
    /// What became of the request.
    pub became: Became,
    /// Where what is seen of it is told; the same for identical requests is `about`. Without one nobody wants to know.
    pub seat: Option<(Arc<Seat>, u64)>,
}
