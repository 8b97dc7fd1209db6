//! What proves that a delivery is its sender's.

use core::time::Duration;

use super::scheme::Scheme;
use super::secret::Secret;
use crate::time::Timestamp;

/// How far the time of a signature may be from ours, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tolerance(Duration);

/// The duration is no tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tolerance lies between 1 s and 24 h")]
pub struct ToleranceError;

impl Tolerance {
    /// Signatures have whole seconds.
    const MIN: Duration = Duration::from_secs(1);
    /// Each attempt is signed anew, so nothing that is older is an attempt of now.
    const MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// What senders' own libraries have: 5 minutes.
    pub const DEFAULT: Self = Self(Duration::from_secs(5 * 60));

    /// Makes a tolerance.
    ///
    /// # Errors
    /// Refuses what lies outside of 1 s to 24 h.
    pub fn new(length: Duration) -> Result<Self, ToleranceError> {
        let fits = (Self::MIN..=Self::MAX).contains(&length);
        fits.then_some(Self(length)).ok_or(ToleranceError)
    }

    /// Returns the length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

/// How deliveries of one source are proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub(super) scheme: Scheme,
    pub(super) secrets: Vec<Secret>,
    pub(super) tolerance: Tolerance,
}

/// Says why deliveries could not be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Nothing could be verified.
    #[error("there is no secret to verify signatures with")]
    NoSecret,
    /// There is nothing to verify.
    #[error("there are secrets, and `none` verifies nothing")]
    Needless,
    /// There are more secrets than a rotation needs.
    #[error("there are {count} secrets; there may be {limit}", limit = Proof::SECRETS_MAX)]
    Secrets {
        /// How many there are.
        count: usize,
    },
    /// The time is to be signed and is not, or the other way round.
    #[error("the time must be signed: name its header, and have `{{timestamp}}` in what is signed")]
    Timestamp,
}

/// What a right signature says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The id that was signed, where the scheme signs one.
    pub id: Option<Vec<u8>>,
    /// When it was signed, where the scheme says so.
    pub at: Option<Timestamp>,
}

impl Proof {
    /// The most secrets of one source: a rotation has two, and each costs a code over the whole body, also for those who
    /// send anything at all.
    pub const SECRETS_MAX: usize = 8;

    /// Puts together what deliveries are proven by.
    ///
    /// # Errors
    /// Refuses what would prove nothing.
    pub fn new(
        scheme: Scheme,
        secrets: Vec<Secret>,
        tolerance: Tolerance,
    ) -> Result<Self, ProofError> {
        let count = secrets.len();
        match (&scheme, count) {
            (Scheme::None, 0) => {}
            (Scheme::None, _) => return Err(ProofError::Needless),
            (_, 0) => return Err(ProofError::NoSecret),
            (_, 1..=Self::SECRETS_MAX) => {}
            (_, _) => return Err(ProofError::Secrets { count }),
        }
        if let Scheme::Hmac(keyed) = &scheme
            && keyed.timestamp.is_some() != keyed.signed.is_dated()
        {
            return Err(ProofError::Timestamp);
        }
        Ok(Self {
            scheme,
            secrets,
            tolerance,
        })
    }

    /// Stands for a sender none of whose secrets can be read: nothing is proven to be its own.
    #[must_use]
    pub const fn of_nobody(scheme: Scheme, tolerance: Tolerance) -> Self {
        let secrets = vec![];
        Self {
            scheme,
            secrets,
            tolerance,
        }
    }

    /// Returns how the sender signs.
    #[must_use]
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }
}
