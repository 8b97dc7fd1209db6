//! Tasks: leaving them on a queue, one or thousands at once.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use semel::core::http::{Spelling, read_key};
use semel::core::queue::{Backoff, Priority};
use semel::{Effect, Key, Label, Queueing, Receipt, Request, Scope, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{self, Answer, Calls, answer_each, given, object, too_large};
use super::numbers::{Signed, Whole};
use super::plan::rehearse;
use super::prefer::{preferred_wait, waited};
use super::problem::Problem;
use super::request::{Policies, described, key_of};
use super::words::{ClassWord, DoubtWord};
use super::{Asked, Server, json, schema};
use crate::auth::Caller;
use crate::span;

/// The most tasks in one array: what an agent that fans out leaves behind at once. More are sent in several calls.
const TASKS_MAX: usize = 10_000;

/// How many times as large as that of another call the body of an array of tasks may be: with the usual limit each of the
/// most tasks has more than 1,600 bytes.
const BODY_FACTOR: usize = 8;

/// The longest that a task can be put off: a hundred years, as answers are kept.
const DELAY_MAX_MS: u64 = 3_153_600_000_000;

/// Leaves a task on a queue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    /// Names the task, where the header `Idempotency-Key` does not; each task of an array has one.
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: Option<String>,
    /// What is done: that of the queue, where nothing is said.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    name: Option<String>,
    /// What the worker is given: the same key with another input is refused.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// Not before this time.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    /// Not before so much time has passed.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 3_153_600_000_000_u64)]
    delay_ms: Option<Whole>,
    /// Which of those that wait goes first: the highest.
    #[schema(value_type = Option<i32>, minimum = -100, maximum = 100, default = 0)]
    priority: Option<Signed>,
    /// Whose task it is: lanes take turns. Without it, what the key begins with, up to the first `/` or `:`.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    lane: Option<String>,
    /// What repeating the action would do. What is `safe` needs no claim.
    #[schema(value_type = Option<schema::Class>)]
    class: Option<ClassWord>,
    /// What happens when the task is in doubt: its worker vanished.
    on_doubt: Option<DoubtWord>,
    /// How many attempts there may be: those of the queue, where nothing is said, else 10.
    #[schema(value_type = Option<u32>, minimum = 1)]
    max_attempts: Option<Whole>,
    /// How long a doubt may be retried.
    #[schema(value_type = Option<u64>, minimum = 1)]
    retry_within_ms: Option<Whole>,
    /// How long the answer is kept.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 3_153_600_000_000_u64)]
    retention_ms: Option<Whole>,
    /// How long it waits between attempts.
    #[serde(default, deserialize_with = "object")]
    backoff: Option<BackoffCall>,
    /// Only says what would happen.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// How long a task waits after an attempt that did not act: up to a ceiling, which doubles with each attempt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Backoff)]
pub(crate) struct BackoffCall {
    /// The first ceiling.
    #[schema(value_type = u64, minimum = 1, maximum = 86_400_000)]
    base_ms: Whole,
    /// The highest, not below the first.
    #[schema(value_type = u64, minimum = 1, maximum = 86_400_000)]
    cap_ms: Whole,
}

/// Leaves tasks for the workers of a queue: one, or up to 10,000 in an array.
///
/// The key is that of the header `Idempotency-Key`, or `key`. Sent again, it does nothing and says where the task stands;
/// when it is settled, with what came of it. `Prefer: wait=SECONDS` waits for that. An array is answered with an array, in
/// order, each item with its `status`; each of its tasks has its own `key`, and the headers say nothing about them.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/tasks", tag = "queues",
    params(
        ("queue" = String, Path, description = "The queue, percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Names the task, where `key` does not: in quotes, or bare without spaces, quotes, commas and semicolons", nullable = false, min_length = 1, max_length = 255, pattern = r"^[!#-+\--:<-~]+$"),
        ("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: waits for what comes of it", nullable = false),
    ),
    request_body = inline(super::OneOrMany<Task>),
    responses(
        (status = 200, description = "It is known now (`created`), or was already (`noop`); with what came of it, if that is known", body = inline(super::Answers<schema::Receipt>)),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn submit(
    State(server): State<Server>,
    caller: Caller,
    Path(queue): Path<String>,
    headers: HeaderMap,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let queue = queue_of(&queue)?;
    let header = header_key(&headers)?;
    let limit = server.limits().body;
    let most = limit.saturating_mul(BODY_FACTOR);
    let received = asked.read_up_to(&server, most).await?;
    let call = match Calls::read(&received.bytes, TASKS_MAX)? {
        Calls::Many(calls) => {
            let answer = |task: Task| {
                let (server, caller, queue) = (&server, &caller, &queue);
                async move {
                    let key = member_key(&task)?
                        .ok_or_else(|| keyless("each task of an array has a `key` of its own"))?;
                    match leave(server, caller, queue, key, task).await? {
                        Left::Known(receipt) => Answer::ok(&receipt),
                        Left::Rehearsed(answer) => Ok(answer),
                    }
                }
            };
            let body = answer_each(&calls, answer).await;
            return json(Answer { status: 200, body });
        }
        Calls::One(call) => call,
    };
    if call.len() > limit {
        return Err(too_large(limit));
    }
    let task: Task = body::call(call)?;
    // Whoever waits holds no room that others need for their bodies.
    drop(received);
    let key = one_key(header, &task)?;
    let preferred = preferred_wait(&headers);
    let wait = preferred.map(|wait| wait.min(server.limits().wait));
    let answer = match Box::pin(leave(&server, &caller, &queue, key, task)).await? {
        Left::Rehearsed(answer) => answer,
        Left::Known(receipt) => {
            let receipt = outcome(&server, &caller, receipt, wait.unwrap_or_default());
            Answer::ok(&Box::pin(receipt).await?)?
        }
    };
    Ok(waited(json(answer)?, wait))
}

/// Reads the name of a queue.
pub(super) fn queue_of(text: &str) -> Result<Label, Problem> {
    Label::new(text).map_err(|error| Problem::input(format!("queue: {error}")))
}

fn keyless(text: &str) -> Problem {
    Problem::input(text).hint("the same key is the same task: name it by what it is about")
}

fn member_key(task: &Task) -> Result<Option<Key>, Problem> {
    task.key.as_deref().map(key_of).transpose()
}

/// Reads the key of the header; one that cannot be read is refused, whatever the call is about.
fn header_key(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let lines = headers.get_all("idempotency-key").into_iter();
    let lines = lines.map(|line| line.as_bytes());
    let key = read_key(lines, Spelling::QuotedOrBare, Key::MAX_BYTES)
        .map_err(|error| Problem::new("invalid_key", format!("Idempotency-Key: {error}")))?;
    key.as_deref().map(key_of).transpose()
}

/// Returns the key of one task, which stands in a header or in the body.
fn one_key(header: Option<Key>, task: &Task) -> Result<Key, Problem> {
    match (header, member_key(task)?) {
        (Some(header), Some(member)) if header != member => {
            let text = "the header Idempotency-Key and `key` name two tasks";
            Err(Problem::input(text).hint("say the key once"))
        }
        (Some(key), _) | (None, Some(key)) => Ok(key),
        (None, None) => Err(keyless(
            "the task has no key: neither the header Idempotency-Key nor `key` is there",
        )),
    }
}

/// What became of a call.
enum Left {
    Known(Receipt),
    Rehearsed(Answer),
}

async fn leave(
    server: &Server,
    caller: &Caller,
    queue: &Label,
    key: Key,
    task: Task,
) -> Result<Left, Problem> {
    span::about(&caller.namespace, &key);
    let dry_run = task.dry_run;
    let (request, to) = request(caller, queue, &key, task, server.now())?;
    if dry_run {
        let command = request.submission(&to);
        let command = command.map_err(|error| Problem::of(&error, server.now()))?;
        let answer = rehearse(server, caller, &key, &command, Effect::WouldCreate).await?;
        return Ok(Left::Rehearsed(answer));
    }
    let submitted = server.engine().submit(request, to);
    let receipt = Box::pin(server.within(Duration::ZERO, submitted)).await?;
    if receipt.replayed {
        server.counts().replayed("submit");
    }
    Ok(Left::Known(receipt))
}

fn request(
    caller: &Caller,
    queue: &Label,
    key: &Key,
    task: Task,
    now: Timestamp,
) -> Result<(Request, Queueing), Problem> {
    let policies = Policies {
        class: task.class,
        on_doubt: task.on_doubt,
        max_attempts: task.max_attempts,
        retry_within_ms: task.retry_within_ms,
        retention_ms: task.retention_ms,
    };
    let name = task.name.as_deref().unwrap_or(queue.as_str());
    let request = described(caller, name, key.clone(), task.input.as_deref());
    let request = policies.of(request)?;
    let mut to = Queueing::on(queue.clone());
    if let Some(run_at) = run_at(task.run_at.as_deref(), task.delay_ms, now)? {
        to = to.at(run_at);
    }
    if let Some(priority) = task.priority {
        let priority = Priority::new(priority.0);
        to = to.priority(priority.map_err(|error| Problem::input(format!("priority: {error}")))?);
    }
    if let Some(lane) = task.lane.as_deref() {
        let lane = Label::new(lane);
        to = to.lane(lane.map_err(|error| Problem::input(format!("lane: {error}")))?);
    }
    if let Some(backoff) = task.backoff {
        let [base, cap] = [backoff.base_ms, backoff.cap_ms].map(|ms| Duration::from_millis(ms.0));
        let backoff = Backoff::new(base, cap);
        to = to.backoff(backoff.map_err(|error| Problem::input(format!("backoff: {error}")))?);
    }
    Ok((request, to))
}

/// Returns when a task may begin: at its time, and when so much time has passed.
fn run_at(
    at: Option<&str>,
    delay: Option<Whole>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let at = at.map(str::parse::<Timestamp>).transpose();
    let at = at.map_err(|error| Problem::input(format!("run_at: {error}")))?;
    if delay.is_some_and(|delay| delay.0 > DELAY_MAX_MS) {
        let text = format!("delay_ms is at most {DELAY_MAX_MS}");
        return Err(Problem::input(text));
    }
    let delayed = delay.map(|delay| now.plus(Duration::from_millis(delay.0)));
    Ok(at.max(delayed))
}

/// Waits for what comes of a task that is known, as long as asked; a stop ends the wait.
async fn outcome(
    server: &Server,
    caller: &Caller,
    known: Receipt,
    wait: Duration,
) -> Result<Receipt, Problem> {
    if wait.is_zero() || known.settled_at.is_some() {
        return Ok(known);
    }
    let settled = server.engine().settled(&caller.namespace, &known.key, wait);
    tokio::select! {
        biased;
        settled = server.within(wait, settled) => Ok(settled?.as_seen_by(&known)),
        () = server.stopping() => Ok(known),
    }
}
