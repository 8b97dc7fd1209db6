//! Tokens: a small table beside the ledger.

use std::sync::Arc;
use std::time::SystemTime;

use semel_core::token::Scope;
use semel_core::{Digest, Label, Namespace, Timestamp, TokenId, TokenRecord};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::shown;
use super::durable::change_in_sight;
use super::pool::{Parameter, Pool};
use super::reader::column;
use super::standing::standing;
use crate::store::standing::only_read;
use crate::store::{Moved, PAGE_MAX, Result, Standing, StoreError};

macro_rules! select {
    ($which:literal) => {
        concat!(
            "SELECT id, digest, namespace, scope, label, \
             (extract(epoch FROM created_at) * 1000000)::bigint, \
             (extract(epoch FROM expires_at) * 1000000)::bigint, \
             (extract(epoch FROM revoked_at) * 1000000)::bigint, \
             (extract(epoch FROM last_used_at) * 1000000)::bigint \
             FROM semel.tokens ",
            $which
        )
    };
}

/// The tokens of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a> {
    pub(super) pool: &'a Arc<Pool>,
    /// Whether the store was opened to fill it as a copy.
    pub(super) filling: bool,
}

impl Tokens<'_> {
    pub(super) async fn add(self, token: TokenRecord) -> Result<bool> {
        let sql = "INSERT INTO semel.tokens (id, digest, namespace, scope, label, created_at, \
                   expires_at, revoked_at, last_used_at) \
                   SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 \
                   WHERE $10 OR (SELECT value FROM semel.meta WHERE name = 'standing') = 'open' \
                   ON CONFLICT (id) DO NOTHING RETURNING id";
        let label = token.label.as_ref().map(Label::as_str);
        let time = |at: Option<Timestamp>| -> Option<SystemTime> { at.map(shown) };
        let parameters: [Parameter<'_>; 10] = [
            (&token.id.as_str(), Type::TEXT),
            (&token.digest.0.as_slice(), Type::BYTEA),
            (&token.namespace.as_str(), Type::TEXT),
            (&token.scope.as_str(), Type::TEXT),
            (&label, Type::TEXT),
            (&shown(token.created_at), Type::TIMESTAMPTZ),
            (&time(token.expires_at), Type::TIMESTAMPTZ),
            (&time(token.revoked_at), Type::TIMESTAMPTZ),
            (&time(token.last_used_at), Type::TIMESTAMPTZ),
            (&self.filling, Type::BOOL),
        ];
        let rows = change_in_sight(self.pool, "keep a token", sql, &parameters).await?;
        if !rows.is_empty() {
            return Ok(true);
        }
        match standing(self.pool).await? {
            Standing::Closed(moved) if !self.filling => Err(Moved::refusal(&moved.to)),
            Standing::Copy | Standing::Copied { .. } if !self.filling => Err(only_read()),
            Standing::Open | Standing::Closed(_) | Standing::Copy | Standing::Copied { .. } => {
                Ok(false)
            }
        }
    }

    pub(super) async fn revoke(self, id: TokenId, at: Timestamp) -> Result<bool> {
        let sql = "UPDATE semel.tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL \
                   AND ($3 OR (SELECT value FROM semel.meta WHERE name = 'standing') <> 'copy') \
                   RETURNING id";
        self.update("revoke a token", sql, id, at).await
    }

    pub(super) async fn note_use(self, id: TokenId, at: Timestamp) -> Result<()> {
        let sql = "UPDATE semel.tokens SET last_used_at = $2 WHERE id = $1 \
                   AND (last_used_at IS NULL OR last_used_at < $2) \
                   AND ($3 OR (SELECT value FROM semel.meta WHERE name = 'standing') <> 'copy') \
                   RETURNING id";
        self.update("note the use of a token", sql, id, at).await?;
        Ok(())
    }

    async fn update(self, doing: &str, sql: &str, id: TokenId, at: Timestamp) -> Result<bool> {
        let parameters: [Parameter<'_>; 3] = [
            (&id.as_str(), Type::TEXT),
            (&shown(at), Type::TIMESTAMPTZ),
            (&self.filling, Type::BOOL),
        ];
        let rows = change_in_sight(self.pool, doing, sql, &parameters).await?;
        if rows.is_empty() && !self.filling && standing(self.pool).await? == Standing::Copy {
            return Err(only_read());
        }
        Ok(!rows.is_empty())
    }

    pub(super) async fn load(self, id: TokenId) -> Result<Option<TokenRecord>> {
        let sql = select!("WHERE id = $1");
        let parameters: [Parameter<'_>; 1] = [(&id.as_str(), Type::TEXT)];
        let rows = self.pool.read_often("look a token up", sql, &parameters);
        rows.await?.first().map(read).transpose()
    }

    pub(super) async fn list(
        self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Result<Vec<TokenRecord>> {
        let sql = select!("WHERE id > $1 ORDER BY id LIMIT $2");
        let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
        let after = after.as_ref().map_or("", TokenId::as_str);
        let parameters: [Parameter<'_>; 2] = [(&after, Type::TEXT), (&limit, Type::INT8)];
        let rows = self.pool.read("list the tokens", sql, &parameters).await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<TokenRecord> {
    let time = |at: usize| Ok(column::<Option<i64>>(row, at)?.map(Timestamp));
    let (id, digest): (&str, &[u8]) = (column(row, 0)?, column(row, 1)?);
    let (namespace, scope): (&str, &str) = (column(row, 2)?, column(row, 3)?);
    let label: Option<&str> = column(row, 4)?;
    let (created_at, expires_at) = (Timestamp(column(row, 5)?), time(6)?);
    let (revoked_at, last_used_at) = (time(7)?, time(8)?);
    let token = || {
        Some(TokenRecord {
            id: id.parse().ok()?,
            digest: Digest(digest.try_into().ok()?),
            namespace: Namespace::new(namespace).ok()?,
            scope: Scope::from_word(scope)?,
            label: label.map(Label::new).transpose().ok()?,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
        })
    };
    token().ok_or_else(|| {
        StoreError::Corrupt(format!("the token {id} in `semel.tokens` cannot be read"))
    })
}
