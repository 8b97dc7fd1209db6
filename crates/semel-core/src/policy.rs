//! What the first caller of an operation fixed about it.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::time::Retention;

/// Says what repeating the action would do to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reading: doors pass it through and record nothing; recorded by mistake, it is kept like `Unsafe`.
    Safe,
    /// Repeating it changes nothing more; its doubts are retried unless told otherwise.
    Idempotent,
    /// Repeating it repeats the effect; its doubts are held unless told otherwise.
    Unsafe,
}

impl Class {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Idempotent => "idempotent",
            Self::Unsafe => "unsafe",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Safe, Self::Idempotent, Self::Unsafe]
            .into_iter()
            .find(|class| class.as_str() == word)
    }
}

/// Says what a caller meets when the operation is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDoubt {
    /// The operation waits for a resolution.
    Hold,
    /// The doubt is waived in the log and another attempt starts: at least once.
    Retry,
    /// The caller looks up what happened before anything else.
    Probe,
}

impl OnDoubt {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Retry => "retry",
            Self::Probe => "probe",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Hold, Self::Retry, Self::Probe]
            .into_iter()
            .find(|policy| policy.as_str() == word)
    }
}

/// What the first Submit or Begin fixed; a later call cannot loosen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What repeating the action would do.
    pub class: Class,
    /// What happens in doubt.
    pub on_doubt: OnDoubt,
    /// How many attempts there may be; direct operations have no limit.
    pub max_attempts: Option<NonZeroU32>,
    /// How long after the oldest open attempt began [`OnDoubt::Retry`] may act.
    pub retry_within: Duration,
    /// How long after the doubted lease's end a probe must wait for the world to settle.
    pub settle_delay: Duration,
    /// How long the payload is kept.
    pub retention: Retention,
}

impl Policy {
    /// How long doubts may be retried when nothing else is said: half of the shortest window that
    /// common upstreams document for their own keys.
    pub const RETRY_WITHIN: Duration = Duration::from_secs(12 * 60 * 60);

    /// The attempts of a queued operation when nothing else is said.
    pub const QUEUED_ATTEMPTS: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

    /// Makes the policy of a direct operation of this class.
    #[must_use]
    pub const fn direct(class: Class) -> Self {
        let on_doubt = match class {
            Class::Idempotent => OnDoubt::Retry,
            Class::Safe | Class::Unsafe => OnDoubt::Hold,
        };
        Self {
            class,
            on_doubt,
            max_attempts: None,
            retry_within: Self::RETRY_WITHIN,
            settle_delay: Duration::ZERO,
            retention: Retention::DEFAULT,
        }
    }

    /// Makes the policy of a queued operation of this class.
    #[must_use]
    pub const fn queued(class: Class) -> Self {
        Self {
            max_attempts: Some(Self::QUEUED_ATTEMPTS),
            ..Self::direct(class)
        }
    }
}
