//! The recorded end of a command: what is stored, shown as `data`, and replayed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semel::Effect;
use semel::store::PAYLOAD_MAX;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::child::recording::{OUTPUT_MAX, Recording};

/// The largest standard output that is also given as a JSON value.
const OUTPUT_JSON_MAX: usize = 1024 * 1024;

/// What a command came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunData {
    pub(crate) exit_code: Option<u8>,
    pub(crate) signal: Option<i32>,
    stdout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    stderr: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
    /// Standard output, where it is one JSON value.
    output: Option<Box<RawValue>>,
    /// How the two streams took turns: stream and number of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turns: Option<Vec<(u8, u64)>>,
    /// The size of an output that was too large to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncated: Option<Truncated>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Truncated {
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    pub(crate) limit_bytes: u64,
}

/// What a command says about itself, when its standard output is one JSON object.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Declared {
    effect: Option<String>,
    pub(crate) reason: Option<String>,
}

impl Declared {
    /// Returns the effect, where it is one of ours.
    pub(crate) fn effect(&self) -> Option<Effect> {
        let effect = Effect::parse(self.effect.as_deref()?)?;
        match effect {
            Effect::Created | Effect::Updated | Effect::Deleted | Effect::Noop => Some(effect),
            Effect::WouldCreate | Effect::WouldUpdate | Effect::WouldDelete | Effect::Unknown => {
                None
            }
        }
    }
}

impl RunData {
    pub(crate) fn new(exit_code: Option<u8>, signal: Option<i32>, recording: Recording) -> Self {
        let end = Self {
            exit_code,
            signal,
            ..Self::default()
        };
        let truncated = Self {
            truncated: Some(Truncated {
                stdout_bytes: recording.stdout_size,
                stderr_bytes: recording.stderr_size,
                limit_bytes: OUTPUT_MAX as u64,
            }),
            ..end.clone()
        };
        if recording.is_truncated() {
            let (stderr, stderr_base64) = spelled_if_any(recording.stderr);
            return Self {
                stderr,
                stderr_base64,
                ..truncated
            };
        }
        let cut = truncated.truncated.filter(|_| recording.is_tail());
        let output = json_value(&recording.stdout);
        // One turn of each at most, standard output first, is what a replay does anyway.
        let turns = recording
            .turns()
            .filter(|turns| turns.len() > 2 || turns.first().is_some_and(|turn| turn.0 == 2))
            .map(<[_]>::to_vec);
        let (stdout, stdout_base64) = spelled(recording.stdout);
        let (stderr, stderr_base64) = spelled(recording.stderr);
        let data = Self {
            stdout,
            stdout_base64,
            stderr,
            stderr_base64,
            output,
            turns,
            truncated: cut,
            ..end
        };
        // Control characters take six bytes each in JSON.
        if data.to_json().len() > PAYLOAD_MAX {
            return truncated;
        }
        data
    }

    /// Reads what was stored; `None` where it is something else, such as what a person resolved.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let data: Self = serde_json::from_slice(json).ok()?;
        (data.exit_code.is_some() || data.signal.is_some()).then_some(data)
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("all of it can be written"))
    }

    /// Returns standard output alone: the JSON value that it is, or else a JSON string, or else an object that has it in base
    /// 64.
    pub(crate) fn plain_json(&self) -> Vec<u8> {
        match (&self.output, &self.stdout, &self.stdout_base64) {
            (Some(value), _, _) => value.get().as_bytes().to_vec(),
            (None, Some(text), _) => json!(text).to_string().into_bytes(),
            (None, None, Some(base64)) => json!({"base64": base64}).to_string().into_bytes(),
            (None, None, None) => b"null".to_vec(),
        }
    }

    /// Reads standard output as something that the command says about itself.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        let output = self.output.as_deref()?.get();
        serde_json::from_str(output).ok()
    }

    /// Returns the last line that was written to standard error; what is no text in it is shown as such.
    pub(crate) fn last_error_line(&self) -> Option<String> {
        let stderr = spoken(self.stderr.as_ref(), self.stderr_base64.as_ref())?;
        let stderr = String::from_utf8_lossy(&stderr);
        let mut lines = stderr.lines().rev().map(str::trim);
        lines.find(|line| !line.is_empty()).map(str::to_owned)
    }

    pub(crate) const fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }

    /// Returns what the command says about itself.
    pub(crate) fn declared(&self) -> Declared {
        self.read().unwrap_or_default()
    }

    /// Returns the pieces in the order in which they are to be written, each with its stream.
    pub(crate) fn pieces(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        let stdout = spoken(self.stdout.as_ref(), self.stdout_base64.as_ref())?;
        let stderr = spoken(self.stderr.as_ref(), self.stderr_base64.as_ref())?;
        let Some(turns) = &self.turns else {
            return Some(vec![(1, stdout), (2, stderr)]);
        };
        let (mut out, mut err) = (&*stdout, &*stderr);
        let mut pieces = vec![];
        for (stream, size) in turns {
            let from = if *stream == 1 { &mut out } else { &mut err };
            let (piece, rest) = from.split_at_checked(usize::try_from(*size).ok()?)?;
            *from = rest;
            pieces.push((*stream, piece.to_vec()));
        }
        (out.is_empty() && err.is_empty()).then_some(pieces)
    }
}

/// Writes bytes as text where they are that, and in base 64 otherwise.
fn spelled(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

/// As [`spelled`], where there is anything.
fn spelled_if_any(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    spelled(bytes)
}

fn spoken(text: Option<&String>, base64: Option<&String>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Some(text.clone().into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).ok(),
        (None, None) => Some(vec![]),
        (Some(_), Some(_)) => None,
    }
}

/// Returns the one JSON value that some bytes are, on one line and otherwise as it was written.
fn json_value(bytes: &[u8]) -> Option<Box<RawValue>> {
    if bytes.len() > OUTPUT_JSON_MAX {
        return None;
    }
    let raw: &RawValue = serde_json::from_slice(bytes).ok()?;
    let mut in_string = false;
    let mut escaped = false;
    let line = raw.get().chars().filter(|c| {
        let keep = in_string || !c.is_ascii_whitespace();
        match c {
            '"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && *c == '\\' && !escaped;
        keep
    });
    RawValue::from_string(line.collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::recording::Shared;

    fn recorded(pieces: &[(u8, &[u8])]) -> RunData {
        let shared = Shared::default();
        for (stream, bytes) in pieces {
            shared.add(*stream, bytes);
        }
        RunData::new(Some(0), None, shared.take())
    }

    #[test]
    fn what_was_recorded_is_replayed_byte_for_byte() {
        for pieces in [
            &[] as &[(u8, &[u8])],
            &[(1, b"out\n")],
            &[(2, b"err\n")],
            &[(2, b"first"), (1, b"then")],
            &[(1, b"a"), (2, b"b"), (1, b"c")],
            &[(1, b"\xff\x00\xfe"), (2, b"\0")],
        ] {
            let stored = recorded(pieces).to_json();
            let read = RunData::from_json(&stored).expect("it is ours");
            let replayed = read.pieces().expect("it is whole");
            let replayed: Vec<_> = replayed
                .iter()
                .filter(|piece| !piece.1.is_empty())
                .collect();
            assert_eq!(replayed.len(), pieces.len());
            for (replayed, (stream, bytes)) in replayed.into_iter().zip(pieces) {
                assert_eq!((replayed.0, &*replayed.1), (*stream, *bytes));
            }
        }
    }

    #[test]
    fn output_is_the_value_on_one_line_with_its_numbers_as_they_were() {
        let data = recorded(&[(
            1,
            b"{ \"id\": 12345678901234567890123,\n \"t\": \"a \\\" b\\\\\" }\n",
        )]);
        let output = data.output.as_deref().map(RawValue::get);
        assert_eq!(
            output,
            Some(r#"{"id":12345678901234567890123,"t":"a \" b\\"}"#)
        );
        for not_one_value in [&b"1 2"[..], b"text", b"", b"\xff"] {
            assert!(recorded(&[(1, not_one_value)]).output.is_none());
        }
    }

    #[test]
    fn a_command_may_declare_its_effect_in_our_words_only() {
        let declared = |text: &str| recorded(&[(1, text.as_bytes())]).declared();
        let said = declared(r#"{"effect": "created", "reason": "new"}"#);
        assert_eq!(said.effect(), Some(Effect::Created));
        assert_eq!(said.reason.as_deref(), Some("new"));
        for silent in [
            r#"{"effect": "made"}"#,
            r#"{"effect": 7}"#,
            r#"{"effect": "would_create"}"#,
            r#"["created"]"#,
            r#""created""#,
        ] {
            assert_eq!(declared(silent).effect(), None, "{silent}");
        }
    }

    #[test]
    fn an_output_that_grows_too_large_as_json_is_not_kept() {
        let data = recorded(&[(1, &vec![1; 4 * 1024 * 1024])]);
        assert!(data.truncated().is_some());
        assert!(data.to_json().len() < 1_000);
    }
}
