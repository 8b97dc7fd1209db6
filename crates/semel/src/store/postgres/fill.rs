//! Filling and adopting a copy: batches whose transaction says that it may write one.
//!
//! Nobody else writes meanwhile, and whoever fills a copy can start again where it stopped. So a lost
//! answer is an error here, and is not looked for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use semel_core::KeyHash;
use tokio_postgres::Client;

use super::batch::{APPLY, Arguments, Call, Prepared, Written, written};
use super::fault::{failed, told};
use super::pool::{Pool, in_time};
use super::writer::{Item, PATIENCE_ALONE, next, random};
use crate::store::time::Time;
use crate::store::{Result, StoreError};

const DOING: &str = "write to the copy";

/// Writes changes and answers each.
pub(super) async fn fill(pool: Arc<Pool>, time: Arc<Time>, items: Vec<Item>) {
    let mut waiting: BTreeMap<KeyHash, VecDeque<Item>> = BTreeMap::new();
    for item in items {
        waiting
            .entry(item.0.change.key)
            .or_default()
            .push_back(item);
    }
    while !waiting.is_empty() {
        let batch = next(&mut waiting);
        let changes: Vec<&Prepared> = batch.iter().map(|(prepared, _)| prepared).collect();
        let sent = time.uptime();
        let commits = match send(&pool, &changes).await {
            Ok(written) => {
                time.hear(written.clock, sent);
                written.commits
            }
            Err(error) => changes.iter().map(|_| Err(error.clone())).collect(),
        };
        for ((_, answer), commit) in batch.into_iter().zip(commits) {
            // Whoever asked may have gone.
            drop(answer.send(commit));
        }
    }
}

async fn send(pool: &Arc<Pool>, changes: &[&Prepared]) -> Result<Written> {
    let connection = pool.take().await?;
    let sent = match in_time(transact(connection.client()?, changes)).await {
        Ok(sent) => sent,
        Err(late) => Err(StoreError::Unknown(late.to_string())),
    };
    if sent.is_err() {
        connection.give_up();
    }
    sent
}

async fn transact(client: &Client, changes: &[&Prepared]) -> Result<Written> {
    let wrong = |error: tokio_postgres::Error| failed(DOING, &error);
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL semel.fills = 'on'";
    client.batch_execute(begin).await.map_err(wrong)?;
    let call = Call {
        batch: random()?,
        patience: PATIENCE_ALONE,
    };
    let arguments = Arguments::new(call, changes);
    let parameters = arguments.parameters();
    let rows = client.query_typed(APPLY, &parameters).await;
    let rows = rows.map_err(wrong)?;
    let written = written(&rows, changes)?;
    let committed = client.batch_execute("COMMIT").await;
    committed.map_err(|error| StoreError::Unknown(told(&error)))?;
    Ok(written)
}
