//! A batch of changes as one call of `semel.apply`: a column for each of its arguments, a row for each
//! change, so that the number of statements does not grow with the batch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel_core::identity::Kin;
use semel_core::ledger::codec::{encode_entry, encode_record};
use semel_core::ledger::{Operation, Record, Version};
use semel_core::queue::Spot;
use semel_core::{KeyHash, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::pool::Parameter;
use super::reader::{ALONG_MAX, column, current};
use crate::store::bytes::pack;
use crate::store::standing::only_read;
use crate::store::{
    AbsentAsOf, Change, Commit, Current, Expected, Guard, Moved, NewPayload, Place, Result,
    StoreError, Stored, line,
};

/// The last moment that a readable column shows, in the year 9999: the record has the true one.
const SHOWN_MAX: i64 = 253_402_300_799_000_000;

/// From how many changes on a statement for all of them is faster than one for each.
const MANY: usize = 4;

/// A time as people read it.
pub(super) fn shown(at: Timestamp) -> SystemTime {
    let micros = at.0.clamp(0, SHOWN_MAX).cast_unsigned();
    UNIX_EPOCH + Duration::from_micros(micros)
}

pub(super) fn number(place: Place) -> i64 {
    place.0.cast_signed()
}

/// Returns the bucket of everything that lies with the operation of this key.
pub(super) const fn bucket_of(root: &KeyHash) -> i16 {
    root.0.0[0] as i16
}

/// Returns the bucket of what lies at a place.
pub(super) const fn bucket_at(place: Place) -> i16 {
    (place.0 & 0xff) as i16
}

/// A change whose payload is packed for storing.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) change: Change,
    packed: Option<Vec<u8>>,
    /// The packed input of a task.
    input: Option<Vec<u8>>,
}

/// What becomes of a row; the numbers are those of `semel.apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
enum Kind {
    Make = 0,
    Change = 1,
    Remove = 2,
    LogOnly = 3,
}

/// What becomes of a payload; the numbers are those of `semel.apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
enum PayloadWrite {
    Keep = 0,
    Put = 1,
    Stream = 2,
    Erase = 3,
    EraseAll = 4,
}

impl Prepared {
    /// Packs the payload.
    pub(super) fn new(change: Change) -> Result<Self> {
        let packed = match &change.payload {
            NewPayload::Bytes { bytes, .. } => Some(pack(bytes)?),
            NewPayload::Keep | NewPayload::Stream(_) | NewPayload::Erase => None,
        };
        let input = change.input.as_deref().map(pack).transpose()?;
        Ok(Self {
            change,
            packed,
            input,
        })
    }

    pub(super) fn size(&self) -> usize {
        let size = |packed: &Option<Vec<u8>>| packed.as_ref().map_or(0, Vec::len);
        size(&self.packed) + size(&self.input)
    }

    fn kind(&self) -> Kind {
        match (self.change.expected, &self.change.next) {
            (Expected::Absent(_), Some(_)) => Kind::Make,
            (Expected::Absent(_), None) => Kind::LogOnly,
            (Expected::Version(..), Some(_)) => Kind::Change,
            (Expected::Version(..), None) => Kind::Remove,
        }
    }

    fn payload(&self) -> PayloadWrite {
        let next = self.change.next.as_deref();
        let lives = next.is_some_and(|next| next.operation().is_some());
        match &self.change.payload {
            _ if next.is_none() => PayloadWrite::EraseAll,
            NewPayload::Keep => PayloadWrite::Keep,
            NewPayload::Bytes { .. } => PayloadWrite::Put,
            NewPayload::Stream(_) => PayloadWrite::Stream,
            NewPayload::Erase if lives => PayloadWrite::Erase,
            NewPayload::Erase => PayloadWrite::EraseAll,
        }
    }

    fn stream(&self) -> Option<i64> {
        match &self.change.payload {
            NewPayload::Stream(fence) => Some(fence.0.cast_signed()),
            NewPayload::Keep | NewPayload::Bytes { .. } | NewPayload::Erase => None,
        }
    }

    /// Returns the bucket in which the record lies, or is to lie.
    fn bucket(&self) -> i16 {
        match self.change.expected {
            Expected::Version(place, _) => bucket_at(place),
            Expected::Absent(_) => {
                let operation = self.change.next.as_deref().and_then(Record::operation);
                let root = operation.and_then(root_of);
                bucket_of(&root.unwrap_or(self.change.key))
            }
        }
    }

    /// Says whether there may be another payload before.
    fn replaces(&self) -> bool {
        matches!(self.change.payload, NewPayload::Bytes { replaces, .. } if replaces)
    }

    /// Says whether the change does no more than write rows.
    fn is_plain(&self) -> bool {
        let is_step = self.bucket() != bucket_of(&self.change.key);
        let kind = match self.kind() {
            Kind::Make => !is_step,
            Kind::Change => true,
            Kind::Remove | Kind::LogOnly => false,
        };
        let payload = match self.payload() {
            PayloadWrite::Keep | PayloadWrite::Put => !self.replaces(),
            PayloadWrite::Stream | PayloadWrite::Erase | PayloadWrite::EraseAll => false,
        };
        kind && payload && self.change.guard.is_none()
    }

    /// What is stored once the change is written.
    pub(super) fn done(&self, place: Option<Place>) -> Result<Commit> {
        Ok(Commit::Done(match (&self.change.next, place) {
            (None, _) => Current::Absent(AbsentAsOf::default()),
            (Some(next), Some(place)) => Current::Stored(Stored::new(next.clone(), place)),
            (Some(_), None) => {
                let text = "a record was written nowhere".to_owned();
                return Err(StoreError::Corrupt(text));
            }
        }))
    }

    /// Answers in place of the server, where another change of the same key came first: `None` when
    /// the server must be asked.
    pub(super) fn overtaken(&self, found: &Current) -> Option<Commit> {
        (self.change.expected != Expected::from(found)).then(|| Commit::Conflict(found.clone()))
    }
}

fn root_of(operation: &Operation) -> Option<KeyHash> {
    let parent = operation.spec.parent.as_ref()?;
    Some(KeyHash::of(&operation.spec.namespace, &parent.root))
}

/// The arguments of `semel.apply`.
#[derive(Default)]
struct Columns<'a> {
    kind: Vec<i16>,
    home: Vec<i16>,
    bucket: Vec<i16>,
    key_hash: Vec<&'a [u8]>,
    place: Vec<i64>,
    expected: Vec<i64>,
    guard_place: Vec<Option<i64>>,
    guard_version: Vec<Option<i64>>,
    version: Vec<i64>,
    fence: Vec<i64>,
    state: Vec<Option<&'static str>>,
    namespace: Vec<Option<&'a str>>,
    key: Vec<Option<&'a str>>,
    name: Vec<Option<&'a str>>,
    door: Vec<Option<&'a str>>,
    queue: Vec<Option<&'a str>>,
    attempt: Vec<Option<i32>>,
    created_at: Vec<Option<SystemTime>>,
    settled_at: Vec<Option<SystemTime>>,
    lease_until: Vec<Option<SystemTime>>,
    record: Vec<Option<Vec<u8>>>,
    payload: Vec<i16>,
    replaces: Vec<bool>,
    packed: Vec<Option<&'a [u8]>>,
    stream_fence: Vec<Option<i64>>,
    at: Vec<SystemTime>,
    command: Vec<&'static str>,
    report: Vec<bool>,
    entry: Vec<Vec<u8>>,
    enters: Vec<Option<i64>>,
    leaves: Vec<Option<i64>>,
    line: Vec<i64>,
    input: Vec<Option<&'a [u8]>>,
    bounds: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, prepared: &'a Prepared) {
        let change = &prepared.change;
        let (place, expected) = match change.expected {
            Expected::Absent(_) => (0, 0),
            Expected::Version(place, Version(version)) => (number(place), version.cast_signed()),
        };
        self.kind.push(prepared.kind() as i16);
        self.home.push(bucket_of(&change.key));
        self.bucket.push(prepared.bucket());
        self.key_hash.push(&change.key.0.0);
        self.place.push(place);
        self.expected.push(expected);
        self.push_guard(change.guard);
        self.payload.push(prepared.payload() as i16);
        self.replaces.push(prepared.replaces());
        self.packed.push(prepared.packed.as_deref());
        self.stream_fence.push(prepared.stream());
        self.at.push(shown(change.entry.at));
        self.command.push(change.entry.command.name());
        self.report.push(change.entry.command.is_report());
        self.entry.push(encode_entry(&change.entry));
        let number = |Kin(kin): Kin| kin.cast_signed();
        self.enters.push(change.kin.enters.map(number));
        self.leaves.push(change.kin.leaves.map(number));
        self.push_spot(0, change.line.leaves);
        self.push_spot(1, change.line.enters);
        self.input.push(prepared.input.as_deref());
        self.push_record(change.next.as_deref());
    }

    /// Adds what must hold: a version, or bounds as the four numbers of `semel.apply`.
    fn push_guard(&mut self, guard: Option<Guard>) {
        let (version, bounds) = match guard {
            None => (None, None),
            Some(Guard::Version { place, version }) => (Some((place, version)), None),
            Some(Guard::Bounds(bounds)) => (None, Some(bounds)),
        };
        self.guard_place
            .push(version.map(|(place, _)| number(place)));
        self.guard_version
            .push(version.map(|(_, version)| version.0.cast_signed()));
        let limits = bounds.map(|bounds| bounds.limits).unwrap_or_default();
        self.bounds.extend([
            bounds.map(|bounds| bounds.queue.0.cast_signed()),
            bounds.map(|bounds| line::lane_order(bounds.lane)),
            limits.queue.map(|limit| limit.get().into()),
            limits.lane.map(|limit| limit.get().into()),
        ]);
    }

    /// Adds a spot that the last change leaves (0) or enters (1), as the eight numbers of `semel.apply`.
    fn push_spot(&mut self, enters: i64, spot: Option<Spot>) {
        let Some(spot) = spot else { return };
        let n = i64::try_from(self.kind.len()).unwrap_or(i64::MAX);
        // Where it lies is known to the server only.
        let row = line::Row::new(spot, Place(0));
        self.line.extend([
            n,
            enters,
            row.queue,
            row.taken.into(),
            row.rank.into(),
            row.lane,
            row.at,
            row.until.unwrap_or(-1),
        ]);
    }

    fn push_record(&mut self, record: Option<&'a Record>) {
        let version = record.map_or(0, |record| record.version().0);
        let fence = record.map_or(0, |record| record.fence().0);
        self.version.push(version.cast_signed());
        self.fence.push(fence.cast_signed());
        self.state.push(record.map(|record| record.kind().as_str()));
        self.record.push(record.map(encode_record));
        let (namespace, named, settled_at) = match record {
            Some(Record::Operation(operation)) => (
                Some(operation.spec.namespace.as_str()),
                Some(operation.spec.key.as_str()),
                operation.settled().map(|settled| settled.at),
            ),
            Some(Record::Tombstone(tombstone)) => (
                Some(tombstone.namespace.as_str()),
                Some(tombstone.key.as_str()),
                Some(tombstone.settled_at),
            ),
            // Its name is no key of an operation.
            Some(Record::Breaker(breaker)) => (Some(breaker.namespace.as_str()), None, None),
            Some(Record::Stub(_)) | None => (None, None, None),
        };
        self.namespace.push(namespace);
        self.key.push(named);
        self.settled_at.push(settled_at.map(shown));
        let operation = record.and_then(Record::operation);
        let spec = operation.map(|operation| &operation.spec);
        let breaker = record.and_then(Record::breaker);
        let name = spec.map(|spec| spec.name.as_str());
        self.name
            .push(name.or_else(|| breaker.map(|breaker| breaker.name.as_str())));
        let door = spec.and_then(|spec| spec.door.as_ref());
        self.door.push(door.map(semel_core::Label::as_str));
        let queue = operation.and_then(|operation| operation.queue.as_ref());
        self.queue.push(queue.map(semel_core::Label::as_str));
        let attempt = operation.map(|operation| operation.attempt);
        self.attempt
            .push(attempt.map(|attempt| i32::try_from(attempt).unwrap_or(i32::MAX)));
        let created_at = operation.map(|operation| operation.created_at);
        let created_at = created_at.or_else(|| breaker.map(|breaker| breaker.created_at));
        self.created_at.push(created_at.map(shown));
        let lease = operation.and_then(Operation::lease_until);
        self.lease_until.push(lease.map(shown));
    }
}

pub(super) const APPLY: &str = "SELECT n, outcome, place, record, packed, clock, heard FROM semel.apply(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, \
    $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, \
    $36, $37, $38)";

/// How a call of `semel.apply` is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// The number by which the batch is found again.
    pub(super) batch: i64,
    /// How long it waits for others who change the same operations, as PostgreSQL writes it.
    pub(super) patience: &'a str,
}

/// A batch as the arguments of `semel.apply`. The changes are of different keys, in the order of their
/// keys.
pub(super) struct Arguments<'a> {
    call: Call<'a>,
    plain: bool,
    columns: Columns<'a>,
    /// Those of the columns, where there is anything in them.
    enters: Option<Vec<Option<i64>>>,
    leaves: Option<Vec<Option<i64>>>,
    line: Option<Vec<i64>>,
    input: Option<Vec<Option<&'a [u8]>>>,
    bounds: Option<Vec<Option<i64>>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(call: Call<'a>, changes: &[&'a Prepared]) -> Self {
        let mut columns = Columns::default();
        for change in changes {
            columns.push(change);
        }
        let plain = changes.len() >= MANY && changes.iter().all(|change| change.is_plain());
        let filled = |column: &mut Vec<Option<i64>>| {
            let column = std::mem::take(column);
            column.iter().any(Option::is_some).then_some(column)
        };
        Self {
            call,
            plain,
            enters: filled(&mut columns.enters),
            leaves: filled(&mut columns.leaves),
            line: Some(std::mem::take(&mut columns.line)).filter(|line| !line.is_empty()),
            input: Some(std::mem::take(&mut columns.input))
                .filter(|input| input.iter().any(Option::is_some)),
            bounds: filled(&mut columns.bounds),
            columns,
        }
    }

    /// Returns the parameters of [`APPLY`].
    pub(super) fn parameters(&self) -> [Parameter<'_>; 38] {
        let c = &self.columns;
        [
            (&self.call.batch, Type::INT8),
            (&self.call.patience, Type::TEXT),
            (&ALONG_MAX, Type::INT4),
            (&self.plain, Type::BOOL),
            (&c.kind, Type::INT2_ARRAY),
            (&c.home, Type::INT2_ARRAY),
            (&c.bucket, Type::INT2_ARRAY),
            (&c.key_hash, Type::BYTEA_ARRAY),
            (&c.place, Type::INT8_ARRAY),
            (&c.expected, Type::INT8_ARRAY),
            (&c.guard_place, Type::INT8_ARRAY),
            (&c.guard_version, Type::INT8_ARRAY),
            (&c.version, Type::INT8_ARRAY),
            (&c.fence, Type::INT8_ARRAY),
            (&c.state, Type::TEXT_ARRAY),
            (&c.namespace, Type::TEXT_ARRAY),
            (&c.key, Type::TEXT_ARRAY),
            (&c.name, Type::TEXT_ARRAY),
            (&c.door, Type::TEXT_ARRAY),
            (&c.queue, Type::TEXT_ARRAY),
            (&c.attempt, Type::INT4_ARRAY),
            (&c.created_at, Type::TIMESTAMPTZ_ARRAY),
            (&c.settled_at, Type::TIMESTAMPTZ_ARRAY),
            (&c.lease_until, Type::TIMESTAMPTZ_ARRAY),
            (&c.record, Type::BYTEA_ARRAY),
            (&c.payload, Type::INT2_ARRAY),
            (&c.replaces, Type::BOOL_ARRAY),
            (&c.packed, Type::BYTEA_ARRAY),
            (&c.stream_fence, Type::INT8_ARRAY),
            (&c.at, Type::TIMESTAMPTZ_ARRAY),
            (&c.command, Type::TEXT_ARRAY),
            (&c.report, Type::BOOL_ARRAY),
            (&c.entry, Type::BYTEA_ARRAY),
            (&self.enters, Type::INT8_ARRAY),
            (&self.leaves, Type::INT8_ARRAY),
            (&self.line, Type::INT8_ARRAY),
            (&self.input, Type::BYTEA_ARRAY),
            (&self.bounds, Type::INT8_ARRAY),
        ]
    }
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Written {
    /// In the order of the changes.
    pub(super) commits: Vec<Result<Commit>>,
    pub(super) clock: Timestamp,
    /// Whether some node listens.
    pub(super) heard: bool,
}

/// Says that the ledger is elsewhere by now.
fn moved(to: Option<&[u8]>) -> StoreError {
    Moved::refusal(&String::from_utf8_lossy(to.unwrap_or_default()))
}

/// Reads what `semel.apply` returned.
pub(super) fn written(rows: &[Row], changes: &[&Prepared]) -> Result<Written> {
    let missing = || StoreError::Corrupt("`semel.apply` left a change out".to_owned());
    let (mut clock, mut heard) = (None, false);
    let mut commits: Vec<Option<Result<Commit>>> = changes.iter().map(|_| None).collect();
    for row in rows {
        let Some(n) = column::<Option<i32>>(row, 0)? else {
            (clock, heard) = (Some(Timestamp(column(row, 5)?)), column(row, 6)?);
            continue;
        };
        let index = usize::try_from(n).unwrap_or(0).checked_sub(1);
        let index = index.ok_or_else(missing)?;
        let (Some(commit), Some(change)) = (commits.get_mut(index), changes.get(index)) else {
            return Err(missing());
        };
        *commit = Some(match column::<i16>(row, 1)? {
            1 => {
                let place: Option<i64> = column(row, 2)?;
                change.done(place.map(|place| Place(place.cast_unsigned())))
            }
            2 => Ok(Commit::GuardChanged),
            3 => Err(moved(column(row, 3)?)),
            4 => Err(only_read()),
            _ => current(row, 2).map(Commit::Conflict),
        });
    }
    let commits: Option<Vec<_>> = commits.into_iter().collect();
    Ok(Written {
        commits: commits.ok_or_else(missing)?,
        clock: clock.ok_or_else(missing)?,
        heard,
    })
}
