//! What can go wrong, with a stable code, a hint and whether trying again can help.

use std::fmt;
use std::sync::Arc;

use semel_core::ledger::{Record, Rejection, StateKind};
use semel_core::{DurationError, Key, TextError, Timestamp, canonical, token};

use crate::receipt::Receipt;
use crate::store::StoreError;

/// What the library answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Says why an operation was not carried out, or what it came to instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ledger refused the command.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The operation was carried out and failed; a retry gets the same answer.
    #[error("{}: the operation failed: {}", .0.key, .0.failure_text())]
    Failed(Box<Receipt>),
    /// The action did not run to its end; the receipt says what that means for the operation.
    #[error("{}: {source} (the operation is {})", .receipt.key, .receipt.state.as_str())]
    Interrupted {
        /// Where the operation stands now.
        receipt: Box<Receipt>,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The action ended, but its outcome could not be stored: the operation is in doubt.
    #[error("the outcome could not be stored ({source}); {}", if *.noted { "a note keeps it until the store is back" } else { "the operation is in doubt" })]
    Unstored {
        /// What the action answered.
        payload: Option<Arc<[u8]>>,
        /// Whether a note keeps the outcome until the store is opened again.
        noted: bool,
        /// Why.
        source: StoreError,
    },
    /// The key breaks its rule.
    #[error(transparent)]
    InvalidKey(TextError),
    /// Some other input breaks its rule.
    #[error("{0}")]
    InvalidInput(String),
    /// The token was not accepted. The message is always the same; the reason is for the server's log.
    #[error("there is no token, or it is not a valid one")]
    Unauthorized(token::Refusal),
    /// The stored answer is not of the type that was asked for.
    #[error("the stored answer cannot be read as the type that was asked for: {0}")]
    Unreadable(String),
    /// More identical calls are not over than one can be judged by; nothing was done.
    #[error(
        "more than {limit} calls that are the same as this one are running, in doubt or unanswered"
    )]
    Crowded {
        /// How many may be.
        limit: usize,
    },
    /// Several operations are called so by their clients; nothing was done.
    #[error("{0}")]
    Ambiguous(Ambiguous),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A refused command, and what is stored.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub rejection: Rejection,
    /// The key, unless it was forgotten.
    pub key: Option<Key>,
    /// The record that the refusal rests on.
    pub record: Option<Arc<Record>>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.rejection),
            None => self.rejection.fmt(f),
        }
    }
}

/// A name that clients gave to several operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// The name.
    pub name: String,
    /// Some of the operations, with the state of each.
    pub namesakes: Vec<(Key, StateKind)>,
    /// Whether there are more.
    pub more: bool,
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, namesakes, ..
        } = self;
        let at_least = if self.more { "more than " } else { "" };
        let count = namesakes.len();
        write!(f, "{name}: {at_least}{count} operations are called so: ")?;
        for (n, (key, state)) in namesakes.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{key} ({})", state.as_str())?;
        }
        f.write_str(if self.more { ", ..." } else { "" })
    }
}

impl Error {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.rejection.code(),
            Self::Failed(_) => "failed",
            Self::Interrupted { receipt, .. } => match receipt.state {
                StateKind::Doubtful => "in_doubt",
                StateKind::Dead => "dead",
                StateKind::Pending
                | StateKind::Running
                | StateKind::Succeeded
                | StateKind::Failed
                | StateKind::Tombstone
                | StateKind::Stub
                | StateKind::Breaker(_) => "not_done",
            },
            Self::Unstored { .. } | Self::Crowded { .. } => "in_doubt",
            Self::InvalidKey(_) => "invalid_key",
            Self::InvalidInput(_) | Self::Ambiguous(_) => "invalid_input",
            Self::Unauthorized(_) => "unauthorized",
            Self::Unreadable(_) | Self::Store(StoreError::Corrupt(_)) => "internal",
            Self::Store(StoreError::TooLarge { .. }) => "too_large",
            Self::Store(StoreError::Unauthorized(_)) => "unauthorized",
            Self::Store(StoreError::Forbidden(_)) => "forbidden",
            Self::Store(StoreError::Unusable { .. }) => "store_unusable",
            Self::Store(
                StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::Refused(_),
            ) => "store_unavailable",
        }
    }

    /// Says whether the same call may succeed later without anybody doing anything.
    #[must_use]
    pub fn retryable(&self) -> bool {
        matches!(
            self.code(),
            "in_flight" | "breaker_open" | "store_unavailable" | "not_done"
        )
    }

    /// Returns when a call may be tried that an open breaker refused.
    #[must_use]
    pub fn retry_at(&self) -> Option<Timestamp> {
        match self {
            Self::Refused(refusal) => match refusal.rejection {
                Rejection::BreakerOpen { retry_at } => retry_at,
                Rejection::KeyReused
                | Rejection::InFlight { .. }
                | Rejection::InDoubt { .. }
                | Rejection::Dead
                | Rejection::Expired
                | Rejection::Fenced
                | Rejection::Refused { .. }
                | Rejection::NotFound => None,
            },
            _ => None,
        }
    }

    /// Returns what to do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        if let Self::Store(StoreError::Refused(_)) = self {
            return Some("use another store, or change what it says; trying again does not help");
        }
        if let Self::Store(StoreError::Unusable { hint, .. }) = self {
            return Some(hint);
        }
        if let Self::Ambiguous(_) = self {
            return Some("name one of them by its whole key");
        }
        match self.code() {
            "in_flight" => Some("wait for the running attempt, or ask again later"),
            "breaker_open" if self.retry_at().is_none() => {
                Some("somebody opened it by hand, and has to close it (`semel breaker close NAME`)")
            }
            "breaker_open" => Some(
                "wait until then, or close it by hand once the target is well again (`semel breaker close NAME`)",
            ),
            "in_doubt" => Some("find out whether the effect happened, then resolve the operation"),
            "key_reused" => {
                Some("use a new key for a new action, or repeat the first input exactly")
            }
            "dead" => Some("retry the operation once its cause is mended, or cancel it"),
            "expired" => Some("use a new key if the action shall happen again"),
            "fenced" => Some("read the operation again and decide on what it says now"),
            "store_unavailable" => Some(
                "try again; if it lasts, check the store's disk (there, writable, not full) or its \
                 server (up, within reach)",
            ),
            "unauthorized" => Some(
                "give a token that the server knows (--token, SEMEL_TOKEN); `semel token create` makes \
                 one where the store is",
            ),
            "forbidden" => Some("use a token for this namespace, with a scope that allows it"),
            "internal" => Some("run `semel verify` and restore from a backup if it finds damage"),
            _ => None,
        }
    }

    /// Returns the refusal, if it is one.
    #[must_use]
    pub fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::Refused(refusal) => Some(refusal.rejection),
            Self::Failed(_)
            | Self::Interrupted { .. }
            | Self::Unstored { .. }
            | Self::InvalidKey(_)
            | Self::InvalidInput(_)
            | Self::Unauthorized(_)
            | Self::Unreadable(_)
            | Self::Crowded { .. }
            | Self::Ambiguous(_)
            | Self::Store(_) => None,
        }
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        Self::InvalidKey(error)
    }
}

impl From<canonical::Error> for Error {
    fn from(error: canonical::Error) -> Self {
        if let canonical::Error::TooLarge { size, limit } = error {
            let what = "the input";
            return StoreError::TooLarge { what, size, limit }.into();
        }
        Self::InvalidInput(format!("the input is not JSON with one meaning: {error}"))
    }
}

impl From<DurationError> for Error {
    fn from(error: DurationError) -> Self {
        Self::InvalidInput(error.to_string())
    }
}
