//! What an attempt learned, and what is stored of it.

use core::time::Duration;

use crate::digest::Digest;
use crate::effect::Effect;
use crate::text::Note;

/// Refers to stored bytes by what they are; where they lie is the store's business.
///
/// The log holds this and never the bytes, so erasing a payload keeps the log verifiable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// How many bytes there are.
    pub size: u64,
    /// Whether a rule took something out of them: they are not all that the action answered.
    pub redacted: bool,
}

impl Payload {
    /// Refers to these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            redacted: false,
        }
    }
}

/// The end of a done operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it ended in success.
    pub ok: bool,
    /// What it did.
    pub effect: Effect,
    /// What it answered, if anything.
    pub payload: Option<Payload>,
}

/// What an attempt learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The action ran to its end, in success or in failure.
    Done(Outcome),
    /// The action provably did not happen; it is safe to try again.
    NotDone {
        /// Whether trying again is pointless: the operation is dead at once.
        reject: bool,
        /// Why it did not happen.
        error: Option<Note>,
        /// How long to wait at least, where whoever turned it away said so.
        retry_after: Option<Duration>,
    },
    /// Nobody can tell; this is the default wherever a door cannot prove one of the others.
    Unknown {
        /// What was seen.
        error: Option<Note>,
    },
}

/// A verdict without its details, as an attempt remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// See [`Verdict::Done`].
    Done,
    /// See [`Verdict::NotDone`].
    NotDone,
    /// See [`Verdict::Unknown`].
    Unknown,
}

impl VerdictKind {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotDone => "not_done",
            Self::Unknown => "unknown",
        }
    }
}

impl Verdict {
    /// Returns the verdict without its details.
    #[must_use]
    pub const fn kind(&self) -> VerdictKind {
        match self {
            Self::Done(_) => VerdictKind::Done,
            Self::NotDone { .. } => VerdictKind::NotDone,
            Self::Unknown { .. } => VerdictKind::Unknown,
        }
    }
}
