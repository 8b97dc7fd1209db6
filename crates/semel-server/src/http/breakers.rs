//! Breakers: which targets are left alone, and what people decide about that.

use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use semel::breaker::{Breaker, BreakerView, Choice, Decided, Settings, Target};
use semel::{Effect, Note, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Answer;
use super::numbers::Whole;
use super::operations::Listed;
use super::problem::Problem;
use super::query::Parameters;
use super::request::key_of;
use super::{Asked, Server, json, one, schema};
use crate::auth::Caller;

/// The longest that a breaker is opened for: a year.
const LENGTH_MAX_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Opens a breaker by hand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenCall {
    /// For how many milliseconds; without it, until it is closed.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000_000_u64)]
    for_ms: Option<Whole>,
    /// The fence of the breaker that was decided on, 0 where there was none: on another one the order is refused.
    /// Without it, the order is for what is stored when it comes.
    #[schema(value_type = Option<u64>)]
    fence: Option<Whole>,
    /// Why.
    #[schema(
        min_length = 1,
        max_length = 1024,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    note: Option<String>,
    /// Says what would happen, and writes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Closes a breaker by hand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseCall {
    /// The fence of the breaker that was decided on, 0 where there was none: on another one the order is refused.
    /// Without it, the order is for what is stored when it comes.
    #[schema(value_type = Option<u64>)]
    fence: Option<Whole>,
    /// Why.
    #[schema(
        min_length = 1,
        max_length = 1024,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    note: Option<String>,
    /// Says what would happen, and writes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// What an order came to.
#[derive(Debug, Serialize)]
struct Changed {
    ok: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    effect: &'static str,
    #[serde(flatten)]
    breaker: Option<BreakerView>,
}

/// Lists breakers by their names: each one that a call was reported to.
#[utoipa::path(
    get, path = "/v1/breakers", tag = "breakers",
    responses(
        (status = 200, description = "All breakers of the namespace", body = schema::Breakers),
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
    let items = server.engine().breakers(Some(&caller.namespace));
    let items = server.within(Duration::ZERO, items).await?;
    json(Answer::ok(&Listed { items, next: None })?)
}

/// Opens a breaker: nothing goes through until it is closed, or for a while.
///
/// With the fence that was decided on, the same call again changes nothing.
#[utoipa::path(
    post, path = "/v1/breakers/{name}/open", tag = "breakers",
    params(("name" = String, Path, description = "The breaker's name, percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")),
    request_body = OpenCall,
    responses(
        (status = 200, description = "The breaker as of now", body = schema::ChangedBreaker),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn open(
    State(server): State<Server>,
    caller: Caller,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    let breaker = &handle(&server, &caller, &name)?;
    let (server, caller) = (&server, &caller);
    one(server, asked, |call: OpenCall| async move {
        let decided = decided(caller, call.fence, call.note.as_deref())?;
        let length = match call.for_ms.map(|millis| millis.0) {
            Some(0) => return Err(Problem::input("`for_ms` is at least 1")),
            Some(millis) if millis > LENGTH_MAX_MS => {
                return Err(Problem::input(format!(
                    "`for_ms` is at most {LENGTH_MAX_MS}"
                )));
            }
            other => other.map(Duration::from_millis),
        };
        decide(server, breaker, decided, Choice::Open(length), call.dry_run).await
    })
    .await
}

/// Closes a breaker: calls go through again. Closing one that is closed changes nothing.
#[utoipa::path(
    post, path = "/v1/breakers/{name}/close", tag = "breakers",
    params(("name" = String, Path, description = "The breaker's name, percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")),
    request_body = CloseCall,
    responses(
        (status = 200, description = "The breaker as of now", body = schema::ChangedBreaker),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn close(
    State(server): State<Server>,
    caller: Caller,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    order(&server, &caller, &name, asked, Choice::Close).await
}

/// Closes a breaker and forgets what became of the calls before.
///
/// With the fence that was decided on, the same call again changes nothing.
#[utoipa::path(
    post, path = "/v1/breakers/{name}/reset", tag = "breakers",
    params(("name" = String, Path, description = "The breaker's name, percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")),
    request_body = CloseCall,
    responses(
        (status = 200, description = "The breaker as of now", body = schema::ChangedBreaker),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn reset(
    State(server): State<Server>,
    caller: Caller,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    order(&server, &caller, &name, asked, Choice::Reset).await
}

async fn order(
    server: &Server,
    caller: &Caller,
    name: &str,
    asked: Asked,
    choice: Choice,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    let breaker = &handle(server, caller, name)?;
    one(server, asked, |call: CloseCall| async move {
        let decided = decided(caller, call.fence, call.note.as_deref())?;
        decide(server, breaker, decided, choice, call.dry_run).await
    })
    .await
}

/// Returns the caller's breaker of a name. An order counts no calls, so the thresholds do not matter; those of a
/// breaker that is opened before its first call are the usual ones until then.
fn handle(server: &Server, caller: &Caller, name: &str) -> Result<Breaker, Problem> {
    let target = Target::new(key_of(name)?, Settings::default());
    let target = target.map_err(|error| Problem::input(error.to_string()))?;
    Ok(server.engine().breaker_in(&caller.namespace, &target))
}

fn decided(caller: &Caller, fence: Option<Whole>, note: Option<&str>) -> Result<Decided, Problem> {
    let note = note.map(Note::new).transpose();
    Ok(Decided {
        by: caller.by(),
        note: note.map_err(|error| Problem::input(format!("note: {error}")))?,
        fence: fence.map(|fence| fence.0),
    })
}

/// Carries a decision out, or says what it would do; answers with the breaker as of now.
async fn decide(
    server: &Server,
    breaker: &Breaker,
    decided: Decided,
    choice: Choice,
    dry_run: bool,
) -> Result<Answer, Problem> {
    let ordered = async {
        if dry_run {
            return breaker.foresee(decided, choice).await;
        }
        let ordered = breaker.decide(decided, choice).await?;
        Ok((ordered, breaker.view().await?))
    };
    let (ordered, view) = server
        .within(Duration::ZERO, ordered)
        .await
        .map_err(|problem| named(problem, breaker))?;
    let effect = match (ordered.repeated, dry_run) {
        (true, _) => Effect::Noop,
        (false, true) => Effect::WouldUpdate,
        (false, false) => Effect::Updated,
    };
    Answer::ok(&Changed {
        ok: true,
        dry_run,
        effect: effect.as_str(),
        breaker: view,
    })
}

/// Says what is missing: a breaker is no operation.
fn named(problem: Problem, breaker: &Breaker) -> Problem {
    match problem.code() {
        "not_found" => Problem::not_found(format!("{}: there is no such breaker", breaker.name()))
            .hint("GET /v1/breakers lists what there is"),
        _ => problem,
    }
}
