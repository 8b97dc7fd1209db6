//! Begin: asking to carry an operation out.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use semel::core::Digest;
use semel::core::ledger::{Fence, Record, StateKind};
use semel::view::RecordView;
use semel::{Claimed, Effect, Granted, Key, Preview, Receipt, Request, Scope};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{Answer, given, object};
use super::numbers::Whole;
use super::plan::Plan;
use super::prefer::{preferred_wait, waited};
use super::problem::Problem;
use super::request::{Policies, attempt_of, described, key_of, lease_of};
use super::words::{ClassWord, DoubtWord};
use super::{Asked, Server, many_or_one, schema};
use crate::auth::Caller;
use crate::span;

/// How long after a stop a begin or a lease may still take: longer than a claim, shorter than a wait.
pub(super) const CLAIM_GRACE: Duration = Duration::from_secs(1);

/// Asks to carry an operation out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    /// Names the operation: the same key is the same action.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]([ -~]*[!-~])?$",
        example = "o-1"
    )]
    key: String,
    /// What is done.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$",
        example = "create-order"
    )]
    name: String,
    /// What it is given: the same key with another input is refused.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<Box<RawValue>>,
    /// The attempt's own id, made from chance for this one: asking again with it gets the same
    /// grant. One is made where none is given.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    attempt_id: Option<String>,
    /// What repeating the action would do. What is `safe` needs no claim.
    #[schema(value_type = Option<schema::Class>)]
    class: Option<ClassWord>,
    /// What happens when the operation is in doubt.
    on_doubt: Option<DoubtWord>,
    /// How long the attempt may be silent.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 86_400_000, default = 60_000)]
    lease_ms: Option<Whole>,
    /// How long to wait for another one's attempt; `Prefer: wait=SECONDS` says it too.
    #[schema(value_type = Option<u64>, minimum = 0, default = 0)]
    wait_ms: Option<Whole>,
    /// How many attempts there may be.
    #[schema(value_type = Option<u32>, minimum = 1)]
    max_attempts: Option<Whole>,
    /// How long a doubt may be retried.
    #[schema(value_type = Option<u64>, minimum = 1)]
    retry_within_ms: Option<Whole>,
    /// How long the world settles before a probe looks.
    #[schema(value_type = Option<u64>, minimum = 0)]
    settle_delay_ms: Option<Whole>,
    /// How long the answer is kept.
    #[schema(value_type = Option<u64>, minimum = 1_000, maximum = 3_153_600_000_000_u64)]
    retention_ms: Option<Whole>,
    /// The SHA-256 of what finds out whether a doubted effect happened, in hexadecimal digits: a doubt is given to
    /// callers that bring the same one. The probe itself stays with its caller.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    probe_digest: Option<String>,
    /// Was the text of a probe in earlier versions; it is refused.
    #[schema(ignore)]
    probe: Option<IgnoredAny>,
    /// The operation that this one is a step of.
    #[serde(default, deserialize_with = "object")]
    parent: Option<Parent>,
    /// Only says what would happen.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// The operation that a step belongs to, and the fence of its running attempt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parent {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    #[schema(value_type = u64)]
    fence: Whole,
}

/// The right to act, or to look up.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Grant {
    decision: Decision,
    #[schema(value_type = String)]
    namespace: String,
    key: String,
    attempt_id: String,
    /// Grows with each attempt: an upstream that keeps the highest one can refuse older attempts.
    fence: u64,
    /// The number of the attempt.
    attempt: u32,
    /// Until when it may act, unless it is renewed.
    #[schema(format = DateTime)]
    lease_until: String,
    /// The digest of the probe that the first call brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    probe_digest: Option<String>,
    /// The policies that stand, where this call asked for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    policy_kept: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    Execute,
    Probe,
}

/// An answer that was given before.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Replay {
    decision: ReplayWord,
    #[schema(value_type = schema::Receipt)]
    receipt: Receipt,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReplayWord {
    Replay,
}

/// What a begin is answered with.
#[derive(ToSchema)]
#[schema(as = BeginAnswer)]
#[expect(dead_code, reason = "it is only described")]
#[serde(untagged)]
pub(crate) enum BeginAnswer {
    Grant(Grant),
    Replay(Replay),
    Plan(schema::Receipt),
}

/// Asks to carry an operation out now.
///
/// `execute`: act, then settle. `probe`: look up whether the doubted effect happened, touch nothing, then
/// settle. `replay`: it was done before. Asking again with the same `attempt_id`, because the reply was lost,
/// gets the same fence. An array of calls is answered with an array, in order, each item with its `status`.
#[utoipa::path(
    post, path = "/v1/begin", tag = "attempts",
    request_body = inline(super::OneOrMany<Begin>),
    params(("Prefer" = Option<String>, Header, description = "`wait=SECONDS`, as `wait_ms`", nullable = false)),
    responses(
        (status = 200, description = "Go on, or the stored answer", body = inline(super::Answers<BeginAnswer>)),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn begin(
    State(server): State<Server>,
    caller: Caller,
    headers: HeaderMap,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let preferred = preferred_wait(&headers);
    let answer = async |begin| {
        let answer = begin_one(&server, &caller, preferred, begin).await;
        if let Err(problem) = &answer {
            server.begun(problem.code());
        }
        answer
    };
    let response = many_or_one(&server, asked, answer).await?;
    let applied = preferred.map(|wait| wait.min(server.limits().wait));
    Ok(waited(response, applied))
}

async fn begin_one(
    server: &Server,
    caller: &Caller,
    preferred: Option<Duration>,
    begin: Begin,
) -> Result<Answer, Problem> {
    let dry_run = begin.dry_run;
    let attempt = begin.attempt_id.as_deref().map(attempt_of).transpose()?;
    let wait = begin
        .wait_ms
        .map(|wait| Duration::from_millis(wait.0))
        .or(preferred);
    let wait = wait.unwrap_or_default().min(server.limits().wait);
    let (request, key, probe) = request(caller, begin)?;
    span::about(&caller.namespace, &key);
    let request = request.wait(wait);
    if dry_run {
        let preview = server
            .within(wait, server.engine().preview(request))
            .await?;
        return preview_answer(server, caller, (&key, probe), preview);
    }
    let claimed = server.within(wait, server.engine().claim(request, attempt));
    // A stop does not wait for other ones' attempts; a claim that is on its way is answered first.
    let claimed = tokio::select! {
        biased;
        claimed = claimed => claimed?,
        () = server.stopped_for(CLAIM_GRACE) => return Err(stopping(&key, wait)),
    };
    match claimed {
        Claimed::Granted(granted) => {
            server.begun(if granted.is_probe { "probe" } else { "execute" });
            Answer::ok(&grant(caller, &key, granted))
        }
        Claimed::Replay(receipt) => {
            server.begun("replay");
            Answer::ok(&replay(receipt))
        }
        Claimed::Wait { retry_after } => Err(in_flight(&key, retry_after)),
        Claimed::InDoubt(record) => Err(in_doubt(server, &key, &record, probe)),
    }
}

fn in_flight(key: &Key, retry_after: Duration) -> Problem {
    Problem::new(
        "in_flight",
        format!("{key}: another attempt holds the operation"),
    )
    .hint("wait for the running attempt, or ask again later")
    .after(retry_after)
    .about(key)
}

/// Says that the server stops: whoever waited knows no more than before, and a claim may have been stored.
fn stopping(key: &Key, wait: Duration) -> Problem {
    if wait.is_zero() {
        return Problem::new("store_unavailable", format!("{key}: the server stops"))
            .hint("send the same request again: it does no more than once")
            .after(CLAIM_GRACE)
            .about(key);
    }
    in_flight(key, CLAIM_GRACE)
}

fn in_doubt(server: &Server, key: &Key, record: &Record, probe: Option<Digest>) -> Problem {
    let text = format!("{key}: nobody knows whether an earlier attempt took effect");
    let operation = record.operation();
    let hint = match operation.and_then(|it| it.spec.probe_refusal(probe.as_ref())) {
        Some(why) => format!(
            "{why}: send the `probe_digest` of the first call and look it up with that probe, or resolve the \
             operation with its version"
        ),
        None => "find out whether the effect happened, then resolve the operation with its version"
            .to_owned(),
    };
    Problem::new("in_doubt", text)
        .hint(hint)
        .about(key)
        .resting_on(RecordView::of(record, server.now()))
}

fn grant(caller: &Caller, key: &Key, granted: Granted) -> Grant {
    Grant {
        decision: if granted.is_probe {
            Decision::Probe
        } else {
            Decision::Execute
        },
        namespace: caller.namespace.to_string(),
        key: key.to_string(),
        attempt_id: granted.attempt_id.to_string(),
        fence: granted.fence.0,
        attempt: granted.attempt,
        lease_until: granted.lease_until.to_string(),
        probe_digest: granted.probe_digest.map(|digest| digest.hex()),
        policy_kept: granted.policy_kept,
    }
}

const fn replay(receipt: Receipt) -> Replay {
    Replay {
        decision: ReplayWord::Replay,
        receipt,
    }
}

fn preview_answer(
    server: &Server,
    caller: &Caller,
    (key, probe): (&Key, Option<Digest>),
    preview: Preview,
) -> Result<Answer, Problem> {
    match preview {
        Preview::Execute { attempt } => {
            let change = format!("would begin attempt {attempt} of {key}");
            let plan = Plan::new(caller, key, Effect::WouldUpdate, StateKind::Running);
            Answer::ok(&plan.decision("execute").change(change))
        }
        Preview::Probe => {
            let change = format!("would look up whether {key} took effect");
            let plan = Plan::new(caller, key, Effect::WouldUpdate, StateKind::Running);
            Answer::ok(&plan.decision("probe").change(change))
        }
        Preview::Replay(receipt) => Answer::ok(&replay(receipt)),
        Preview::Wait { retry_after } => Err(in_flight(key, retry_after)),
        Preview::InDoubt(record) => Err(in_doubt(server, key, &record, probe)),
    }
}

/// Says that the text of a probe must stay with its caller: in a record it would be a command for others to run.
fn probe_refused() -> Problem {
    Problem::input("probe: the text of a probe is not taken").hint(
        "keep the probe, send its SHA-256 as `probe_digest`, and run it yourself when the decision is `probe`",
    )
}

/// Reads what is asked for, its key, and the digest of the caller's probe.
fn request(caller: &Caller, begin: Begin) -> Result<(Request, Key, Option<Digest>), Problem> {
    let key = key_of(&begin.key)?;
    let policies = Policies {
        class: begin.class,
        on_doubt: begin.on_doubt,
        max_attempts: begin.max_attempts,
        retry_within_ms: begin.retry_within_ms,
        retention_ms: begin.retention_ms,
    };
    let request = described(caller, &begin.name, key.clone(), begin.input.as_deref());
    let mut request = policies.of(request)?;
    if let Some(delay) = begin.settle_delay_ms {
        request = request.settle_delay(Duration::from_millis(delay.0));
    }
    if let Some(lease) = begin.lease_ms {
        request = request.lease(lease_of(lease.0)?);
    }
    if begin.probe.is_some() {
        return Err(probe_refused());
    }
    let digest = begin.probe_digest.as_deref().map(|text| {
        let wrong = "probe_digest: it is not a SHA-256 in 64 hexadecimal digits";
        Digest::from_hex(text).ok_or_else(|| Problem::input(wrong))
    });
    let digest = digest.transpose()?;
    if let Some(digest) = digest {
        request = request.probe_digest(digest);
    }
    if let Some(parent) = begin.parent {
        request = request.parent(key_of(&parent.key)?, Fence(parent.fence.0));
    }
    Ok((request, key, digest))
}
