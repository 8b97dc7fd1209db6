//! Looking at operations: one, many, and what happened to one.

use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use semel::store::{PAGE_MAX, Place, Query, Stored};
use semel::view::{EventView, RecordView};
use semel::{Engine, Events, Key, Named, Scope, Timestamp};
use serde::Serialize;

use super::body::Answer;
use super::problem::Problem;
use super::query::Parameters;
use super::{Server, json, schema, words};
use crate::auth::Caller;

/// How many items a page has when nothing is said.
pub(super) const PAGE: usize = 50;

/// Items and where to go on.
#[derive(Debug, Serialize)]
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

/// Returns one operation, with its attempts and its answer.
#[utoipa::path(
    get, path = "/v1/operations/{key}", tag = "operations",
    params(("key" = String, Path, description = "The key, or what its client calls it where only one operation is called so; percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")),
    responses(
        (status = 200, description = "The operation as of now", body = schema::Record),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("safe")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn show(
    State(server): State<Server>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    let engine = server.engine();
    let found = named(&server, &caller, &key).await?;
    let Named { key, stored } = found.ok_or_else(|| absent(&key))?;
    let data = engine.payload(&caller.namespace, &key);
    let data = server.within(Duration::ZERO, data).await?;
    let view = RecordView::detailed(&stored.record, data.map(Into::into), server.now());
    let input = server
        .within(Duration::ZERO, engine.task_input(&stored))
        .await?;
    let view = view.map(|view| {
        let redactor = engine.redactor();
        view.given(input.as_deref(), redactor).shown(redactor)
    });
    json(Answer::ok(&view.ok_or_else(|| absent(key.as_str()))?)?)
}

/// Finds the operation that a caller names: by its key, or by what its client calls it.
pub(super) async fn named(
    server: &Server,
    caller: &Caller,
    name: &str,
) -> Result<Option<Named>, Problem> {
    let found = server.engine().find(&caller.namespace, name);
    server.within(Duration::ZERO, found).await
}

/// Says that there is nothing under a key: the same for what never was and for what is behind another wall.
fn absent(key: &str) -> Problem {
    let problem = Problem::not_found(format!("{key}: there is no such operation"));
    match Key::new(key) {
        Ok(key) => problem.about(&key),
        Err(_) => problem,
    }
}

/// Lists operations, the newest first.
#[utoipa::path(
    get, path = "/v1/operations", tag = "operations",
    params(
        ("state" = Option<Vec<schema::Asked>>, Query, description = "Only in one of these states", explode = true, nullable = false),
        ("name" = Option<String>, Query, description = "Only with this name", nullable = false),
        ("door" = Option<String>, Query, description = "Only through this door", nullable = false),
        ("queue" = Option<String>, Query, description = "Only on this queue", nullable = false),
        ("prefix" = Option<String>, Query, description = "Only keys that begin so, or clients' own keys that do", nullable = false),
        ("since" = Option<String>, Query, description = "Only created at or after this time (RFC 3339)", format = DateTime, nullable = false),
        ("until" = Option<String>, Query, description = "Only created before this time (RFC 3339)", format = DateTime, nullable = false),
        ("limit" = Option<u32>, Query, description = "How many, 50 by default", minimum = 1, maximum = 1000, nullable = false),
        ("after" = Option<String>, Query, description = "`next` of the page before", pattern = "^[0-9]{1,18}$", nullable = false),
    ),
    responses(
        (status = 200, description = "A page; it may be shorter than asked for although there is a next one", body = schema::Records),
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
    let mut asked = Parameters::read(query.as_deref())?;
    let states = asked.many("state");
    let query = Query {
        namespace: Some(caller.namespace.clone()),
        states: states
            .iter()
            .map(|word| words::state(word).ok_or_else(|| unknown_state(word)))
            .collect::<Result<_, _>>()?,
        name: asked.one("name")?,
        door: asked.one("door")?,
        queue: asked.one("queue")?,
        client_key: None,
        prefix: asked.one("prefix")?,
        since: asked.parsed("since", |text| text.parse::<Timestamp>())?,
        until: asked.parsed("until", |text| text.parse::<Timestamp>())?,
        oldest_first: false,
        cursor: asked.parsed("after", cursor)?.map(Place),
        limit: asked.parsed("limit", limit)?.unwrap_or(PAGE),
    };
    asked.done()?;
    let page = server
        .within(Duration::ZERO, server.engine().list(query))
        .await?;
    let now = server.now();
    let items = page.items.iter();
    let views = items.filter_map(|stored| RecordView::of(&stored.record, now));
    let views = views.map(|view| view.shown(server.engine().redactor()));
    json(Answer::ok(&Listed {
        items: views.collect::<Vec<_>>(),
        next: page.next.map(|place| place.0.to_string()),
    })?)
}

fn unknown_state(word: &str) -> Problem {
    Problem::input(format!("state: there is no state `{word}`"))
        .hint("the states are pending, running, succeeded, failed, doubtful, dead and tombstone")
}

pub(super) fn cursor(text: &str) -> Result<u64, &'static str> {
    digits(text).ok_or("it is `next` of the page before")
}

/// The most digits of a number in a query: every store can count that far.
const DIGITS_MAX: usize = 18;

/// Reads a number that is written by digits alone.
fn digits(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok();
    number.filter(|_| is_plain && text.len() <= DIGITS_MAX)
}

pub(super) fn limit(text: &str) -> Result<usize, &'static str> {
    let number = digits(text).and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| (1..=PAGE_MAX).contains(number))
        .ok_or("a page has 1 to 1000 items")
}

/// Lists what happened to one operation, the oldest first.
#[utoipa::path(
    get, path = "/v1/operations/{key}/events", tag = "operations",
    params(
        ("key" = String, Path, description = "The key, or what its client calls it where only one operation is called so; percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$"),
        ("after" = Option<String>, Query, description = "`next` of the page before", pattern = "^[0-9]{1,18}$", nullable = false),
        ("limit" = Option<u32>, Query, description = "How many, 50 by default", minimum = 1, maximum = 1000, nullable = false),
    ),
    responses(
        (status = 200, description = "A page of events", body = schema::Events),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("safe")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn events(
    State(server): State<Server>,
    caller: Caller,
    Path(key): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    let mut asked = Parameters::read(query.as_deref())?;
    let after = asked.parsed("after", cursor)?;
    let limit = asked.parsed("limit", limit)?.unwrap_or(PAGE);
    asked.done()?;
    let found = named(&server, &caller, &key).await?;
    let Named { stored, .. } = found.ok_or_else(|| absent(&key))?;
    let history = history(server.engine(), &stored, after, limit);
    let listed = server.within(Duration::ZERO, history).await?;
    json(Answer::ok(&listed)?)
}

/// Reads an operation's entries from its first one on; each accepted command is one, so that as many as its
/// version says are looked for.
async fn history(
    engine: &Engine,
    stored: &Stored,
    after: Option<u64>,
    limit: usize,
) -> semel::Result<Listed<EventView>> {
    let store = engine.store();
    let first = stored.place.0.saturating_sub(1);
    let mut cursor = after.unwrap_or(first).max(first);
    let end = engine.last_entry().await?;
    let mut names = Events::new(engine);
    let mut items = vec![];
    let mut left = stored.record.version().0;
    while cursor < end && left > 0 {
        let page = store.log(cursor, PAGE_MAX).await?;
        let Some(newest) = page.last() else { break };
        cursor = newest.seq;
        for logged in page
            .iter()
            .filter(|logged| logged.place == Some(stored.place))
        {
            if items.len() == limit {
                let next = items.last().map(|view: &EventView| view.seq.to_string());
                return Ok(Listed { items, next });
            }
            left -= 1;
            items.push(names.view(logged).await?);
        }
    }
    Ok(Listed { items, next: None })
}
