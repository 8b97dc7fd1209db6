//! Submit: leaving an operation for somebody else to carry out.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use semel::{Effect, Label, Queueing, Scope, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{Answer, given};
use super::numbers::Whole;
use super::plan::rehearse;
use super::problem::Problem;
use super::request::{Policies, described, key_of};
use super::words::{ClassWord, DoubtWord};
use super::{Asked, Server, one, schema};
use crate::auth::Caller;

/// Leaves an operation for somebody else to carry out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submit {
    /// Names the operation.
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    /// What is done.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    name: String,
    /// What it is given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// Whose workers carry it out.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    queue: Option<String>,
    /// Not before this time.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    /// What repeating the action would do. What is `safe` needs no claim.
    #[schema(value_type = Option<schema::Class>)]
    class: Option<ClassWord>,
    /// What happens when the operation is in doubt.
    on_doubt: Option<DoubtWord>,
    /// How many attempts there may be.
    #[schema(value_type = Option<u32>, minimum = 1)]
    max_attempts: Option<Whole>,
    /// How long a doubt may be retried.
    #[schema(value_type = Option<u64>, minimum = 1)]
    retry_within_ms: Option<Whole>,
    /// How long the answer is kept.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 3_153_600_000_000_u64)]
    retention_ms: Option<Whole>,
    /// Only says what would happen.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// Leaves an operation for somebody else to carry out.
#[utoipa::path(
    post, path = "/v1/submit", tag = "attempts",
    request_body = Submit,
    responses(
        (status = 200, description = "It is known now (`created`), or was already (`noop`)", body = schema::Receipt),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn submit(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    one(&server, asked, |submit| {
        submit_one(&server, &caller, submit)
    })
    .await
}

async fn submit_one(server: &Server, caller: &Caller, submit: Submit) -> Result<Answer, Problem> {
    let key = key_of(&submit.key)?;
    let policies = Policies {
        class: submit.class,
        on_doubt: submit.on_doubt,
        max_attempts: submit.max_attempts,
        retry_within_ms: submit.retry_within_ms,
        retention_ms: submit.retention_ms,
    };
    let request = described(caller, &submit.name, key.clone(), submit.input.as_deref());
    let request = policies.of(request)?;
    let queue = submit.queue.as_deref().map(Label::new).transpose();
    let queue = queue.map_err(|error| Problem::input(format!("queue: {error}")))?;
    let run_at = submit.run_at.as_deref().map(str::parse::<Timestamp>);
    let run_at = run_at
        .transpose()
        .map_err(|error| Problem::input(format!("run_at: {error}")))?;
    let mut to = queue.map_or_else(Queueing::nobody, Queueing::on);
    if let Some(run_at) = run_at {
        to = to.at(run_at);
    }
    if submit.dry_run {
        let command = request.submission(&to);
        let command = command.map_err(|error| Problem::of(&error, server.now()))?;
        return rehearse(server, caller, &key, &command, Effect::WouldCreate).await;
    }
    let submitted = server.engine().submit(request, to);
    let receipt = Box::pin(server.within(Duration::ZERO, submitted)).await?;
    if receipt.replayed {
        server.counts().replayed("submit");
    }
    Answer::ok(&receipt)
}
