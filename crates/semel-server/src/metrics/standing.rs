//! What the store holds now: looked at when somebody asks, in bounds, and not more often than it changes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use semel::core::ledger::{Operation, StateKind};
use semel::store::{PAGE_MAX, Query, Stored};
use semel::{Engine, Namespace, Timestamp};
use tokio::sync::Mutex;

use crate::http::Server;
use crate::notify;

/// How many pages of records in one state are looked at: 2,000 doubts are an alarm already, and more
/// would only be counted more slowly. The help texts name the number.
const PAGES: usize = 2;

/// For how long an answer is given again, so that those who ask often cost the store nothing.
const FRESH: Duration = Duration::from_secs(5);

/// What the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) doubts: u64,
    pub(super) doubt_age: Duration,
    pub(super) dead: u64,
    pub(super) queued: u64,
    pub(super) queue_lag: Duration,
    /// How many breakers stand in each phase, in the order of [`StateKind::BREAKERS`].
    breakers: [u64; StateKind::BREAKERS.len()],
}

/// How many namespaces' answers are remembered; when there are more, all are forgotten.
const NAMESPACES_MAX: usize = 256;

/// An answer and when it was given; `None` when the store failed.
type LastLook = (Instant, Option<Standing>);

/// The last answer for each namespace, and for all of them.
#[derive(Debug, Default)]
pub(crate) struct LastLooks(Mutex<HashMap<Option<Namespace>, LastLook>>);

impl LastLooks {
    /// Returns what the store holds; `None` when it does not answer. Those who ask at the same time share one look.
    pub(super) async fn look(
        &self,
        server: &Server,
        namespace: Option<&Namespace>,
    ) -> Option<Standing> {
        let mut seen = self.0.lock().await;
        let asked = namespace.cloned();
        if let Some((at, standing)) = seen.get(&asked)
            && at.elapsed() < FRESH
        {
            return *standing;
        }
        let standing = Standing::of(server.engine(), namespace);
        let standing = server.within(Duration::ZERO, standing).await.ok();
        if seen.len() >= NAMESPACES_MAX {
            seen.clear();
        }
        seen.insert(asked, (Instant::now(), standing));
        standing
    }
}

impl Standing {
    async fn of(engine: &Engine, namespace: Option<&Namespace>) -> semel::Result<Self> {
        let mut standing = Self::default();
        for state in [StateKind::Doubtful, StateKind::Dead, StateKind::Pending] {
            let now = engine.store().now();
            for stored in some(engine, namespace, state).await? {
                if let Some(operation) = stored.record.operation() {
                    standing.add(operation, now);
                }
            }
        }
        for (count, state) in standing.breakers.iter_mut().zip(StateKind::BREAKERS) {
            *count = some(engine, namespace, state).await?.len() as u64;
        }
        Ok(standing)
    }

    /// Returns how many breakers stand in each phase.
    pub(super) fn breakers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = StateKind::BREAKERS.map(StateKind::as_str);
        words.into_iter().zip(self.breakers)
    }

    fn add(&mut self, operation: &Operation, now: Timestamp) {
        if notify::is_own(&operation.spec.namespace) {
            // They are counted by those who tell.
            return;
        }
        let judged = operation.judged_at(now);
        match judged.state.kind() {
            StateKind::Doubtful => {
                let since = doubt_since(&judged).unwrap_or(judged.created_at);
                self.doubts += 1;
                self.doubt_age = self.doubt_age.max(now.since(since));
            }
            StateKind::Dead => self.dead += 1,
            StateKind::Pending if judged.queue.is_some() => {
                let due = judged.run_at.unwrap_or(judged.created_at);
                self.queued += 1;
                self.queue_lag = self.queue_lag.max(now.since(due));
            }
            StateKind::Pending
            | StateKind::Running
            | StateKind::Succeeded
            | StateKind::Failed
            | StateKind::Tombstone
            | StateKind::Stub
            | StateKind::Breaker(_) => {}
        }
    }
}

/// Returns the oldest records in a state, up to the limit.
async fn some(
    engine: &Engine,
    namespace: Option<&Namespace>,
    state: StateKind,
) -> semel::Result<Vec<Stored>> {
    let mut query = Query {
        namespace: namespace.cloned(),
        states: vec![state],
        oldest_first: true,
        limit: PAGE_MAX,
        ..Query::default()
    };
    let mut found = vec![];
    for _ in 0..PAGES {
        let page = engine.list(query.clone()).await?;
        found.extend(page.items);
        query.cursor = page.next;
        if page.next.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Returns since when an operation has been in doubt, given as of now.
pub(crate) fn doubt_since(judged: &Operation) -> Option<Timestamp> {
    let open = judged.attempts.iter().filter(|attempt| attempt.open);
    let ended = open.filter_map(|attempt| attempt.ended_at);
    judged.forgotten_open.into_iter().chain(ended).min()
}
