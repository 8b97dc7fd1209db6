//! The writer: a few tasks, each of which takes what waits and writes it in one round trip.
//!
//! A batch is one call of `semel.apply`, which compares and writes without having read before. Batches
//! of one node and of others run beside each other and share the server's syncs; they meet only where
//! they are about the same keys, and there the versions decide.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::KeyHash;
use semel_core::ledger::StateKind;
use semel_core::queue::QueueHash;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::batch::{APPLY, Arguments, Call, Prepared, Written, written};
use super::fate::{self, Lost, RETRY_WITHIN};
use super::fault::{failed, told};
use super::notify::tell;
use super::pool::{Connection, Pool, in_time};
use crate::store::time::Time;
use crate::store::{Commit, Current, Result, StoreError};

/// The bytes after which a batch takes no further change: a message to PostgreSQL must stay far below
/// its limit of 1 GiB, whatever the payloads.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a batch waits for others who change the same operations, and how long a single change does:
/// one that is held up must not hold up the others.
const PATIENCE_TOGETHER: &str = "1s";
pub(super) const PATIENCE_ALONE: &str = "10s";

/// How often changes that others got in the way of are sent again.
const TRIES: usize = 5;

/// Where an answer goes.
pub(super) type Answer = oneshot::Sender<Result<Commit>>;

/// A change, and who waits for it.
pub(super) type Item = (Prepared, Answer);

/// What all the tasks share.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) pool: Arc<Pool>,
    pub(super) time: Arc<Time>,
    /// A number of the log that was handed out: what is written later has higher ones.
    pub(super) handed_out: AtomicU64,
}

/// Changes of different keys, in the order of their keys.
type Batch = Vec<Item>;

impl Writer {
    /// Writes changes and answers each.
    pub(super) async fn write(self: &Arc<Self>, items: Vec<Item>) {
        let mut waiting: BTreeMap<KeyHash, VecDeque<Item>> = BTreeMap::new();
        for item in items {
            let key = item.0.change.key;
            waiting.entry(key).or_default().push_back(item);
        }
        while !waiting.is_empty() {
            let batch = next(&mut waiting);
            let Some(found) = self.write_batch(batch).await else {
                // Nobody knows yet what is stored: those who came behind ask the server.
                continue;
            };
            for (key, current) in found {
                let Some(behind) = waiting.remove(&key) else {
                    continue;
                };
                let mut left = VecDeque::new();
                for (prepared, answer) in behind {
                    match prepared.overtaken(&current) {
                        Some(commit) => tell_one(answer, Ok(commit)),
                        None => left.push_back((prepared, answer)),
                    }
                }
                if !left.is_empty() {
                    waiting.insert(key, left);
                }
            }
        }
    }

    /// Writes one batch and answers it; returns what is stored under its keys now, where that is known.
    async fn write_batch(self: &Arc<Self>, batch: Batch) -> Option<Vec<(KeyHash, Current)>> {
        let started = Instant::now();
        let changes: Vec<&Prepared> = batch.iter().map(|(prepared, _)| prepared).collect();
        match self.send(&changes).await {
            Sent::Written(written, connection) => {
                let woken = woken(&written, &changes);
                let found = found(&written.commits, &changes);
                let heard = written.heard;
                answer_all(batch, written.commits);
                if heard && !woken.is_empty() {
                    tell(*connection, &woken).await;
                }
                Some(found)
            }
            Sent::Refused(error) => {
                let commits = changes.iter().map(|_| Err(error.clone())).collect();
                answer_all(batch, commits);
                None
            }
            Sent::InTheWay(error) if batch.len() == 1 => {
                answer_all(batch, vec![Err(error)]);
                None
            }
            Sent::InTheWay(_) => {
                // One by one, so that only those wait who have to.
                for item in batch {
                    Box::pin(self.write_batch(vec![item])).await;
                }
                None
            }
            Sent::Lost(lost) => {
                // Others hear at once that the server is gone, instead of waiting behind this.
                let writer = Arc::clone(self);
                tokio::spawn(async move { writer.find(lost, batch, started).await });
                None
            }
        }
    }

    /// Sends a batch, again when its transaction and another one stood in each other's way.
    async fn send(&self, changes: &[&Prepared]) -> Sent {
        let patience = if changes.len() == 1 {
            PATIENCE_ALONE
        } else {
            PATIENCE_TOGETHER
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let mut connection = match self.pool.take().await {
                Ok(connection) => connection,
                Err(error) => return Sent::Refused(error),
            };
            let batch = match random() {
                Ok(batch) => batch,
                Err(error) => return Sent::Refused(error),
            };
            let lost = |error| {
                Sent::Lost(Lost {
                    batch,
                    after: self.handed_out.load(Ordering::Relaxed),
                    error,
                })
            };
            let sent = self.time.uptime();
            let arguments = Arguments::new(Call { batch, patience }, changes);
            let parameters = arguments.parameters();
            let error = match in_time(connection.run_often(APPLY, &parameters)).await {
                Ok(Ok(Ok(rows))) => {
                    return match written(&rows, changes) {
                        Ok(written) => {
                            self.learn(&written, changes, sent);
                            Sent::Written(written, Box::new(connection))
                        }
                        Err(error) => Sent::Refused(error),
                    };
                }
                Ok(Ok(Err(error))) => error,
                Ok(Err(error)) => return Sent::Refused(error),
                Err(late) => {
                    connection.give_up();
                    return lost(late.to_string());
                }
            };
            match stopped_by(&error) {
                Stopped::Connection => {
                    connection.give_up();
                    self.pool.forget_idle();
                    return lost(told(&error));
                }
                Stopped::Others if tries < TRIES => {}
                Stopped::Others | Stopped::Patience => {
                    return Sent::InTheWay(failed("write to the ledger", &error));
                }
                Stopped::Refusal => {
                    // A session keeps the settings that it began with; a new one may do better.
                    connection.give_up();
                    return Sent::Refused(failed("write to the ledger", &error));
                }
            }
        }
    }

    /// Learns what the answer to a batch tells.
    fn learn(&self, written: &Written, changes: &[&Prepared], sent: Duration) {
        self.time.hear(written.clock, sent);
        for (commit, prepared) in written.commits.iter().zip(changes) {
            if let Ok(Commit::Done(current)) = commit {
                self.time.stored(prepared.change.entry.at);
                if let Current::Stored(stored) = current {
                    self.handed_out.fetch_max(stored.place.0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Finds out what became of a batch whose answer was lost, and answers it. When it was not written
    /// it is sent once more.
    async fn find(self: Arc<Self>, lost: Lost, batch: Batch, started: Instant) {
        let changes: Vec<&Prepared> = batch.iter().map(|(prepared, _)| prepared).collect();
        let commits = match lost.find(&self.pool, &self.time, &changes).await {
            fate::Found::Written(commits) => commits,
            fate::Found::Nothing if started.elapsed() < RETRY_WITHIN => {
                match self.send(&changes).await {
                    Sent::Written(written, _) => written.commits,
                    Sent::Refused(error) | Sent::InTheWay(error) => {
                        changes.iter().map(|_| Err(error.clone())).collect()
                    }
                    Sent::Lost(lost) => {
                        let error = StoreError::Unknown(lost.error);
                        changes.iter().map(|_| Err(error.clone())).collect()
                    }
                }
            }
            fate::Found::Nothing => {
                let error = StoreError::Unavailable(format!(
                    "the connection to PostgreSQL was lost before COMMIT: {}",
                    lost.error
                ));
                changes.iter().map(|_| Err(error.clone())).collect()
            }
            fate::Found::Unknown => {
                let error = StoreError::Unknown(lost.error);
                changes.iter().map(|_| Err(error.clone())).collect()
            }
        };
        answer_all(batch, commits);
    }
}

/// How sending a batch ended.
enum Sent {
    Written(Written, Box<Connection>),
    /// Nothing was written.
    Refused(StoreError),
    /// Nothing was written, as others hold what some change is about.
    InTheWay(StoreError),
    Lost(Lost),
}

/// What a failed batch was stopped by. All but a lost connection prove that nothing was written.
enum Stopped {
    Connection,
    /// A deadlock or a conflict with another transaction: it may work at once.
    Others,
    /// Others held a row for too long.
    Patience,
    Refusal,
}

fn stopped_by(error: &Error) -> Stopped {
    match error.code() {
        None => Stopped::Connection,
        Some(code) => match code {
            &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE => {
                Stopped::Others
            }
            &SqlState::LOCK_NOT_AVAILABLE => Stopped::Patience,
            // The server may have said so while it was committing.
            &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => Stopped::Connection,
            _ => Stopped::Refusal,
        },
    }
}

/// Takes the first change of each key, as many as go together.
pub(super) fn next(waiting: &mut BTreeMap<KeyHash, VecDeque<Item>>) -> Batch {
    let (mut batch, mut size) = (vec![], 0);
    let keys: Vec<KeyHash> = waiting.keys().copied().collect();
    for key in keys {
        if size >= BATCH_BYTES_MAX {
            break;
        }
        let Some(items) = waiting.get_mut(&key) else {
            continue;
        };
        if let Some(item) = items.pop_front() {
            size += item.0.size();
            batch.push(item);
        }
        if items.is_empty() {
            waiting.remove(&key);
        }
    }
    batch
}

pub(super) fn random() -> Result<i64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        StoreError::Unavailable(format!("the system gives no randomness: {error}"))
    })?;
    Ok(i64::from_le_bytes(bytes))
}

/// Returns the keys whose waiters may have something to see, and the bells of queues that have a task more: nobody waits
/// for an operation to run.
pub(super) fn woken(written: &Written, changes: &[&Prepared]) -> Vec<KeyHash> {
    let rests = |prepared: &Prepared| {
        let next = prepared.change.next.as_ref();
        next.map(|next| next.kind()) != Some(StateKind::Running)
    };
    let done = written.commits.iter().zip(changes);
    let done = done
        .filter(|(commit, prepared)| matches!(commit, Ok(Commit::Done(_))) && rests(prepared))
        .map(|(_, prepared)| &prepared.change);
    let mut keys: Vec<KeyHash> = done.clone().map(|change| change.key).collect();
    let offers: BTreeSet<QueueHash> = done.filter_map(|change| change.line.offers()).collect();
    keys.extend(offers.into_iter().map(QueueHash::bell));
    keys
}

fn found(commits: &[Result<Commit>], changes: &[&Prepared]) -> Vec<(KeyHash, Current)> {
    let known = commits
        .iter()
        .zip(changes)
        .filter_map(|(commit, prepared)| match commit {
            Ok(Commit::Done(current) | Commit::Conflict(current)) => {
                Some((prepared.change.key, current.clone()))
            }
            Ok(Commit::GuardChanged) | Err(_) => None,
        });
    known.collect()
}

fn answer_all(batch: Batch, commits: Vec<Result<Commit>>) {
    for ((_, answer), commit) in batch.into_iter().zip(commits) {
        tell_one(answer, commit);
    }
}

fn tell_one(answer: Answer, commit: Result<Commit>) {
    // Whoever asked may have gone.
    drop(answer.send(commit));
}
