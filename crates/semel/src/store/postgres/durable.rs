//! One statement in a transaction of its own, durable whatever the server's default is.

use std::sync::Arc;

use tokio_postgres::{Client, Row};

use super::fault::{failed, told};
use super::log::WRITING;
use super::pool::{Parameter, Pool, in_time};
use super::writer::random;
use crate::store::{Result, StoreError};

const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on";

/// Runs the statement.
pub(super) async fn change(
    pool: &Arc<Pool>,
    doing: &str,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>> {
    run(pool, doing, BEGIN, sql, parameters).await
}

/// Runs the statement so that whoever closes the store waits for it: what it reads of how the store stands
/// is true until it is committed.
pub(super) async fn change_in_sight(
    pool: &Arc<Pool>,
    doing: &str,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>> {
    let number = random()? & i64::from(i32::MAX);
    // Taken before the statement looks at anything; and a node that was stopped holds nobody up.
    let begin = format!(
        "{BEGIN}; SET LOCAL idle_in_transaction_session_timeout = '5s'; \
         SELECT pg_advisory_xact_lock({WRITING}, {number})"
    );
    run(pool, doing, &begin, sql, parameters).await
}

async fn run(
    pool: &Arc<Pool>,
    doing: &str,
    begin: &str,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>> {
    let connection = pool.take().await?;
    let transaction = transact(connection.client()?, doing, begin, sql, parameters);
    let changed = match in_time(transaction).await {
        Ok(changed) => changed,
        Err(late) => Err(StoreError::Unknown(late.to_string())),
    };
    if changed.is_err() {
        connection.give_up();
    }
    changed
}

async fn transact(
    client: &Client,
    doing: &str,
    begin: &str,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>> {
    let wrong = |error: tokio_postgres::Error| failed(doing, &error);
    client.batch_execute(begin).await.map_err(wrong)?;
    let rows = client.query_typed(sql, parameters).await.map_err(wrong)?;
    let committed = client.batch_execute("COMMIT").await;
    committed.map_err(|error| StoreError::Unknown(told(&error)))?;
    Ok(rows)
}
