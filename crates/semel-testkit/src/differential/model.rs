//! The reference: a naive fold of commands in a map, by the rules and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel::clock::Clock;
use semel::store::{Chunk, INPUT, Logged, Place, Query, Stored, Waiting};
use semel_core::clock::{Stamp, judge};
use semel_core::identity::Kin;
use semel_core::ledger::{
    Decision, Entry, Fence, Record, Rejection, Reply, decide, parent_permits,
};
use semel_core::queue::QueueHash;
use semel_core::{Digest, KeyHash, Timestamp};

use crate::conformance::ManualClock;
use crate::conformance::hand::{Asked, Brought, payload_of};
use crate::lines;

/// What is stored, if every command were carried out one after the other in a perfect world.
#[derive(Debug)]
pub struct Model {
    clock: Arc<ManualClock>,
    stamp: Option<Stamp>,
    rows: BTreeMap<KeyHash, (Place, Arc<Record>)>,
    streams: BTreeMap<(Place, Fence), Vec<Chunk>>,
    /// Whose stream is the payload of a place.
    streamed: BTreeMap<Place, Fence>,
    /// Every answer that was ever reported: a record names its own by its digest.
    bytes: BTreeMap<[u8; 32], Vec<u8>>,
    log: Vec<Logged>,
}

/// What the model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The answer.
    pub reply: Result<Reply, Rejection>,
    /// Whether something was written.
    pub wrote: bool,
}

impl Model {
    /// Starts with nothing.
    #[must_use]
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            stamp: None,
            rows: BTreeMap::new(),
            streams: BTreeMap::new(),
            streamed: BTreeMap::new(),
            bytes: BTreeMap::new(),
            log: vec![],
        }
    }

    /// Returns the time as it must be judged.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        judge(self.stamp.as_ref(), &self.clock.read())
    }

    /// Returns the record of a key.
    #[must_use]
    pub fn record(&self, key: &KeyHash) -> Option<&Record> {
        self.rows.get(key).map(|(_, record)| &**record)
    }

    /// Returns the place of a key.
    #[must_use]
    pub fn place(&self, key: &KeyHash) -> Option<Place> {
        self.rows.get(key).map(|(place, _)| *place)
    }

    /// Returns the whole log.
    #[must_use]
    pub fn log(&self) -> &[Logged] {
        &self.log
    }

    /// Returns the bytes that a key's record speaks of.
    #[must_use]
    pub fn payload(&self, key: &KeyHash) -> Option<&[u8]> {
        let payload = payload_of(self.record(key)?)?;
        self.bytes.get(&payload.digest.0).map(Vec::as_slice)
    }

    /// Returns the pieces that an attempt has stored.
    #[must_use]
    pub fn stream(&self, place: Place, fence: Fence) -> &[Chunk] {
        self.streams.get(&(place, fence)).map_or(&[], Vec::as_slice)
    }

    /// Stores pieces of a stream.
    pub fn append(&mut self, place: Place, fence: Fence, chunks: &[Chunk]) {
        let stream = self.streams.entry((place, fence)).or_default();
        stream.extend_from_slice(chunks);
    }

    /// Carries a command out.
    pub fn apply(&mut self, asked: &Asked) -> Answered {
        let now = self.now();
        let decided = match asked.parent {
            Some((parent, fence)) => parent_permits(self.record(&parent), fence, now),
            None => Ok(()),
        };
        let decided = decided.and_then(|()| decide(self.record(&asked.key), &asked.command, now));
        match decided {
            Err(rejection) => Answered {
                reply: Err(rejection),
                wrote: false,
            },
            Ok(Decision::Answer(reply)) => Answered {
                reply: Ok(reply),
                wrote: false,
            },
            Ok(Decision::Write(write)) => {
                let place = self.place(&asked.key);
                self.keep_bytes(asked, place, write.next.as_ref());
                let known = place.is_some() || write.next.is_some();
                let place = place.unwrap_or(Place(self.log.len() as u64 + 1));
                if let Some(input) = asked.new_input(self.record(&asked.key), write.next.as_ref()) {
                    let piece = Chunk {
                        stream: 0,
                        bytes: input.to_vec(),
                    };
                    self.streams.insert((place, INPUT), vec![piece]);
                }
                self.log.push(Logged {
                    seq: self.log.len() as u64 + 1,
                    place: known.then_some(place),
                    entry: Entry {
                        at: now,
                        unplaced: (!known).then_some(asked.key),
                        command: asked.command.clone(),
                        events: write.events,
                        state: write.next.as_ref().map(Record::kind),
                        fence: write.next.as_ref().map_or(Fence(0), Record::fence),
                    },
                });
                match write.next {
                    Some(next) => drop(self.rows.insert(asked.key, (place, Arc::new(next)))),
                    None => drop(self.rows.remove(&asked.key)),
                }
                let reading = self.clock.read();
                self.stamp = Some(Stamp {
                    at: now,
                    boot: reading.boot,
                    uptime: reading.uptime,
                });
                Answered {
                    reply: Ok(write.reply),
                    wrote: true,
                }
            }
        }
    }

    /// Remembers what a command brought, and forgets the streams of a payload that goes.
    fn keep_bytes(&mut self, asked: &Asked, place: Option<Place>, next: Option<&Record>) {
        let brought = match (&asked.payload, place) {
            (Some(Brought::Bytes(bytes)), _) => Some(bytes.to_vec()),
            (Some(Brought::Stream(fence)), Some(place)) => {
                let pieces = self.stream(place, *fence);
                Some(
                    pieces
                        .iter()
                        .flat_map(|piece| piece.bytes.clone())
                        .collect(),
                )
            }
            (Some(Brought::Stream(_)) | None, _) => None,
        };
        if let Some(bytes) = brought {
            self.bytes.insert(Digest::of(&bytes).0, bytes);
        }
        let Some(place) = place else { return };
        let old = self.record(&asked.key).and_then(payload_of);
        let new = next.and_then(payload_of);
        if old != new {
            // The stream that was the payload goes with it; those of others stay.
            if let Some(fence) = self.streamed.remove(&place) {
                self.streams.remove(&(place, fence));
            }
            if let (Some(_), Some(Brought::Stream(fence))) = (new, &asked.payload) {
                self.streamed.insert(place, *fence);
            }
        }
        // Whatever ends the operation ends all of its streams.
        if next.is_none_or(|record| record.operation().is_none()) {
            self.streams.retain(|(of, _), _| *of != place);
            self.streamed.remove(&place);
        }
    }

    /// Finds those that count among these kin, by looking at all records.
    #[must_use]
    pub fn kin(&self, kin: Kin) -> Vec<(Place, Arc<Record>)> {
        let rows = self.rows.values();
        let counting = rows.filter(|(_, record)| Kin::counting(record) == Some(kin));
        let mut counting: Vec<_> = counting.cloned().collect();
        counting.sort_by_key(|(place, _)| *place);
        counting
    }

    /// Finds the tasks that wait and are due, by looking at all records.
    #[must_use]
    pub fn waiting(&self, ask: &Waiting) -> Vec<(Place, Arc<Record>)> {
        let rows = self
            .rows
            .values()
            .map(|(place, record)| (*place, &**record));
        let found = lines::waiting(rows, ask).into_iter();
        let at = |place| {
            self.rows
                .values()
                .find(|(found, _)| *found == place)
                .cloned()
        };
        found.filter_map(at).collect()
    }

    /// Counts the tasks that workers have.
    #[must_use]
    pub fn taken(&self, queue: QueueHash, lane: Option<u64>) -> usize {
        let records = self.rows.values().map(|(_, record)| &**record);
        lines::taken(records, queue, lane, usize::MAX)
    }

    /// Lists records: one filter after the other, over everything there is.
    #[must_use]
    pub fn list(&self, query: &Query) -> (Vec<Stored>, Option<Place>) {
        let mut rows: Vec<Stored> = self
            .rows
            .values()
            .map(|(place, record)| Stored::new(Arc::clone(record), *place))
            .filter(|stored| wanted(query, &stored.record))
            .collect();
        rows.sort_by_key(|stored| stored.place);
        if !query.oldest_first {
            rows.reverse();
        }
        if let Some(cursor) = query.cursor {
            rows.retain(|stored| (stored.place > cursor) == query.oldest_first);
            rows.retain(|stored| stored.place != cursor);
        }
        let more = rows.len() > query.limit;
        rows.truncate(query.limit);
        let next = rows.last().filter(|_| more).map(|stored| stored.place);
        (rows, next)
    }
}

/// What a list may be asked for, of a record that still has it.
struct Listed<'a> {
    namespace: &'a str,
    key: &'a str,
    /// What its client calls it; a key that was buried still shows that.
    called: Option<&'a str>,
    labels: [Option<&'a str>; 3],
    at: Timestamp,
}

fn wanted(query: &Query, record: &Record) -> bool {
    if !query.states.is_empty() && !query.states.contains(&record.kind()) {
        return false;
    }
    let listed = match record {
        Record::Operation(it) => Listed {
            namespace: it.spec.namespace.as_str(),
            key: it.spec.key.as_str(),
            called: it.spec.client_key.as_ref().map(|key| key.as_str()),
            labels: [
                Some(it.spec.name.as_str()),
                it.spec.door.as_ref().map(|door| door.as_str()),
                it.queue.as_ref().map(|queue| queue.as_str()),
            ],
            at: it.created_at,
        },
        Record::Tombstone(it) => Listed {
            namespace: it.namespace.as_str(),
            key: it.key.as_str(),
            called: it.key.as_str().split_once("/call:").map(|(_, text)| text),
            labels: [None; 3],
            at: it.settled_at,
        },
        // A stub has nothing left, so only who asks for stubs gets it.
        Record::Stub(_) => return !query.states.is_empty(),
        // A breaker is no operation, so only who asks for breakers gets it.
        Record::Breaker(_) if query.states.is_empty() || query.prefix.is_some() => return false,
        Record::Breaker(it) => Listed {
            namespace: it.namespace.as_str(),
            key: "",
            called: None,
            labels: [Some(it.name.as_str()), None, None],
            at: it.created_at,
        },
    };
    let labels = [&query.name, &query.door, &query.queue];
    let named = labels
        .iter()
        .zip(listed.labels)
        .all(|(wanted, found)| wanted.is_none() || wanted.as_deref() == found);
    named
        && query
            .namespace
            .as_ref()
            .is_none_or(|wall| wall.as_str() == listed.namespace)
        && query.prefix.as_ref().is_none_or(|prefix| {
            listed.key.starts_with(prefix.as_str())
                || listed
                    .called
                    .is_some_and(|text| text.starts_with(prefix.as_str()))
        })
        && (query.client_key.is_none() || query.client_key.as_deref() == listed.called)
        && query.since.is_none_or(|since| since <= listed.at)
        && query.until.is_none_or(|until| until > listed.at)
}
