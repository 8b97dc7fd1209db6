//! What attempts ask: begin, renew, settle; and submit, for somebody else's attempt.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use semel::core::ledger::{Command, Fence, Renew, Settle, StateKind};
use semel::core::{Probe, Verdict};
use semel::view::RecordView;
use semel::{
    AttemptId, Claimed, Effect, Granted, Key, Label, Lease, Note, Outcome, Payload, Preview,
    Receipt, Request, Retention, Scope, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{Answer, answer_data, given, said};
use super::described::Report;
use super::numbers::Whole;
use super::plan::Plan;
use super::problem::Problem;
use super::words::{ClassWord, DoubtWord, EffectWord, VerdictWord};
use super::{Asked, Server, many_or_one, schema};
use crate::auth::Caller;
use crate::span;

/// How long after a stop a begin may still take: longer than a claim, shorter than a wait.
const CLAIM_GRACE: Duration = Duration::from_secs(1);

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
    /// The command that finds out whether a doubted effect happened.
    #[schema(min_length = 1, max_length = 1024, pattern = r"^[^\x00]+$")]
    probe: Option<String>,
    /// The operation that this one is a step of.
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
    /// What finds out whether the doubted effect happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    probe: Option<String>,
    /// The policies that stand, where this call asked for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    policy_kept: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Decision {
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
    let mut response = many_or_one(&server, asked, answer).await?;
    if let Some(wait) = preferred {
        let applied = wait.min(server.limits().wait);
        if let Ok(value) = HeaderValue::try_from(format!("wait={}", applied.as_secs())) {
            let name = HeaderName::from_static("preference-applied");
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

async fn begin_one(
    server: &Server,
    caller: &Caller,
    preferred: Option<Duration>,
    begin: Begin,
) -> Result<Answer, Problem> {
    let dry_run = begin.dry_run;
    let attempt = begin.attempt_id.as_deref().map(AttemptId::new).transpose();
    let attempt = attempt.map_err(|error| Problem::input(format!("attempt_id: {error}")))?;
    let wait = begin
        .wait_ms
        .map(|wait| Duration::from_millis(wait.0))
        .or(preferred);
    let wait = wait.unwrap_or_default().min(server.limits().wait);
    let (request, key) = request(caller, begin)?;
    span::about(&caller.namespace, &key);
    let request = request.wait(wait);
    if dry_run {
        let preview = server
            .within(wait, server.engine().preview(request))
            .await?;
        return preview_answer(server, caller, &key, preview);
    }
    let claimed = server.within(wait, server.engine().claim(request, attempt));
    // A stop does not wait for other ones' attempts; a claim that is on its way is answered first.
    let claimed = tokio::select! {
        biased;
        claimed = claimed => claimed?,
        () = server.stopped_for(CLAIM_GRACE) => return Err(in_flight(&key, CLAIM_GRACE)),
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
        Claimed::InDoubt(record) => {
            let view = RecordView::of(&record, server.now());
            Err(in_doubt(&key, view))
        }
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

fn in_doubt(key: &Key, view: Option<RecordView>) -> Problem {
    let text = format!("{key}: nobody knows whether an earlier attempt took effect");
    Problem::new("in_doubt", text)
        .hint("find out whether the effect happened, then resolve the operation with its version")
        .about(key)
        .resting_on(view)
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
        probe: granted.probe.map(|probe| probe.to_string()),
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
    key: &Key,
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
        Preview::InDoubt(record) => {
            let view = RecordView::of(&record, server.now());
            Err(in_doubt(key, view))
        }
    }
}

/// Reads `Prefer: wait=SECONDS`; what cannot be read is no preference (RFC 7240).
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("prefer").into_iter();
    let preferences = lines.filter_map(|line| line.to_str().ok());
    let mut preferences = preferences.flat_map(|line| line.split(','));
    let seconds = preferences.find_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim()
            .eq_ignore_ascii_case("wait")
            .then(|| value.parse::<u32>().ok())?
    });
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

pub(super) fn key_of(text: &str) -> Result<Key, Problem> {
    Key::new(text).map_err(|error| Problem::new("invalid_key", error.to_string()))
}

fn request(caller: &Caller, begin: Begin) -> Result<(Request, Key), Problem> {
    let key = key_of(&begin.key)?;
    let mut request = described(caller, &begin.name, key.clone(), begin.input.as_deref());
    if let Some(class) = begin.class {
        request = request.class(class.into());
    }
    if let Some(on_doubt) = begin.on_doubt {
        request = request.on_doubt(on_doubt.into());
    }
    if let Some(limit) = begin.max_attempts {
        request = request.max_attempts(limit.count("max_attempts")?);
    }
    if let Some(window) = begin.retry_within_ms {
        request = request.retry_within(positive("retry_within_ms", window.0)?);
    }
    if let Some(delay) = begin.settle_delay_ms {
        request = request.settle_delay(Duration::from_millis(delay.0));
    }
    if let Some(retention) = begin.retention_ms {
        request = request.retention(retention_of(retention.0)?);
    }
    if let Some(lease) = begin.lease_ms {
        request = request.lease(lease_of(lease.0)?);
    }
    if let Some(probe) = begin.probe {
        let probe =
            Probe::new(&probe).map_err(|error| Problem::input(format!("probe: {error}")))?;
        request = request.probe(probe);
    }
    if let Some(parent) = begin.parent {
        request = request.parent(key_of(&parent.key)?, Fence(parent.fence.0));
    }
    Ok((request, key))
}

/// Describes an action as this caller's.
fn described(caller: &Caller, name: &str, key: Key, input: Option<&RawValue>) -> Request {
    let mut request = Request::new(name, key)
        .namespace(caller.namespace.clone())
        .door(caller.door.clone());
    if let Some(principal) = &caller.principal {
        request = request.principal(principal.clone());
    }
    match input {
        Some(input) => request.input_json(input.get().as_bytes()),
        None => request,
    }
}

fn positive(member: &str, millis: u64) -> Result<Duration, Problem> {
    if millis == 0 {
        return Err(Problem::input(format!("{member} must be more than 0")));
    }
    Ok(Duration::from_millis(millis))
}

fn lease_of(millis: u64) -> Result<Lease, Problem> {
    Lease::new(Duration::from_millis(millis))
        .map_err(|error| Problem::input(format!("lease_ms: {error}")))
}

fn retention_of(millis: u64) -> Result<Retention, Problem> {
    Retention::new(Duration::from_millis(millis))
        .map_err(|error| Problem::input(format!("retention_ms: {error}")))
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
    super::one(&server, asked, |submit| {
        submit_one(&server, &caller, submit)
    })
    .await
}

async fn submit_one(server: &Server, caller: &Caller, submit: Submit) -> Result<Answer, Problem> {
    let key = key_of(&submit.key)?;
    let mut request = described(caller, &submit.name, key.clone(), submit.input.as_deref());
    if let Some(class) = submit.class {
        request = request.class(class.into());
    }
    if let Some(on_doubt) = submit.on_doubt {
        request = request.on_doubt(on_doubt.into());
    }
    if let Some(limit) = submit.max_attempts {
        request = request.max_attempts(limit.count("max_attempts")?);
    }
    if let Some(window) = submit.retry_within_ms {
        request = request.retry_within(positive("retry_within_ms", window.0)?);
    }
    if let Some(retention) = submit.retention_ms {
        request = request.retention(retention_of(retention.0)?);
    }
    let queue = submit.queue.as_deref().map(Label::new).transpose();
    let queue = queue.map_err(|error| Problem::input(format!("queue: {error}")))?;
    let run_at = submit.run_at.as_deref().map(str::parse::<Timestamp>);
    let run_at = run_at
        .transpose()
        .map_err(|error| Problem::input(format!("run_at: {error}")))?;
    if submit.dry_run {
        let command = request.submission(queue, run_at);
        let command = command.map_err(|error| Problem::of(&error, server.now()))?;
        return super::plan::rehearse(server, caller, &key, &command, Effect::WouldCreate).await;
    }
    let submitted = server.engine().submit(request, queue, run_at);
    let receipt = server.within(Duration::ZERO, submitted).await?;
    if receipt.replayed {
        server.counts().replayed("submit");
    }
    Answer::ok(&receipt)
}

/// Reports what an attempt learned; [`Report`] describes it, by its verdict.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleCall {
    key: String,
    attempt_id: String,
    fence: Whole,
    verdict: VerdictWord,
    /// For `done` only, as the next two.
    #[serde(default, deserialize_with = "said")]
    ok: Option<Option<bool>>,
    #[serde(default, deserialize_with = "said")]
    effect: Option<Option<EffectWord>>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Box<RawValue>>,
    /// For `not_done` and `unknown` only.
    #[serde(default, deserialize_with = "said")]
    error: Option<Option<String>>,
    /// For `not_done` only.
    #[serde(default, deserialize_with = "said")]
    reject: Option<Option<bool>>,
    #[serde(default)]
    dry_run: bool,
}

/// Reports what an attempt learned: `done` (in success or failure), `not_done`, or `unknown`.
///
/// The same report again gets the same receipt. A report that comes late settles a doubt; one that is fenced is
/// answered with the stored outcome where there is one. An array of calls is answered with an array.
#[utoipa::path(
    post, path = "/v1/settle", tag = "attempts",
    request_body = inline(super::OneOrMany<Report>),
    responses(
        (status = 200, description = "What the operation came to", body = inline(super::Answers<schema::Receipt>)),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn settle(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let answer = |settle| settle_one(&server, &caller, settle);
    many_or_one(&server, asked, answer).await
}

async fn settle_one(server: &Server, caller: &Caller, call: SettleCall) -> Result<Answer, Problem> {
    let key = key_of(&call.key)?;
    span::about(&caller.namespace, &key);
    let attempt = attempt_of(&call.attempt_id)?;
    let (fence, dry_run) = (Fence(call.fence.0), call.dry_run);
    let (verdict, data) = verdict_of(call)?;
    let settle = Settle {
        attempt,
        fence,
        verdict,
    };
    if dry_run {
        let effect = match &settle.verdict {
            Verdict::Done(outcome) => outcome.effect.planned(),
            Verdict::NotDone { .. } | Verdict::Unknown { .. } => Effect::WouldUpdate,
        };
        let command = Command::Settle(settle);
        return super::plan::rehearse(server, caller, &key, &command, effect).await;
    }
    let report = server
        .engine()
        .report(&caller.namespace, &key, settle, data);
    let receipt = server.within(Duration::ZERO, report).await?;
    server.counts().settled(receipt.state);
    if receipt.replayed {
        server.counts().replayed("settle");
    }
    Answer::ok(&receipt)
}

fn attempt_of(text: &str) -> Result<AttemptId, Problem> {
    AttemptId::new(text).map_err(|error| Problem::input(format!("attempt_id: {error}")))
}

fn verdict_of(call: SettleCall) -> Result<(Verdict, Option<Vec<u8>>), Problem> {
    let only_for = |member: &str, verdict: &str| {
        Problem::input(format!("`{member}` goes with the verdict `{verdict}` only"))
    };
    let is_done = matches!(call.verdict, VerdictWord::Done);
    if !is_done {
        for (member, given) in [
            ("ok", call.ok.is_some()),
            ("effect", call.effect.is_some()),
            ("data", call.data.is_some()),
        ] {
            if given {
                return Err(only_for(member, "done"));
            }
        }
    }
    if call.reject.is_some() && !matches!(call.verdict, VerdictWord::NotDone) {
        return Err(only_for("reject", "not_done"));
    }
    let error = call.error.as_ref().and_then(Option::as_deref);
    let error = error.and_then(Note::from_lossy);
    Ok(match call.verdict {
        VerdictWord::Done => {
            if call.error.is_some() {
                let hint = "say what a failure answered in `data`, with `\"ok\": false`";
                return Err(only_for("error", "not_done` or `unknown").hint(hint));
            }
            let ok = call.ok.flatten().unwrap_or(true);
            let data = answer_data(call.data)?;
            let effect = done_effect(ok, call.effect.flatten());
            let payload = data.as_deref().map(Payload::of);
            let outcome = Outcome {
                ok,
                effect,
                payload,
            };
            (Verdict::Done(outcome), data)
        }
        VerdictWord::NotDone => {
            let reject = call.reject.flatten().unwrap_or(false);
            (Verdict::NotDone { reject, error }, None)
        }
        VerdictWord::Unknown => (Verdict::Unknown { error }, None),
    })
}

/// Returns the effect of something done; what nobody declared is as at the command line.
pub(super) fn done_effect(ok: bool, said: Option<EffectWord>) -> Effect {
    match said {
        None if ok => Effect::Updated,
        None => Effect::Unknown,
        Some(effect) => effect.into(),
    }
}

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
#[utoipa::path(
    post, path = "/v1/renew", tag = "attempts",
    request_body = RenewCall,
    responses(
        (status = 200, description = "The lease is as long as asked for, or longer", body = inline(RenewAnswer)),
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
    super::one(&server, asked, |renew| renew_one(&server, &caller, renew)).await
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
        return super::plan::rehearse(server, caller, &key, &command, Effect::WouldUpdate).await;
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
