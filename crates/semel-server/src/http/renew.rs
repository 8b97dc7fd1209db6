//! Renew: saying that the holder of an attempt is alive.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use semel::core::ledger::{Command, Fence, Renew};
use semel::{Effect, Lease, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Answer;
use super::numbers::Whole;
use super::plan::rehearse;
use super::problem::Problem;
use super::request::{attempt_of, key_of, lease_of};
use super::{Asked, Server, many_or_one, schema};
use crate::auth::Caller;
use crate::span;

/// Says that the holder is alive.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewCall {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    attempt_id: String,
    #[schema(value_type = u64)]
    fence: Whole,
    /// For how long from now.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 86_400_000, default = 60_000)]
    lease_ms: Option<Whole>,
    /// Only says what would happen.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// A lease that was renewed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Renewed {
    namespace: String,
    key: String,
    attempt_id: String,
    fence: u64,
    /// Until when the attempt may act.
    #[schema(format = DateTime)]
    lease_until: String,
}

/// What a renewal is answered with.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
#[serde(untagged)]
pub(crate) enum RenewAnswer {
    Renewed(Renewed),
    Plan(schema::Receipt),
}

/// Renews the lease of a running attempt. `fenced` means: start nothing new, finish what runs, and settle.
///
/// An array of calls is answered with an array, in order, each item with its `status`.
#[utoipa::path(
    post, path = "/v1/renew", tag = "attempts",
    request_body = inline(super::OneOrMany<RenewCall>),
    responses(
        (status = 200, description = "The lease is as long as asked for, or longer", body = inline(super::Answers<RenewAnswer>)),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn renew(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let answer = |renew| renew_one(&server, &caller, renew);
    many_or_one(&server, asked, answer).await
}

async fn renew_one(server: &Server, caller: &Caller, call: RenewCall) -> Result<Answer, Problem> {
    let key = key_of(&call.key)?;
    span::about(&caller.namespace, &key);
    let attempt = attempt_of(&call.attempt_id)?;
    let fence = Fence(call.fence.0);
    let lease = call
        .lease_ms
        .map_or(Ok(Lease::DEFAULT), |lease| lease_of(lease.0))?;
    let renew = Renew {
        attempt,
        fence,
        lease,
    };
    if call.dry_run {
        let command = Command::Renew(renew);
        return rehearse(server, caller, &key, &command, Effect::WouldUpdate).await;
    }
    let renewed = server
        .engine()
        .renew_attempt(&caller.namespace, &key, renew);
    let lease_until = server.within(Duration::ZERO, renewed).await?;
    Answer::ok(&Renewed {
        namespace: caller.namespace.to_string(),
        key: call.key,
        attempt_id: call.attempt_id,
        fence: call.fence.0,
        lease_until: lease_until.to_string(),
    })
}
