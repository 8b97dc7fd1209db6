//! Tokens: a small table beside the ledger.

use rusqlite::{Connection, OptionalExtension, Row};
use semel_core::token::Scope;
use semel_core::{Digest, Label, Namespace, Timestamp, TokenId, TokenRecord};

use super::failed;
use super::seal::checksum;
use crate::store::{PAGE_MAX, Result, StoreError};

/// A change to the tokens.
#[derive(Debug)]
pub(super) enum TokenChange {
    Add(Box<TokenRecord>),
    Revoke(TokenId, Timestamp),
    Used(TokenId, Timestamp),
}

macro_rules! select {
    ($which:literal) => {
        concat!(
            "SELECT id, digest, namespace, scope, label, created_at, expires_at, revoked_at,
                last_used_at, sum FROM tokens ",
            $which
        )
    };
}

/// Loads a token; `None` when there is none.
pub(super) fn load(connection: &Connection, id: TokenId) -> Result<Option<TokenRecord>> {
    let load = || {
        connection
            .prepare_cached(select!("WHERE id = ?1"))?
            .query_row([id.as_str()], |row| Ok(read(row)))
            .optional()
    };
    load()
        .map_err(|error| failed("look a token up", &error))?
        .transpose()
}

/// Lists tokens in the order of their ids.
pub(super) fn list(
    connection: &Connection,
    after: Option<TokenId>,
    limit: usize,
) -> Result<Vec<TokenRecord>> {
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let after = after.as_ref().map_or("", TokenId::as_str);
    let list = || {
        connection
            .prepare_cached(select!("WHERE id > ?1 ORDER BY id LIMIT ?2"))?
            .query_map((after, limit), |row| Ok(read(row)))?
            .collect::<rusqlite::Result<Vec<_>>>()
    };
    let rows = list().map_err(|error| failed("list the tokens", &error))?;
    rows.into_iter().collect()
}

/// Writes a change; returns whether it changed anything.
pub(super) fn apply(connection: &Connection, change: TokenChange) -> Result<bool> {
    let (id, at) = match &change {
        TokenChange::Add(token) => (token.id, token.created_at),
        TokenChange::Revoke(id, at) | TokenChange::Used(id, at) => (*id, *at),
    };
    let next = match (change, load(connection, id)?) {
        (TokenChange::Add(token), None) => Some(*token),
        (TokenChange::Revoke(..), Some(stored)) if stored.revoked_at.is_none() => {
            Some(TokenRecord {
                revoked_at: Some(at),
                ..stored
            })
        }
        (TokenChange::Used(..), Some(stored)) if stored.last_used_at < Some(at) => {
            Some(TokenRecord {
                last_used_at: Some(at),
                ..stored
            })
        }
        (TokenChange::Add(_), Some(_)) | (TokenChange::Revoke(..) | TokenChange::Used(..), _) => {
            None
        }
    };
    let Some(next) = next else {
        return Ok(false);
    };
    save(connection, &next).map_err(|error| failed("write a token", &error))?;
    Ok(true)
}

fn save(connection: &Connection, token: &TokenRecord) -> rusqlite::Result<()> {
    let micros = |at: Option<Timestamp>| at.map(|at| at.0);
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO tokens (id, digest, namespace, scope, label, created_at,
                expires_at, revoked_at, last_used_at, sum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute((
            token.id.as_str(),
            token.digest.0,
            token.namespace.as_str(),
            token.scope.as_str(),
            token.label.as_ref().map(Label::as_str),
            token.created_at.0,
            micros(token.expires_at),
            micros(token.revoked_at),
            micros(token.last_used_at),
            i64::from(sum(token)),
        ))
        .map(drop)
}

/// Reads a row, if it is what was written.
fn read(row: &Row<'_>) -> Result<TokenRecord> {
    let time = |at: usize| Some(row.get::<_, Option<i64>>(at).ok()?.map(Timestamp));
    let text = |at: usize| row.get::<_, String>(at).ok();
    let token = || {
        let label: Option<String> = row.get(4).ok()?;
        let token = TokenRecord {
            id: text(0)?.parse().ok()?,
            digest: Digest(row.get(1).ok()?),
            namespace: Namespace::new(&text(2)?).ok()?,
            scope: Scope::from_word(&text(3)?)?,
            label: label.as_deref().map(Label::new).transpose().ok()?,
            created_at: time(5)??,
            expires_at: time(6)?,
            revoked_at: time(7)?,
            last_used_at: time(8)?,
        };
        let stored: i64 = row.get(9).ok()?;
        (i64::from(sum(&token)) == stored).then_some(token)
    };
    token().ok_or_else(|| {
        StoreError::Corrupt("a token cannot be read: its row is not what was written".to_owned())
    })
}

/// Sums all columns up.
fn sum(token: &TokenRecord) -> u32 {
    let mut bytes = vec![];
    let times = [
        Some(token.created_at),
        token.expires_at,
        token.revoked_at,
        token.last_used_at,
    ];
    for at in times {
        bytes.push(u8::from(at.is_some()));
        bytes.extend(at.unwrap_or_default().0.to_le_bytes());
    }
    bytes.push(u8::from(token.label.is_some()));
    // None of these texts has a NUL.
    let label = token.label.as_ref().map_or("", Label::as_str);
    let (id, namespace, scope) = (&token.id, &token.namespace, token.scope);
    bytes.extend(format!("{id}\0{namespace}\0{scope}\0{label}").as_bytes());
    checksum(&bytes, &[&token.digest.0])
}
