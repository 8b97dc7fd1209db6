//! Finding what is to be told: everything that is open at the start, and then what the log says.

use std::time::Duration;

use semel::core::ledger::{Record, StateKind};
use semel::store::{PAGE_MAX, Query, Stored};
use semel::{Engine, Namespace};
use tokio::sync::mpsc;

use super::NAMESPACE;
use super::subject::Subject;

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause after the store failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// Nobody takes up what is found any more.
#[derive(Debug)]
struct Gone;

/// Finds things until nobody takes them up any more.
pub(super) async fn run(engine: Engine, only: Option<Namespace>, found: mpsc::Sender<Subject>) {
    let watch = Watch {
        engine,
        only,
        found,
    };
    // What happens while the store is looked through is in the log behind this.
    let end = watch.insist(|| watch.engine.last_entry()).await;
    let all = async {
        watch.open().await?;
        watch.left_over().await?;
        watch.follow(end).await
    };
    match all.await {
        Ok(()) | Err(Gone) => {}
    }
}

struct Watch {
    engine: Engine,
    /// The only namespace that is told of, where there is one.
    only: Option<Namespace>,
    found: mpsc::Sender<Subject>,
}

impl Watch {
    /// Asks the store until it answers.
    async fn insist<T, E, F>(&self, ask: impl Fn() -> F) -> T
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => {
                    tracing::warn!(%error, "what is to be told cannot be looked for");
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
        }
    }

    async fn tell(&self, subject: Subject) -> Result<(), Gone> {
        self.found.send(subject).await.map_err(|_| Gone)
    }

    /// Looks through what is in doubt or dead.
    async fn open(&self) -> Result<(), Gone> {
        let query = Query {
            namespace: self.only.clone(),
            states: vec![StateKind::Doubtful, StateKind::Dead],
            ..Query::default()
        };
        let subject = |stored: &Stored| self.subject(&stored.record);
        self.look_through(query, subject).await
    }

    /// Looks through notifications that were begun and not ended: what they are about may be over by now, and
    /// then nobody else would end them.
    async fn left_over(&self) -> Result<(), Gone> {
        let query = Query {
            namespace: Namespace::new(NAMESPACE).ok(),
            states: vec![StateKind::Pending, StateKind::Running, StateKind::Doubtful],
            ..Query::default()
        };
        let subject = |stored: &Stored| Subject::read(&stored.record.operation()?.spec.key);
        self.look_through(query, subject).await
    }

    async fn look_through(
        &self,
        mut query: Query,
        subject: impl Fn(&Stored) -> Option<Subject>,
    ) -> Result<(), Gone> {
        query.oldest_first = true;
        query.limit = PAGE_MAX;
        loop {
            let page = self.insist(|| self.engine.list(query.clone())).await;
            for subject in page.items.iter().filter_map(&subject) {
                self.tell(subject).await?;
            }
            query.cursor = page.next;
            if page.next.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the log for ever.
    async fn follow(&self, mut cursor: u64) -> Result<(), Gone> {
        loop {
            let store = self.engine.store();
            let page = self.insist(|| store.log(cursor, PAGE_MAX)).await;
            let Some(newest) = page.last() else {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            };
            cursor = newest.seq;
            for logged in &page {
                let state = logged.entry.state;
                if !matches!(state, Some(StateKind::Doubtful | StateKind::Dead)) {
                    continue;
                }
                let Some(place) = logged.place else { continue };
                let stored = self.insist(|| store.load_at(place)).await;
                // It may be over by now, and then nothing is to be told.
                if let Some(subject) = stored.and_then(|stored| self.subject(&stored.record)) {
                    self.tell(subject).await?;
                }
            }
        }
    }

    fn subject(&self, record: &Record) -> Option<Subject> {
        let operation = record.operation()?;
        if !super::is_told(operation, self.only.as_ref()) {
            return None;
        }
        Subject::of(operation, self.engine.store().now())
    }
}
