//! Tokens as users see them: everything but the secret and its digest.

use semel_core::token::Scope;
use semel_core::{Label, Namespace, Timestamp, TokenId, TokenRecord};
use serde::Serialize;

use crate::receipt::{as_text, as_text_option};

/// A token as of a moment.
///
/// Serialized, it is what the command line and the API tell of it; what is absent is null.
#[derive(Clone, Debug, Serialize)]
pub struct TokenView {
    /// Which one it is.
    #[serde(serialize_with = "as_text")]
    pub id: TokenId,
    /// The wall behind which it works.
    #[serde(serialize_with = "as_text")]
    pub namespace: Namespace,
    /// What it allows.
    #[serde(serialize_with = "as_text")]
    pub scope: Scope,
    /// What people call it.
    #[serde(serialize_with = "as_text_option")]
    pub label: Option<Label>,
    /// `active`, `expired` or `revoked`.
    pub state: &'static str,
    /// When it was made.
    #[serde(serialize_with = "as_text")]
    pub created_at: Timestamp,
    /// From when on it is of no use any more.
    #[serde(serialize_with = "as_text_option")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(serialize_with = "as_text_option")]
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, give or take a minute.
    #[serde(serialize_with = "as_text_option")]
    pub last_used_at: Option<Timestamp>,
}

impl TokenView {
    /// Shows a token.
    #[must_use]
    pub fn of(token: &TokenRecord, now: Timestamp) -> Self {
        Self {
            id: token.id,
            namespace: token.namespace.clone(),
            scope: token.scope,
            label: token.label.clone(),
            state: token.state(now).as_str(),
            created_at: token.created_at,
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
            last_used_at: token.last_used_at,
        }
    }
}
