//! What may be done with a store: a copy is only read, and a ledger that moved away begins nothing.

use super::{Result, StoreError};

/// What may be done with a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Everything.
    #[default]
    Open,
    /// It is a copy that nobody has adopted: it may be read.
    Copy,
    /// Its file was copied from another one by means other than Semel's, and nobody has adopted it: it may
    /// be read.
    Copied {
        /// Where the file was that the store was made in, or last renamed to.
        from: String,
    },
    /// The ledger has moved: attempts may report, and nothing may begin.
    Closed(Moved),
}

/// What becomes of a store whose file was copied by means other than Semel's (`cp`, `rsync`, an image).
///
/// The copy does not know what the original has begun since, so both would run the same keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPolicy {
    /// It may only be read, until `semel restore` or [`Engine::adopt`](crate::Engine::adopt).
    #[default]
    Refuse,
    /// It is adopted when it is opened: every fence is raised, and operations that ran are in doubt.
    Adopt,
    /// It is used as it is; nothing is compared or remembered.
    Ignore,
}

impl CopyPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Refuse, Self::Adopt, Self::Ignore];

    /// Returns its name in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Adopt => "adopt",
            Self::Ignore => "ignore",
        }
    }
}

/// Where a ledger has moved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The store, as it may be shown to people.
    pub to: String,
    /// The number of that store.
    pub id: String,
}

/// What a store was copied from, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The number of the store that it was copied from.
    pub source: String,
    /// Up to which number the log of that store is here.
    pub through: u64,
    /// The end of this store's own log when that was noted.
    pub end: u64,
    /// Where the copying stands.
    pub stage: Stage,
}

/// Where the copying of a ledger stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Something is missing.
    Filling,
    /// It was a whole copy, as of some moment.
    Whole,
    /// It is whole and verified, the source is closed, and its records are being adopted.
    Adopting,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Filling, Self::Whole, Self::Adopting];

    const fn word(self) -> &'static str {
        match self {
            Self::Filling => "filling",
            Self::Whole => "whole",
            Self::Adopting => "adopting",
        }
    }
}

impl Moved {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        format!("{}\n{}", self.id, self.to).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).ok();
        let (id, to) = text
            .and_then(|text| text.split_once('\n'))
            .ok_or_else(|| unreadable("where the ledger has moved to"))?;
        Ok(Self {
            to: to.to_owned(),
            id: id.to_owned(),
        })
    }

    /// Says that nothing begins here any more.
    pub(super) fn refusal(to: &str) -> StoreError {
        StoreError::Unusable {
            text: format!(
                "the ledger has moved to {to}: nothing can be begun or changed here any more"
            ),
            hint: "use the store that it has moved to (--store, SEMEL_STORE)",
        }
    }
}

impl Origin {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (stage, through, end) = (self.stage.word(), self.through, self.end);
        format!("{stage} {through} {end} {}", self.source).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = || {
            let mut words = std::str::from_utf8(bytes).ok()?.splitn(4, ' ');
            let stage = words.next()?;
            let stage = Stage::ALL.into_iter().find(|known| known.word() == stage)?;
            Some(Self {
                stage,
                through: words.next()?.parse().ok()?,
                end: words.next()?.parse().ok()?,
                source: words.next()?.to_owned(),
            })
        };
        read().ok_or_else(|| unreadable("what the store was copied from"))
    }
}

/// Says that a copy may only be read.
pub(super) fn only_read() -> StoreError {
    StoreError::Unusable {
        text: "the store is a copy, and what the original has begun since cannot be known: it can only be \
               read"
            .to_owned(),
        hint: ADOPT,
    }
}

/// Says that a file which was copied may only be read.
pub(super) fn file_was_copied(from: &str) -> StoreError {
    StoreError::Unusable {
        text: format!(
            "the file is a copy of the store that was at {from}, and what the original has begun since \
             cannot be known: it can only be read"
        ),
        hint: ADOPT,
    }
}

/// How to go on with a copy.
const ADOPT: &str = "`semel restore` (without a file) adopts it, if the original is no longer used; \
                     `semel list` reads it as it is";

/// Says that there is nothing to adopt.
pub(super) fn not_adoptable() -> StoreError {
    StoreError::Refused("the store is no copy: there is nothing to adopt".to_owned())
}

/// Says that a store cannot become a copy, as it has a ledger of its own.
pub(super) fn not_empty() -> StoreError {
    StoreError::Refused(
        "the store is not empty: a ledger is copied into a new store only".to_owned(),
    )
}

fn unreadable(what: &str) -> StoreError {
    StoreError::Corrupt(format!("the mark that says {what} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written() {
        let moved = Moved {
            to: "sqlite:/a b/c.db".to_owned(),
            id: "7f".to_owned(),
        };
        assert_eq!(Moved::from_bytes(&moved.to_bytes()), Ok(moved));
        for stage in Stage::ALL {
            let origin = Origin {
                source: "0a".to_owned(),
                through: 7,
                end: u64::MAX,
                stage,
            };
            assert_eq!(Origin::from_bytes(&origin.to_bytes()), Ok(origin));
        }
        for wrong in ["", "7f", "filling 1 2", "falling 1 2 a", "filling 1 b a"] {
            assert!(Origin::from_bytes(wrong.as_bytes()).is_err(), "{wrong}");
            assert!(Moved::from_bytes(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
