//! Comparing a copy with its source, record by record, and bringing over what attempts have written
//! without having reported it.

use std::sync::Arc;

use semel_core::ledger::StateKind;
use tokio::task::JoinSet;

use super::carry::{joined, put_stream};
use super::{Copied, Copying};
use crate::engine::Difference;
use crate::error::Result;
use crate::store::{Current, PAGE_MAX, Place, Query, Store, Stored};

/// Records that are compared at once.
const TASKS_MAX: usize = 256;

/// How often records are compared again that were ahead: in a closed source an attempt that runs
/// renews its lease now and then, and reports once.
const ROUNDS_MAX: usize = 16;

/// How a record of the target differs from the source's.
enum Compared {
    Same,
    /// The source has gone on since.
    Ahead(Place),
    Different(Difference),
}

impl<W: FnMut(&Copied)> Copying<'_, W> {
    /// Compares every record; where the source may go on meanwhile, it may be ahead.
    pub(super) async fn compare(&mut self, closed: bool) -> Result<Option<Difference>> {
        let mut ahead = vec![];
        let mut cursor = None;
        loop {
            let page = self.from.list(every(cursor)).await?;
            let mut tasks = JoinSet::new();
            let mut found = vec![];
            for stored in page.items {
                // It was begun after the last entry that was copied.
                if !closed && stored.place.0 > self.origin.through {
                    continue;
                }
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
                    Compared::Same => {}
                    Compared::Ahead(place) => ahead.push(place),
                    Compared::Different(difference) => return Ok(Some(difference)),
                }
                self.report.records += 1;
            }
            self.tell();
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        if closed {
            return self.compare_rest(ahead).await;
        }
        Ok(None)
    }

    /// Copies what was reported while records were compared, and looks at those again; and that the
    /// target has no others.
    async fn compare_rest(&mut self, ahead: Vec<Place>) -> Result<Option<Difference>> {
        let mut ahead = ahead;
        for _ in 0..ROUNDS_MAX {
            self.copy_rest().await?;
            for place in std::mem::take(&mut ahead) {
                let Some(stored) = self.from.load_at(place).await? else {
                    continue;
                };
                let (from, to) = (Arc::clone(self.from), Arc::clone(self.to.store()));
                match compare(from, to, stored).await? {
                    Compared::Same => {}
                    Compared::Ahead(place) => ahead.push(place),
                    Compared::Different(difference) => return Ok(Some(difference)),
                }
            }
            if ahead.is_empty() {
                break;
            }
        }
        if let Some(place) = ahead.first() {
            return Ok(Some(differs(
                *place,
                "entries of it are missing in the target",
            )));
        }
        let mut count = 0;
        let mut cursor = None;
        loop {
            let page = self.to.store().list(every(cursor)).await?;
            count += page.items.len() as u64;
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        let what = format!(
            "the target has {count} records, the source {}",
            self.report.records
        );
        Ok((count != self.report.records).then_some(Difference {
            seq: None,
            place: None,
            what,
        }))
    }
}

fn every(cursor: Option<Place>) -> Query {
    Query {
        states: StateKind::ALL.to_vec(),
        oldest_first: true,
        cursor,
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
    let there = match to.load(&stored.record.key_hash()).await? {
        Current::Stored(there) => there,
        Current::Absent(_) => {
            let what = "it is missing in the target";
            return Ok(Compared::Different(differs(place, what)));
        }
    };
    if stored.record.version() > there.record.version() {
        return Ok(Compared::Ahead(place));
    }
    if stored.record != there.record {
        let what = "the target has another record";
        return Ok(Compared::Different(differs(place, what)));
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
