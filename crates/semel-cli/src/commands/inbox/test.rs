//! `semel inbox test`

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use semel::Timestamp;
use semel::core::identity::Pointer;
use semel::core::webhook::IdFrom;
use semel_server::Url;
use semel_server::inbox::{Heard, Source, deliver};
use serde_json::{Value, json};

use super::{base, path};
use crate::args::inbox::Test;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{explain, failure_object};

/// A webhook as the sender would send it.
struct Sample {
    id: String,
    body: Vec<u8>,
    /// Headers beside those of the signature.
    headers: Vec<(String, String)>,
}

pub(super) async fn run(context: &Context, args: &Test) -> Result<ExitCode, Failure> {
    let source = context.settings.inbox_source(&args.name)?;
    let source = source.received(&context.namespace()?)?;
    let url = url(context, args, &source)?;
    if args
        .id
        .as_deref()
        .is_some_and(|id| id.is_empty() || id.contains(|c: char| c.is_control()))
    {
        let text = "--id: a header cannot hold it; take a text without control characters";
        return Err(Failure::input(text));
    }
    let sample = Sample::new(&source, args);
    let mut answers = vec![];
    for _ in 0..2 {
        answers.push(sample.send(&source, &url).await?);
    }
    let words = answers.iter().map(Answer::effect).collect::<Vec<_>>();
    // A webhook with an id of one's own may have come before.
    let is_first = matches!(words[0], Some("created"))
        || args.id.is_some() && matches!(words[0], Some("noop"));
    let is_well = is_first && words[1] == Some("noop");
    let failure = (!is_well).then(|| failure(&answers));
    let mut json = json!({
        "ok": is_well,
        "key": answers[0].said["key"],
        "first": answers[0].json(),
        "second": answers[1].json(),
    });
    if let Some(failure) = &failure {
        json["error"] = failure_object(failure)["error"].take();
        // The server's own code says more.
        if let Some(code) = answers.iter().find_map(Answer::code) {
            json["error"]["code"] = json!(code);
        }
    }
    let [first, second] = [answers[0].line(), answers[1].line()];
    let lines = format!("first:  {first}\nsecond: {second}");
    context.printer.answer(&json, &lines);
    if is_well {
        let (queue, name) = (&source.queue, &source.name);
        context.printer.note(&format!(
            "{name} is well; a worker of `{queue}` gets this webhook as a task"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(failure) = failure {
        explain(&failure.message, failure.hint.as_deref());
    }
    Ok(ExitCode::from(1))
}

/// Says what is not as it should be: what the server refused, or a webhook that was not taken for what it is.
fn failure(answers: &[Answer]) -> Failure {
    let refused = answers.iter().find(|answer| !answer.is_success());
    let text = match refused {
        Some(answer) => format!("the server refuses it: {}", answer.line()),
        None => "the first was to be created, and the second to be known already".to_owned(),
    };
    let failure = Failure::new("internal", text);
    match answers.iter().find_map(Answer::hint) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn url(context: &Context, args: &Test, source: &Source) -> Result<Url, Failure> {
    let base = args.url.clone().or_else(|| base(context));
    let base = base.ok_or_else(|| {
        Failure::input("the server listens at a socket of the file system")
            .hint("say with --url where it is reached")
    })?;
    let text = format!("{}{}", base.trim_end_matches('/'), path(&source.name));
    Url::parse(&text).map_err(|error| Failure::input(format!("--url: {error}")))
}

impl Sample {
    fn new(source: &Source, args: &Test) -> Self {
        let id = match &args.id {
            Some(id) => id.clone(),
            None => format!("semel-test-{}", now().0),
        };
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let mut sample = json!({"semel_test": true});
        match &source.id {
            IdFrom::Header(name) => headers.push((name.clone(), id.clone())),
            IdFrom::Pointer(pointer) => sample = placed(pointer, &id),
            IdFrom::CloudEvents => {
                let event = [
                    ("ce-specversion", "1.0"),
                    ("ce-type", "semel.test"),
                    ("ce-source", "/semel/test"),
                    ("ce-id", &id),
                ];
                headers.extend(event.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            IdFrom::Body => sample["id"] = json!(id),
            IdFrom::Signed => {}
        }
        let body = match &args.body {
            Some(text) => text.clone().into_bytes(),
            None => sample.to_string().into_bytes(),
        };
        Self { id, body, headers }
    }

    /// Signs it as of now, and sends it.
    async fn send(&self, source: &Source, url: &Url) -> Result<Answer, Failure> {
        let mut headers = self.headers.clone();
        headers.extend(source.proof.sign(&self.id, &self.body, now()));
        let heard = deliver(url, &headers, &self.body).await;
        heard.map(|heard| Answer::new(&heard)).map_err(|error| {
            Failure::new("store_unavailable", format!("the server: {error}"))
                .hint("start it with `semel serve`, or say with --url where it is")
        })
    }
}

/// Builds a JSON object that has an id where a pointer points; what would be an item is a member of that name.
fn placed(pointer: &Pointer, id: &str) -> Value {
    let tokens = pointer.tokens().iter().rev();
    let mut value = tokens.fold(json!(id), |inner, token| json!({ token.as_str(): inner }));
    value["semel_test"] = json!(true);
    value
}

/// Returns the time of this machine.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(0).plus(since.unwrap_or_default())
}

/// What the server answered.
struct Answer {
    status: u16,
    said: Value,
}

impl Answer {
    fn new(heard: &Heard) -> Self {
        let said = serde_json::from_slice(&heard.body).unwrap_or(Value::Null);
        Self {
            status: heard.status,
            said,
        }
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns what a delivery that was taken did.
    fn effect(&self) -> Option<&str> {
        self.said["effect"].as_str().filter(|_| self.is_success())
    }

    fn code(&self) -> Option<&str> {
        self.said["code"].as_str().filter(|_| !self.is_success())
    }

    fn hint(&self) -> Option<&str> {
        self.said["hint"].as_str()
    }

    fn json(&self) -> Value {
        json!({"status": self.status, "answer": self.said})
    }

    fn line(&self) -> String {
        let members = match self.is_success() {
            true => ["effect", "key"],
            false => ["code", "detail"],
        };
        let [what, more] = members.map(|member| self.said[member].as_str().unwrap_or("-"));
        format!("{} {what} {more}", self.status)
    }
}
