//! `POST /in/{source}`: what becomes of one delivery.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use semel::core::identity::{Door, inbox_key};
use semel::core::ledger::{Record, Rejection, StateKind};
use semel::core::webhook::{Delivery, Refusal, Scheme, SenderId, challenge};
use semel::{Effect, Error, Key, Label, Note, Queueing, Receipt, Request};
use serde_json::json;

use super::envelope::Envelope;
use super::source::Source;
use crate::http::body::{self, Answer};
use crate::http::{Problem, Refusals, Server, json, schema};

/// What a delivery is answered with, and the word by which it is counted.
struct Answered {
    status: StatusCode,
    answer: Answer,
    word: &'static str,
}

/// Why a delivery is refused, and the word by which it is counted.
struct Refused {
    problem: Problem,
    word: &'static str,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let word = problem.code();
        Self { problem, word }
    }
}

/// Takes a webhook: verified by its signature over the body as it came, and stored as a task once.
///
/// The sender's own id tells one webhook from another: what comes again is answered with success and does nothing.
#[utoipa::path(
    post, path = "/in/{source}", tag = "inbox",
    params(("source" = String, Path, description = "A source of the settings: `[inbox.NAME]`", min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")),
    request_body(content = Option<serde_json::Value>, description = "Anything that the sender signs; mostly JSON"),
    responses(
        (status = 200, description = "It came before: nothing was done (`noop`). Or the answer to Slack's question whether this is the right address", body = schema::Received),
        (status = 202, description = "It is stored, and a worker will get it", body = schema::Received),
        Refusals,
    ),
    security(()),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn receive(
    State(server): State<Server>,
    Path(name): Path<String>,
    request: HttpRequest,
) -> Response {
    let source = server.config().inbox.borrow().get(&name).cloned();
    let received = server.counts().received();
    let Some(source) = source else {
        received.count(None, "not_found");
        return Problem::not_found("there is no such source of webhooks")
            .hint("`semel inbox list` shows what there is, `semel inbox add` adds one")
            .into_response();
    };
    let answered = Box::pin(answer(&server, &source, request)).await;
    let word = match &answered {
        Ok(answered) => answered.word,
        Err(refused) => refused.word,
    };
    let count = received.count(Some(source.name.as_str()), word);
    match answered {
        Ok(answered) => told(answered),
        Err(refused) => refuse(&source, refused, count),
    }
}

fn told(answered: Answered) -> Response {
    let mut response = json(answered.answer).into_response();
    *response.status_mut() = answered.status;
    response
}

/// Says why, to the sender and in the log: of many refusals ever fewer are logged, as anybody can send anything.
fn refuse(source: &Source, refused: Refused, count: u64) -> Response {
    let Refused { problem, word } = refused;
    if problem.code() == "key_reused" {
        // Only a proven sender comes so far, and somebody has to look at it.
        let (source, key) = (source.name.as_str(), problem.key());
        tracing::warn!(source, key, "the same id came with another body");
    } else if count.is_power_of_two() {
        let (source, why) = (source.name.as_str(), problem.detail());
        tracing::info!(source, outcome = word, count, why, "a webhook was refused");
    }
    let is_unproven = problem.code() == "unauthorized";
    let mut response = problem.into_response();
    if is_unproven {
        // A token would not help.
        let signature = HeaderValue::from_static("Signature");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, signature);
    }
    response
}

async fn answer(
    server: &Server,
    source: &Arc<Source>,
    request: HttpRequest,
) -> Result<Answered, Refused> {
    let (parts, body) = request.into_parts();
    let patience = server.limits().read;
    let received = body::read(body, server.bodies(), source.body_max, patience).await?;
    let headers = lines(&parts.headers);
    let delivery = Delivery {
        headers: &headers,
        body: &received.bytes,
    };
    // Senders date their signatures by the world's clock, and not by the ledger's, which goes its own way where the
    // machine's was wrong.
    let now = server.engine().store().reading().wall;
    let verified = source.proof.verify(&delivery, now).map_err(refusal)?;
    if *source.proof.scheme() == Scheme::Slack
        && let Some(challenge) = challenge(delivery.body)
    {
        return Ok(Answered {
            status: StatusCode::OK,
            answer: Answer::ok(&json!({"challenge": challenge}))?,
            word: "challenge",
        });
    }
    let id = source.id.find(&delivery, &verified).map_err(refusal)?;
    let key = inbox_key(&source.name, &id);
    let request = described(server, source, &key, &id, &delivery)?;
    let to = Queueing::on(source.queue.clone())
        .priority(source.priority)
        .lane(source.lane.clone());
    let submitted = async {
        let submitted = server.engine().submit(request, to).await;
        submitted
            .map(known)
            .or_else(|error| repeated(source, &key, &error).ok_or(error))
    };
    let receipt = Box::pin(server.within(Duration::ZERO, submitted)).await?;
    let (status, word) = match receipt.effect {
        Effect::Created => (StatusCode::ACCEPTED, "created"),
        _ => (StatusCode::OK, "noop"),
    };
    Ok(Answered {
        status,
        answer: Answer::ok(&receipt)?,
        word,
    })
}

fn lines(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    let lines = headers.iter();
    lines
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect()
}

/// Says why a delivery is not taken. What is not proven is refused with one code, whatever is wrong.
fn refusal(refusal: Refusal) -> Refused {
    let problem = if refusal.is_unproven() {
        Problem::new("unauthorized", refusal.to_string())
            .hint("sign the bytes of the body as they are sent, with the secret that this source has, at each attempt anew")
    } else {
        Problem::input(refusal.to_string())
            .hint("the setting `id` of the source says where the sender's id is")
    };
    let word = refusal.as_str();
    Refused { problem, word }
}

/// Describes the task: named by the source, told from others by the body alone, as headers differ between attempts.
fn described(
    server: &Server,
    source: &Source,
    key: &Key,
    id: &SenderId,
    delivery: &Delivery<'_>,
) -> Result<Request, Problem> {
    let door = Label::new(Door::Inbox.as_str()).expect("it is a short word");
    let redactor = server.engine().redactor();
    let envelope = Envelope::new(source, id, delivery, redactor, server.now());
    Ok(Request::new(source.name.as_str(), key.clone())
        .namespace(source.namespace.clone())
        .door(door)
        .identified(Note::from_lossy(&id.to_string()), 1)
        .input_compared_by(&Answer::ok(&envelope)?.body, delivery.body)
        .retention(source.retention))
}

/// Makes the answer to a sender of a receipt: what workers made of its webhook is none of its business.
fn known(receipt: Receipt) -> Receipt {
    let is_new = receipt.effect == Effect::Created;
    Receipt {
        ok: true,
        reason: (!is_new).then(|| RECEIVED.to_owned()),
        original_effect: None,
        payload: None,
        redacted: false,
        ..receipt
    }
}

const RECEIVED: &str = "received before";

/// Returns the answer to a delivery that came before and whose task is past doing: it is no fault of the sender's, which
/// would try again and again.
fn repeated(source: &Source, key: &Key, error: &Error) -> Option<Receipt> {
    let Error::Refused(refusal) = error else {
        return None;
    };
    let state = match refusal.rejection {
        Rejection::Dead => StateKind::Dead,
        Rejection::InDoubt { .. } => StateKind::Doubtful,
        Rejection::Expired => StateKind::Tombstone,
        Rejection::KeyReused
        | Rejection::InFlight { .. }
        | Rejection::BreakerOpen { .. }
        | Rejection::Fenced
        | Rejection::Refused { .. }
        | Rejection::NotFound => return None,
    };
    let operation = refusal.record.as_deref().and_then(Record::operation);
    Some(Receipt {
        ok: true,
        effect: Effect::Noop,
        replayed: true,
        original_effect: None,
        previous_effect: None,
        policy_kept: None,
        reason: Some(RECEIVED.to_owned()),
        namespace: source.namespace.clone(),
        key: key.clone(),
        name: Label::new(source.name.as_str()).ok()?,
        state,
        attempt: operation.map_or(0, |operation| operation.attempt),
        fence: operation.map_or(0, |operation| operation.fence.0),
        started_at: operation.and_then(|operation| Some(operation.latest()?.started_at)),
        settled_at: None,
        redacted: false,
        payload: None,
    })
}
