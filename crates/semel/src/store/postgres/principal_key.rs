//! The secret key under which the credentials of callers are hashed: a row of `semel.marks`.

use std::sync::Arc;

use semel_core::PrincipalKey;
use tokio_postgres::types::Type;

use super::durable::{change, change_in_sight};
use super::pool::{Parameter, Pool};
use super::reader;
use super::standing::standing;
use crate::store::standing::only_read;
use crate::store::{Moved, Result, Standing, StoreError, read_principal_key};

const NAME: &str = "principal-key";

const DOING: &str = "keep the key for the names of callers";

/// Loads the key; `None` when there is none yet.
pub(super) async fn load(pool: &Arc<Pool>) -> Result<Option<PrincipalKey>> {
    let stored = reader::mark(pool, NAME).await?;
    stored.as_deref().map(read_principal_key).transpose()
}

/// Keeps a key unless there is one, and returns the stored one. Of nodes that offer keys at once, the row of one is
/// inserted; the others read it.
pub(super) async fn offer(pool: &Arc<Pool>, key: PrincipalKey) -> Result<PrincipalKey> {
    let sql = "INSERT INTO semel.marks (name, value) SELECT $1, $2 \
               WHERE (SELECT value FROM semel.meta WHERE name = 'standing') = 'open' \
               ON CONFLICT (name) DO NOTHING";
    let bytes = key.bytes().as_slice();
    let parameters: [Parameter<'_>; 2] = [(&NAME, Type::TEXT), (&bytes, Type::BYTEA)];
    change_in_sight(pool, DOING, sql, &parameters).await?;
    if let Some(stored) = load(pool).await? {
        return Ok(stored);
    }
    Err(match standing(pool).await? {
        Standing::Copy | Standing::Copied { .. } => only_read(),
        Standing::Closed(moved) => Moved::refusal(&moved.to),
        Standing::Open => {
            let text = "the mark `principal-key` was written and is not there";
            StoreError::Unavailable(text.to_owned())
        }
    })
}

/// Takes over the key of the source of a copy.
pub(super) async fn replace(pool: &Arc<Pool>, key: PrincipalKey) -> Result<()> {
    let sql = "INSERT INTO semel.marks (name, value) VALUES ($1, $2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let bytes = key.bytes().as_slice();
    let parameters: [Parameter<'_>; 2] = [(&NAME, Type::TEXT), (&bytes, Type::BYTEA)];
    change(pool, DOING, sql, &parameters).await?;
    Ok(())
}
