//! Why a delivery is not taken.

use core::time::Duration;

/// Says why a delivery is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header that the signature needs is not there.
    #[error("the header {name} is missing")]
    MissingHeader {
        /// Its name.
        name: String,
    },
    /// A header that may be there once is there more often.
    #[error("the header {name} is there more than once")]
    RepeatedHeader {
        /// Its name.
        name: String,
    },
    /// A header does not have its form.
    #[error("the header {name} is not {wanted}")]
    MalformedHeader {
        /// Its name.
        name: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// No secret makes this signature of these bytes.
    #[error("the signature was not made with a known secret over these bytes")]
    WrongSignature,
    /// The signature is right, and older than is tolerated.
    #[error("the signature was made {} s ago; {} s are tolerated", age.as_secs(), tolerance.as_secs())]
    TooOld {
        /// How old it is.
        age: Duration,
        /// How old it may be.
        tolerance: Duration,
    },
    /// The signature is right, and is dated further ahead than is tolerated.
    #[error("the signature is dated {} s ahead; {} s are tolerated", ahead.as_secs(), tolerance.as_secs())]
    TooNew {
        /// How far ahead.
        ahead: Duration,
        /// How far it may be.
        tolerance: Duration,
    },
    /// There is no id where it is looked for.
    #[error("there is no id at {place}")]
    NoId {
        /// Where.
        place: String,
    },
    /// A header that says which delivery it is is there more than once, and each may be meant.
    #[error("the header {name} is there more than once, so there is no one id")]
    RepeatedId {
        /// Its name.
        name: String,
    },
    /// The body was to have the id, and is no JSON with one meaning.
    #[error("the id is in the body, which is not JSON with one meaning: {why}")]
    NotJson {
        /// Why not.
        why: String,
    },
    /// Several events came in one delivery: no one id stands for them.
    #[error("a batch of CloudEvents has no id of its own")]
    Batch,
}

impl Refusal {
    /// Says whether nothing proves that the delivery is its sender's; otherwise it is, and cannot be told apart from
    /// others.
    #[must_use]
    pub const fn is_unproven(&self) -> bool {
        match self {
            Self::MissingHeader { .. }
            | Self::RepeatedHeader { .. }
            | Self::MalformedHeader { .. }
            | Self::WrongSignature
            | Self::TooOld { .. }
            | Self::TooNew { .. } => true,
            Self::NoId { .. } | Self::RepeatedId { .. } | Self::NotJson { .. } | Self::Batch => {
                false
            }
        }
    }

    /// Returns the word by which such refusals are counted.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::MissingHeader { .. }
            | Self::RepeatedHeader { .. }
            | Self::MalformedHeader { .. } => "unsigned",
            Self::WrongSignature => "wrong_signature",
            Self::TooOld { .. } | Self::TooNew { .. } => "wrong_time",
            Self::NoId { .. } | Self::RepeatedId { .. } | Self::NotJson { .. } | Self::Batch => {
                "no_id"
            }
        }
    }
}
