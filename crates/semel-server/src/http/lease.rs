//! Lease: taking tasks from a queue, for a worker that speaks HTTP.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use semel::store::WAITING_MAX;
use semel::{Kept, Lease, Scope, Take, Taken};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::begin::{CLAIM_GRACE, Decision};
use super::body::Answer;
use super::numbers::Whole;
use super::problem::Problem;
use super::request::lease_of;
use super::tasks::queue_of;
use super::{Asked, Server, one};
use crate::auth::Caller;

/// Asks for tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseCall {
    /// How many at most.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 256, default = 1)]
    max: Option<Whole>,
    /// How long to wait for the first one.
    #[schema(value_type = Option<u64>, minimum = 0, default = 0)]
    wait_ms: Option<Whole>,
    /// How long the worker may be silent about each of them.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 86_400_000, default = 60_000)]
    lease_ms: Option<Whole>,
    /// Whether the worker can look up what became of a doubted attempt: others are not given such tasks.
    #[serde(default)]
    #[schema(default = false)]
    probes: bool,
}

/// The tasks that a worker has now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Leased {
    tasks: Vec<LeasedTask>,
}

/// A task that a worker has, until it settles it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedTask {
    #[schema(inline)]
    decision: Decision,
    key: String,
    /// What is done.
    name: String,
    /// What it is given, as it was submitted; null where it is nothing, or no JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// What it is given, where that is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    input_base64: Option<String>,
    attempt_id: String,
    /// Grows with each attempt: an upstream that keeps the highest one can refuse older attempts.
    fence: u64,
    /// The number of the attempt.
    attempt: u32,
    /// Until when it may act, unless it is renewed.
    #[schema(format = DateTime)]
    lease_until: String,
    /// The digest of the probe that it was submitted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    probe_digest: Option<String>,
}

/// Takes tasks from a queue, and waits for the first one as long as asked.
///
/// Each is to be settled by its `attempt_id` and `fence`, and renewed meanwhile; one of which nothing is heard is in doubt
/// when its lease ends. `probe`: look up whether the doubted effect happened, touch nothing, then settle. Without a task
/// the answer is empty. Sent again, it takes other tasks.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/lease", tag = "queues",
    params(("queue" = String, Path, description = "The queue, percent-encoded", min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")),
    request_body = LeaseCall,
    responses(
        (status = 200, description = "Act on these, or none", body = Leased),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("unsafe")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn lease(
    State(server): State<Server>,
    caller: Caller,
    Path(queue): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let queue = queue_of(&queue)?;
    let (server, caller) = (&server, &caller);
    one(server, asked, |call: LeaseCall| async move {
        let take = Take {
            queue,
            max: most(call.max)?,
            wait: waited(server, call.wait_ms),
            lease: call
                .lease_ms
                .map_or(Ok(Lease::DEFAULT), |lease| lease_of(lease.0))?,
            probes: call.probes,
            is_elsewhere: true,
        };
        let taken = server.engine().take(&caller.namespace, &take);
        // A stop does not wait for tasks; those that are on their way are answered first.
        let taken = tokio::select! {
            biased;
            taken = server.within(take.wait, taken) => taken?,
            () = server.stopped_for(CLAIM_GRACE) => vec![],
        };
        server.counts().leased(taken.len());
        // Whoever goes away before this leaves them in the line: from here on they are the worker's.
        let tasks = taken.into_iter().map(Taken::keep).map(shown).collect();
        Answer::ok(&Leased { tasks })
    })
    .await
}

fn most(said: Option<Whole>) -> Result<usize, Problem> {
    let most = said.map_or(Some(1), |most| usize::try_from(most.0).ok());
    most.filter(|most| (1..=WAITING_MAX).contains(most))
        .ok_or_else(|| Problem::input(format!("max is from 1 to {WAITING_MAX}")))
}

fn waited(server: &Server, said: Option<Whole>) -> Duration {
    let wait = said.map(|millis| Duration::from_millis(millis.0));
    wait.unwrap_or_default().min(server.limits().wait)
}

fn shown(kept: Kept) -> LeasedTask {
    let (input, input_base64) = kept.input.map_or((None, None), input_of);
    LeasedTask {
        decision: if kept.is_probe {
            Decision::Probe
        } else {
            Decision::Execute
        },
        key: kept.key.to_string(),
        name: kept.name.to_string(),
        input,
        input_base64,
        attempt_id: kept.attempt_id.to_string(),
        fence: kept.fence.0,
        attempt: kept.attempt,
        lease_until: kept.lease_until.to_string(),
        probe_digest: kept.probe_digest.map(|digest| digest.hex()),
    }
}

/// Shows an input as JSON, if it is that; else in letters that JSON can hold.
fn input_of(bytes: Vec<u8>) -> (Option<Box<RawValue>>, Option<String>) {
    match serde_json::from_slice(&bytes) {
        Ok(json) => (Some(json), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_shown_as_it_was_submitted() {
        let json = |text: &str| input_of(text.into()).0.map(|json| json.get().to_owned());
        for text in ["null", "{ \"b\": 1.0, \"a\": 1e2 }", "\"\u{fc}\\u00fc\""] {
            assert_eq!(json(text).as_deref(), Some(text));
        }
        for (bytes, letters) in [
            (&b"\xff\x00"[..], "/wA="),
            (b"", ""),
            (b"{} {}", "e30ge30="),
        ] {
            let (json, base64) = input_of(bytes.to_vec());
            assert!(json.is_none(), "{bytes:?}");
            assert_eq!(base64.as_deref(), Some(letters));
        }
    }
}
