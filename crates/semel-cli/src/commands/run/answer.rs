//! The answer to one call: what is written, and the exit code.

use std::ffi::{OsStr, c_int};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;

use semel::core::ledger::StateKind;
use semel::{Effect, Error, Receipt};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::data::RunData;
use super::job::Job;
use super::verdict::Meaning;
use crate::child::{Ended, output};
use crate::failure::Failure;
use crate::printer;

/// What a call is told.
#[derive(Debug)]
pub(crate) struct Answer {
    exit: u8,
    /// The JSON object for programs, as far as there is more to say than the failure.
    object: Option<String>,
    failure: Option<Failure>,
    /// Why nothing was done, and what to do about it.
    not_done: Option<(String, &'static str)>,
    /// What an earlier attempt wrote, still to be written for people.
    recorded: Vec<(u8, Vec<u8>)>,
    /// What is said in any case.
    warning: Option<String>,
    /// What a person at a terminal is told.
    note: Option<String>,
}

/// Why a command could not be started.
#[derive(Debug)]
pub(crate) struct NotStarted {
    exit: u8,
    pub(crate) message: String,
}

impl NotStarted {
    pub(crate) fn new(program: &OsStr, error: &io::Error) -> Self {
        let missing = match error.kind() {
            io::ErrorKind::NotFound => true,
            // A directory of the PATH that may not be read hides what is simply not there.
            io::ErrorKind::PermissionDenied => !is_there(program),
            _ => false,
        };
        let why = if missing {
            "there is no such command".to_owned()
        } else {
            error.to_string()
        };
        Self {
            exit: if missing { 127 } else { 126 },
            message: format!("cannot run `{}`: {why}", program.to_string_lossy()),
        }
    }
}

/// Says whether a program can be seen, where its name says or in the PATH.
fn is_there(program: &OsStr) -> bool {
    let program = Path::new(program);
    if program.components().count() > 1 {
        return true;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

impl Answer {
    /// Says whether the command ended well.
    pub(super) const fn is_success(&self) -> bool {
        self.exit == 0
    }

    const fn new(exit: u8) -> Self {
        Self {
            exit,
            object: None,
            failure: None,
            not_done: None,
            recorded: vec![],
            warning: None,
            note: None,
        }
    }

    /// Somebody ended us before anything was begun.
    pub(crate) fn ended_by(signal: c_int) -> Self {
        let text = format!("ended by signal {signal} while waiting; nothing was run");
        Self {
            failure: Some(Failure::new("in_flight", text)),
            ..Self::new(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    }

    /// The command could not be started.
    pub(crate) fn not_started(job: &Job<'_>, receipt: Option<Receipt>, why: NotStarted) -> Self {
        let object = match receipt {
            Some(receipt) => {
                let reason = Some(why.message.clone());
                json_of(&Receipt { reason, ..receipt })
            }
            None => {
                let fields = [
                    ("ok", json!(false)),
                    ("effect", json!(Effect::Noop.as_str())),
                    ("reason", json!(why.message)),
                    ("data", json!(null)),
                ];
                job.loose(&fields).to_string()
            }
        };
        Self {
            object: Some(object),
            not_done: Some((
                why.message,
                "nothing was done; mend the command and ask again",
            )),
            ..Self::new(why.exit)
        }
    }

    /// The command ran, and this is what the store says now.
    pub(crate) fn reported(
        receipt: Receipt,
        meaning: &Meaning,
        exit: u8,
        data: &RunData,
        declared: Option<String>,
    ) -> Self {
        let settled = matches!(receipt.state, StateKind::Succeeded | StateKind::Failed);
        let own = matches!(meaning, Meaning::Done { .. }) && !receipt.replayed;
        if settled && !own {
            // Somebody settled it meanwhile: that is what everybody is told, so we are, too.
            return Self {
                recorded: vec![],
                warning: Some("settled by somebody else meanwhile; that outcome stands".to_owned()),
                ..Self::replay(&receipt)
            };
        }
        if settled {
            let reason = declared.or_else(|| receipt.reason.clone());
            return Self {
                object: Some(json_of(&Receipt { reason, ..receipt })),
                ..Self::new(exit)
            };
        }
        let key = &receipt.key;
        // What did not come to an outcome is told once, to whoever is here.
        let payload = Some(data.to_json().into());
        let (failure, not_done) = match meaning {
            Meaning::Unknown(why) => {
                let text = format!("{key} is in doubt: {why}");
                let hint = "find out whether it took effect, then `semel resolve` it";
                (Some(Failure::new("in_doubt", text).hint(hint)), None)
            }
            Meaning::NotDone(why) => (None, Some(why.clone())),
            Meaning::Done { .. } => (None, None),
        };
        let line = not_done
            .as_ref()
            .map(|why| (format!("{key}: {why}"), "nothing was done; ask again"));
        let fields: Vec<_> = failure.iter().map(error).chain([UNSTORED]).collect();
        let object = extended(
            &Receipt {
                payload,
                reason: not_done,
                ..receipt
            },
            &fields,
        );
        Self {
            object: Some(object),
            failure,
            not_done: line,
            ..Self::new(exit)
        }
    }

    /// A probe found that an earlier attempt did it: what it said is written like a replay.
    pub(crate) fn looked_up(receipt: Receipt) -> Self {
        let found = Self::replay(&receipt);
        let reason = "the probe says that an earlier attempt did it".to_owned();
        let note = format!("{}: {reason}", receipt.key);
        let reason = Some(reason);
        Self {
            object: Some(json_of(&Receipt { reason, ..receipt })),
            note: Some(note),
            ..found
        }
    }

    /// An earlier attempt did it: the same answer again.
    pub(crate) fn replay(receipt: &Receipt) -> Self {
        let fallback = u8::from(!receipt.ok);
        let stored = receipt.payload.as_deref();
        let (exit, recorded, warning) = match stored.map(|json| (json, RunData::from_json(json))) {
            None => (fallback, vec![], None),
            // A person, or another door, said what came of it.
            Some((json, None)) => (fallback, vec![(1, [json, b"\n"].concat())], None),
            Some((_, Some(data))) => {
                let exit = data.exit_code.unwrap_or(fallback);
                match (data.truncated(), data.pieces()) {
                    (Some(size), _) => {
                        let bytes = size.stdout_bytes + size.stderr_bytes;
                        let limit = size.limit_bytes;
                        let text = format!(
                            "its output had {bytes} bytes, more than the {limit} that are kept; only the exit code is replayed"
                        );
                        (exit, vec![], Some(text))
                    }
                    (None, Some(pieces)) => (exit, pieces, None),
                    (None, None) => {
                        let text = "its recorded output cannot be read".to_owned();
                        (exit, vec![], Some(text))
                    }
                }
            }
        };
        let redacted = "its output was redacted before it was recorded".to_owned();
        let warning = warning.or_else(|| receipt.redacted.then_some(redacted));
        let reason = receipt.reason.as_deref().unwrap_or("already done");
        Self {
            object: Some(json_of(receipt)),
            recorded,
            warning: warning.map(|text| format!("{}: {text}", receipt.key)),
            note: Some(format!("{}: {reason}; nothing was run", receipt.key)),
            ..Self::new(exit)
        }
    }

    /// The command ended and its outcome could not be stored.
    pub(crate) fn unstored(job: &Job<'_>, refused: Error, data: &RunData) -> Self {
        let mut failure = Failure::from(refused);
        failure.message = format!("{}: {}", job.key, failure.message);
        let object = job.loose(&[
            ("ok", json!(false)),
            ("effect", json!(Effect::Unknown.as_str())),
            ("error", error_value(&failure)),
            ("unstored", json!(true)),
        ]);
        Self {
            object: Some(with_data(&object, data)),
            exit: failure.exit(),
            failure: Some(failure),
            ..Self::new(0)
        }
    }

    /// The command was run without a claim.
    pub(crate) fn unrecorded(job: &Job<'_>, ended: Ended) -> Self {
        let exit = ended.exit_code();
        let code = ended.status.code().and_then(|code| u8::try_from(code).ok());
        let signal = ended.status.signal();
        let data = RunData::new(code, signal, ended.recording);
        let object = job.loose(&[
            ("ok", json!(exit == 0)),
            ("effect", json!(Effect::Noop.as_str())),
            ("replayed", json!(false)),
            ("reason", json!("a safe command is not recorded")),
        ]);
        Self {
            object: Some(with_data(&object, &data)),
            ..Self::new(exit)
        }
    }

    /// Writes the answer.
    pub(crate) fn give(self, job: &Job<'_>) -> Result<ExitCode, Failure> {
        let printer = &job.context.printer;
        if job.faults.drops_reply() {
            printer.say("the reply is dropped, as SEMEL_INJECT asks for");
            return Ok(ExitCode::from(125));
        }
        if printer.is_json() {
            match (&self.object, &self.failure) {
                (Some(object), _) => printer.line(object),
                (None, Some(failure)) => printer.object(&printer::failure_object(failure)),
                (None, None) => {}
            }
        } else {
            for (stream, bytes) in &self.recorded {
                // Whoever closed the pipe has read enough.
                drop(output::write(*stream, bytes));
            }
        }
        if let Some(warning) = &self.warning {
            printer.say(warning);
        }
        match (&self.failure, &self.not_done, &self.note) {
            (Some(failure), _, _) => printer::explain(&failure.message, failure.hint.as_deref()),
            (None, Some((why, hint)), _) => printer::explain(why, Some(hint)),
            (None, None, Some(note)) => printer.note(note),
            (None, None, None) => {}
        }
        Ok(ExitCode::from(self.exit))
    }
}

/// Says in a receipt that its data is in no store.
const UNSTORED: (&str, Value) = ("unstored", Value::Bool(true));

fn error(failure: &Failure) -> (&'static str, Value) {
    ("error", error_value(failure))
}

fn error_value(failure: &Failure) -> Value {
    printer::failure_object(failure)["error"].take()
}

fn json_of(receipt: &Receipt) -> String {
    serde_json::to_string(receipt).unwrap_or_else(|_| unreachable!("a receipt can be written"))
}

/// Adds fields to a receipt. Its data is JSON that somebody else wrote: it stays as it is.
fn extended(receipt: &Receipt, fields: &[(&str, Value)]) -> String {
    let mut json = json_of(receipt);
    json.pop();
    for (name, value) in fields {
        json.push_str(&format!(",{}:{value}", json!(name)));
    }
    json.push('}');
    json
}

fn with_data(object: &Value, data: &RunData) -> String {
    let mut json = object.to_string();
    let data = String::from_utf8(data.to_json()).ok();
    let data = data.and_then(|data| RawValue::from_string(data).ok());
    json.pop();
    json.push_str(&format!(
        ",\"data\":{}}}",
        data.as_deref().map_or("null", RawValue::get)
    ));
    json
}
