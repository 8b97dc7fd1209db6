//! What the simulated store keeps: records, payloads, streams and the log, by compare-and-swap.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use semel::store::{
    AbsentAsOf, Change, Chunk, Commit, Current, Expected, Guard, INPUT, KIN_MAX, Logged,
    NewPayload, PAGE_MAX, Page, Place, Progress, Query, StoreError, Stored, Waiting,
};
use semel_core::KeyHash;
use semel_core::clock::Stamp;
use semel_core::identity::Kin;
use semel_core::ledger::{Command, Fence, Record, StateKind};
use semel_core::queue::QueueHash;

use super::bugs::Bug;
use super::raw::payload_of;
use super::rng::Rng;
use crate::lines;

/// Everything that is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    places: BTreeMap<KeyHash, Place>,
    rows: BTreeMap<Place, Row>,
    pub(crate) chunks: BTreeMap<(Place, Fence), Vec<Chunk>>,
    pub(crate) log: Vec<Logged>,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) mark: Option<Stamp>,
    /// How far the sweeps have come.
    pub(crate) progress: Progress,
    /// The true time at which the first mark was set.
    pub(crate) marked: Option<Duration>,
    /// What the disk really holds, while a planted bug keeps acknowledged changes in memory only.
    on_disk: Option<Box<Self>>,
}

#[derive(Clone, Debug)]
struct Row {
    record: Arc<Record>,
    payload: Option<Held>,
    /// What was stored before, for a planted bug that serves it.
    earlier: Option<Arc<Record>>,
}

#[derive(Clone, Debug)]
enum Held {
    Bytes(Arc<[u8]>),
    Stream(Fence),
}

/// What a commit changed.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) before: Option<Arc<Record>>,
    pub(crate) after: Option<Arc<Record>>,
}

impl Shelf {
    pub(crate) fn record(&self, key: &KeyHash) -> Option<Arc<Record>> {
        let row = self.rows.get(self.places.get(key)?)?;
        Some(Arc::clone(&row.record))
    }

    pub(crate) fn load(&self, key: &KeyHash) -> Current {
        self.current(self.places.get(key).copied())
    }

    pub(crate) fn current(&self, place: Option<Place>) -> Current {
        match place.and_then(|place| Some((place, self.rows.get(&place)?))) {
            None => Current::Absent(AbsentAsOf(self.log.len() as u64)),
            Some((place, row)) => Current::Stored(Stored::new(Arc::clone(&row.record), place)),
        }
    }

    pub(crate) fn kin(&self, kin: Kin) -> Vec<Stored> {
        let counting = self
            .rows
            .iter()
            .filter(|(_, row)| Kin::counting(&row.record) == Some(kin));
        counting
            .map(|(place, row)| Stored::new(Arc::clone(&row.record), *place))
            .take(usize::from(KIN_MAX) + 1)
            .collect()
    }

    pub(crate) fn waiting(&self, ask: &Waiting) -> Vec<Stored> {
        let rows = self.rows.iter().map(|(place, row)| (*place, &*row.record));
        let found = lines::waiting(rows, ask).into_iter();
        found
            .filter_map(|place| {
                Some(Stored::new(
                    Arc::clone(&self.rows.get(&place)?.record),
                    place,
                ))
            })
            .collect()
    }

    pub(crate) fn taken(&self, queue: QueueHash, lane: Option<u64>, limit: usize) -> usize {
        lines::taken(
            self.rows.values().map(|row| &*row.record),
            queue,
            lane,
            limit,
        )
    }

    /// Serves what was stored before the last change: only a planted bug does.
    pub(crate) fn load_stale(&self, key: &KeyHash) -> Current {
        let stale = self.places.get(key).and_then(|place| {
            let earlier = self.rows.get(place)?.earlier.clone()?;
            Some(Stored::new(earlier, *place))
        });
        stale.map_or_else(|| self.load(key), Current::Stored)
    }

    /// Commits a change if what it was decided on is still what is stored; `None` says that a
    /// planted bug acknowledged it without doing anything.
    pub(crate) fn commit(
        &mut self,
        change: Change,
        stamp: Stamp,
        bug: Option<Bug>,
        rng: &mut Rng,
    ) -> Result<(Commit, Option<Changed>), StoreError> {
        if let Some(guard) = change.guard
            && bug != Some(Bug::ParentUnguarded)
            && !self.holds(guard)?
        {
            return Ok((Commit::GuardChanged, None));
        }
        let place = match change.expected {
            Expected::Absent(_) => self.places.get(&change.key).copied(),
            Expected::Version(place, _) => Some(place),
        };
        let current = self.current(place);
        if !as_expected(&change, &current, bug) {
            return Ok((Commit::Conflict(current), None));
        }
        if bug == Some(Bug::SettleLostAfterAck)
            && matches!(change.entry.command, Command::Settle(_))
            && let (Some(record), Some(place), true) = (&change.next, place, rng.chance(200))
        {
            let record = Arc::clone(record);
            return Ok((
                Commit::Done(Current::Stored(Stored::new(record, place))),
                None,
            ));
        }
        self.keep_off_disk(&change.entry.command, bug);
        Ok(self.write(change, place, &current, stamp, bug, rng))
    }

    fn holds(&self, guard: Guard) -> Result<bool, StoreError> {
        match guard {
            Guard::Version { place, version } => {
                Ok(self.rows.get(&place).map(|row| row.record.version()) == Some(version))
            }
            Guard::Bounds(bounds) => {
                bounds.leave_room(|lane, limit| Ok(self.taken(bounds.queue, lane, limit)))
            }
        }
    }

    /// Keeps what a new task is given.
    fn give(&mut self, place: Place, input: Option<Arc<[u8]>>) {
        if let Some(input) = input {
            let (stream, bytes) = (0, input.to_vec());
            self.chunks
                .insert((place, INPUT), vec![Chunk { stream, bytes }]);
        }
    }

    fn write(
        &mut self,
        change: Change,
        place: Option<Place>,
        current: &Current,
        stamp: Stamp,
        bug: Option<Bug>,
        rng: &mut Rng,
    ) -> (Commit, Option<Changed>) {
        let before = match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(Arc::clone(&stored.record)),
        };
        let seq = self.log.len() as u64 + 1;
        let fresh =
            bug == Some(Bug::InsertUnchecked) && matches!(change.expected, Expected::Absent(_));
        let place = place
            .filter(|_| before.is_some() && !fresh)
            .unwrap_or(Place(seq));
        let after = change.next.clone();
        let payload = match change.payload {
            NewPayload::Bytes { .. } if bug == Some(Bug::PayloadLost) && rng.chance(200) => {
                NewPayload::Keep
            }
            NewPayload::Erase if bug == Some(Bug::PayloadNotErased) => NewPayload::Keep,
            payload => payload,
        };
        self.store(place, &change.key, change.next, payload);
        self.give(place, change.input);
        let placed = (before.is_some() || after.is_some()).then_some(place);
        if bug != Some(Bug::LogEntryLost) || !rng.chance(50) {
            self.log.push(Logged {
                seq,
                place: placed,
                entry: change.entry,
            });
        }
        self.stamp = Some(stamp);
        let commit = Commit::Done(self.current(placed));
        let settled = after
            .as_ref()
            .is_some_and(|record| record.kind() == StateKind::Succeeded);
        if bug == Some(Bug::RecordVanishes) && settled && rng.chance(200) {
            self.rows.remove(&place);
            self.places.remove(&change.key);
        }
        (commit, Some(Changed { before, after }))
    }

    fn store(
        &mut self,
        place: Place,
        key: &KeyHash,
        next: Option<Arc<Record>>,
        payload: NewPayload,
    ) {
        let old = self.rows.remove(&place);
        let Some(record) = next else {
            self.places.remove(key);
            self.chunks.retain(|(of, _), _| *of != place);
            return;
        };
        let (earlier, held) = old.map_or((None, None), |row| (Some(row.record), row.payload));
        let payload = match payload {
            NewPayload::Keep => held,
            NewPayload::Bytes { bytes, .. } => Some(Held::Bytes(bytes)),
            NewPayload::Stream(fence) => Some(Held::Stream(fence)),
            NewPayload::Erase => {
                // What a task is given stays as long as it lives.
                let lives = record.operation().is_some();
                self.chunks
                    .retain(|(of, fence), _| *of != place || (lives && *fence == INPUT));
                None
            }
        };
        let row = Row {
            record,
            payload,
            earlier,
        };
        self.rows.insert(place, row);
        self.places.insert(*key, place);
    }

    /// A planted bug acknowledges claims before they are on the disk; any other change takes what
    /// came before it to the disk.
    fn keep_off_disk(&mut self, command: &Command, bug: Option<Bug>) {
        if bug != Some(Bug::ClaimNotDurable) {
            return;
        }
        if matches!(command, Command::Begin(_)) {
            if self.on_disk.is_none() {
                self.on_disk = Some(Box::new(self.clone()));
            }
        } else {
            self.on_disk = None;
        }
    }

    /// Only what is on the disk comes back.
    pub(crate) fn lose_power(&mut self) {
        if let Some(disk) = self.on_disk.take() {
            *self = *disk;
        }
    }

    pub(crate) fn payload(&self, place: Place) -> Option<Vec<u8>> {
        match self.rows.get(&place)?.payload.as_ref()? {
            Held::Bytes(bytes) => Some(bytes.to_vec()),
            Held::Stream(fence) => {
                let chunks = self.chunks.get(&(place, *fence)).into_iter().flatten();
                Some(chunks.flat_map(|chunk| chunk.bytes.clone()).collect())
            }
        }
    }

    pub(crate) fn list(&self, query: &Query) -> Page {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let beyond = query.cursor.map_or(Unbounded, Excluded);
        let mut wanted: Vec<(&Place, &Row)> = if query.oldest_first {
            self.rows.range((beyond, Unbounded)).collect()
        } else {
            self.rows.range((Unbounded, beyond)).rev().collect()
        };
        wanted.retain(|(_, row)| query.matches(&row.record));
        let more = wanted.len() > limit;
        let items: Vec<Stored> = wanted
            .into_iter()
            .take(limit)
            .map(|(place, row)| Stored::new(Arc::clone(&row.record), *place))
            .collect();
        let next = items.last().filter(|_| more).map(|stored| stored.place);
        Page { items, next }
    }

    /// Returns a record that has no answer any more, and whose answer is still there.
    pub(crate) fn lingering(&self) -> Option<&Record> {
        let mut rows = self.rows.values();
        let lingers = rows.find(|row| row.payload.is_some() && payload_of(&row.record).is_none());
        lingers.map(|row| &*row.record)
    }

    /// Returns every record.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.rows.values().map(|row| &*row.record)
    }
}

/// Compares what a change was decided on with what is stored; planted bugs look away.
fn as_expected(change: &Change, current: &Current, bug: Option<Bug>) -> bool {
    let unchecked = match bug {
        Some(Bug::VersionUnchecked) => true,
        Some(Bug::LeaseEndUnchecked) => matches!(change.entry.command, Command::Expire(_)),
        Some(_) | None => false,
    };
    match (&change.expected, current) {
        (Expected::Absent(_), Current::Absent(_)) => true,
        (Expected::Version(_, version), Current::Stored(stored)) => {
            unchecked || stored.record.version() == *version
        }
        (Expected::Absent(_), Current::Stored(_)) => bug == Some(Bug::InsertUnchecked),
        (Expected::Version(..), Current::Absent(_)) => false,
    }
}
