//! Tokens: who may ask a server, behind which wall, and for what.
//!
//! ```text
//! semel_<id>_<secret>_<sum>     12 + 52 + 7 letters and digits
//! ```
//!
//! The id finds the record, the secret proves that the caller was given the token, and the sum tells a
//! text that was cut or mistyped before anything is looked up. Stores keep the digest of the secret.

mod judge;
mod letters;
mod text;

#[cfg(test)]
mod tests;

pub use self::judge::{Granted, NOTED_EVERY, Refusal, TokenRecord, TokenState, judge};
pub use self::text::{Secret, Token, TokenError, TokenId};

/// What a token allows; each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// To look.
    Read,
    /// Also to begin, to renew, to settle and to submit.
    Write,
    /// Also to resolve, to retry, to cancel and to forget.
    Operate,
    /// Also to make, to list and to revoke tokens. A caller without a token never has it.
    Admin,
}

impl Scope {
    /// Every scope, from the least to the most.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Admin];

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

    /// Returns the scope of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    /// Says whether it allows what needs another one.
    #[must_use]
    pub fn includes(self, needed: Self) -> bool {
        self >= needed
    }
}

impl core::fmt::Display for Scope {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
