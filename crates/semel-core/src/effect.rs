//! What an operation did to the world.

use core::fmt;

/// Says what happened, or in a dry run what would happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Something new exists.
    Created,
    /// Something that existed is different now.
    Updated,
    /// Something that existed is gone.
    Deleted,
    /// Nothing changed.
    Noop,
    /// A dry run: something new would exist.
    WouldCreate,
    /// A dry run: something would be different.
    WouldUpdate,
    /// A dry run: something would be gone.
    WouldDelete,
    /// Nobody knows.
    Unknown,
}

impl Effect {
    /// All effects, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Updated,
        Self::Deleted,
        Self::Noop,
        Self::WouldCreate,
        Self::WouldUpdate,
        Self::WouldDelete,
        Self::Unknown,
    ];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Noop => "noop",
            Self::WouldCreate => "would_create",
            Self::WouldUpdate => "would_update",
            Self::WouldDelete => "would_delete",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word that users write.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == word)
    }

    /// Returns what a dry run says instead of this effect.
    #[must_use]
    pub const fn planned(self) -> Self {
        match self {
            Self::Created | Self::WouldCreate => Self::WouldCreate,
            Self::Updated | Self::WouldUpdate => Self::WouldUpdate,
            Self::Deleted | Self::WouldDelete => Self::WouldDelete,
            Self::Noop => Self::Noop,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_effect_reads_back_from_its_word() {
        for effect in Effect::ALL {
            assert_eq!(Effect::parse(effect.as_str()), Some(effect));
        }
        assert_eq!(Effect::parse("Created"), None);
    }

    #[test]
    fn a_plan_is_never_a_claim_that_something_happened() {
        for effect in Effect::ALL {
            assert!(!matches!(
                effect.planned(),
                Effect::Created | Effect::Updated | Effect::Deleted
            ));
        }
    }
}
