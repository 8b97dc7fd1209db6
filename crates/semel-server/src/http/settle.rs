//! Settle: reporting what an attempt learned.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use semel::core::Verdict;
use semel::core::ledger::{Command, Fence, Settle};
use semel::core::queue::RETRY_AFTER_MAX;
use semel::{Effect, Note, Outcome, Payload, Scope};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Answer, answer_data, given, said};
use super::described::Report;
use super::numbers::Whole;
use super::plan::rehearse;
use super::problem::Problem;
use super::request::{attempt_of, key_of};
use super::words::{EffectWord, VerdictWord};
use super::{Asked, Server, many_or_one, schema};
use crate::auth::Caller;
use crate::span;

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
    #[serde(default, deserialize_with = "said")]
    retry_after_ms: Option<Option<Whole>>,
    #[serde(default)]
    dry_run: bool,
}

/// Reports what an attempt learned: `done` (in success or failure), `not_done`, or `unknown`.
///
/// The same report again gets the same receipt. A report that comes late settles a doubt, and one that contradicts
/// what is stored gets what is stored; one that names no attempt of the operation is `fenced`. An array of calls is
/// answered with an array.
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
        return rehearse(server, caller, &key, &command, effect).await;
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
    for (member, given) in [
        ("reject", call.reject.is_some()),
        ("retry_after_ms", call.retry_after_ms.is_some()),
    ] {
        if given && !matches!(call.verdict, VerdictWord::NotDone) {
            return Err(only_for(member, "not_done"));
        }
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
            let retry_after = retry_after(call.retry_after_ms.flatten())?;
            let verdict = Verdict::NotDone {
                reject,
                error,
                retry_after,
            };
            (verdict, None)
        }
        VerdictWord::Unknown => (Verdict::Unknown { error }, None),
    })
}

/// Reads how long a task waits at least before its next attempt.
fn retry_after(said: Option<Whole>) -> Result<Option<Duration>, Problem> {
    let wait = said.map(|millis| Duration::from_millis(millis.0));
    if wait.is_some_and(|wait| wait > RETRY_AFTER_MAX) {
        let limit = RETRY_AFTER_MAX.as_millis();
        let text = format!("retry_after_ms is at most {limit} (7 days)");
        return Err(Problem::input(text));
    }
    Ok(wait)
}

/// Returns the effect of something done; what nobody declared is as at the command line.
pub(super) fn done_effect(ok: bool, said: Option<EffectWord>) -> Effect {
    match said {
        None if ok => Effect::Updated,
        None => Effect::Unknown,
        Some(effect) => effect.into(),
    }
}
