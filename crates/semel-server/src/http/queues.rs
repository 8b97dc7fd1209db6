//! Queues: which there are, and what is on them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use semel::core::ledger::{Operation, StateKind};
use semel::store::{PAGE_MAX, Query};
use semel::{Engine, Namespace, Scope, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::Answer;
use super::problem::Problem;
use super::query::Parameters;
use super::{Server, json};
use crate::auth::Caller;

/// How many pages of operations in one state are looked at: no store counts by queue, and more would only be counted more
/// slowly.
const PAGES: usize = 10;

/// The states that a queue is counted by.
const STATES: [StateKind; 4] = [
    StateKind::Pending,
    StateKind::Running,
    StateKind::Doubtful,
    StateKind::Dead,
];

/// What is on the queues.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Queues {
    /// The queues that have something to do or to look at, by their names.
    items: Vec<Queue>,
    /// Whether there is more than was looked at: the counts are at least these, and queues may be missing.
    at_least: bool,
}

/// What is on one queue.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Queue {
    queue: String,
    /// Tasks that wait for a worker, due or not.
    pending: u64,
    /// Tasks that a worker has.
    running: u64,
    /// Tasks whose worker vanished.
    doubtful: u64,
    /// Tasks that are out of attempts, or were rejected.
    dead: u64,
}

/// Lists the queues that have something to do or to look at, with how much of it.
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues",
    responses(
        (status = 200, description = "The queues of the namespace, by their names; at most 10,000 operations in each state are looked at, the newest", body = Queues),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("safe")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn list(
    State(server): State<Server>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    Parameters::read(query.as_deref())?.done()?;
    let counted = count(server.engine(), &caller.namespace);
    json(Answer::ok(&server.within(Duration::ZERO, counted).await?)?)
}

async fn count(engine: &Engine, namespace: &Namespace) -> semel::Result<Queues> {
    let mut found = BTreeMap::new();
    let mut at_least = false;
    for state in STATES {
        let mut query = Query {
            namespace: Some(namespace.clone()),
            states: vec![state],
            limit: PAGE_MAX,
            ..Query::default()
        };
        for page in 1..=PAGES {
            let listed = engine.list(query.clone()).await?;
            let now = engine.store().now();
            let records = listed.items.iter().map(|stored| &stored.record);
            for operation in records.filter_map(|record| record.operation()) {
                add(&mut found, operation, state, now);
            }
            query.cursor = listed.next;
            if listed.next.is_none() {
                break;
            }
            at_least |= page == PAGES;
        }
    }
    Ok(Queues {
        items: found.into_values().collect(),
        at_least,
    })
}

/// Counts a task by the state in which it was looked for: one that moves on meanwhile is not counted twice.
fn add(
    found: &mut BTreeMap<String, Queue>,
    operation: &Operation,
    state: StateKind,
    now: Timestamp,
) {
    let Some(queue) = operation.queue.as_ref() else {
        return;
    };
    if operation.kind_at(now) != state {
        return;
    }
    let name = queue.to_string();
    let queue = found.entry(name.clone()).or_insert_with(|| Queue {
        queue: name,
        ..Queue::default()
    });
    match state {
        StateKind::Pending => queue.pending += 1,
        StateKind::Running => queue.running += 1,
        StateKind::Doubtful => queue.doubtful += 1,
        StateKind::Dead => queue.dead += 1,
        StateKind::Succeeded
        | StateKind::Failed
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => {}
    }
}
