//! A store in memory, for tests: the plainest thing that keeps the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::clock::{Reading, Stamp, judge};
use semel_core::identity::Kin;
use semel_core::ledger::{Fence, Record};
use semel_core::queue::QueueHash;
use semel_core::{KeyHash, PrincipalKey, Timestamp, TokenId, TokenRecord};

use super::{
    AbsentAsOf, Change, Chunk, Commit, Current, Expected, Guard, INPUT, KIN_MAX, Logged,
    NewPayload, PAGE_MAX, PAYLOAD_MAX, Page, Pending, Place, Progress, Query, Result, Store,
    StoreError, Stored, Waiting, line,
};
use crate::clock::{Clock, SystemClock};

/// Keeps everything in memory; nothing survives the process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: BTreeMap<KeyHash, Place>,
    rows: BTreeMap<Place, Row>,
    kin: BTreeSet<(Kin, Place)>,
    lines: BTreeSet<line::Row>,
    chunks: BTreeMap<(Place, Fence), Vec<Chunk>>,
    log: Vec<Logged>,
    stamp: Option<Stamp>,
    mark: Option<Stamp>,
    progress: Progress,
    tokens: BTreeMap<TokenId, TokenRecord>,
    principal_key: Option<PrincipalKey>,
}

#[derive(Debug)]
struct Row {
    record: Arc<Record>,
    payload: Option<Held>,
}

#[derive(Debug)]
enum Held {
    Bytes(Arc<[u8]>),
    Stream(Fence),
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }
}

impl MemoryStore {
    /// Makes an empty store with this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_size(bytes: &[u8]) -> Result<()> {
    let (size, limit) = (bytes.len(), PAYLOAD_MAX);
    if size > limit {
        return Err(StoreError::TooLarge {
            what: "the payload",
            size,
            limit,
        });
    }
    Ok(())
}

impl State {
    fn seq(&self) -> u64 {
        self.log.len() as u64
    }

    fn current(&self, place: Option<Place>) -> Current {
        match place.and_then(|place| Some((place, self.rows.get(&place)?))) {
            None => Current::Absent(AbsentAsOf(self.seq())),
            Some((place, row)) => Current::Stored(Stored::new(Arc::clone(&row.record), place)),
        }
    }

    fn commit(&mut self, change: Change, stamp: Stamp) -> Result<Commit> {
        if let NewPayload::Bytes { bytes, .. } = &change.payload {
            check_size(bytes)?;
        }
        if let Some(input) = &change.input {
            check_size(input)?;
        }
        if let Some(guard) = change.guard
            && !self.holds(guard)?
        {
            return Ok(Commit::GuardChanged);
        }
        let place = match change.expected {
            Expected::Absent(_) => self.places.get(&change.key).copied(),
            Expected::Version(place, _) => Some(place),
        };
        let current = self.current(place);
        let as_expected = match (&change.expected, &current) {
            (Expected::Absent(_), Current::Absent(_)) => true,
            (Expected::Version(_, version), Current::Stored(stored)) => {
                stored.record.version() == *version
            }
            (Expected::Absent(_), Current::Stored(_))
            | (Expected::Version(..), Current::Absent(_)) => false,
        };
        if !as_expected {
            // A dropped key may have begun anew at another place.
            let there = current.record().is_some().then_some(place).flatten();
            let place = there.or_else(|| self.places.get(&change.key).copied());
            return Ok(Commit::Conflict(self.current(place)));
        }
        let seq = self.seq() + 1;
        let place = place
            .filter(|_| current.record().is_some())
            .unwrap_or(Place(seq));
        let known = current.record().is_some() || change.next.is_some();
        if let Some(kin) = change.kin.leaves {
            self.kin.remove(&(kin, place));
        }
        if let Some(kin) = change.kin.enters {
            self.kin.insert((kin, place));
        }
        if let Some(spot) = change.line.leaves {
            self.lines.remove(&line::Row::new(spot, place));
        }
        if let Some(spot) = change.line.enters {
            self.lines.insert(line::Row::new(spot, place));
        }
        self.store(place, &change.key, change.next, change.payload);
        if let Some(input) = &change.input {
            let bytes = input.to_vec();
            let input = Chunk { stream: 0, bytes };
            self.chunks.insert((place, INPUT), vec![input]);
        }
        self.log.push(Logged {
            seq,
            place: known.then_some(place),
            entry: change.entry,
        });
        self.stamp = Some(stamp);
        Ok(Commit::Done(self.current(Some(place))))
    }

    fn holds(&self, guard: Guard) -> Result<bool> {
        match guard {
            Guard::Version { place, version } => {
                Ok(self.rows.get(&place).map(|row| row.record.version()) == Some(version))
            }
            Guard::Bounds(bounds) => {
                bounds.leave_room(|lane, limit| Ok(self.taken(bounds.queue, lane, limit)))
            }
        }
    }

    fn store(
        &mut self,
        place: Place,
        key: &KeyHash,
        next: Option<Arc<Record>>,
        payload: NewPayload,
    ) {
        let Some(record) = next else {
            self.rows.remove(&place);
            self.places.remove(key);
            self.chunks.retain(|(of, _), _| *of != place);
            return;
        };
        let old = self.rows.remove(&place).and_then(|row| row.payload);
        let (payload, erases) = match payload {
            NewPayload::Keep => (old, None),
            NewPayload::Bytes { bytes, replaces } => {
                (Some(Held::Bytes(bytes)), old.filter(|_| replaces))
            }
            NewPayload::Stream(fence) => (Some(Held::Stream(fence)), old),
            NewPayload::Erase => {
                if record.operation().is_none() {
                    self.chunks.retain(|(of, _), _| *of != place);
                }
                (None, old)
            }
        };
        if let (Some(Held::Stream(erased)), kept) = (erases, &payload)
            && !matches!(kept, Some(Held::Stream(fence)) if *fence == erased)
        {
            self.chunks.remove(&(place, erased));
        }
        self.rows.insert(place, Row { record, payload });
        self.places.insert(*key, place);
    }

    fn payload(&self, place: Place) -> Option<Vec<u8>> {
        match self.rows.get(&place)?.payload.as_ref()? {
            Held::Bytes(bytes) => Some(bytes.to_vec()),
            Held::Stream(fence) => {
                let chunks = self.chunks.get(&(place, *fence));
                Some(
                    chunks
                        .into_iter()
                        .flatten()
                        .flat_map(|chunk| chunk.bytes.clone())
                        .collect(),
                )
            }
        }
    }

    fn kin(&self, kin: Kin) -> Vec<Stored> {
        let (first, last) = ((kin, Place(0)), (kin, Place(u64::MAX)));
        let places = self.kin.range(first..=last).map(|(_, place)| *place);
        places
            .filter_map(|place| Some((place, self.rows.get(&place)?)))
            .map(|(place, row)| Stored::new(Arc::clone(&row.record), place))
            .take(usize::from(KIN_MAX) + 1)
            .collect()
    }

    fn waiting(&self, ask: &Waiting) -> Result<Vec<Stored>> {
        let places = line::next(&mut Looking { state: self, ask }, ask)?;
        let found = places
            .into_iter()
            .filter_map(|place| Some((place, self.rows.get(&place)?)));
        let mut found: Vec<_> = found
            .map(|(place, row)| Stored::new(Arc::clone(&row.record), place))
            .collect();
        for stored in found.iter_mut().filter(|_| ask.inputs) {
            let input = self.chunks.get(&(stored.place, INPUT));
            stored.payload = input.and_then(|chunks| Some(chunks.first()?.bytes.clone().into()));
        }
        Ok(found)
    }

    fn taken(&self, queue: QueueHash, lane: Option<u64>, limit: usize) -> usize {
        let queue = queue.0.cast_signed();
        let lane = lane.map(line::lane_order);
        let taken = self.lines.iter().filter(|row| {
            row.queue == queue && row.taken && lane.is_none_or(|lane| lane == row.lane)
        });
        taken.take(limit).count()
    }

    fn list(&self, query: &Query) -> Page {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let rows: Box<dyn Iterator<Item = (&Place, &Row)>> = if query.oldest_first {
            Box::new(
                self.rows
                    .range((query.cursor.map_or(Unbounded, Excluded), Unbounded)),
            )
        } else {
            Box::new(
                self.rows
                    .range((Unbounded, query.cursor.map_or(Unbounded, Excluded)))
                    .rev(),
            )
        };
        let mut wanted = rows
            .filter(|(_, row)| query.matches(&row.record))
            .map(|(place, row)| Stored::new(Arc::clone(&row.record), *place));
        let items: Vec<Stored> = wanted.by_ref().take(limit).collect();
        let next = wanted
            .next()
            .and_then(|_| items.last())
            .map(|stored| stored.place);
        Page { items, next }
    }
}

/// The lines of a queue.
struct Looking<'a> {
    state: &'a State,
    ask: &'a Waiting,
}

impl Looking<'_> {
    fn rows(&self) -> impl Iterator<Item = &line::Row> {
        let queue = self.ask.queue.0.cast_signed();
        let rows = self.state.lines.iter();
        rows.filter(move |row| row.queue == queue && !row.taken)
    }
}

impl line::Lines for Looking<'_> {
    fn next_rank(&mut self, after: Option<i16>) -> Result<Option<i16>> {
        let mut ranks = self.rows().map(|row| row.rank);
        Ok(ranks.find(|rank| after.is_none_or(|after| *rank > after)))
    }

    fn next_lane(&mut self, rank: i16, after: Option<i64>) -> Result<Option<i64>> {
        let of_rank = self.rows().filter(|row| row.rank == rank);
        let mut lanes = of_rank.map(|row| row.lane);
        Ok(lanes.find(|lane| after.is_none_or(|after| *lane > after)))
    }

    fn taken(&mut self, skip: usize, limit: usize) -> Result<Vec<Place>> {
        let queue = self.ask.queue.0.cast_signed();
        let rows = self.state.lines.iter();
        let taken = rows.filter(|row| row.queue == queue && row.taken);
        Ok(taken.map(|row| row.place).skip(skip).take(limit).collect())
    }

    fn due(&mut self, rank: i16, lane: i64, skip: usize, limit: usize) -> Result<Vec<Place>> {
        let now = self.ask.now.0;
        let due = self.rows().filter(|row| {
            (row.rank, row.lane) == (rank, lane)
                && row.at <= now
                && row.until.is_none_or(|until| until > now)
        });
        Ok(due.map(|row| row.place).skip(skip).take(limit).collect())
    }
}

impl Store for MemoryStore {
    fn now(&self) -> Timestamp {
        judge(self.state().stamp.as_ref(), &self.clock.read())
    }

    fn reading(&self) -> Reading {
        self.clock.read()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(async move {
            let state = self.state();
            Ok(state.current(state.places.get(key).copied()))
        })
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(async move {
            Ok(match self.state().current(Some(place)) {
                Current::Absent(_) => None,
                Current::Stored(stored) => Some(stored),
            })
        })
    }

    fn commit(&self, change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(async move {
            let (at, reading) = (self.now(), self.clock.read());
            let stamp = Stamp {
                at,
                boot: reading.boot,
                uptime: reading.uptime,
            };
            self.state().commit(change, stamp)
        })
    }

    fn payload(&self, place: Place) -> Pending<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move { Ok(self.state().payload(place)) })
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            chunks
                .iter()
                .try_for_each(|chunk| check_size(&chunk.bytes))?;
            self.state()
                .chunks
                .entry((place, fence))
                .or_default()
                .extend(chunks);
            Ok(())
        })
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let mut state = self.state();
            let answer = state.rows.get(&place).and_then(|row| row.payload.as_ref());
            if !matches!(answer, Some(Held::Stream(kept)) if *kept == fence) {
                state.chunks.remove(&(place, fence));
            }
            Ok(())
        })
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move {
            Ok(self
                .state()
                .chunks
                .get(&(place, fence))
                .cloned()
                .unwrap_or_default())
        })
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move { Ok(self.state().kin(kin)) })
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move { self.state().waiting(&ask) })
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        Box::pin(async move { Ok(self.state().taken(queue, lane, limit)) })
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(async move { Ok(self.state().list(&query)) })
    }

    fn log(&self, after: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(async move {
            let start = usize::try_from(after).unwrap_or(usize::MAX);
            let log = &self.state().log;
            let page = log.iter().skip(start).take(limit.clamp(1, PAGE_MAX));
            Ok(page.cloned().collect())
        })
    }

    fn sweep_mark(&self, next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(async move {
            let mut state = self.state();
            let stored = state.mark;
            state.mark = next.or(stored);
            Ok(stored)
        })
    }

    fn sweep_progress(&self, next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(async move {
            let mut state = self.state();
            let stored = state.progress;
            state.progress = next.unwrap_or(stored);
            Ok(stored)
        })
    }

    fn notes(&self) -> Option<PathBuf> {
        None
    }

    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn principal_key(&self) -> Pending<'_, Result<Option<PrincipalKey>>> {
        Box::pin(async move { Ok(self.state().principal_key.clone()) })
    }

    fn offer_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<PrincipalKey>> {
        Box::pin(async move { Ok(self.state().principal_key.get_or_insert(key).clone()) })
    }

    fn replace_principal_key(&self, key: PrincipalKey) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            self.state().principal_key = Some(key);
            Ok(())
        })
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        Box::pin(async move {
            let mut state = self.state();
            let is_new = !state.tokens.contains_key(&token.id);
            state.tokens.entry(token.id).or_insert(token);
            Ok(is_new)
        })
    }

    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        Box::pin(async move { Ok(self.state().tokens.get(&id).cloned()) })
    }

    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        Box::pin(async move {
            let state = self.state();
            let beyond = (after.map_or(Unbounded, Excluded), Unbounded);
            let page = state.tokens.range(beyond).take(limit.clamp(1, PAGE_MAX));
            Ok(page.map(|(_, token)| token.clone()).collect())
        })
    }

    fn revoke_token(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<bool>> {
        Box::pin(async move {
            let mut state = self.state();
            let token = state.tokens.get_mut(&id);
            let token = token.filter(|token| token.revoked_at.is_none());
            Ok(token.map(|token| token.revoked_at = Some(at)).is_some())
        })
    }

    fn note_token_use(&self, id: TokenId, at: Timestamp) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            if let Some(token) = self.state().tokens.get_mut(&id) {
                token.last_used_at = token.last_used_at.max(Some(at));
            }
            Ok(())
        })
    }
}
