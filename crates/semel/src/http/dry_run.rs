//! Dry runs: what would become of a request, without anything being sent or written.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Response, header};
use semel_core::http::{dated, would};
use semel_core::{Effect, Namespace};
use serde_json::{Value, json};

use super::ask::Ask;
use super::guard::{Asked, Inner};
use super::refusal::Refusal;
use super::replay::unreadable;
use super::stored::Head;
use super::{Answer, Became, Body};
use crate::door::Preview;
use crate::engine;
use crate::receipt::Receipt;

fn said(what: &Value) -> Answer {
    let mut response = Response::new(Body::full(what.to_string()));
    let media = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Answer {
        response,
        became: Became::Rehearsed,
        seat: None,
    }
}

/// Answers for a request that would be refused.
fn refused(refusal: &Refusal) -> Answer {
    said(&json!({
        "ok": true,
        "effect": Effect::Noop.as_str(),
        "would": "refuse",
        "code": refusal.code(),
        "status": refusal.status().as_u16(),
        "changes": [format!("would be refused: {}", refusal.detail())],
    }))
}

impl Inner {
    /// Says what would become of a request.
    pub(super) async fn dry_run(&self, asked: &Asked, caller: &super::Caller) -> Answer {
        let (parts, profile) = (&asked.parts, &self.rules.profile);
        if let Err(refusal) = self.refuse_forgotten(asked, caller).await {
            return refused(&refusal);
        }
        let claim = self.claim(asked, caller);
        let previewed = match self.doorway.preview(&asked.ask.call, claim).await {
            Ok(previewed) => previewed,
            Err(error) => return refused(&Refusal::of(&error, profile)),
        };
        let key = &previewed.identity.key;
        if matches!(
            previewed.preview,
            Preview::Ledger(engine::Preview::Execute { .. } | engine::Preview::Probe)
        ) && let Err(refusal) = self.would_be_admitted(&asked.namespace).await
        {
            return refused(&refusal);
        }
        match previewed.preview {
            Preview::Ledger(engine::Preview::Execute { attempt }) => {
                executed(parts, &asked.ask, attempt, self.kept())
            }
            Preview::Ledger(engine::Preview::Probe) => said(&json!({
                "ok": true,
                "effect": Effect::Noop.as_str(),
                "would": "refuse",
                "code": "in_doubt",
                "changes": ["would look up first whether an earlier attempt took effect"],
            })),
            Preview::Ledger(engine::Preview::Replay(receipt)) => {
                let stored = receipt.payload.as_deref().and_then(Head::read);
                let unreadable = stored.and_then(|(head, _)| unreadable(&head, &asked.accepted()));
                match unreadable {
                    Some(refusal) => refused(&refusal),
                    None => replayed(&receipt, self.kept()),
                }
            }
            Preview::Ledger(engine::Preview::Wait { retry_after }) => {
                refused(&Refusal::in_flight(profile, retry_after))
            }
            Preview::Ledger(engine::Preview::InDoubt(_)) | Preview::Challenged { .. } => {
                refused(&Refusal::in_doubt(profile, key))
            }
        }
    }
}

impl Inner {
    /// Answers for a request that would only be passed on.
    pub(super) async fn would_pass(&self, namespace: &Namespace) -> Answer {
        if let Err(refusal) = self.would_be_admitted(namespace).await {
            return refused(&refusal);
        }
        said(&json!({
            "ok": true,
            "effect": Effect::Noop.as_str(),
            "would": "pass",
            "changes": ["would be passed on, unprotected"],
        }))
    }

    fn kept(&self) -> Kept {
        let kept = self.rules.retention.length();
        Kept {
            answers: kept,
            keys: dated::remembered(&self.rules.profile, kept),
        }
    }
}

/// How long what is known of a request.
#[derive(Clone, Copy)]
struct Kept {
    answers: Duration,
    keys: Duration,
}

fn replayed(receipt: &Receipt, kept: Kept) -> Answer {
    let reason = receipt.reason.as_deref().unwrap_or_default();
    said(&json!({
        "ok": true,
        "effect": Effect::Noop.as_str(),
        "would": "replay",
        "kept_seconds": kept.answers.as_secs(),
        "remembered_seconds": kept.keys.as_secs(),
        "changes": [format!("would answer as before: {reason}")],
    }))
}

fn executed(parts: &Parts, ask: &Ask, attempt: u32, kept: Kept) -> Answer {
    let name = &ask.name;
    said(&json!({
        "ok": true,
        "effect": would(parts.method.as_str()).as_str(),
        "would": "execute",
        "kept_seconds": kept.answers.as_secs(),
        "remembered_seconds": kept.keys.as_secs(),
        "changes": [format!("would send `{name}` (attempt {attempt})")],
    }))
}
