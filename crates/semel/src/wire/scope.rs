//! Who asks, and how much they may.

use semel_core::{Label, Namespace};

/// How much a caller may do; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Looks.
    Read,
    /// Begins, renews, settles and submits.
    Write,
    /// Resolves, retries, cancels and forgets.
    Operate,
    /// Does everything.
    Admin,
}

impl Scope {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Admin];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Operate => 2,
            Self::Admin => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// Who asks, as the server found out.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The wall that they are behind.
    pub namespace: Namespace,
    /// What they may do.
    pub scope: Scope,
    /// What their operations are marked with; a caller cannot choose it.
    pub principal: Option<Label>,
}
