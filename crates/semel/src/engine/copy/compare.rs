//! Comparing a copy with its source, record by record, and bringing over what attempts have written
//! without having reported it.

use std::collections::BTreeSet;
use std::sync::Arc;

use semel_core::ledger::StateKind;
use semel_core::{Digest, KeyHash};
use tokio::task::JoinSet;

use super::carry::{joined, put_stream};
use super::{Copied, Copying};
use crate::engine::Difference;
use crate::engine::ledger::payload_of;
use crate::error::Result;
use crate::store::{Current, PAGE_MAX, Place, Query, Store, Stored};

/// Records that are compared at once.
const TASKS_MAX: usize = 256;

/// How often records are compared again that were ahead: in a closed source an attempt that runs
/// renews its lease now and then, and reports once.
const ROUNDS_MAX: usize = 16;

/// Changed records that are remembered; when there are more, all are compared again.
const CHANGED_MAX: usize = 1 << 20;

/// Every state, and those in which an attempt may still write.
const ALL: &[StateKind] = &StateKind::ALL;
const WRITING: &[StateKind] = &[StateKind::Running, StateKind::Doubtful];

/// What has changed in the source since it was compared.
#[derive(Debug, Default)]
pub(super) struct Changed {
    places: BTreeSet<Place>,
    /// Keys that the target has and the source has not: it has dropped them since, or never had them.
    strangers: Vec<KeyHash>,
    /// Whether it was compared at all.
    counts: bool,
    too_many: bool,
}

impl Changed {
    /// Remembers what changes from now on.
    pub(super) fn begin(&mut self) {
        *self = Self {
            counts: true,
            ..Self::default()
        };
    }

    pub(super) fn add(&mut self, places: impl Iterator<Item = Place>) {
        if self.counts {
            self.places.extend(places);
        }
        if self.places.len() > CHANGED_MAX {
            self.places.clear();
            self.too_many = true;
        }
    }
}

/// How a record of the target differs from the source's.
enum Compared {
    Same,
    /// The source has gone on since.
    Ahead(Place),
    Different(Difference),
}

impl<W: FnMut(&Copied)> Copying<'_, W> {
    /// Compares every record; the source may be ahead, and that is looked at again.
    pub(super) async fn compare_all(&mut self) -> Result<Option<Difference>> {
        if let Some(difference) = self.compare_states(ALL).await? {
            return Ok(Some(difference));
        }
        let mut query = every(ALL);
        loop {
            let page = self.to.store().list(query.clone()).await?;
            let mut tasks = JoinSet::new();
            for stored in page.items {
                let from = Arc::clone(self.from);
                tasks.spawn(async move {
                    let key = stored.record.key_hash();
                    let absent = matches!(from.load(&key).await?, Current::Absent(_));
                    Ok(absent.then_some(key))
                });
            }
            while !tasks.is_empty() {
                let stranger = joined(tasks.join_next().await)?.flatten();
                self.changed.strangers.extend(stranger);
            }
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        if !self.changed.strangers.is_empty() {
            self.copy_present().await?;
        }
        self.meet_strangers().await
    }

    /// Compares what has changed since, and what attempts may have written; the source is closed.
    pub(super) async fn compare_rest(&mut self) -> Result<Option<Difference>> {
        for _ in 0..ROUNDS_MAX {
            self.copy_rest().await?;
            if !self.carrier.misses_nothing() {
                continue;
            }
            let places = std::mem::take(&mut self.changed.places);
            let states = if self.changed.too_many { ALL } else { WRITING };
            self.changed.too_many = false;
            let mut changed = vec![];
            for place in places {
                // What was dropped meanwhile was dropped there, too.
                changed.extend(self.from.load_at(place).await?);
                if changed.len() >= PAGE_MAX
                    && let Some(difference) =
                        self.compare_some(std::mem::take(&mut changed)).await?
                {
                    return Ok(Some(difference));
                }
            }
            let found = self.compare_some(changed).await?;
            let found = match found {
                None => self.compare_states(states).await?,
                found => found,
            };
            if found.is_some() {
                return Ok(found);
            }
            if self.changed.places.is_empty() && !self.changed.too_many {
                return self.meet_strangers().await;
            }
        }
        let place = self.changed.places.first().copied();
        let what = "entries of it are missing in the target";
        Ok(Some(differs(place.unwrap_or(Place(0)), what)))
    }

    /// Compares every record in one of these states.
    async fn compare_states(&mut self, states: &[StateKind]) -> Result<Option<Difference>> {
        let mut query = every(states);
        loop {
            let page = self.from.list(query.clone()).await?;
            // What was begun after the last entry that was copied comes with its entries.
            let through = self.origin.through;
            let known = page.items.into_iter();
            let known = known.filter(|stored| stored.place.0 <= through).collect();
            if let Some(difference) = self.compare_some(known).await? {
                return Ok(Some(difference));
            }
            self.tell();
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(None),
            }
        }
    }

    async fn compare_some(&mut self, records: Vec<Stored>) -> Result<Option<Difference>> {
        let mut tasks = JoinSet::new();
        let mut found = vec![];
        for stored in records {
            if tasks.len() >= TASKS_MAX {
                found.extend(joined(tasks.join_next().await)?);
            }
            let (from, to) = (Arc::clone(self.from), Arc::clone(self.to.store()));
            tasks.spawn(compare(from, to, stored));
        }
        while !tasks.is_empty() {
            found.extend(joined(tasks.join_next().await)?);
        }
        for compared in found {
            match compared {
                Compared::Same => self.report.records += 1,
                Compared::Ahead(place) => self.changed.add(std::iter::once(place)),
                Compared::Different(difference) => return Ok(Some(difference)),
            }
        }
        Ok(None)
    }

    /// Finds what the target has and the source has not, once all entries were copied.
    async fn meet_strangers(&mut self) -> Result<Option<Difference>> {
        for key in std::mem::take(&mut self.changed.strangers) {
            let there = self.to.store().load(&key).await?;
            let here = self.from.load(&key).await?;
            if let (Current::Stored(_), Current::Absent(_)) = (there, here) {
                return Ok(Some(Difference {
                    seq: None,
                    place: None,
                    what: "the target has an operation that the source has not".to_owned(),
                }));
            }
        }
        Ok(None)
    }
}

fn every(states: &[StateKind]) -> Query {
    Query {
        states: states.to_vec(),
        oldest_first: true,
        limit: PAGE_MAX,
        ..Query::default()
    }
}

fn differs(place: Place, what: &str) -> Difference {
    Difference {
        seq: None,
        place: Some(place),
        what: format!("{what} (its number is that of the source)"),
    }
}

async fn compare(from: Arc<dyn Store>, to: Arc<dyn Store>, stored: Stored) -> Result<Compared> {
    let place = stored.place;
    let different = |what: &str| Ok(Compared::Different(differs(place, what)));
    let there = match to.load(&stored.record.key_hash()).await? {
        Current::Stored(there) => there,
        // It was dropped there, as the source has by now.
        Current::Absent(_) if from.load_at(place).await?.is_none() => return Ok(Compared::Same),
        Current::Absent(_) => return different("it is missing in the target"),
    };
    if stored.record.version() > there.record.version() {
        return Ok(Compared::Ahead(place));
    }
    if stored.record != there.record {
        let now = from.load_at(place).await?;
        let moved = now.is_none_or(|now| now.record.version() != stored.record.version());
        if moved {
            return Ok(Compared::Ahead(place));
        }
        return different("the target has another record");
    }
    if let Some(payload) = payload_of(&stored.record) {
        let bytes = match there.payload {
            Some(bytes) => Some(bytes),
            None => to.payload(there.place).await?.map(Arc::from),
        };
        if bytes.is_none_or(|bytes| Digest::of(&bytes) != payload.digest) {
            return different("its payload is gone in the target, or does not match its digest");
        }
    }
    if let Some(operation) = stored.record.operation() {
        for attempt in &operation.attempts {
            let chunks = from.stream(place, attempt.fence).await?;
            if to.stream(there.place, attempt.fence).await? != chunks {
                put_stream(&to, there.place, attempt.fence, chunks).await?;
            }
        }
    }
    Ok(Compared::Same)
}
