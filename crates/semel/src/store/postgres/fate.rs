//! What became of a batch whose answer was lost: it is looked for, never assumed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use semel_core::KeyHash;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use super::batch::Prepared;
use super::log::WRITING;
use super::pool::{Parameter, Pool};
use super::reader::{self, column};
use crate::store::time::Time;
use crate::store::{Commit, Current, Expected, Place, Result, StoreError};

/// How long it is looked for: a server that was restarted or replaced is back by then, or an operator
/// has to look.
const FATE_WAIT: Duration = Duration::from_secs(20);

/// The pause between two looks.
const FATE_PAUSE: Duration = Duration::from_millis(100);

/// A batch that was not written is sent again only so soon after it was first sent, as it was decided
/// then.
pub(super) const RETRY_WITHIN: Duration = Duration::from_secs(5);

/// A batch that was sent and not answered.
#[derive(Debug)]
pub(super) struct Lost {
    /// Its number.
    pub(super) batch: i64,
    /// All its log entries have higher numbers.
    pub(super) after: u64,
    /// What was seen of the connection's end.
    pub(super) error: String,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Found {
    /// It was committed, and this became of its changes.
    Written(Vec<Result<Commit>>),
    /// Nothing of it was written.
    Nothing,
    Unknown,
}

impl Lost {
    /// Looks until the server answers.
    pub(super) async fn find(&self, pool: &Arc<Pool>, time: &Time, changes: &[&Prepared]) -> Found {
        let started = Instant::now();
        loop {
            match self.look(pool, time, changes).await {
                Ok(found) => return found,
                Err(_) if started.elapsed() < FATE_WAIT => sleep(FATE_PAUSE).await,
                Err(_) => return Found::Unknown,
            }
        }
    }

    async fn look(&self, pool: &Arc<Pool>, time: &Time, changes: &[&Prepared]) -> Result<Found> {
        let doing = "find out whether a batch was committed";
        // It may still be going on in the server: whoever gets its lock knows that it is over.
        let lock = (self.batch & i64::from(i32::MAX)) as i32;
        let parameters: [Parameter<'_>; 2] = [(&WRITING, Type::INT4), (&lock, Type::INT4)];
        let sql = "SELECT pg_advisory_xact_lock($1, $2)";
        pool.read(doing, sql, &parameters).await?;
        let sql = "SELECT place FROM semel.log WHERE seq > $1 AND batch = $2";
        let after = self.after.cast_signed();
        let parameters: [Parameter<'_>; 2] = [(&after, Type::INT8), (&self.batch, Type::INT8)];
        let rows = pool.read(doing, sql, &parameters).await?;
        if rows.is_empty() {
            return Ok(Found::Nothing);
        }
        // It can be there and yet not on the standby that it was waiting for: what is committed after it
        // waits for both.
        let sql = "SELECT set_config('synchronous_commit', 'on', true), \
                   pg_logical_emit_message(true, 'semel', '')";
        pool.read(doing, sql, &[]).await?;
        let mut places = BTreeSet::new();
        for row in &rows {
            let place: Option<i64> = column(row, 0)?;
            places.extend(place.map(|place| Place(place.cast_unsigned())));
        }
        let keys: Vec<KeyHash> = changes.iter().map(|prepared| prepared.change.key).collect();
        let stored = reader::load(pool, time, &keys).await?;
        let commits = changes.iter().zip(stored);
        let commits = commits.map(|(prepared, current)| self.judge(prepared, current, &places));
        Ok(Found::Written(commits.collect()))
    }

    /// Judges one change of a committed batch by what is stored now.
    fn judge(
        &self,
        prepared: &Prepared,
        current: Current,
        places: &BTreeSet<Place>,
    ) -> Result<Commit> {
        let change = &prepared.change;
        let moved_on = || Err(StoreError::Unknown(self.error.clone()));
        let place = match (change.expected, &current) {
            (Expected::Version(place, _), _) => place,
            (Expected::Absent(_), Current::Stored(stored)) => stored.place,
            // Only its entry in the log was to be written, or somebody has removed it since.
            (Expected::Absent(_), Current::Absent(_)) => {
                return match change.next {
                    None => prepared.done(None),
                    Some(_) => moved_on(),
                };
            }
        };
        if !places.contains(&place) {
            return Ok(Commit::Conflict(current));
        }
        let version = current.record().map(semel_core::ledger::Record::version);
        if version == change.next.as_ref().map(|next| next.version()) {
            prepared.done(Some(place))
        } else {
            moved_on()
        }
    }
}
