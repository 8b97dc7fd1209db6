//! Handshakes with several servers, answered as one. Who cannot take part is left out, and named.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::super::edit;
use super::super::message::{Kind, Message};
use super::super::say;
use super::Shared;
use super::merge::{self, LeftOut, Said};

/// How long a server may take for the handshake: less than the half minute after which hosts give up.
pub(super) const GREETING_MAX: Duration = Duration::from_secs(25);

/// How it is asked for which protocol is spoken.
pub(super) const DISCOVER: &str = "server/discover";

/// The code of a server that speaks another version.
pub(super) const OTHER_VERSION: &str = "-32022";

/// What a server answered, or why it did not.
type Answered = Result<Message, String>;

impl Shared {
    /// Answers `initialize`.
    pub(super) async fn initialize(&self, request: &Message) -> Message {
        let id = request.id().unwrap_or("null");
        let answers = self.greeted(request).await;
        let (said, left_out) = self.sorted(&answers);
        for (part, answer) in self.parts.iter().zip(&answers) {
            match result(answer) {
                Ok(result) => part.enter(result),
                Err(why) => part.leave_out(&why),
            }
        }
        self.warn(&left_out);
        if said.is_empty() {
            return none_left(id, &left_out);
        }
        let result = Message::result(id, &merge::initialized(&said, &left_out));
        result.unwrap_or_else(|error| say::server_gone(id, &error.to_string()))
    }

    /// Answers `server/discover`. Where more servers could take part if the client spoke the older protocol, it is told
    /// that this one is not spoken here: a client that speaks both goes on with `initialize`.
    pub(super) async fn discover(&self, request: &Message) -> Message {
        let id = request.id().unwrap_or("null");
        let answers = self.greeted(request).await;
        let (said, left_out) = self.sorted(&answers);
        let refused = answers.iter().filter(|answer| is_refusal(answer)).count();
        let newer_only = said.iter();
        let newer_only = newer_only.filter(|said| !merge::has_sessions(said.result));
        if refused > newer_only.count() {
            let names = left_out.iter().map(|left_out| left_out.server);
            let names = names.collect::<Vec<_>>().join(", ");
            let why = format!(
                "server/discover is not answered, as not all servers behind this endpoint know it ({names}): \
                 `initialize` reaches more of them"
            );
            return say::no_method(id, &why);
        }
        self.warn(&left_out);
        if said.is_empty() {
            return none_left(id, &left_out);
        }
        let result = Message::result(id, &merge::discovered(&said, &left_out));
        result.unwrap_or_else(|error| say::server_gone(id, &error.to_string()))
    }

    /// Hands a handshake to every server, as the client made it.
    async fn greeted(&self, request: &Message) -> Vec<Answered> {
        let asked = self.parts.iter().map(async |part| {
            part.may_enter();
            let answer = timeout(GREETING_MAX, part.ask(request)).await;
            let seconds = GREETING_MAX.as_secs();
            answer.unwrap_or_else(|_| Err(format!("no answer within {seconds} s")))
        });
        join_all(asked).await
    }

    fn sorted<'a>(&'a self, answers: &'a [Answered]) -> (Vec<Said<'a>>, Vec<LeftOut<'a>>) {
        let (mut said, mut left_out) = (vec![], vec![]);
        for (part, answer) in self.parts.iter().zip(answers) {
            let server = part.name.as_str();
            match result(answer) {
                Ok(result) => said.push(Said { server, result }),
                Err(why) => left_out.push(LeftOut { server, why }),
            }
        }
        (said, left_out)
    }

    fn warn(&self, left_out: &[LeftOut<'_>]) {
        for LeftOut { server, why } in left_out {
            tracing::warn!(server, why, "a server is left out");
        }
    }
}

/// Returns what a server said of itself.
fn result(answer: &Answered) -> Result<&str, String> {
    let answer = answer.as_ref().map_err(Clone::clone)?;
    let outcome = answer.outcome().unwrap_or("{}");
    match answer.kind() {
        Kind::Result => Ok(outcome),
        _ => Err(edit::text(outcome, &["message"]).unwrap_or_default()),
    }
}

/// Says whether a server answered and does not speak this protocol; one that wants another version of it does.
fn is_refusal(answer: &Answered) -> bool {
    let Ok(answer) = answer else { return false };
    let code = edit::get(answer.outcome().unwrap_or("{}"), &["code"]);
    *answer.kind() == Kind::Error && code != Some(OTHER_VERSION)
}

fn none_left(id: &str, left_out: &[LeftOut<'_>]) -> Message {
    let each = left_out.iter();
    let each = each.map(|LeftOut { server, why }| format!("{server}: {why}"));
    let each = each.collect::<Vec<_>>().join("; ");
    say::server_gone(id, &format!("none of the servers can be used: {each}"))
}
