//! Doubts as tasks: what is known of a doubt is asked for by the name of its task.
//!
//! Nothing is stored for a task but the operation itself. Its name says which attempt of which operation is
//! doubted, and is sealed for whoever it was given to, with what stays the same for as long as the store is
//! the same: so it outlives the gateway.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use semel::core::VerdictKind;
use semel::core::ledger::{Fence, Operation, Record, StateKind};
use semel::{Error, Key, Timestamp};
use tokio::time::Instant;

use super::super::answer::{self, Doubt, Known, Outcome, Stand, Task, To};
use super::super::ask::{CLIENT_CAPABILITIES, Era, PROTOCOL_VERSION, TASKS};
use super::super::edit;
use super::super::http::desk::{Answered, Asked};
use super::super::message::{Kind, Message};
use super::super::seal::{Purpose, Seal};
use super::super::upstream::Reply;
use super::administer::is_own as is_callers;
use super::call::{Call, bare};
use super::{Gateway, Session};
use crate::incident;

/// How soon somebody who waits for a doubt to be settled looks again: most are settled by another process.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long a server may take to say what it can do; its client waits for the news of a doubt meanwhile.
const DISCOVER_MAX: Duration = Duration::from_secs(10);

/// Says whether a request asks for a task of the gateway's own; all others are the server's.
pub(super) fn is_own(request: &Message) -> bool {
    let is_about_task = matches!(
        request.method(),
        Some("tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel")
    );
    is_about_task && task_id(request).is_some_and(|id| Seal::is_for(&id, Purpose::Task))
}

fn task_id(request: &Message) -> Option<String> {
    edit::text(request.params()?, &["taskId"])
}

/// How a task stands.
struct Seen {
    /// What is said of one that has not ended.
    words: String,
    /// What its call would be answered now, and whether the operation succeeded.
    ended: Option<(Message, bool)>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Seen {
    fn task<'a>(&'a self, id: &'a str) -> Task<'a> {
        Task {
            id,
            created_at: self.created_at,
            updated_at: self.updated_at,
            stand: match &self.ended {
                Some((answer, ok)) => Stand::Ended { answer, ok: *ok },
                None => Stand::Working(&self.words),
            },
        }
    }
}

/// What became of a doubt.
enum Found {
    /// It waits to be settled.
    Doubtful,
    /// It is looked up just now, or its attempt is not over.
    UnderWay,
    /// It took effect, or failed: the outcome of the operation stands for it.
    Settled,
    /// It did not take effect, and the operation may have been tried again since.
    DidNotHappen,
}

impl Found {
    /// Judges one attempt of an operation. Once it is settled, what comes after it does not change it: a task
    /// that has ended stays as it is.
    fn of(operation: &Operation, fence: Fence, now: Timestamp) -> Self {
        let operation = operation.judged_at(now);
        let is_latest = operation.fence == fence;
        let attempt = operation.attempts.iter().find(|it| it.fence == fence);
        let is_open = attempt.is_some_and(|attempt| attempt.open);
        let is_done = attempt.is_some_and(|it| it.verdict == Some(VerdictKind::Done));
        match operation.state.kind() {
            StateKind::Succeeded | StateKind::Failed if is_latest || is_open || is_done => {
                Self::Settled
            }
            StateKind::Running if is_latest || is_open => Self::UnderWay,
            StateKind::Doubtful if is_latest || is_open => Self::Doubtful,
            StateKind::Pending if is_open => Self::Doubtful,
            _ => Self::DidNotHappen,
        }
    }
}

impl Gateway {
    /// Answers a call with a task that stands for its doubt.
    pub(super) async fn task_created(
        &self,
        call: &Call<'_>,
        known: &Known<'_>,
        doubt: &Doubt,
        record: &Record,
    ) -> Message {
        let named = format!("{}.{}", record.fence().0, known.receipt.key);
        let id = self.task_seal().await;
        let id = id.name(Purpose::Task, &named, whose(call.asked));
        let created_at = known.receipt.started_at;
        let created_at = created_at.unwrap_or_else(|| self.engine.store().now());
        let task = Task {
            id: &id,
            created_at,
            updated_at: created_at,
            stand: Stand::Working(&doubt.text),
        };
        answer::task_created(&call.to(self), known, doubt, &task)
    }

    /// Answers a request about a task of the gateway's own.
    pub(super) async fn task(
        &self,
        session: &Session,
        request: &Message,
        asked: &Asked,
    ) -> Answered {
        let meta = request.params().and_then(|it| edit::get(it, &["_meta"]));
        let client = session.client().with(meta.unwrap_or("{}"));
        let to = To {
            id: request.id().unwrap_or("null"),
            era: client.era,
            tool: "",
            resolve: self.resolve_by(asked),
        };
        if client.era == Era::Modern && !client.capabilities.tasks {
            return Answered {
                status: Some(StatusCode::BAD_REQUEST),
                ..answer::not_declared(&to).into()
            };
        }
        let id = task_id(request).unwrap_or_default();
        let message = match (request.method(), client.era) {
            (Some("tasks/result"), Era::Legacy) => self.ended(&to, &id, asked).await,
            (Some("tasks/get"), _) => {
                let seen = self.seen(&to, &id, asked).await;
                seen.map(|seen| answer::task(&to, &seen.task(&id)))
            }
            // Nothing was asked of the client, so nothing is answered by what it sends.
            (Some("tasks/update"), Era::Modern) => {
                let seen = self.seen(&to, &id, asked).await;
                seen.map(|_| answer::acknowledged(&to))
            }
            (Some("tasks/cancel"), era) => {
                let seen = self.seen(&to, &id, asked).await;
                seen.map(|seen| match (era, &seen.ended) {
                    // A wish, which need not come true.
                    (Era::Modern, _) => answer::acknowledged(&to),
                    (Era::Legacy, Some(_)) => answer::no_such_task(&to, "the task has ended"),
                    (Era::Legacy, None) => answer::not_cancelled(&to, &seen.words),
                })
            }
            _ => Err(answer::unknown_method(&to)),
        };
        message.unwrap_or_else(|refusal| refusal).into()
    }

    /// Waits for a task to end, for as long as an identical call would wait, and returns what its call would be
    /// answered now.
    async fn ended(&self, to: &To<'_>, id: &str, asked: &Asked) -> Result<Message, Message> {
        let until = Instant::now() + self.about.wait;
        loop {
            let seen = self.seen(to, id, asked).await?;
            if let Some((answer, _)) = &seen.ended {
                return Ok(answer::task_result(id, answer));
            }
            if Instant::now() >= until {
                return Err(answer::not_settled(to, &seen.words));
            }
            tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }

    /// Looks how a task of the caller's stands.
    ///
    /// # Errors
    /// Says why there is none for this caller.
    async fn seen(&self, to: &To<'_>, id: &str, asked: &Asked) -> Result<Seen, Message> {
        let unknown = || answer::no_such_task(to, "there is no such task");
        let seal = self.task_seal().await;
        let named = seal.named(id, Purpose::Task, whose(asked));
        let (fence, key) = named
            .ok()
            .and_then(|it| it.split_once('.'))
            .ok_or_else(unknown)?;
        let fence = Fence(fence.parse().map_err(|_| unknown())?);
        let key = Key::new(key).map_err(|_| unknown())?;
        let namespace = &asked.namespace;
        let unavailable =
            |error: Error| answer::task_unavailable(to, &incident::conceal(error).to_string());
        // A call whose gateway is gone is in doubt before its lease ends.
        let record = self.engine.notice_gone(namespace, &key).await;
        let record = record.map_err(unavailable)?.ok_or_else(unknown)?;
        let Some(operation) = record.operation() else {
            return Err(answer::no_such_task(to, "the task is not kept any more"));
        };
        if !is_callers(&record, asked) {
            return Err(unknown());
        }
        let payload = self.engine.payload(namespace, &key).await;
        let payload = payload.map_err(unavailable)?.map(Arc::from);
        let receipt = self.receipt(&record, payload).ok_or_else(unknown)?;
        let to = To {
            tool: receipt.name.as_str(),
            ..*to
        };
        let now = self.engine.store().now();
        let attempt = operation.attempts.iter().find(|it| it.fence == fence);
        let created_at = attempt.map_or(operation.created_at, |attempt| attempt.started_at);
        let ended_at = attempt.and_then(|attempt| attempt.ended_at);
        let resolved_at = operation.resolved.as_ref().map(|resolved| resolved.at);
        let (words, ended, updated_at) = match Found::of(operation, fence, now) {
            Found::Doubtful => (Doubt::earlier(&to, &receipt).text, None, ended_at),
            Found::UnderWay => (answer::under_way(&to), None, None),
            Found::Settled => {
                let known = bare(&receipt);
                let answer = answer::replay(&to, &known, Outcome::Replayed, now);
                (
                    String::new(),
                    Some((answer, receipt.ok)),
                    receipt.settled_at,
                )
            }
            Found::DidNotHappen => {
                let answer = answer::did_not_happen(&to, &key);
                let at = resolved_at.or(ended_at);
                (String::new(), Some((answer, false)), at)
            }
        };
        Ok(Seen {
            words,
            ended,
            created_at,
            updated_at: updated_at.unwrap_or(created_at),
        })
    }

    /// Returns what names of tasks are sealed with: the same for as long as the store is the same one.
    async fn task_seal(&self) -> Seal {
        match self.engine.derive_secret("mcp task").await {
            Ok(Some(secret)) => Seal::new(secret),
            // On another server's ledger names are sealed for as long as this gateway lives.
            Ok(None) | Err(_) => self.seal.clone(),
        }
    }

    /// Says whether the server declares that it answers with tasks: only then a client has agreed to get one.
    /// It is asked once, when it matters for the first time.
    pub(super) async fn has_tasks(&self, call: &Call<'_>) -> bool {
        let declared = self.has_tasks.get_or_try_init(|| async {
            let result = tokio::time::timeout(DISCOVER_MAX, self.discovered(call)).await;
            let result = result.ok().flatten().ok_or(())?;
            Ok::<_, ()>(edit::get(&result, &["capabilities", "extensions", TASKS]).is_some())
        });
        // A server that does not answer now may do so the next time.
        declared.await.copied().unwrap_or(false)
    }

    /// Asks the server what it can do, as the client would.
    async fn discovered(&self, call: &Call<'_>) -> Option<String> {
        let asked = call.request.params().unwrap_or("{}");
        let mut params = "{}".to_owned();
        for member in [PROTOCOL_VERSION, CLIENT_CAPABILITIES] {
            let value = edit::get(asked, &["_meta", member])?;
            params = edit::set(&params, &["_meta", member], value).ok()?;
        }
        let request = Message::request(&self.own_id(), "server/discover", &params).ok()?;
        let headers = call.asked.headers.for_another();
        let upstream = &call.session.upstream;
        let mut replies = upstream.request(&request, &headers).await.ok()?;
        loop {
            match replies.0.recv().await? {
                Reply::Aside(_) => {}
                Reply::Answer(answer, _) => {
                    let result = answer.outcome().filter(|_| *answer.kind() == Kind::Result);
                    return Some(result.unwrap_or("{}").to_owned());
                }
                Reply::Http(_) | Reply::Lost(_) => return None,
            }
        }
    }
}

/// Names whose a task is.
fn whose(asked: &Asked) -> &str {
    asked.principal.as_deref().unwrap_or_default()
}
