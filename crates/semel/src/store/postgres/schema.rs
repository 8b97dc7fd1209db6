//! The tables, and how they come about. Several nodes may start at once; tables only move forward.
//!
//! Everything lies in the schema `semel`. The columns beside `record` and `entry` are there to be
//! read by people and to be searched; what counts is in the bytes.

use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::fault::failed;
use super::pool::{Pool, in_time};
use crate::store::{Result, StoreError};

/// The format that this version writes: the number of steps below.
const FORMAT: i64 = STEPS.len() as i64;

/// The number by which nodes that start at once wait for each other: "semel" in ASCII.
const MIGRATION_LOCK: i64 = 0x73_65_6d_65_6c;

/// Each step leads from one format to the next and is never changed once it was released.
const STEPS: [&str; 5] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
];

/// What is known about a store when it is opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// A number unlike that of any other store.
    pub(super) id: String,
    /// Whether it does not lie where it was made, and nobody has adopted it since.
    pub(super) elsewhere: bool,
}

/// Makes or brings forward the tables.
pub(super) async fn prepare(pool: &Arc<Pool>) -> Result<Opened> {
    let look = "SELECT current_setting('server_encoding'), to_regclass('semel.meta') IS NOT NULL, version()";
    let found = pool.read("look at the database", look, &[]).await?;
    let (encoding, there, version): (String, bool, String) = match found.first() {
        Some(row) => (text(row, 0)?, cell(row, 1)?, text(row, 2)?),
        None => return Err(unreadable()),
    };
    if let Some(why) = unsuitable(&version) {
        return Err(StoreError::Refused(why));
    }
    if encoding != "UTF8" {
        return Err(StoreError::Refused(format!(
            "the database's encoding is {encoding}; Semel needs one with UTF8 \
             (`createdb --encoding=UTF8 --template=template0 NAME`)"
        )));
    }
    if there && let Some(opened) = opened(&read_meta(pool).await?)? {
        return Ok(opened);
    }
    migrate(pool).await?;
    opened(&read_meta(pool).await?)?.ok_or_else(unreadable)
}

/// Says why a server that speaks like PostgreSQL cannot hold a ledger.
fn unsuitable(version: &str) -> Option<String> {
    // Whoever looks for a lost COMMIT, and whoever reads the log, relies on locks that wait.
    version.contains("CockroachDB").then(|| {
        format!("the server is no PostgreSQL ({version}): its advisory locks do not lock anything")
    })
}

fn unreadable() -> StoreError {
    StoreError::Corrupt("the table `semel.meta` cannot be read".to_owned())
}

fn cell<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|_| unreadable())
}

fn text(row: &Row, column: usize) -> Result<String> {
    cell(row, column)
}

const META: &str = "SELECT name, value FROM semel.meta";

/// As above, and where the tables lie now.
const META_HERE: &str = "SELECT name, value FROM semel.meta UNION ALL SELECT 'here', semel.here()";

async fn read_meta(pool: &Arc<Pool>) -> Result<Vec<(String, String)>> {
    let rows = pool
        .read("read the schema's format", META_HERE, &[])
        .await?;
    rows.iter()
        .map(|row| Ok((text(row, 0)?, text(row, 1)?)))
        .collect()
}

fn format_of(meta: &[(String, String)]) -> Result<i64> {
    let format = meta.iter().find(|(name, _)| name == "format");
    let format = format.and_then(|(_, value)| value.parse().ok());
    let format: i64 = format.ok_or_else(unreadable)?;
    if format > FORMAT {
        return Err(StoreError::Refused(format!(
            "the schema `semel` has format {format}, and this version knows formats up to {FORMAT}: \
             use the newer version of Semel that wrote it"
        )));
    }
    Ok(format)
}

/// Returns what is known, unless the tables are of an older format.
fn opened(meta: &[(String, String)]) -> Result<Option<Opened>> {
    if format_of(meta)? < FORMAT {
        return Ok(None);
    }
    let value = |wanted: &str| {
        let found = meta.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value).ok_or_else(unreadable)
    };
    Ok(Some(Opened {
        id: value("id")?.clone(),
        elsewhere: value("home")? != value("here")?,
    }))
}

async fn migrate(pool: &Arc<Pool>) -> Result<()> {
    let connection = pool.take().await?;
    match in_time(steps(connection.client()?)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => {
            connection.give_up();
            Err(error)
        }
    }
}

async fn steps(client: &Client) -> Result<()> {
    let doing = "make the schema `semel`";
    let wrong = |error: tokio_postgres::Error| failed(doing, &error);
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
    client.batch_execute(begin).await.map_err(wrong)?;
    client
        .query_typed(
            "SELECT pg_advisory_xact_lock($1)",
            &[(&MIGRATION_LOCK, Type::INT8)],
        )
        .await
        .map_err(wrong)?;
    // Who waited for another node finds its work done.
    let looked = client
        .query_typed(
            "SELECT to_regnamespace('semel') IS NOT NULL, to_regclass('semel.meta') IS NOT NULL",
            &[],
        )
        .await
        .map_err(wrong)?;
    let (schema, tables): (bool, bool) = match looked.first() {
        Some(row) => (cell(row, 0)?, cell(row, 1)?),
        None => return Err(unreadable()),
    };
    // A schema that is there may have been made by somebody with more rights, for us to use.
    if !schema {
        client
            .batch_execute("CREATE SCHEMA semel")
            .await
            .map_err(wrong)?;
    }
    let from = if tables {
        let rows = client.query_typed(META, &[]).await.map_err(wrong)?;
        let meta = rows.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?)));
        format_of(&meta.collect::<Result<Vec<_>>>()?)?
    } else {
        0
    };
    for step in STEPS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        client.batch_execute(step).await.map_err(wrong)?;
    }
    let format = FORMAT.to_string();
    client
        .execute_typed(
            "UPDATE semel.meta SET value = $1 WHERE name = 'format'",
            &[(&format, Type::TEXT)],
        )
        .await
        .map_err(wrong)?;
    client.batch_execute("COMMIT").await.map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_locks_do_not_lock_is_refused() {
        assert_eq!(
            unsuitable("PostgreSQL 15.18 (Debian 15.18-0+deb12u1)"),
            None
        );
        let why = unsuitable("CockroachDB CCL v25.2.0 (x86_64-pc-linux-gnu)");
        assert!(why.is_some_and(|why| why.contains("advisory locks")));
    }
}
