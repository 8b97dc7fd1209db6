//! What a command brings is redacted before it is decided, so that no store ever sees it.

use std::borrow::Cow;

use semel_core::ledger::{Command, Resolution, Resolve, Settle};
use semel_core::redact::member;
use semel_core::{Outcome, Payload, Redactor, Verdict};

use super::ledger::{Brought, Bytes, Ledger};
use crate::answer_view;

/// The members that a recorded command has; its answer is what it wrote to standard output.
const RECORDED: [&str; 5] = ["exit_code", "signal", "stdout", "stderr", "output"];

impl Ledger {
    /// Returns a command, and what it brings, as they may be stored. Fingerprints were computed before, and
    /// redacting again changes nothing, so that a repeat is still recognised as one.
    pub(super) fn redacted<'a>(
        &self,
        command: &'a Command,
        brought: &'a Brought,
    ) -> (Cow<'a, Command>, Cow<'a, Brought>) {
        let command = self.redactor.command(command);
        let answer = match (&brought.payload, outcome_of(&command)) {
            (Some(Bytes::Here(bytes)), Some(outcome)) => {
                redacted_answer(&self.redactor, bytes).map(|answer| (answer, outcome))
            }
            // What was streamed is stored already, piece by piece: it stays as it is.
            (Some(_) | None, _) => None,
        };
        let Some((answer, outcome)) = answer else {
            return (command, Cow::Borrowed(brought));
        };
        let payload = Payload {
            redacted: true,
            ..Payload::of(&answer)
        };
        let outcome = Outcome {
            payload: Some(payload),
            ..outcome
        };
        let brought = Brought {
            payload: Some(Bytes::Here(answer.into())),
            ..(*brought).clone()
        };
        (
            Cow::Owned(with_outcome(command.into_owned(), outcome)),
            Cow::Owned(brought),
        )
    }
}

fn outcome_of(command: &Command) -> Option<Outcome> {
    match command {
        Command::Settle(settle) => match settle.verdict {
            Verdict::Done(outcome) => Some(outcome),
            Verdict::NotDone { .. } | Verdict::Unknown { .. } => None,
        },
        Command::Resolve(resolve) => match resolve.resolution {
            Resolution::Done(outcome) => Some(outcome),
            Resolution::NotDone => None,
        },
        _ => None,
    }
}

fn with_outcome(command: Command, outcome: Outcome) -> Command {
    match command {
        Command::Settle(settle) => Command::Settle(Settle {
            verdict: Verdict::Done(outcome),
            ..settle
        }),
        Command::Resolve(resolve) => Command::Resolve(Resolve {
            resolution: Resolution::Done(outcome),
            ..resolve
        }),
        other => other,
    }
}

/// Returns an answer without what the rules name, as an engine stores it; `None` when they name nothing in it.
///
/// Of a recorded command (`semel run`) the answer is what it wrote to standard output, where that is JSON; of an answer
/// over HTTP it is the body.
#[must_use]
pub fn redacted_answer(redactor: &Redactor, bytes: &[u8]) -> Option<Vec<u8>> {
    if !redactor.names_outputs() {
        return None;
    }
    if RECORDED.iter().all(|name| member(bytes, name).is_some()) {
        return recorded(redactor, bytes);
    }
    if let Some(redacted) = answer_view::redacted(redactor, bytes) {
        return Some(redacted);
    }
    redactor.output(bytes)
}

/// Redacts the answer of a recorded command, in both places where it is: the JSON value, and the text that
/// it was read from. The order in which both streams were written is given up, as it counts bytes.
fn recorded(redactor: &Redactor, bytes: &[u8]) -> Option<Vec<u8>> {
    let value = redactor.output(&bytes[member(bytes, "output")?])?;
    let text: String = serde_json::from_slice(&bytes[member(bytes, "stdout")?]).ok()?;
    let text = redactor.output(text.as_bytes())?;
    let text = serde_json::to_vec(core::str::from_utf8(&text).ok()?).ok()?;
    let mut places: Vec<_> = [
        ("output", value),
        ("stdout", text),
        ("turns", b"null".to_vec()),
    ]
    .into_iter()
    .filter_map(|(name, new)| Some((member(bytes, name)?, new)))
    .collect();
    places.sort_by_key(|(place, _)| place.start);
    let mut out = vec![];
    let mut copied = 0;
    for (place, new) in places {
        out.extend_from_slice(&bytes[copied..place.start]);
        out.extend_from_slice(&new);
        copied = place.end;
    }
    out.extend_from_slice(&bytes[copied..]);
    Some(out)
}
