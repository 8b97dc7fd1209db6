//! What operators decide: each call names the version that it was decided on.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use semel::core::ledger::{Command, Order, Resolution, Resolve, Version};
use semel::view::RecordView;
use semel::{Effect, Key, Label, Note, Operator, Outcome, Payload, Receipt, Scope};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{Answer, answer_data, given, said};
use super::described::Resolution as Described;
use super::numbers::Whole;
use super::operations::named;
use super::plan::{Plan, rehearse};
use super::problem::Problem;
use super::request::key_of;
use super::settle::done_effect;
use super::words::EffectWord;
use super::{Asked, Server, one, schema};
use crate::auth::Caller;

/// Settles a doubt; [`Described`] says it, by its verdict.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveCall {
    key: String,
    version: Whole,
    verdict: Resolved,
    /// For `done` only, as the next two.
    #[serde(default, deserialize_with = "said")]
    ok: Option<Option<bool>>,
    #[serde(default, deserialize_with = "said")]
    effect: Option<Option<EffectWord>>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Box<RawValue>>,
    note: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// What was found out.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resolved {
    Done,
    NotDone,
}

/// A decision about one operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderCall {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    /// The version of the record that was decided on.
    #[schema(value_type = u64)]
    version: Whole,
    /// Why.
    #[schema(
        min_length = 1,
        max_length = 1024,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    note: Option<String>,
    /// Only says what would happen.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// Settles a doubt: the effect happened, or it did not.
///
/// The same call again gets the same answer. On another version it is refused with the present record.
#[utoipa::path(
    post, path = "/v1/resolve", tag = "operators",
    request_body = inline(Described),
    responses(
        (status = 200, description = "What the operation came to", body = schema::Receipt),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn resolve(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    one(&server, asked, |call| resolve_one(&server, &caller, call)).await
}

async fn resolve_one(
    server: &Server,
    caller: &Caller,
    call: ResolveCall,
) -> Result<Answer, Problem> {
    let is_done = matches!(call.verdict, Resolved::Done);
    let said = call.ok.is_some() || call.effect.is_some() || call.data.is_some();
    if !is_done && said {
        let text = "`ok`, `effect` and `data` go with the verdict `done` only";
        return Err(Problem::input(text));
    }
    let ok = call.ok.flatten().unwrap_or(true);
    let effect = done_effect(ok, call.effect.flatten());
    let data = answer_data(call.data)?;
    let desk = Desk::new(server, caller, &call.key, call.version.0);
    let desk = desk.await?.noting(call.note.as_deref())?;
    if call.dry_run {
        let resolution = match call.verdict {
            Resolved::Done => Resolution::Done(Outcome {
                ok,
                effect,
                payload: data.as_deref().map(Payload::of),
            }),
            Resolved::NotDone => Resolution::NotDone,
        };
        let command = Command::Resolve(Resolve {
            order: desk.order(),
            resolution,
        });
        return rehearse(server, caller, &desk.key, &command, Effect::WouldUpdate).await;
    }
    let operator = desk.operator(server, caller);
    let receipt = if is_done {
        let resolved = operator.resolve_done(ok, effect, data);
        server.within(Duration::ZERO, resolved).await?
    } else {
        let resolved = operator.resolve_not_done();
        server.within(Duration::ZERO, resolved).await?
    };
    Answer::ok(&receipt)
}

/// Gives a failed or dead operation fresh attempts.
#[utoipa::path(
    post, path = "/v1/retry", tag = "operators",
    request_body = OrderCall,
    responses(
        (status = 200, description = "It waits for its next attempt", body = schema::Receipt),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn retry(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    one(&server, asked, |call| {
        order_one(&server, &caller, call, Choice::Retry)
    })
    .await
}

/// Ends an operation that was not applied.
#[utoipa::path(
    post, path = "/v1/cancel", tag = "operators",
    request_body = OrderCall,
    responses(
        (status = 200, description = "It has failed, and changed nothing", body = schema::Receipt),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn cancel(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    one(&server, asked, |call| {
        order_one(&server, &caller, call, Choice::Cancel)
    })
    .await
}

/// Erases a settled operation: its key may be used for something else.
#[utoipa::path(
    post, path = "/v1/forget", tag = "operators",
    request_body = OrderCall,
    responses(
        (status = 200, description = "It is forgotten", body = schema::Receipt),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("idempotent")), ("x-semel-needs-key" = json!(true)))
)]
pub(crate) async fn forget(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    caller.needs(Scope::Operate)?;
    one(&server, asked, |call| {
        order_one(&server, &caller, call, Choice::Forget)
    })
    .await
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Retry,
    Cancel,
    Forget,
}

async fn order_one(
    server: &Server,
    caller: &Caller,
    call: OrderCall,
    choice: Choice,
) -> Result<Answer, Problem> {
    let desk = Desk::new(server, caller, &call.key, call.version.0);
    let desk = desk.await?.noting(call.note.as_deref())?;
    if call.dry_run {
        let order = desk.order();
        let (command, effect) = match choice {
            Choice::Retry => (Command::Retry(order), Effect::WouldUpdate),
            Choice::Cancel => (Command::Cancel(order), Effect::WouldUpdate),
            Choice::Forget => (Command::Forget(order), Effect::WouldDelete),
        };
        return rehearse(server, caller, &desk.key, &command, effect).await;
    }
    let operator = desk.operator(server, caller);
    let none = Duration::ZERO;
    let receipt: Receipt = match choice {
        Choice::Retry => server.within(none, operator.retry()).await?,
        Choice::Cancel => server.within(none, operator.cancel()).await?,
        Choice::Forget => {
            let before = server.engine().load(&caller.namespace, &desk.key);
            let before = server.within(none, before).await?;
            server.within(none, operator.forget()).await?;
            let before = before.and_then(|record| RecordView::of(&record, server.now()));
            return Answer::ok(&Plan::forgotten(caller, &desk.key, before));
        }
    };
    Answer::ok(&receipt)
}

/// Who decides about which operation, on which version, and why.
struct Desk {
    key: Key,
    version: Version,
    by: Label,
    note: Option<Note>,
}

impl Desk {
    /// Finds the operation; what is not there is left to the rules.
    async fn new(
        server: &Server,
        caller: &Caller,
        name: &str,
        version: u64,
    ) -> Result<Self, Problem> {
        let found = named(server, caller, name).await?;
        Ok(Self {
            key: found.map_or_else(|| key_of(name), |named| Ok(named.key))?,
            version: Version(version),
            by: caller.by(),
            note: None,
        })
    }

    fn noting(self, note: Option<&str>) -> Result<Self, Problem> {
        let note = note.map(Note::new).transpose();
        let note = note.map_err(|error| Problem::input(format!("note: {error}")))?;
        Ok(Self { note, ..self })
    }

    fn order(&self) -> Order {
        Order {
            version: self.version,
            by: self.by.clone(),
            note: self.note.clone(),
        }
    }

    fn operator(&self, server: &Server, caller: &Caller) -> Operator {
        let engine = server.engine();
        let operator = engine.operator(&caller.namespace, &self.key, self.version, self.by.clone());
        match &self.note {
            Some(note) => operator.note(note.clone()),
            None => operator,
        }
    }
}
