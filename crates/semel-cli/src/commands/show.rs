//! `semel show`

use std::process::ExitCode;
use std::sync::Arc;

use semel::core::ledger::{Attempt, AttemptKind, Operation, Record, StateKind};
use semel::store::Stored;
use semel::view::{AnswerView, RecordView};
use semel::{Engine, Redactor, Timestamp, span};
use serde::Serialize;

use crate::advice;
use crate::args::query::Show;
use crate::context::Context;
use crate::failure::Failure;
use crate::found::{self, Found};
use crate::liveness;
use crate::words;

/// A longer answer is not shown to people as a whole; --json has all of it.
const SHOWN_MAX: usize = 4_096;

pub(crate) async fn run(context: &Context, args: &Show) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let found = found::find(context, &engine, &args.key).await?;
    let data = match found.state() {
        StateKind::Succeeded | StateKind::Failed => {
            let payload = engine.payload(&found.namespace, &found.key).await?;
            payload.map(Arc::<[u8]>::from)
        }
        StateKind::Pending
        | StateKind::Running
        | StateKind::Doubtful
        | StateKind::Dead
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => None,
    };
    let partial = partial(&engine, &found).await?;
    let stored = Stored::new(Arc::clone(&found.record), found.place);
    let input = engine.task_input(&stored).await?;
    if context.printer.is_json() {
        let view = RecordView::detailed(&found.record, data, found.now);
        let view = view.map(|view| {
            let redactor = engine.redactor();
            view.given(input.as_deref(), redactor).shown(redactor)
        });
        context.printer.object(&Shown { view, partial });
        return Ok(ExitCode::SUCCESS);
    }
    let held = |attempt: &Attempt| engine.is_held(&found.namespace, &found.key, attempt.fence);
    for line in story(&found, held, data.as_deref(), engine.redactor()) {
        context.printer.line(&line);
    }
    if let Some(input) = input {
        let text = String::from_utf8_lossy(&input);
        context.printer.line("input");
        let text = engine.redactor().text(&text);
        context
            .printer
            .line(&format!("  {}", shown(text.as_bytes())));
    }
    if let Some(partial) = partial {
        for (name, text) in [("stdout", &partial.stdout), ("stderr", &partial.stderr)] {
            if !text.is_empty() {
                context.printer.line(&format!("{name} so far"));
                context
                    .printer
                    .line(&format!("  {}", shown(text.as_bytes())));
            }
        }
    }
    if let Some(step) = advice::next_step(context, &engine, &found) {
        context.printer.hint(&step);
    }
    Ok(ExitCode::SUCCESS)
}

/// A record, and what is known of an attempt that has not been reported.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    view: Option<RecordView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<Partial>,
}

/// What an attempt has written so far.
#[derive(Serialize)]
struct Partial {
    stdout: String,
    stderr: String,
}

/// Loads what the newest attempt has written, while it runs or is in doubt.
async fn partial(engine: &Engine, found: &Found) -> Result<Option<Partial>, Failure> {
    if !matches!(found.state(), StateKind::Running | StateKind::Doubtful) {
        return Ok(None);
    }
    let fence = found.record.fence();
    let chunks = engine.partial(&found.namespace, &found.key, fence).await?;
    if chunks.is_empty() {
        return Ok(None);
    }
    let of = |stream: u8| {
        let pieces = chunks.iter().filter(|chunk| chunk.stream == stream);
        let bytes: Vec<u8> = pieces
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Some(Partial {
        stdout: of(1),
        stderr: of(2),
    }))
}

/// Tells an operation's story in lines.
fn story(
    found: &Found,
    held: impl Fn(&Attempt) -> bool,
    data: Option<&[u8]>,
    redactor: &Redactor,
) -> Vec<String> {
    let (now, state) = (found.now, found.state());
    let style = words::style(state);
    let mut lines = vec![format!("{} {style}{}{style:#}", found.key, state.as_str())];
    match &*found.record {
        Record::Operation(operation) => {
            let judged = operation.judged_at(now);
            if let Some(view) = RecordView::of(&found.record, now) {
                about(&judged, &view, now, &mut lines);
            }
            for attempt in &judged.attempts {
                try_of(attempt, now, &mut lines);
                let holder = liveness::holder(attempt, held(attempt));
                field(&mut lines, "holder", holder);
            }
        }
        Record::Tombstone(tombstone) => {
            field(&mut lines, "namespace", &tombstone.namespace);
            field(&mut lines, "effect", tombstone.effect);
            field(&mut lines, "settled", moment(tombstone.settled_at, now));
            field(&mut lines, "buried", moment(tombstone.buried_at, now));
            field(&mut lines, "delivery", tombstone.delivery.as_str());
        }
        Record::Stub(_) | Record::Breaker(_) => {}
    }
    if let Some(bytes) = data {
        let settled = found.operation().and_then(Operation::settled);
        let payload = settled.and_then(|settled| settled.outcome.payload);
        let redacted = payload.is_some_and(|payload| payload.redacted);
        lines.push(
            if redacted {
                "answer, redacted"
            } else {
                "answer"
            }
            .to_owned(),
        );
        match AnswerView::read(bytes) {
            Some(answer) => answered(&answer.shown(redactor), &mut lines),
            None => lines.push(format!("  {}", shown(bytes))),
        }
    }
    lines
}

/// Tells an answer over HTTP by its parts.
fn answered(answer: &AnswerView, lines: &mut Vec<String>) {
    field(lines, "status", answer.status);
    for (name, value) in &answer.headers {
        field(
            lines,
            "header",
            shown(format!("{name}: {value}").as_bytes()),
        );
    }
    match answer.body.bytes() {
        Some(body) => field(lines, "body", shown(body)),
        None => field(lines, "body", "not kept: it was too long"),
    }
}

fn about(judged: &Operation, view: &RecordView, now: Timestamp, lines: &mut Vec<String>) {
    let spec = &judged.spec;
    field(lines, "name", &spec.name);
    field(lines, "namespace", &spec.namespace);
    if let Some(door) = &spec.door {
        field(lines, "door", door);
    }
    if let Some(client_key) = &spec.client_key {
        field(lines, "client key", client_key);
    }
    if let Some(source) = view.key_source {
        field(lines, "key source", source);
    }
    if let Some(occurrence) = view.occurrence {
        field(lines, "occurrence", occurrence);
    }
    if let Some(decision) = view.decision {
        field(lines, "decision", decision);
    }
    if let Some(principal) = &spec.principal {
        field(lines, "principal", principal);
    }
    if let Some(queue) = &judged.queue {
        field(lines, "queue", queue);
    }
    if let Some(parent) = &spec.parent {
        field(lines, "parent", &parent.key);
    }
    let (class, on_doubt) = (spec.policy.class.as_str(), spec.policy.on_doubt.as_str());
    field(lines, "policy", format!("{class}; in doubt: {on_doubt}"));
    if let Some(digest) = &spec.probe_digest {
        field(lines, "probe", format!("sha256 {digest}"));
    }
    field(lines, "fingerprint", spec.fingerprint);
    field(lines, "created", moment(judged.created_at, now));
    if let Some(run_at) = judged.run_at {
        field(lines, "not before", run_at);
    }
    if let Some(settled) = judged.settled() {
        field(lines, "settled", moment(settled.at, now));
        field(lines, "effect", settled.outcome.effect);
        field(lines, "delivery", judged.delivery.as_str());
    }
    if judged.settled().is_none() && view.key_source.is_some() {
        field(lines, "delivery", judged.delivery.as_str());
    }
    let remark = words::remark(judged, now);
    if !remark.is_empty() && judged.resolved.is_none() {
        field(lines, "now", remark);
    }
    if let Some(resolved) = &judged.resolved {
        let note = resolved.note.as_ref();
        let why = note.map_or_else(String::new, |note| format!(": {note}"));
        let by = format!("by {}, {}{why}", resolved.by, moment(resolved.at, now));
        field(lines, "resolved", by);
    }
}

fn try_of(attempt: &Attempt, now: Timestamp, lines: &mut Vec<String>) {
    let kind = match attempt.kind {
        AttemptKind::Act => "attempt",
        AttemptKind::Probe => "probe of attempt",
    };
    lines.push(format!(
        "{kind} {} (fence {})",
        attempt.number, attempt.fence.0
    ));
    field(lines, "started", moment(attempt.started_at, now));
    if let Some(ended_at) = attempt.ended_at {
        let after = span(ended_at.since(attempt.started_at));
        field(lines, "ended", format!("{ended_at}, after {after}"));
    }
    let verdict = match attempt.verdict {
        Some(verdict) => verdict.as_str(),
        None if attempt.ended_at.is_some() => "none: it was not heard of again",
        None => "none yet",
    };
    let open = if attempt.open { ", in doubt" } else { "" };
    field(lines, "verdict", format!("{verdict}{open}"));
    if let Some(error) = &attempt.error {
        field(lines, "error", error);
    }
}

fn field(lines: &mut Vec<String>, name: &str, value: impl std::fmt::Display) {
    lines.push(format!("  {name:<11}  {value}"));
}

fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{at} ({} ago)", span(now.since(at)))
}

/// Shows an answer as text, where it is text.
fn shown(bytes: &[u8]) -> String {
    let size = bytes.len();
    match std::str::from_utf8(bytes) {
        Ok(text) if size <= SHOWN_MAX => {
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            text.trim_end().chars().map(plain).collect()
        }
        Ok(_) => format!("{size} bytes of text; --json shows them where they are JSON"),
        Err(_) => format!("{size} bytes"),
    }
}
