//! Tokens through a server: an administrator makes, lists and revokes those of its own namespace.
//!
//! The secret of a new token is drawn by the client and never sent; the server gets its digest.

use semel_core::{KeyHash, Label, Scope, TokenId, TokenRecord};

use super::fields::{Reader, Result, Writer, wrong};
use super::reply::Said;
use super::wall::Wall;
use crate::store::{self, PAGE_MAX, StoreError};

/// What an administrator asks about tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenCall {
    /// Keep this token.
    Add(TokenRecord),
    /// Which token has this id?
    Find(TokenId),
    /// Which tokens are there?
    List {
        /// After this one, in the order of their ids.
        after: Option<TokenId>,
        /// How many at most.
        limit: usize,
    },
    /// Revoke this token.
    Revoke(TokenId),
}

impl TokenCall {
    /// Says whether it may change what is stored.
    pub(super) const fn writes(&self) -> bool {
        match self {
            Self::Add(_) | Self::Revoke(_) => true,
            Self::Find(_) | Self::List { .. } => false,
        }
    }

    pub(super) fn put(&self, w: &mut Writer) {
        match self {
            Self::Add(token) => {
                w.byte(0);
                put_token(w, token);
            }
            Self::Find(id) => {
                w.byte(1);
                w.text(&id.to_string());
            }
            Self::List { after, limit } => {
                w.byte(2);
                w.option(*after, |w, id| w.text(&id.to_string()));
                w.number(*limit as u64);
            }
            Self::Revoke(id) => {
                w.byte(3);
                w.text(&id.to_string());
            }
        }
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<Self> {
        Ok(match r.byte("the call")? {
            0 => Self::Add(get_token(r)?),
            1 => Self::Find(get_id(r)?),
            2 => Self::List {
                after: r.option("the token", get_id)?,
                limit: r.size("the limit")?,
            },
            3 => Self::Revoke(get_id(r)?),
            4.. => return Err(wrong("the call")),
        })
    }
}

fn get_id(r: &mut Reader<'_>) -> Result<TokenId> {
    r.text("the token")?.parse().map_err(|_| wrong("the token"))
}

pub(super) fn put_token(w: &mut Writer, token: &TokenRecord) {
    w.text(&token.id.to_string());
    w.hash(&KeyHash(token.digest));
    w.text(token.namespace.as_str());
    w.text(token.scope.as_str());
    w.option(token.label.as_ref(), |w, label| w.text(label.as_str()));
    w.time(token.created_at);
    w.option(token.expires_at, Writer::time);
    w.option(token.revoked_at, Writer::time);
    w.option(token.last_used_at, Writer::time);
}

pub(super) fn get_token(r: &mut Reader<'_>) -> Result<TokenRecord> {
    let time = |r: &mut Reader<'_>| r.option("the time", |r| r.time("the time"));
    Ok(TokenRecord {
        id: get_id(r)?,
        digest: r.hash("the digest")?.0,
        namespace: r.namespace()?,
        scope: Scope::from_word(r.text("the scope")?).ok_or_else(|| wrong("the scope"))?,
        label: r.option("the label", |r| {
            Label::new(r.text("the label")?).map_err(|_| wrong("the label"))
        })?,
        created_at: r.time("the time")?,
        expires_at: time(r)?,
        revoked_at: time(r)?,
        last_used_at: time(r)?,
    })
}

/// Answers what an administrator asks; tokens of other namespaces are not there.
pub(super) async fn answer(wall: Wall<'_>, call: TokenCall) -> store::Result<Said> {
    let store = wall.store;
    let is_own = |token: &TokenRecord| token.namespace == *wall.namespace;
    Ok(match call {
        TokenCall::Add(token) => {
            if !is_own(&token) {
                let text = format!(
                    "a token for `{}` is made by an administrator of that namespace",
                    token.namespace
                );
                return Err(StoreError::Forbidden(text));
            }
            let token = TokenRecord {
                created_at: store.now(),
                revoked_at: None,
                last_used_at: None,
                ..token
            };
            let (id, digest) = (token.id, token.digest);
            let is_new = store.add_token(token).await?;
            // A call whose answer was lost comes again: it made this very token.
            let is_same = |found: &TokenRecord| found.digest == digest && is_own(found);
            let is_made = is_new || store.token(id).await?.as_ref().is_some_and(is_same);
            Said::Count(u64::from(is_made))
        }
        TokenCall::Find(id) => {
            let found = store.token(id).await?.filter(is_own);
            Said::Tokens(found.into_iter().collect())
        }
        TokenCall::List { mut after, limit } => {
            let limit = limit.clamp(1, PAGE_MAX);
            let mut own = vec![];
            // A page that is not full is the last one, so that of others must not make it shorter.
            while own.len() < limit {
                let page = store.tokens(after, PAGE_MAX).await?;
                let is_last = page.len() < PAGE_MAX;
                after = page.last().map(|token| token.id);
                own.extend(page.into_iter().filter(is_own));
                if is_last {
                    break;
                }
            }
            own.truncate(limit);
            Said::Tokens(own)
        }
        TokenCall::Revoke(id) => {
            let found = store.token(id).await?.filter(is_own);
            let revoked = match found {
                Some(_) => store.revoke_token(id, store.now()).await?,
                None => false,
            };
            Said::Count(u64::from(revoked))
        }
    })
}
