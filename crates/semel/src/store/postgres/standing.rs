//! What may be done with the store: the rows of `semel.meta` that say so.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::durable::change;
use super::log::Horizon;
use super::pool::{Parameter, Pool};
use super::reader::column;
use crate::store::standing::{not_empty, only_read};
use crate::store::{Moved, Result, Standing, StoreError};

/// Reads what may be done with the store, and whether its log is empty.
async fn look(pool: &Arc<Pool>) -> Result<(Standing, bool)> {
    let sql = "SELECT (SELECT value FROM semel.meta WHERE name = 'standing'), \
               (SELECT value FROM semel.meta WHERE name = 'moved_to'), \
               (SELECT value FROM semel.meta WHERE name = 'moved_id'), \
               NOT EXISTS (SELECT FROM semel.log)";
    let rows = pool.read("read how the store stands", sql, &[]).await?;
    let row = rows.first().ok_or_else(unreadable)?;
    let standing: Option<&str> = column(row, 0)?;
    let (to, id): (Option<String>, Option<String>) = (column(row, 1)?, column(row, 2)?);
    let standing = match (standing, to, id) {
        (Some("open"), _, _) => Standing::Open,
        (Some("copy"), _, _) => Standing::Copy,
        (Some("closed"), Some(to), Some(id)) => Standing::Closed(Moved { to, id }),
        _ => return Err(unreadable()),
    };
    Ok((standing, column(row, 3)?))
}

fn unreadable() -> StoreError {
    StoreError::Corrupt("the table `semel.meta` does not say how the store stands".to_owned())
}

/// Reads what may be done with the store.
pub(super) async fn standing(pool: &Arc<Pool>) -> Result<Standing> {
    Ok(look(pool).await?.0)
}

/// Marks what was restored from a dump or cloned as the copy that it is.
pub(super) async fn recognise(pool: &Arc<Pool>) -> Result<()> {
    let sql = "UPDATE semel.meta SET value = 'copy' WHERE name = 'standing' AND value <> 'copy' \
               AND semel.here() IS DISTINCT FROM (SELECT value FROM semel.meta WHERE name = 'home')";
    change(pool, "mark the store as a copy", sql, &[]).await?;
    Ok(())
}

/// Makes an empty store a copy.
pub(super) async fn become_copy(pool: &Arc<Pool>, horizon: &Horizon) -> Result<()> {
    let doing = "make the store a copy";
    let sql = "UPDATE semel.meta SET value = 'copy' WHERE name = 'standing' AND value = 'open' \
               AND NOT EXISTS (SELECT FROM semel.log)";
    let (before, _) = look(pool).await?;
    if before == Standing::Copy {
        return Ok(());
    }
    change(pool, doing, sql, &[]).await?;
    // Those who had read that it is open may still have written.
    horizon.end(pool).await?;
    match look(pool).await? {
        (Standing::Copy, true) => Ok(()),
        (Standing::Copy, false) => {
            let sql = "UPDATE semel.meta SET value = 'open' WHERE name = 'standing'";
            change(pool, doing, sql, &[]).await?;
            Err(not_empty())
        }
        (Standing::Open | Standing::Copied { .. } | Standing::Closed(_), _) => Err(not_empty()),
    }
}

/// Closes the store, and waits for those who had read that it is open.
pub(super) async fn close(pool: &Arc<Pool>, horizon: &Horizon, moved: &Moved) -> Result<()> {
    let sql = "INSERT INTO semel.meta (name, value) \
               SELECT new.name, new.value FROM (VALUES ('moved_to', $1), ('moved_id', $2), \
               ('standing', 'closed')) AS new (name, value) \
               WHERE (SELECT value FROM semel.meta WHERE name = 'standing') <> 'copy' \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let parameters: [Parameter<'_>; 2] = [(&moved.to, Type::TEXT), (&moved.id, Type::TEXT)];
    change(pool, "close the store", sql, &parameters).await?;
    horizon.end(pool).await?;
    match standing(pool).await? {
        Standing::Closed(_) => Ok(()),
        Standing::Open | Standing::Copy | Standing::Copied { .. } => Err(only_read()),
    }
}

/// Makes a copy a store like any other, with a number of its own.
pub(super) async fn adopted(pool: &Arc<Pool>) -> Result<()> {
    let sql = "WITH gone AS (DELETE FROM semel.meta WHERE name IN ('moved_to', 'moved_id')) \
               UPDATE semel.meta SET value = CASE name WHEN 'standing' THEN 'open' \
               WHEN 'home' THEN semel.here() \
               ELSE replace(gen_random_uuid()::text, '-', '') END \
               WHERE name IN ('standing', 'home', 'id')";
    change(pool, "adopt the store", sql, &[]).await?;
    Ok(())
}
