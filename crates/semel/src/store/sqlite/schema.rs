//! The tables, and how older stores are brought up to them.

use rusqlite::{Connection, TransactionBehavior};

use super::files::FileMark;
use super::{failed, marks};
use crate::store::{Result, StoreError};

/// Marks a SQLite file as a Semel store: the letters SEME.
pub(super) const APPLICATION_ID: i64 = 0x5345_4d45;

/// The steps from an empty file to the present format; a released step never changes.
const MIGRATIONS: &[&str] = &[FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5];

/// The newest format that this version knows.
#[expect(clippy::cast_possible_wrap, reason = "there are few migrations")]
pub(super) const FORMAT: i64 = MIGRATIONS.len() as i64;

/// Rows are appended in the order of their first log entry, so that a claim and its settlement
/// touch the newest pages only; `room` keeps a running row as long as it will be when it is settled,
/// so that settling splits no page. The one random structure, from hash to row, is narrow and filled
/// later in sorted slices (see `index.rs`); until then `log.fresh` finds new rows.
const FORMAT_1: &str = "
CREATE TABLE operations (
    id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    state INTEGER NOT NULL,
    payload_row INTEGER,
    payload_offset INTEGER,
    payload_length INTEGER,
    stream_fence INTEGER,
    room BLOB,
    record BLOB NOT NULL
) STRICT;

CREATE INDEX rare_operations ON operations (id) WHERE state IN (3, 6);

CREATE TABLE slots (
    slot INTEGER PRIMARY KEY,
    id INTEGER NOT NULL
) STRICT;

CREATE TABLE collisions (
    slot INTEGER NOT NULL,
    hash BLOB NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (slot, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE open_operations (
    id INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE log (
    first_seq INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    stamp BLOB NOT NULL,
    fresh BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    live INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE chunks (
    operation INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (operation, fence, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE fold (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    indexed_through INTEGER NOT NULL,
    batch_end INTEGER NOT NULL,
    next_slot INTEGER NOT NULL,
    next_id INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
INSERT INTO fold VALUES (1, 0, 0, -9223372036854775808, 1, 3019199868);

CREATE TABLE marks (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// `sum` is a checksum of the other columns: a flipped bit must not lead to another namespace or scope.
const FORMAT_2: &str = "
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    namespace TEXT NOT NULL,
    scope TEXT NOT NULL,
    label TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The operations that count among their kin. What no door judges by its kin has no row here.
const FORMAT_3: &str = "
CREATE TABLE kin (
    kin INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (kin, id)
) STRICT, WITHOUT ROWID;
";

/// Breakers are records in states of their own, and need no table. An older version would take them for damage.
const FORMAT_4: &str = "";

/// Where tasks stand in the lines of their queues, those that wait in the order in which they are taken. Stores of older
/// formats had no workers, and so have no lines.
const FORMAT_5: &str = "
CREATE TABLE lines (
    queue INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    at INTEGER NOT NULL,
    id INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (queue, taken, rank, lane, at, id)
) STRICT, WITHOUT ROWID;
";

/// Brings the file to the present format, or says why it cannot be used; returns whether anything
/// had to be done.
///
/// What a new store is to remember of its file is put in with its tables.
pub(super) fn migrate(connection: &mut Connection, file: Option<&FileMark>) -> Result<bool> {
    if check(connection)? == FORMAT {
        return Ok(false);
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| failed("begin the migration", &error))?;
    // Another process may have done it while this one waited.
    let found = check(&transaction)?;
    for (number, step) in (1..).zip(MIGRATIONS) {
        if number > found {
            transaction
                .execute_batch(step)
                .and_then(|()| transaction.pragma_update(None, "user_version", number))
                .map_err(|error| failed("migrate", &error))?;
        }
    }
    if let (0, Some(file)) = (found, file) {
        marks::save(&transaction, marks::FILE, file.to_bytes())?;
    }
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(|error| failed("mark the store", &error))?;
    transaction
        .commit()
        .map_err(|error| failed("commit the migration", &error))?;
    Ok(true)
}

/// Refuses to go on when a newer version has brought the file to its own format meanwhile.
pub(super) fn check_again(connection: &Connection) -> Result<()> {
    let format: i64 = connection
        .prepare_cached("PRAGMA user_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(|error| failed("read the store's header", &error))?;
    if format > FORMAT {
        return Err(newer(format));
    }
    Ok(())
}

fn newer(format: i64) -> StoreError {
    StoreError::Unusable {
        text: format!(
            "the store has format {format}, made by a newer version of Semel; \
             this version knows formats up to {FORMAT}"
        ),
        hint: "use the version of Semel that made it, or a newer one",
    }
}

/// Returns the format of the file, refusing what is not ours or newer than this version.
pub(super) fn check(connection: &Connection) -> Result<i64> {
    let pragma = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| failed("read the store's header", &error))
    };
    let (application, format) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| failed("read the store's schema", &error))?;
    if application != APPLICATION_ID && (application != 0 || format != 0 || tables != 0) {
        return Err(StoreError::Unusable {
            text: "the file is a SQLite database, but not a Semel store".to_owned(),
            hint: "name another file with --store",
        });
    }
    if format > FORMAT {
        return Err(newer(format));
    }
    Ok(format)
}
