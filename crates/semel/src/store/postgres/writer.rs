//! The writer: one task that takes what waits and writes it in one transaction.
//!
//! Whoever writes first locks the one row of `semel.head`, which also hands out the numbers of the log
//! without a gap. So the transactions of all nodes come one after the other: what was read under the
//! lock stays true until COMMIT, and no two of them can wait for each other. The price is that nodes do
//! not share a sync, so batches are large: whatever came while the last one was written goes together.
//! A transaction takes two round trips: lock and read, then write and COMMIT.

use std::sync::Arc;

use semel_core::Digest;
use semel_core::KeyHash;
use semel_core::clock::Stamp;
use semel_core::ledger::{Fence, Version};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;

use super::batch::{Batch, Content, Held, Prepared, Row, StreamWrite};
use super::fate::{Fate, Lost, judge};
use super::fault::{failed, is_lost};
use super::listen::tell;
use super::pool::{Connection, Pool, in_time};
use super::reader::{Head, column, head_of};
use super::statements::{Statement, number, pipeline, writes};
use super::time::Time;
use crate::store::bytes::write_stamp;
use crate::store::group::GROUP_MAX;
use crate::store::{Commit, Expected, Place, Result, StoreError};

/// The bytes after which a batch takes no further item: a message to PostgreSQL must stay far below
/// its limit of 1 GiB, whatever the payloads.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Begins a transaction. It is durable whatever the server's default is. A node that was stopped in
/// the middle must not hold the others up: the server ends its session. Whoever waits for the lock
/// gives up later than that.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SET LOCAL synchronous_commit = on; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; \
    SET LOCAL lock_timeout = '15s'";

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

/// What is to be written, and who waits for it.
#[derive(Debug)]
pub(super) enum Item {
    Change(Box<Prepared>, Answer<Commit>),
    Append(Place, Fence, Vec<(u8, Vec<u8>)>, Answer<()>),
    Discard(Place, Fence, Answer<()>),
    Mark(&'static str, Vec<u8>, Answer<()>),
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Self::Change(prepared, _) => prepared.packed.as_ref().map_or(0, Vec::len),
            Self::Append(_, _, chunks, _) => chunks.iter().map(|(_, packed)| packed.len()).sum(),
            Self::Discard(..) => 0,
            Self::Mark(_, value, _) => value.len(),
        }
    }

    fn fail(self, error: &StoreError) {
        // Whoever asked may have gone.
        match self {
            Self::Change(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Append(_, _, _, answer)
            | Self::Discard(_, _, answer)
            | Self::Mark(_, _, answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}

/// An answer that is told once the transaction is over.
pub(super) enum Told {
    Commit(Answer<Commit>, Result<Commit>),
    Unit(Answer<()>),
}

impl Told {
    pub(super) fn tell(self) {
        // Whoever asked may have gone.
        match self {
            Self::Commit(answer, commit) => drop(answer.send(commit)),
            Self::Unit(answer) => drop(answer.send(Ok(()))),
        }
    }

    pub(super) fn fail(self, error: &StoreError) {
        match self {
            Self::Commit(answer, _) => drop(answer.send(Err(error.clone()))),
            Self::Unit(answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}

/// Writes what comes, until nobody can ask any more.
pub(super) async fn run(pool: Arc<Pool>, time: Arc<Time>, mut items: mpsc::Receiver<Item>) {
    let writer = Writer { pool, time };
    while let Some(first) = items.recv().await {
        let mut size = first.size();
        let mut batch = vec![first];
        while batch.len() < GROUP_MAX && size < BATCH_BYTES_MAX {
            let Ok(item) = items.try_recv() else { break };
            size += item.size();
            batch.push(item);
        }
        writer.write(batch).await;
    }
}

/// A transaction that has the lock and has read what it needs.
struct Begun {
    connection: Connection,
    head: Head,
    rows: Vec<(Place, Row)>,
}

struct Writer {
    pool: Arc<Pool>,
    time: Arc<Time>,
}

impl Writer {
    async fn write(&self, items: Vec<Item>) {
        let (keys, places) = subjects(&items);
        let begun = match self.begin(&keys, &places).await {
            Ok(begun) => begun,
            Err(error) => {
                items.into_iter().for_each(|item| item.fail(&error));
                return;
            }
        };
        let mut batch = Batch::new(begun.head.seq, begun.rows);
        let answers: Vec<Told> = items
            .into_iter()
            .map(|item| take(&mut batch, item))
            .collect();
        if batch.writes_nothing() {
            // What was read under the lock is the answer; nothing depends on how this ends.
            end(begun.connection).await;
            answers.into_iter().for_each(Told::tell);
            return;
        }
        self.commit(begun.connection, &begun.head, batch, answers)
            .await;
    }

    /// Takes the lock and reads the rows. Nothing was written when it fails, so a connection that
    /// turns out to be lost is replaced.
    async fn begin(&self, keys: &[Vec<u8>], places: &[i64]) -> Result<Begun> {
        let statements = [
            Statement::new("SELECT seq, stamp, batch FROM semel.head FOR UPDATE"),
            Statement::new(
                "SELECT place, key_hash, version, has_payload, stream_fence, record \
                 FROM semel.operations WHERE key_hash = ANY($1) UNION ALL \
                 SELECT place, key_hash, version, has_payload, stream_fence, record \
                 FROM semel.operations WHERE place = ANY($2)",
            )
            .with(keys.to_vec(), Type::BYTEA_ARRAY)
            .with(places.to_vec(), Type::INT8_ARRAY),
            // After the lock, as the wait for it is no part of the time.
            Statement::new(super::reader::CLOCK),
        ];
        loop {
            let connection = self.pool.take().await?;
            let client = connection.client()?;
            let opening = async {
                tokio::join!(biased; client.batch_execute(BEGIN), pipeline(client, &statements))
            };
            let read = match in_time(opening).await {
                Ok((Ok(()), answers)) => answers
                    .into_iter()
                    .collect::<std::result::Result<Vec<_>, _>>(),
                Ok((Err(error), _)) => Err(error),
                Err(late) => {
                    connection.give_up();
                    return Err(late);
                }
            };
            let error = match read {
                Ok(read) => {
                    let understood = self.understand(&read);
                    return match understood {
                        Ok((head, rows)) => Ok(Begun {
                            connection,
                            head,
                            rows,
                        }),
                        Err(error) => {
                            connection.give_up();
                            Err(error)
                        }
                    };
                }
                Err(error) => error,
            };
            let again = connection.reused && is_lost(&error);
            connection.give_up();
            if !again {
                return Err(failed("write to the ledger", &error));
            }
            self.pool.forget_idle();
        }
    }

    fn understand(&self, read: &[Vec<tokio_postgres::Row>]) -> Result<(Head, Vec<(Place, Row)>)> {
        let (Some(head), Some(rows), Some(clock)) = (
            read.first().and_then(|rows| rows.first()),
            read.get(1),
            read.get(2),
        ) else {
            return Err(StoreError::Corrupt("`semel.head` has no row".to_owned()));
        };
        let head = head_of(head)?;
        if let Some(clock) = clock.first() {
            let at = semel_core::Timestamp(column(clock, 0)?);
            self.time.hear(head.seq, head.stamp, at);
        }
        let rows = rows.iter().map(row_of).collect::<Result<Vec<_>>>()?;
        Ok((head, rows))
    }

    async fn commit(
        &self,
        connection: Connection,
        head: &Head,
        mut batch: Batch,
        answers: Vec<Told>,
    ) {
        let refuse = |answers: Vec<Told>, error: &StoreError| {
            answers.into_iter().for_each(|answer| answer.fail(error));
        };
        let mut id = [0; 16];
        if let Err(error) = getrandom::fill(&mut id) {
            connection.give_up();
            let text = format!("the system gives no randomness: {error}");
            return refuse(answers, &StoreError::Unavailable(text));
        }
        let stamp: Stamp = self.time.stamp();
        let seq = batch.seq();
        let first = (seq > head.seq).then_some(head.seq + 1);
        // A time is stored with the log only: marks alone say nothing about it.
        let stored = match (first, &head.stamp) {
            (None, before) => *before,
            (Some(_), _) => Some(stamp),
        };
        let mut statements = writes(&mut batch, &id);
        statements.push(
            Statement::new("UPDATE semel.head SET seq = $1, stamp = $2, batch = $3")
                .with(seq.cast_signed(), Type::INT8)
                .with(
                    stored.map(|stamp| write_stamp(&stamp).to_vec()),
                    Type::BYTEA,
                )
                .with(id.to_vec(), Type::BYTEA),
        );
        statements.extend(tell(&batch.woken));
        statements.push(Statement::new("COMMIT"));
        let client = match connection.client() {
            Ok(client) => client,
            Err(error) => return refuse(answers, &error),
        };
        let ended = in_time(pipeline(client, &statements)).await;
        let fate = match ended {
            Ok(results) => judge(results),
            Err(late) => Fate::Unknown(late.to_string()),
        };
        match fate {
            Fate::Committed => {
                if first.is_some() {
                    self.time.stored(seq, stamp);
                }
                drop(connection);
                answers.into_iter().for_each(Told::tell);
            }
            Fate::Refused(error) => {
                connection.give_up();
                refuse(answers, &error);
            }
            Fate::Unknown(error) => {
                connection.give_up();
                self.pool.forget_idle();
                let lost = Lost {
                    pool: Arc::clone(&self.pool),
                    id,
                    before: head.batch.clone(),
                    first,
                    answers,
                    error,
                };
                // Others hear at once that the server is gone, instead of waiting behind this.
                tokio::spawn(lost.find());
            }
        }
    }
}

/// Ends a transaction that wrote nothing.
async fn end(connection: Connection) {
    let ended = match connection.client() {
        Ok(client) => in_time(client.batch_execute("ROLLBACK")).await,
        Err(error) => Err(error),
    };
    if !matches!(ended, Ok(Ok(()))) {
        connection.give_up();
    }
}

/// Which keys and places a batch is about.
fn subjects(items: &[Item]) -> (Vec<Vec<u8>>, Vec<i64>) {
    let (mut keys, mut places): (Vec<KeyHash>, Vec<i64>) = (vec![], vec![]);
    for item in items {
        match item {
            Item::Change(prepared, _) => {
                let change = &prepared.change;
                keys.push(change.key);
                if let Expected::Version(place, _) = change.expected {
                    places.push(number(place));
                }
                places.extend(change.guard.map(|guard| number(guard.place)));
            }
            Item::Discard(place, ..) => places.push(number(*place)),
            Item::Append(..) | Item::Mark(..) => {}
        }
    }
    keys.sort_unstable();
    keys.dedup();
    places.sort_unstable();
    places.dedup();
    (
        keys.into_iter().map(|key| key.0.0.to_vec()).collect(),
        places,
    )
}

fn row_of(row: &tokio_postgres::Row) -> Result<(Place, Row)> {
    let place = Place(column::<i64>(row, 0)?.cast_unsigned());
    let key: Vec<u8> = column(row, 1)?;
    let key = key.try_into().map_err(|_| {
        StoreError::Corrupt(format!(
            "the key's hash of record {} cannot be read",
            place.0
        ))
    })?;
    let stream: Option<i64> = column(row, 4)?;
    let held = match (column::<bool>(row, 3)?, stream) {
        (true, _) => Held::Packed,
        (false, Some(fence)) => Held::Stream(Fence(fence.cast_unsigned())),
        (false, None) => Held::Nowhere,
    };
    let row = Row {
        key: KeyHash(Digest(key)),
        version: Version(column::<i64>(row, 2)?.cast_unsigned()),
        held,
        record: Content::Read(column(row, 5)?),
    };
    Ok((place, row))
}

fn take(batch: &mut Batch, item: Item) -> Told {
    match item {
        Item::Change(prepared, answer) => Told::Commit(answer, batch.apply(*prepared)),
        Item::Append(place, fence, chunks, answer) => {
            batch
                .streams
                .push(StreamWrite::Append(place, fence, chunks));
            Told::Unit(answer)
        }
        Item::Discard(place, fence, answer) => {
            batch.discard(place, fence);
            Told::Unit(answer)
        }
        Item::Mark(name, value, answer) => {
            batch.marks.insert(name, value);
            Told::Unit(answer)
        }
    }
}
