//! Tokens: made once, looked up for each request, revoked for ever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::token::{Granted, NOTED_EVERY, Refusal, Scope, Secret, Token, judge};
use semel_core::{Label, Namespace, Timestamp, TokenId, TokenRecord};

use super::Engine;
use crate::error::{Error, Result};
use crate::store::{PAGE_MAX, StoreError};

/// How often another id is drawn when one is taken: 60 random bits are never the same twice, unless
/// the system's randomness is broken.
const DRAWS_MAX: usize = 3;

/// How many tokens' uses are remembered; when there are more, some are noted more often than once a
/// minute.
const USES_MAX: usize = 4_096;

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The wall behind which it works.
    pub namespace: Namespace,
    /// What it allows.
    pub scope: Scope,
    /// What people call it.
    pub label: Option<Label>,
    /// How long it can be used; `None` means until it is revoked.
    pub expires_in: Option<Duration>,
}

/// A token that was revoked, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// The token.
    pub token: TokenRecord,
    /// Whether it was revoked before this call.
    pub before: bool,
}

/// When uses were last noted by this process, so that many requests at once lead to one note.
#[derive(Debug, Default)]
pub(super) struct Uses(Mutex<HashMap<TokenId, Timestamp>>);

impl Uses {
    /// Says whether a use at this time is to be noted, and remembers that it is.
    fn take(&self, id: TokenId, now: Timestamp) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |last: &Timestamp| now.since(*last) >= NOTED_EVERY;
        if !noted.get(&id).is_none_or(due) {
            return false;
        }
        if noted.len() >= USES_MAX {
            noted.clear();
        }
        noted.insert(id, now);
        true
    }
}

impl Engine {
    /// Makes a token. Its secret is in the answer and nowhere else; making one again makes another.
    ///
    /// # Errors
    /// Refuses a token that would be of no use; fails when the store does.
    pub async fn create_token(&self, wanted: NewToken) -> Result<(Token, TokenRecord)> {
        if wanted.expires_in.is_some_and(|length| length.is_zero()) {
            let text = "a token that expires at once is of no use";
            return Err(Error::InvalidInput(text.to_owned()));
        }
        for _ in 0..DRAWS_MAX {
            let token = draw()?;
            let created_at = self.store().now();
            let record = TokenRecord {
                id: token.id,
                digest: token.secret.digest(),
                namespace: wanted.namespace.clone(),
                scope: wanted.scope,
                label: wanted.label.clone(),
                created_at,
                expires_at: wanted.expires_in.map(|length| created_at.plus(length)),
                revoked_at: None,
                last_used_at: None,
            };
            if self.store().add_token(record.clone()).await? {
                return Ok((token, record));
            }
        }
        let text = "the system's randomness gives the same numbers again and again";
        Err(StoreError::Unavailable(text.to_owned()).into())
    }

    /// Finds a token by its id.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn token(&self, id: TokenId) -> Result<Option<TokenRecord>> {
        Ok(self.store().token(id).await?)
    }

    /// Lists the tokens of a namespace, or all of them, the newest first.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn tokens(&self, namespace: Option<&Namespace>) -> Result<Vec<TokenRecord>> {
        let mut tokens: Vec<TokenRecord> = vec![];
        let mut after = None;
        loop {
            let page = self.store().tokens(after, PAGE_MAX).await?;
            let is_last = page.len() < PAGE_MAX;
            after = page.last().map(|token| token.id);
            tokens.extend(page.into_iter().filter(|token| is_behind(token, namespace)));
            if is_last {
                break;
            }
        }
        tokens.sort_by_key(|token| (std::cmp::Reverse(token.created_at), token.id));
        Ok(tokens)
    }

    /// Revokes a token for ever; `None` when there is no such token, or it is behind another wall than
    /// the given one. Revoking it again changes nothing.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn revoke_token(
        &self,
        id: TokenId,
        namespace: Option<&Namespace>,
    ) -> Result<Option<Revoked>> {
        let store = self.store();
        let found = store.token(id).await?;
        if !found.is_some_and(|token| is_behind(&token, namespace)) {
            return Ok(None);
        }
        let now = store.revoke_token(id, store.now()).await?;
        let token = store.token(id).await?;
        Ok(token.map(|token| Revoked {
            token,
            before: !now,
        }))
    }

    /// Finds out who shows this token, and notes that it was used.
    ///
    /// # Errors
    /// Every token that is not accepted is answered with the same words; [`Error::Unauthorized`] has the
    /// reason for the log. Fails when the store does.
    pub async fn authenticate(&self, text: &str) -> Result<Granted> {
        let refused = |refusal| Error::Unauthorized(refusal);
        let token: Token = text
            .parse()
            .map_err(|error| refused(Refusal::Malformed(error)))?;
        let record = self.token(token.id).await?;
        let granted = judge(record.as_ref(), &token, self.store().now()).map_err(refused)?;
        if let Some(record) = &record {
            self.note_token_use(record);
        }
        Ok(granted)
    }

    /// Notes that a token was used, about once a minute, in a task of its own: nobody waits for it.
    pub fn note_token_use(&self, token: &TokenRecord) {
        let (id, now) = (token.id, self.store().now());
        if !token.use_is_due(now) || !self.inner.uses.take(id, now) {
            return;
        }
        let store = Arc::clone(self.store());
        self.inner.runtime.spawn(async move {
            // A use that cannot be noted is noted a minute later, if it goes on.
            let _later = store.note_token_use(id, now).await;
        });
    }
}

/// Says whether a token is behind this wall, if one is given.
fn is_behind(token: &TokenRecord, wall: Option<&Namespace>) -> bool {
    wall.is_none_or(|wall| *wall == token.namespace)
}

/// Draws a token.
fn draw() -> Result<Token> {
    let (mut id, mut secret) = ([0; 8], [0; 32]);
    let drawn = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret));
    drawn.map_err(|error| {
        StoreError::Unavailable(format!("the system gives no randomness: {error}"))
    })?;
    Ok(Token {
        id: TokenId::from_random(u64::from_le_bytes(id)),
        secret: Secret::new(secret),
    })
}
