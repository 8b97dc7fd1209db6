//! Verify: replays the log through the rules and compares with what is stored.

use std::collections::{HashMap, HashSet};
use std::fmt;

use semel_core::Digest;
use semel_core::ledger::{Decision, Record, StateKind};

use super::{Engine, payload_of};
use crate::error::{Error, Result};
use crate::store::{Current, Logged, PAGE_MAX, Place, Query, StoreError, Stored};

/// How many pages beyond the end of the log are read for records that change while they are
/// verified: one that is changed all the time is never caught up with.
const CHASE_PAGES: usize = 16;

/// What was verified, and the first thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many log entries were replayed.
    pub entries: u64,
    /// How many records were compared.
    pub records: u64,
    /// How many payloads were checked against their digests.
    pub payloads: u64,
    /// The first difference between what the log folds to and what is stored.
    pub difference: Option<Difference>,
}

impl Verified {
    /// Says whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.difference.is_none()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The log entry at which it shows, if it is one.
    pub seq: Option<u64>,
    /// The place of the record.
    pub place: Option<Place>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.seq, self.place) {
            (Some(seq), _) => write!(f, "log entry {seq}: {}", self.what),
            (None, Some(place)) => write!(f, "record {}: {}", place.0, self.what),
            (None, None) => f.write_str(&self.what),
        }
    }
}

/// A replay under way: records whose last log entry has not been reached yet.
#[derive(Default)]
struct Replay {
    open: HashMap<Place, Option<Record>>,
    next_seq: u64,
    /// The last entry when the replay began: what comes after it comes from others, meanwhile.
    end: u64,
    /// The records that others have changed meanwhile.
    moved: HashSet<Place>,
    placed: u64,
    report: Verified,
}

/// Ends with the first thing that is wrong.
type Compared = Result<std::result::Result<(), Difference>>;

impl Engine {
    /// Replays the whole log and compares every record, its place in the index, its payload and what its workers are given.
    ///
    /// Memory holds only the records that are between two of their entries, so it stays small
    /// however long the log is. The store may be in use.
    ///
    /// # Errors
    /// Fails when the store does. What is wrong with the store is the answer, not an error.
    pub async fn verify(&self) -> Result<Verified> {
        if self.inner.ledger.is_elsewhere() {
            let text = "a ledger is verified where the store is: run it there, with --store naming the \
                        store itself";
            return Err(StoreError::Refused(text.to_owned()).into());
        }
        let mut replay = Replay {
            next_seq: 1,
            end: self.last_entry().await?,
            ..Replay::default()
        };
        let compared = match self.replay_all(&mut replay).await {
            Ok(Ok(())) => self.check_rest(&mut replay).await,
            other => other,
        };
        let compared = match compared {
            // The log knows nothing of tokens, but their rows have checksums.
            Ok(Ok(())) => self.tokens(None).await.map(|_| Ok(())),
            other => other,
        };
        replay.report.difference = match compared {
            Ok(compared) => compared.err(),
            // What cannot be read is wrong too, and its message names it.
            Err(Error::Store(StoreError::Corrupt(what))) => Some(Difference {
                seq: None,
                place: None,
                what,
            }),
            Err(error) => return Err(error),
        };
        Ok(replay.report)
    }

    /// Returns the number up to which the log can be read.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn last_entry(&self) -> Result<u64> {
        Ok(self.inner.ledger.store.end().await?)
    }

    async fn replay_all(&self, replay: &mut Replay) -> Compared {
        let mut chased = 0;
        while replay.next_seq <= replay.end || (!replay.open.is_empty() && chased < CHASE_PAGES) {
            let store = &self.inner.ledger.store;
            let page = store.log(replay.next_seq - 1, PAGE_MAX).await?;
            if page.is_empty() {
                break;
            }
            chased += usize::from(replay.next_seq > replay.end);
            for logged in page {
                if let Err(difference) = self.replay(replay, logged).await? {
                    return Ok(Err(difference));
                }
            }
        }
        if replay.next_seq <= replay.end && !self.inner.ledger.store.has_gaps() {
            return Ok(Err(Difference {
                seq: Some(replay.next_seq),
                place: None,
                what: "it is missing".to_owned(),
            }));
        }
        Ok(Ok(()))
    }

    /// Replays one entry; when it is the record's last one, compares.
    async fn replay(&self, replay: &mut Replay, logged: Logged) -> Compared {
        let Logged { seq, place, entry } = logged;
        let wrong = |what: String| Difference {
            seq: Some(seq),
            place,
            what,
        };
        // Where numbers have gaps, what is missing shows in the record that it is missing from.
        if seq != replay.next_seq && !self.inner.ledger.store.has_gaps() {
            return Ok(Err(wrong(format!("entry {} is missing", replay.next_seq))));
        }
        replay.next_seq = seq + 1;
        if seq > replay.end {
            replay.moved.extend(place);
            // New, or compared already: its later changes are the next verification's.
            if place.is_none_or(|place| !replay.open.contains_key(&place)) {
                return Ok(Ok(()));
            }
        }
        replay.report.entries += 1;
        let current = match place {
            None => None,
            Some(place) if place.0 == seq => None,
            Some(place) => match replay.open.remove(&place) {
                Some(current) => current,
                None => return Ok(Err(wrong("the record was final before it".to_owned()))),
            },
        };
        let decision = (self.inner.ledger.rules)(current.as_ref(), &entry.command, entry.at);
        let next = match decision {
            Ok(Decision::Write(write)) => {
                let state = write.next.as_ref().map(Record::kind);
                if (state, &write.events) != (entry.state, &entry.events) {
                    return Ok(Err(wrong(format!(
                        "`{}` leads to {state:?} with {:?}, the log says {:?} with {:?}",
                        entry.command.name(),
                        write.events,
                        entry.state,
                        entry.events,
                    ))));
                }
                write.next
            }
            Ok(Decision::Answer(_)) | Err(_) => {
                let what = format!("`{}` was not to be accepted", entry.command.name());
                return Ok(Err(wrong(what)));
            }
        };
        let Some(place) = place else {
            return Ok(Ok(()));
        };
        if place.0 == seq {
            replay.placed += 1;
        }
        let stored = self.inner.ledger.store.load_at(place).await?;
        self.compare(replay, place, next, stored).await
    }

    /// Compares a replayed record with the stored one, if it has reached its version.
    async fn compare(
        &self,
        replay: &mut Replay,
        place: Place,
        next: Option<Record>,
        stored: Option<Stored>,
    ) -> Compared {
        let wrong = |what: &str| Difference {
            seq: None,
            place: Some(place),
            what: what.to_owned(),
        };
        match (next, stored) {
            (None, None) => {
                replay.placed -= 1;
                Ok(Ok(()))
            }
            (Some(next), Some(stored)) if next.version() == stored.record.version() => {
                if next != *stored.record {
                    return Ok(Err(wrong("the log folds to another record")));
                }
                replay.report.records += 1;
                self.check_place_and_payload(replay, &stored).await
            }
            (Some(next), Some(stored)) if next.version() > stored.record.version() => {
                Ok(Err(wrong("the log is ahead of the stored record")))
            }
            // Later entries will bring it on.
            (next, _) => {
                replay.open.insert(place, next);
                Ok(Ok(()))
            }
        }
    }

    async fn check_place_and_payload(&self, replay: &mut Replay, stored: &Stored) -> Compared {
        let wrong = |what: &str| Difference {
            seq: None,
            place: Some(stored.place),
            what: what.to_owned(),
        };
        let store = &self.inner.ledger.store;
        match store.load(&stored.record.key_hash()).await {
            Ok(Current::Stored(found)) if found.place == stored.place => {}
            Ok(_) if self.has_moved(stored).await? => return Ok(Ok(())),
            Ok(_) => return Ok(Err(wrong("its key does not lead to it"))),
            Err(StoreError::Corrupt(what)) => return Ok(Err(wrong(&what))),
            Err(error) => return Err(error.into()),
        }
        match self.task_input(stored).await {
            Ok(_) => {}
            Err(Error::Store(StoreError::Corrupt(what))) => {
                if self.has_moved(stored).await? {
                    return Ok(Ok(()));
                }
                return Ok(Err(wrong(&what)));
            }
            Err(error) => return Err(error),
        }
        let Some(payload) = payload_of(&stored.record) else {
            return Ok(Ok(()));
        };
        let what = match store.payload(stored.place).await {
            Ok(Some(bytes)) if Digest::of(&bytes) == payload.digest => {
                replay.report.payloads += 1;
                return Ok(Ok(()));
            }
            Ok(Some(_)) => "its payload does not match its digest".to_owned(),
            Ok(None) => "its payload is gone".to_owned(),
            Err(StoreError::Corrupt(what)) => what,
            Err(error) => return Err(error.into()),
        };
        if self.has_moved(stored).await? {
            return Ok(Ok(()));
        }
        Ok(Err(wrong(&what)))
    }

    /// Says whether somebody has changed a record since it was read.
    async fn has_moved(&self, stored: &Stored) -> Result<bool> {
        let now = self.inner.ledger.store.load_at(stored.place).await?;
        Ok(now.map(|now| now.record.version()) != Some(stored.record.version()))
    }

    /// Looks at what was left open, and for records that the log or the list of open ones does not
    /// know.
    async fn check_rest(&self, replay: &mut Replay) -> Compared {
        let store = &self.inner.ledger.store;
        for place in std::mem::take(&mut replay.open).into_keys() {
            if replay.moved.contains(&place) {
                continue;
            }
            let what = match store.load_at(place).await? {
                None => "the record has vanished",
                Some(_) => "the stored record is ahead of the log",
            };
            return Ok(Err(Difference {
                seq: None,
                place: Some(place),
                what: what.to_owned(),
            }));
        }
        let mut query = Query {
            states: StateKind::ALL.to_vec(),
            oldest_first: true,
            limit: PAGE_MAX,
            ..Query::default()
        };
        let mut rows = 0u64;
        loop {
            let page = store.list(query.clone()).await?;
            for stored in &page.items {
                let checked = if stored.place.0 > replay.end {
                    self.check_logged(stored).await?
                } else {
                    rows += 1;
                    self.check_listed(stored).await?
                };
                if checked.is_err() {
                    return Ok(checked);
                }
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        if rows > replay.placed {
            let what = format!("{rows} records are stored, the log knows {}", replay.placed);
            return Ok(Err(Difference {
                seq: None,
                place: None,
                what,
            }));
        }
        Ok(Ok(()))
    }

    /// Checks that a record which came meanwhile has come with an entry of the log.
    async fn check_logged(&self, stored: &Stored) -> Compared {
        let first = stored.place.0.saturating_sub(1);
        let entry = self.inner.ledger.store.log(first, 1).await?;
        if entry.first().map(|logged| logged.seq) == Some(stored.place.0) {
            return Ok(Ok(()));
        }
        Ok(Err(Difference {
            seq: None,
            place: Some(stored.place),
            what: "the log does not know it".to_owned(),
        }))
    }

    /// Checks that an open operation is listed as one: the sweep would never find it otherwise.
    async fn check_listed(&self, stored: &Stored) -> Compared {
        if !stored.record.kind().is_open() {
            return Ok(Ok(()));
        }
        let open = StateKind::ALL.into_iter().filter(|kind| kind.is_open());
        let query = Query {
            states: open.collect(),
            cursor: Some(Place(stored.place.0.saturating_add(1))),
            limit: 1,
            ..Query::default()
        };
        let page = self.inner.ledger.store.list(query).await?;
        let listed = page.items.first().map(|first| first.place) == Some(stored.place);
        if listed || self.has_moved(stored).await? {
            return Ok(Ok(()));
        }
        Ok(Err(Difference {
            seq: None,
            place: Some(stored.place),
            what: "it is open, and not listed as open".to_owned(),
        }))
    }
}
