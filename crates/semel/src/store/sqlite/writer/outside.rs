//! One change as a group of its own, written through a connection that is not the writer's.

use std::sync::Arc;

use rusqlite::Connection;
use semel_core::clock::{Stamp, judge};

use super::super::index::Fold;
use super::super::shared::{Shared, last_group};
use super::super::{marks, schema};
use super::item::Prepared;
use super::refuse_short_log;
use super::rows::Rows;
use super::statements::Statements;
use crate::clock::Clock;
use crate::store::standing::{file_was_copied, only_read};
use crate::store::{Commit, Result, Standing};

/// A group that was written, by which its COMMIT is found again.
#[derive(Debug)]
pub(crate) struct Group {
    pub(in crate::store::sqlite) first_seq: u64,
    pub(in crate::store::sqlite) last_seq: u64,
    pub(in crate::store::sqlite) body: Vec<u8>,
}

/// Writes a change to a stored record in the transaction that the connection is in, which must be one
/// that writes: then nobody else commits before it ends.
pub(in crate::store::sqlite) fn write(
    connection: &Connection,
    shared: &Arc<Shared>,
    clock: &dyn Clock,
    change: &Prepared,
) -> Result<(Commit, Group)> {
    schema::check_again(connection)?;
    match marks::standing(connection, &shared.check)? {
        Standing::Copy => return Err(only_read()),
        Standing::Copied { from } => return Err(file_was_copied(&from)),
        // Where the ledger has moved away, attempts still report.
        Standing::Open | Standing::Closed(_) => {}
    }
    let fold = Fold::load(connection)?;
    let last = last_group(connection)?;
    let mut rows = Rows::new(Arc::clone(shared), fold);
    rows.next_seq = last.map_or(0, |(last_seq, _)| last_seq) + 1;
    refuse_short_log(connection, &fold, rows.next_seq)?;
    let reading = clock.read();
    let stamp = Stamp {
        at: judge(last.map(|(_, stamp)| stamp).as_ref(), &reading),
        boot: reading.boot,
        uptime: reading.uptime,
    };
    let commit = rows.apply(&mut Statements::new(connection), change)?;
    rows.finish(connection, &stamp)?;
    let group = Group {
        first_seq: rows.first_seq(),
        last_seq: rows.next_seq - 1,
        body: std::mem::take(&mut rows.body.bytes),
    };
    Ok((commit, group))
}
