//! Which of several servers a request is for.

use futures_util::future::join_all;

use super::super::edit;
use super::super::gateway::named;
use super::super::message::{Kind, Message, quoted};
use super::super::say;
use super::greet::DISCOVER;
use super::lists::What;
use super::names::{Found, Place};
use super::part::Part;
use super::{Shared, is_modern};
use crate::locked::locked;

impl Shared {
    /// Answers a request.
    pub(super) async fn answer(&self, request: &Message) -> Message {
        let id = request.id().unwrap_or("null");
        let method = request.method().unwrap_or_default();
        if let Some(what) = What::of(method) {
            return self.list(request, what).await;
        }
        let params = request.params().unwrap_or("{}");
        match method {
            "initialize" => self.initialize(request).await,
            DISCOVER => self.discover(request).await,
            "ping" => nothing(request),
            "tools/call" => self.call(request).await,
            "prompts/get" => self.get_prompt(request).await,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.resource(request, &["uri"]).await
            }
            "completion/complete" => match edit::text(params, &["ref", "type"]).as_deref() {
                Some("ref/prompt") => self.complete_prompt(request).await,
                _ => self.resource(request, &["ref", "uri"]).await,
            },
            "logging/setLevel" => self.set_level(request).await,
            "subscriptions/listen" => self.listen(request).await,
            _ => match edit::text(params, &["taskId"]).filter(|_| method.starts_with("tasks/")) {
                Some(task) => self.task(request, &task).await,
                None => say::leads_nowhere(id, method, &self.names()),
            },
        }
    }

    /// Asks one server, and says so where it does not answer.
    async fn asked(&self, part: &Part, request: &Message) -> Message {
        let answer = part.ask(request).await;
        answer.unwrap_or_else(|why| say::server_gone(request.id().unwrap_or("null"), &why))
    }

    /// Passes a call on of a tool that only reads.
    async fn call(&self, request: &Message) -> Message {
        let name = edit::text(request.params().unwrap_or("{}"), &["name"]).unwrap_or_default();
        self.look(request, false).await;
        let found = self.catalogue.find(&name);
        self.by_name(request, "tool", &name, found, named).await
    }

    async fn get_prompt(&self, request: &Message) -> Message {
        let name = edit::text(request.params().unwrap_or("{}"), &["name"]).unwrap_or_default();
        let found = self.prompt(request, &name).await;
        self.by_name(request, "prompt", &name, found, named).await
    }

    async fn complete_prompt(&self, request: &Message) -> Message {
        let path = ["ref", "name"];
        let name = edit::text(request.params().unwrap_or("{}"), &path).unwrap_or_default();
        let found = self.prompt(request, &name).await;
        let renamed = |request: &Message, name: &str| {
            let params = edit::set(request.params()?, &path, &quoted(name)).ok()?;
            request.with_params(&params).ok()
        };
        self.by_name(request, "prompt", &name, found, renamed).await
    }

    /// Hands a request to the server that has what it names, under its own name.
    async fn by_name(
        &self,
        request: &Message,
        what: &str,
        name: &str,
        found: Found,
        renamed: impl Fn(&Message, &str) -> Option<Message>,
    ) -> Message {
        let id = request.id().unwrap_or("null");
        let Place { at, name: own } = match found {
            Found::At(place) => place,
            Found::Ambiguous(names) => return say::ambiguous(id, name, &names),
            Found::Unknown => return say::unknown(id, what, name, &self.names()),
        };
        let part = &self.parts[at];
        if own == name {
            return self.asked(part, request).await;
        }
        match renamed(request, &own) {
            Some(renamed) => self.asked(part, &renamed).await,
            None => say::internal(id),
        }
    }

    /// Hands a request to the server that listed a resource or a template. Where nobody did, those that only read ask
    /// one server after the other, until one knows it.
    async fn resource(&self, request: &Message, path: &[&str]) -> Message {
        let id = request.id().unwrap_or("null");
        let uri = edit::text(request.params().unwrap_or("{}"), path);
        let Some(uri) = uri else {
            let why = format!("`params.{}` is a text", path.join("."));
            return say::wrong_params(id, &why);
        };
        let whose = locked(&self.down.resources).whose(&uri);
        if let Some(at) = whose {
            return self.asked(&self.parts[at], request).await;
        }
        let is_read = matches!(
            request.method(),
            Some("resources/read" | "completion/complete")
        );
        if !is_read {
            let why = format!("no server listed `{uri}` so far: list or read it first");
            return say::wrong_params(id, &why);
        }
        let mut last = None;
        for (at, part) in self.parts_in() {
            let answer = self.asked(part, request).await;
            if *answer.kind() == Kind::Result {
                locked(&self.down.resources).remember(uri, at);
                return answer;
            }
            last = Some(answer);
        }
        last.unwrap_or_else(|| say::unknown(id, "resource", &uri, &self.names()))
    }

    /// Hands a request to the server whose task it is; where that is not known, each is asked whether it knows it.
    async fn task(&self, request: &Message, task: &str) -> Message {
        let id = request.id().unwrap_or("null");
        let whose = locked(&self.down.tasks).whose(task);
        if let Some(at) = whose {
            return self.asked(&self.parts[at], request).await;
        }
        let params = request.params().unwrap_or("{}");
        for (at, part) in self.parts_in() {
            let Ok(get) = Message::request(&self.own_id(), "tasks/get", params) else {
                continue;
            };
            let known = part.ask(&get).await;
            if known.is_ok_and(|known| *known.kind() == Kind::Result) {
                locked(&self.down.tasks).remember(task.to_owned(), at);
                return self.asked(part, request).await;
            }
        }
        say::unknown(id, "task", task, &self.names())
    }

    /// Tells all servers that have a log how much of it is wanted.
    async fn set_level(&self, request: &Message) -> Message {
        let logging = self.parts_in().filter(|(_, part)| part.has_logging());
        let answers = join_all(logging.map(|(_, part)| self.asked(part, request))).await;
        one_of(answers).unwrap_or_else(|| {
            let id = request.id().unwrap_or("null");
            say::no_method(id, "none of the servers behind this endpoint has a log")
        })
    }

    /// Subscribes to the news of all servers: they come with the id of the one request, until the last server ends.
    async fn listen(&self, request: &Message) -> Message {
        let id = request.id().unwrap_or("null");
        self.down.subscribes(id, self.parts_in().map(|(at, _)| at));
        let asked = self.parts_in().map(async |(at, part)| {
            let answer = self.asked(part, request).await;
            if let Some(acknowledged) = self.down.declined(id, at) {
                self.down.say(acknowledged).await;
            }
            answer
        });
        let answers = join_all(asked).await;
        one_of(answers).unwrap_or_else(|| say::server_gone(id, "all servers are left out"))
    }

    fn parts_in(&self) -> impl Iterator<Item = (usize, &Part)> {
        let parts = self.parts.iter().enumerate();
        parts.filter(|(_, part)| part.is_in())
    }

    fn names(&self) -> Vec<&str> {
        self.parts.iter().map(|part| part.name.as_str()).collect()
    }
}

/// Returns one answer of several: a result, if there is one.
fn one_of(answers: Vec<Message>) -> Option<Message> {
    let result = answers.iter().find(|it| *it.kind() == Kind::Result);
    result.or_else(|| answers.first()).cloned()
}

/// Answers that there is nothing to say.
fn nothing(request: &Message) -> Message {
    let id = request.id().unwrap_or("null");
    let result = if is_modern(request) {
        r#"{"resultType":"complete"}"#
    } else {
        "{}"
    };
    Message::result(id, result).unwrap_or_else(|_| say::internal(id))
}
