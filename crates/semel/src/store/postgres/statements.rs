//! The statements of one transaction: arrays instead of rows, so that their number does not grow
//! with the batch.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel_core::ledger::codec::encode_record;
use semel_core::ledger::{Record, StateKind};
use semel_core::{KeyHash, Timestamp};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::batch::{Batch, Content, Held, PayloadWrite, StreamWrite};
use crate::store::Place;

/// The last moment that a readable column shows, in the year 9999: the record has the true one.
const SHOWN_MAX: i64 = 253_402_300_799_000_000;

/// What a statement brings.
pub(super) type Rows = Result<Vec<Row>, Error>;

/// A statement with its parameters.
pub(super) struct Statement {
    sql: &'static str,
    parameters: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Statement {
    pub(super) fn new(sql: &'static str) -> Self {
        Self {
            sql,
            parameters: vec![],
        }
    }

    pub(super) fn with(mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) -> Self {
        self.parameters.push((Box::new(value), kind));
        self
    }

    async fn run(&self, client: &Client) -> Rows {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = self
            .parameters
            .iter()
            .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        client.query_typed(self.sql, &parameters).await
    }
}

/// Sends statements back to back, in their order, and waits for all answers.
pub(super) async fn pipeline(client: &Client, statements: &[Statement]) -> Vec<Rows> {
    let mut waiting: Vec<Pin<Box<dyn Future<Output = Rows> + Send + '_>>> = vec![];
    for statement in statements {
        waiting.push(Box::pin(statement.run(client)));
    }
    let mut answers: Vec<Option<Rows>> = statements.iter().map(|_| None).collect();
    // A statement is sent when its future is first polled, so the first round sends all of them.
    poll_fn(|context| {
        let mut all = true;
        for (answer, future) in answers.iter_mut().zip(&mut waiting) {
            if answer.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *answer = Some(ready),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// A time as people read it.
pub(super) fn shown(at: Timestamp) -> SystemTime {
    let micros = at.0.clamp(0, SHOWN_MAX).cast_unsigned();
    UNIX_EPOCH + Duration::from_micros(micros)
}

pub(super) fn number(place: Place) -> i64 {
    place.0.cast_signed()
}

/// The columns of rows that are to be written.
#[derive(Default)]
struct Columns {
    place: Vec<i64>,
    key_hash: Vec<Vec<u8>>,
    root_hash: Vec<Vec<u8>>,
    version: Vec<i64>,
    fence: Vec<i64>,
    state: Vec<&'static str>,
    namespace: Vec<Option<String>>,
    key: Vec<Option<String>>,
    name: Vec<Option<String>>,
    door: Vec<Option<String>>,
    queue: Vec<Option<String>>,
    attempt: Vec<Option<i32>>,
    created_at: Vec<Option<SystemTime>>,
    settled_at: Vec<Option<SystemTime>>,
    lease_until: Vec<Option<SystemTime>>,
    has_payload: Vec<bool>,
    stream_fence: Vec<Option<i64>>,
    record: Vec<Vec<u8>>,
}

/// The state as its column has it.
pub(super) const fn state(kind: StateKind) -> &'static str {
    kind.as_str()
}

impl Columns {
    fn push(&mut self, place: Place, key: &KeyHash, held: Held, record: &Record) {
        self.place.push(number(place));
        self.key_hash.push(key.0.0.to_vec());
        self.version.push(record.version().0.cast_signed());
        self.fence.push(record.fence().0.cast_signed());
        self.state.push(state(record.kind()));
        self.has_payload.push(held == Held::Packed);
        self.stream_fence.push(match held {
            Held::Stream(fence) => Some(fence.0.cast_signed()),
            Held::Nowhere | Held::Packed => None,
        });
        self.record.push(encode_record(record));
        let operation = record.operation();
        let spec = operation.map(|operation| &operation.spec);
        let root = spec.and_then(|spec| {
            let parent = spec.parent.as_ref()?;
            Some(KeyHash::of(&spec.namespace, &parent.root))
        });
        self.root_hash.push(root.unwrap_or(*key).0.0.to_vec());
        let (namespace, named, settled_at) = match record {
            Record::Operation(operation) => (
                Some(operation.spec.namespace.to_string()),
                Some(operation.spec.key.to_string()),
                operation.settled().map(|settled| settled.at),
            ),
            Record::Tombstone(tombstone) => (
                Some(tombstone.namespace.to_string()),
                Some(tombstone.key.to_string()),
                Some(tombstone.settled_at),
            ),
            Record::Stub(_) => (None, None, None),
        };
        self.namespace.push(namespace);
        self.key.push(named);
        self.settled_at.push(settled_at.map(shown));
        self.name.push(spec.map(|spec| spec.name.to_string()));
        let door = spec.and_then(|spec| spec.door.as_ref());
        self.door.push(door.map(ToString::to_string));
        let queue = operation.and_then(|operation| operation.queue.as_ref());
        self.queue.push(queue.map(ToString::to_string));
        let attempt = operation.map(|operation| operation.attempt);
        self.attempt
            .push(attempt.map(|attempt| i32::try_from(attempt).unwrap_or(i32::MAX)));
        self.created_at
            .push(operation.map(|operation| shown(operation.created_at)));
        let lease = operation.and_then(semel_core::ledger::Operation::lease_until);
        self.lease_until.push(lease.map(shown));
    }

    fn statement(self, sql: &'static str) -> Option<Statement> {
        if self.place.is_empty() {
            return None;
        }
        let statement = Statement::new(sql)
            .with(self.place, Type::INT8_ARRAY)
            .with(self.key_hash, Type::BYTEA_ARRAY)
            .with(self.root_hash, Type::BYTEA_ARRAY)
            .with(self.version, Type::INT8_ARRAY)
            .with(self.fence, Type::INT8_ARRAY)
            .with(self.state, Type::TEXT_ARRAY)
            .with(self.namespace, Type::TEXT_ARRAY)
            .with(self.key, Type::TEXT_ARRAY)
            .with(self.name, Type::TEXT_ARRAY)
            .with(self.door, Type::TEXT_ARRAY)
            .with(self.queue, Type::TEXT_ARRAY)
            .with(self.attempt, Type::INT4_ARRAY)
            .with(self.created_at, Type::TIMESTAMPTZ_ARRAY)
            .with(self.settled_at, Type::TIMESTAMPTZ_ARRAY)
            .with(self.lease_until, Type::TIMESTAMPTZ_ARRAY)
            .with(self.has_payload, Type::BOOL_ARRAY)
            .with(self.stream_fence, Type::INT8_ARRAY)
            .with(self.record, Type::BYTEA_ARRAY);
        Some(statement)
    }
}

const INSERT: &str = "INSERT INTO semel.operations (place, key_hash, root_hash, version, fence, \
    state, namespace, key, name, door, queue, attempt, created_at, settled_at, lease_until, \
    has_payload, stream_fence, record) \
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
    $17, $18)";

/// The hashes of a row never change.
const UPDATE: &str = "UPDATE semel.operations AS o SET version = n.version, fence = n.fence, \
    state = n.state, namespace = n.namespace, key = n.key, name = n.name, door = n.door, \
    queue = n.queue, attempt = n.attempt, created_at = n.created_at, settled_at = n.settled_at, \
    lease_until = n.lease_until, has_payload = n.has_payload, stream_fence = n.stream_fence, \
    record = n.record \
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) \
    AS n (place, key_hash, root_hash, version, fence, state, namespace, key, name, door, queue, \
    attempt, created_at, settled_at, lease_until, has_payload, stream_fence, record) \
    WHERE o.place = n.place";

/// Makes the statements that write a batch, all but those that end it.
pub(super) fn writes(batch: &mut Batch, id: &[u8; 16]) -> Vec<Statement> {
    let mut statements = vec![];
    let (mut fresh, mut changed) = (Columns::default(), Columns::default());
    let mut removed = vec![];
    let (mut erased, mut packed_places, mut packed) = (vec![], vec![], vec![]);
    for (place, slot) in &mut batch.slots {
        match std::mem::replace(&mut slot.payload, PayloadWrite::Keep) {
            PayloadWrite::Keep => {}
            PayloadWrite::Put(bytes) => {
                packed_places.push(number(*place));
                packed.push(bytes);
            }
            PayloadWrite::Delete => erased.push(number(*place)),
        }
        match &slot.row {
            Some(row) => {
                if let Content::New(record) = &row.record {
                    let columns = if slot.is_stored {
                        &mut changed
                    } else {
                        &mut fresh
                    };
                    columns.push(*place, &row.key, row.held, record);
                }
            }
            None if slot.is_stored && slot.changed => removed.push(number(*place)),
            None => {}
        }
    }
    // A key that was dropped may begin anew in the same batch.
    if !removed.is_empty() {
        let sql = "DELETE FROM semel.operations WHERE place = ANY($1)";
        statements.push(Statement::new(sql).with(removed, Type::INT8_ARRAY));
    }
    statements.extend(changed.statement(UPDATE));
    statements.extend(fresh.statement(INSERT));
    if !erased.is_empty() {
        let sql = "DELETE FROM semel.payloads WHERE place = ANY($1)";
        statements.push(Statement::new(sql).with(erased, Type::INT8_ARRAY));
    }
    if !packed.is_empty() {
        let sql = "INSERT INTO semel.payloads (place, packed) SELECT * FROM unnest($1, $2) \
                   ON CONFLICT (place) DO UPDATE SET packed = excluded.packed";
        let put = Statement::new(sql).with(packed_places, Type::INT8_ARRAY);
        statements.push(put.with(packed, Type::BYTEA_ARRAY));
    }
    statements.extend(log(batch, id));
    statements.extend(batch.streams.drain(..).map(stream));
    for (name, value) in std::mem::take(&mut batch.marks) {
        let sql = "INSERT INTO semel.marks (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let put = Statement::new(sql).with(name, Type::TEXT);
        statements.push(put.with(value, Type::BYTEA));
    }
    statements
}

fn log(batch: &mut Batch, id: &[u8; 16]) -> Option<Statement> {
    let first = batch.seq() - batch.log.len() as u64;
    let (mut seqs, mut at, mut places) = (vec![], vec![], vec![]);
    let (mut commands, mut ids, mut entries) = (vec![], vec![], vec![]);
    for (seq, row) in (first + 1..).zip(&mut batch.log) {
        ids.push(seqs.is_empty().then(|| id.to_vec()));
        seqs.push(seq.cast_signed());
        at.push(shown(row.at));
        places.push(row.place.map(number));
        commands.push(row.command);
        entries.push(std::mem::take(&mut row.entry));
    }
    let sql = "INSERT INTO semel.log (seq, at, place, command, batch, entry) \
               SELECT * FROM unnest($1, $2, $3, $4, $5, $6)";
    let statement = Statement::new(sql)
        .with(seqs, Type::INT8_ARRAY)
        .with(at, Type::TIMESTAMPTZ_ARRAY)
        .with(places, Type::INT8_ARRAY)
        .with(commands, Type::TEXT_ARRAY)
        .with(ids, Type::BYTEA_ARRAY)
        .with(entries, Type::BYTEA_ARRAY);
    (!batch.log.is_empty()).then_some(statement)
}

fn stream(write: StreamWrite) -> Statement {
    match write {
        StreamWrite::Append(place, fence, chunks) => {
            let (streams, packed): (Vec<i16>, Vec<Vec<u8>>) = chunks
                .into_iter()
                .map(|(stream, packed)| (i16::from(stream), packed))
                .unzip();
            let sql = "INSERT INTO semel.chunks (place, fence, n, stream, packed) \
                       SELECT $1, $2, c.n + (SELECT coalesce(max(n), 0) FROM semel.chunks \
                       WHERE place = $1 AND fence = $2), c.stream, c.packed \
                       FROM unnest($3, $4) WITH ORDINALITY AS c (stream, packed, n)";
            Statement::new(sql)
                .with(number(place), Type::INT8)
                .with(fence.0.cast_signed(), Type::INT8)
                .with(streams, Type::INT2_ARRAY)
                .with(packed, Type::BYTEA_ARRAY)
        }
        StreamWrite::Delete(place, fence) => {
            Statement::new("DELETE FROM semel.chunks WHERE place = $1 AND fence = $2")
                .with(number(place), Type::INT8)
                .with(fence.0.cast_signed(), Type::INT8)
        }
        StreamWrite::DeleteAll(place) => {
            Statement::new("DELETE FROM semel.chunks WHERE place = $1")
                .with(number(place), Type::INT8)
        }
    }
}
