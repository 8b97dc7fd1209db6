//! What is stored of a token, and whether whoever shows one may come in.

use core::time::Duration;

use subtle::ConstantTimeEq as _;

use super::{Scope, Token, TokenError, TokenId};
use crate::digest::Digest;
use crate::text::{Label, Namespace};
use crate::time::Timestamp;

/// How often the use of a token is written down. It is there to find tokens that nobody needs any more,
/// and a minute is exact enough for that; more would cost a sync for each request.
pub const NOTED_EVERY: Duration = Duration::from_secs(60);

/// What a store keeps of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Which one it is.
    pub id: TokenId,
    /// The digest of its secret.
    pub digest: Digest,
    /// The wall behind which it works.
    pub namespace: Namespace,
    /// What it allows.
    pub scope: Scope,
    /// What people call it.
    pub label: Option<Label>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is of no use any more; `None` means never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, give or take [`NOTED_EVERY`].
    pub last_used_at: Option<Timestamp>,
}

/// Where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It can be used.
    Active,
    /// Its time is over.
    Expired,
    /// Somebody has revoked it.
    Revoked,
}

impl TokenState {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl TokenRecord {
    /// Says where the token stands; a revoked one stays so when its time is over.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> TokenState {
        if self.revoked_at.is_some() {
            TokenState::Revoked
        } else if self.expires_at.is_some_and(|end| now >= end) {
            TokenState::Expired
        } else {
            TokenState::Active
        }
    }

    /// Says whether a use at this time should be written down.
    #[must_use]
    pub fn use_is_due(&self, now: Timestamp) -> bool {
        self.last_used_at
            .is_none_or(|last| now.since(last) >= NOTED_EVERY)
    }
}

/// What a token that was accepted allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Which token it was.
    pub id: TokenId,
    /// The wall behind which the caller is.
    pub namespace: Namespace,
    /// What the caller may do there.
    pub scope: Scope,
}

impl Granted {
    /// Says whether a server takes this token that was started for one namespace; `None` is a server for all of them.
    #[must_use]
    pub fn may_enter(&self, only: Option<&Namespace>) -> bool {
        only.is_none_or(|only| *only == self.namespace)
    }
}

/// Says why a token was not accepted: for the server's own log. Callers are told the same each time, so
/// this type has no text for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no token at all.
    Malformed(TokenError),
    /// There is no token with this id.
    Unknown,
    /// There is one, with another secret.
    WrongSecret,
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
}

impl Refusal {
    /// Returns the word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Unknown => "unknown",
            Self::WrongSecret => "wrong_secret",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// Decides whether a token is accepted, given what is stored under its id.
///
/// # Errors
/// Says why it is not. Where a token stands is told only to those who have its secret.
pub fn judge(
    record: Option<&TokenRecord>,
    token: &Token,
    now: Timestamp,
) -> Result<Granted, Refusal> {
    /// Compared with where there is no record, so that the time it takes does not tell which ids exist.
    /// No secret is known that has it.
    const NOBODY: Digest = Digest([0; 32]);
    let record = record.filter(|record| record.id == token.id);
    let stored = record.map_or(NOBODY, |record| record.digest);
    let fits = bool::from(token.secret.digest().0.ct_eq(&stored.0));
    let record = record.ok_or(Refusal::Unknown)?;
    if !fits {
        return Err(Refusal::WrongSecret);
    }
    match record.state(now) {
        TokenState::Revoked => Err(Refusal::Revoked),
        TokenState::Expired => Err(Refusal::Expired),
        TokenState::Active => Ok(Granted {
            id: record.id,
            namespace: record.namespace.clone(),
            scope: record.scope,
        }),
    }
}
