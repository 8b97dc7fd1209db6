//! What an answer of a language model says of its cost: the model, and the tokens that went in and came out.
//!
//! Understood are completions and responses as OpenAI writes them and messages as Anthropic does, whole, as server-sent
//! events, or as JSON line by line. What says nothing in these words costs no tokens.

use crate::redact::member;

/// The longest name of a model: longer ones are none.
const MODEL_MAX: usize = 256;

/// What was used, as far as an answer says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The model that answered.
    pub model: Option<String>,
    /// The tokens of the question.
    pub input: Option<u64>,
    /// The tokens of the answer.
    pub output: Option<u64>,
}

/// How an answer is made of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    Lines,
    Events,
}

impl Form {
    fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => Some(Self::Events),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Some(Self::Lines)
            }
            "application/json" => Some(Self::Whole),
            _ if essence.ends_with("+json") => Some(Self::Whole),
            _ => None,
        }
    }
}

impl Usage {
    /// Reads what an answer of this type says. An answer that is coded says nothing.
    #[must_use]
    pub fn read(content_type: Option<&str>, coding: Option<&str>, body: &[u8]) -> Self {
        let mut usage = Self::default();
        let is_plain = coding.is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
        let form = content_type.and_then(Form::of).filter(|_| is_plain);
        match form {
            None => {}
            Some(Form::Whole) => usage.hear(body),
            Some(Form::Lines) => lines(body).for_each(|line| usage.hear(line)),
            Some(Form::Events) => {
                for event in lines(body).filter_map(|line| line.strip_prefix(b"data:")) {
                    usage.hear(event);
                }
            }
        }
        usage
    }

    /// Takes what one JSON text says: of a stream the last word on each number counts, as Anthropic tells what went
    /// in at the beginning and what came out at the end.
    fn hear(&mut self, json: &[u8]) {
        let parts = [Some(json), value(json, "message"), value(json, "response")];
        for part in parts.into_iter().flatten() {
            if let Some(model) = value(part, "model").and_then(text) {
                self.model = Some(model);
            }
            let Some(used) = value(part, "usage") else {
                continue;
            };
            let count = |names: [&str; 2]| {
                let mut counts = names.into_iter().filter_map(|name| value(used, name));
                counts.next().and_then(number)
            };
            self.input = count(["prompt_tokens", "input_tokens"]).or(self.input);
            self.output = count(["completion_tokens", "output_tokens"]).or(self.output);
        }
    }
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| matches!(byte, b'\n' | b'\r'))
}

fn value<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
    // Most events of a stream say nothing of this.
    let is_object = json.trim_ascii_start().starts_with(b"{");
    let place = is_object.then(|| member(json, name)).flatten()?;
    Some(&json[place])
}

fn number(json: &[u8]) -> Option<u64> {
    core::str::from_utf8(json).ok()?.parse().ok()
}

/// Reads a text that has nothing in it that would have to be undone.
fn text(json: &[u8]) -> Option<String> {
    let inner = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = !inner.is_empty() && inner.len() <= MODEL_MAX && !inner.contains(&b'\\');
    let text = core::str::from_utf8(inner).ok().filter(|_| is_plain)?;
    Some(text.to_owned())
}
