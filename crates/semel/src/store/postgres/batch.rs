//! What one transaction does: changes are applied in memory, one after the other, to the rows that
//! were read under the lock, and the result is written at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::KeyHash;
use semel_core::ledger::codec::{decode_record, encode_entry};
use semel_core::ledger::{Fence, Record, StateKind, Version};

use crate::store::{
    AbsentAsOf, Change, Commit, Current, Expected, NewPayload, Place, Result, StoreError, Stored,
};

/// A change whose payload is packed for storing.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) change: Change,
    pub(super) packed: Option<Vec<u8>>,
}

/// Where a payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nowhere,
    /// In `payloads`.
    Packed,
    /// In `chunks`, as the stream of the attempt with this fence.
    Stream(Fence),
}

/// A row of `operations`.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: KeyHash,
    pub(super) version: Version,
    pub(super) held: Held,
    pub(super) record: Content,
}

/// A record that was read and may never be looked at, or one that is to be written.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Read(Vec<u8>),
    New(Arc<Record>),
}

impl Row {
    fn stored(&self, place: Place) -> Result<Stored> {
        match &self.record {
            Content::Read(bytes) => decode(place, bytes),
            Content::New(record) => Ok(Stored::new(Arc::clone(record), place)),
        }
    }
}

/// Reads a record from its bytes.
pub(super) fn decode(place: Place, bytes: &[u8]) -> Result<Stored> {
    let record = decode_record(bytes).map_err(|error| {
        StoreError::Corrupt(format!("record {} cannot be read: {error}", place.0))
    })?;
    Ok(Stored::new(Arc::new(record), place))
}

/// What becomes of a row.
#[derive(Debug)]
pub(super) struct Slot {
    /// Whether the table has it.
    pub(super) is_stored: bool,
    pub(super) row: Option<Row>,
    pub(super) changed: bool,
    pub(super) payload: PayloadWrite,
}

/// What becomes of a row of `payloads`.
#[derive(Debug)]
pub(super) enum PayloadWrite {
    Keep,
    Put(Vec<u8>),
    Delete,
}

/// An entry for the log.
#[derive(Debug)]
pub(super) struct LogRow {
    pub(super) place: Option<Place>,
    pub(super) at: semel_core::Timestamp,
    pub(super) command: &'static str,
    pub(super) entry: Vec<u8>,
}

/// What becomes of streams, in this order.
#[derive(Debug)]
pub(super) enum StreamWrite {
    Append(Place, Fence, Vec<(u8, Vec<u8>)>),
    Delete(Place, Fence),
    DeleteAll(Place),
}

/// Everything that one transaction writes.
#[derive(Debug)]
pub(super) struct Batch {
    /// The end of the log before it.
    first: u64,
    pub(super) slots: BTreeMap<Place, Slot>,
    keys: BTreeMap<KeyHash, Place>,
    pub(super) log: Vec<LogRow>,
    pub(super) streams: Vec<StreamWrite>,
    pub(super) marks: BTreeMap<&'static str, Vec<u8>>,
    /// Keys whose waiters may have something to see.
    pub(super) woken: Vec<KeyHash>,
}

impl Batch {
    /// Begins with the end of the log and the rows that the items are about.
    pub(super) fn new(seq: u64, rows: Vec<(Place, Row)>) -> Self {
        let keys = rows.iter().map(|(place, row)| (row.key, *place)).collect();
        let slot = |row| Slot {
            is_stored: true,
            row: Some(row),
            changed: false,
            payload: PayloadWrite::Keep,
        };
        Self {
            first: seq,
            slots: rows
                .into_iter()
                .map(|(place, row)| (place, slot(row)))
                .collect(),
            keys,
            log: vec![],
            streams: vec![],
            marks: BTreeMap::new(),
            woken: vec![],
        }
    }

    /// The end of the log after what was applied so far.
    pub(super) fn seq(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    pub(super) fn writes_nothing(&self) -> bool {
        self.log.is_empty() && self.streams.is_empty() && self.marks.is_empty()
    }

    fn row(&self, place: Place) -> Option<&Row> {
        self.slots.get(&place)?.row.as_ref()
    }

    fn current(&self, place: Option<Place>) -> Result<Current> {
        match place.and_then(|place| Some((place, self.row(place)?))) {
            None => Ok(Current::Absent(AbsentAsOf(self.seq()))),
            Some((place, row)) => Ok(Current::Stored(row.stored(place)?)),
        }
    }

    /// Applies one change, if what it was decided on is what is stored.
    pub(super) fn apply(&mut self, prepared: Prepared) -> Result<Commit> {
        let Prepared { change, packed } = prepared;
        if let Some(guard) = change.guard
            && self.row(guard.place).map(|row| row.version) != Some(guard.version)
        {
            return Ok(Commit::GuardChanged);
        }
        let known = self.keys.get(&change.key).copied();
        let place = match change.expected {
            Expected::Absent(_) => known,
            Expected::Version(place, _) => Some(place),
        };
        let version = place
            .and_then(|place| self.row(place))
            .map(|row| row.version);
        let expected = match change.expected {
            Expected::Absent(_) => None,
            Expected::Version(_, version) => Some(version),
        };
        if version != expected {
            // A dropped key may have begun anew at another place.
            let there = place.filter(|_| version.is_some());
            return Ok(Commit::Conflict(self.current(there.or(known))?));
        }
        let seq = self.seq() + 1;
        let place = place.filter(|_| version.is_some()).unwrap_or(Place(seq));
        let placed = version.is_some() || change.next.is_some();
        self.log.push(LogRow {
            place: placed.then_some(place),
            at: change.entry.at,
            command: change.entry.command.name(),
            entry: encode_entry(&change.entry),
        });
        // Nobody waits for an operation to be running.
        if change.next.as_ref().map(|next| next.kind()) != Some(StateKind::Running) {
            self.woken.push(change.key);
        }
        match change.next {
            Some(record) => self.put(place, change.key, record, &change.payload, packed),
            None => self.remove(place, &change.key),
        }
        self.current(Some(place)).map(Commit::Done)
    }

    fn remove(&mut self, place: Place, key: &KeyHash) {
        if let Some(slot) = self.slots.get_mut(&place) {
            slot.row = None;
            slot.changed = true;
            slot.payload = PayloadWrite::Delete;
            self.keys.remove(key);
            self.streams.push(StreamWrite::DeleteAll(place));
        }
    }

    fn put(
        &mut self,
        place: Place,
        key: KeyHash,
        record: Arc<Record>,
        payload: &NewPayload,
        packed: Option<Vec<u8>>,
    ) {
        let slot = self.slots.entry(place).or_insert(Slot {
            is_stored: false,
            row: None,
            changed: true,
            payload: PayloadWrite::Keep,
        });
        let old = slot.row.as_ref().map_or(Held::Nowhere, |row| row.held);
        let (held, erases) = match payload {
            NewPayload::Keep => (old, false),
            NewPayload::Bytes { replaces, .. } => (Held::Packed, *replaces),
            NewPayload::Stream(fence) => (Held::Stream(*fence), true),
            NewPayload::Erase => (Held::Nowhere, true),
        };
        match (packed, held) {
            (Some(packed), Held::Packed) => slot.payload = PayloadWrite::Put(packed),
            (_, Held::Nowhere | Held::Stream(_)) if old == Held::Packed => {
                slot.payload = PayloadWrite::Delete;
            }
            (_, Held::Nowhere | Held::Packed | Held::Stream(_)) => {}
        }
        if *payload == NewPayload::Erase && record.operation().is_none() {
            self.streams.push(StreamWrite::DeleteAll(place));
        } else if let Held::Stream(fence) = old
            && erases
            && held != old
        {
            self.streams.push(StreamWrite::Delete(place, fence));
        }
        slot.changed = true;
        slot.row = Some(Row {
            key,
            version: record.version(),
            held,
            record: Content::New(record),
        });
        self.keys.insert(key, place);
    }

    /// Takes a stream away, unless it is the answer.
    pub(super) fn discard(&mut self, place: Place, fence: Fence) {
        if self.row(place).map(|row| row.held) != Some(Held::Stream(fence)) {
            self.streams.push(StreamWrite::Delete(place, fence));
        }
    }
}
