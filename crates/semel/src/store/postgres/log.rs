//! The log, read forward without missing anything.
//!
//! Numbers are handed out before COMMIT, so an entry can appear below one that was read already. Every
//! transaction holds an advisory lock of a known class before it takes a number. So the numbers below
//! the last one are final once those who held such a lock at that moment are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::ledger::codec::decode_entry;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use super::pool::{Parameter, Pool};
use super::reader::{BUCKETS, column};
use crate::store::{Logged, PAGE_MAX, Place, Result, StoreError};

/// How long a reader waits for transactions that began before it. The server ends one that was left
/// open sooner.
const FINAL_WAIT: Duration = Duration::from_secs(20);

/// The first pause before they are looked for again, and the longest.
const FINAL_PAUSE_FIRST: Duration = Duration::from_millis(1);
const FINAL_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The class of the locks, as in `semel.apply`: "seml" in ASCII.
pub(super) const WRITING: i32 = 0x73_65_6d_6c;

/// Up to which number the log is known to be final.
#[derive(Debug, Default)]
pub(super) struct Horizon(AtomicU64);

impl Horizon {
    /// Finds the number up to which the log is final now.
    async fn look(&self, pool: &Arc<Pool>) -> Result<u64> {
        // Before the locks are looked at: whoever takes a later number does not matter.
        let sql = "SELECT last_value, is_called FROM semel.numbers";
        let rows = pool.read("read the log", sql, &[]).await?;
        let last = match rows.first() {
            Some(row) if column::<bool>(row, 1)? => column::<i64>(row, 0)?.cast_unsigned(),
            Some(_) => 0,
            None => return Err(StoreError::Corrupt("`semel.numbers` is empty".to_owned())),
        };
        let last = last.saturating_mul(BUCKETS) + (BUCKETS - 1);
        let (before, started) = (writing(pool).await?, Instant::now());
        let (mut left, mut pause) = (before.clone(), FINAL_PAUSE_FIRST);
        while !left.is_empty() {
            if started.elapsed() >= FINAL_WAIT {
                return Err(StoreError::Unavailable(
                    "a transaction that writes to the ledger has been open for too long".to_owned(),
                ));
            }
            sleep(pause).await;
            pause = (pause * 2).min(FINAL_PAUSE_MAX);
            left = writing(pool).await?;
            left.retain(|holder| before.contains(holder));
        }
        self.0.fetch_max(last, Ordering::Relaxed);
        Ok(last)
    }

    /// Returns the number of the last entry below which nothing will appear.
    pub(super) async fn end(&self, pool: &Arc<Pool>) -> Result<u64> {
        let last = self.look(pool).await?.cast_signed();
        let sql = "SELECT coalesce(max(seq), 0) FROM semel.log WHERE seq <= $1";
        let rows = pool
            .read("read the log", sql, &[(&last, Type::INT8)])
            .await?;
        let end: i64 = match rows.first() {
            Some(row) => column(row, 0)?,
            None => 0,
        };
        Ok(end.cast_unsigned())
    }

    /// Reads the log forward.
    pub(super) async fn log(
        &self,
        pool: &Arc<Pool>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>> {
        let page = read(pool, after, limit).await?;
        let known = self.0.load(Ordering::Relaxed);
        if page.last().is_none_or(|last| last.seq <= known) {
            return Ok(page);
        }
        let last = self.look(pool).await?;
        let mut page = read(pool, after, limit).await?;
        page.retain(|logged| logged.seq <= last);
        Ok(page)
    }
}

/// Returns who writes now: the server's process and the number of its batch.
async fn writing(pool: &Arc<Pool>) -> Result<Vec<(i32, i64)>> {
    let sql = "SELECT l.pid, l.objid::bigint FROM pg_locks l \
               JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() \
               WHERE l.locktype = 'advisory' AND l.classid = $1 AND l.objsubid = 2 AND l.granted";
    let class: u32 = WRITING.cast_unsigned();
    let rows = pool
        .read("read the log", sql, &[(&class, Type::OID)])
        .await?;
    rows.iter()
        .map(|row| Ok((column(row, 0)?, column(row, 1)?)))
        .collect()
}

async fn read(pool: &Arc<Pool>, after: u64, limit: usize) -> Result<Vec<Logged>> {
    let sql = "SELECT seq, place, entry FROM semel.log WHERE seq > $1 ORDER BY seq LIMIT $2";
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 2] = [(&after, Type::INT8), (&limit, Type::INT8)];
    let rows = pool.read("read the log", sql, &parameters).await?;
    let logged = rows.iter().map(|row| {
        let seq: i64 = column(row, 0)?;
        let place: Option<i64> = column(row, 1)?;
        let entry = decode_entry(column(row, 2)?)
            .map_err(|error| StoreError::Corrupt(format!("log entry {seq}: {error}")))?;
        Ok(Logged {
            seq: seq.cast_unsigned(),
            place: place.map(|place| Place(place.cast_unsigned())),
            entry,
        })
    });
    logged.collect()
}
