//! Telling of a doubt in the clearest way that the client has: a question to the person, or a text.

use std::time::Duration;

use semel::core::identity::Identity;
use semel::core::ledger::Record;
use semel::{Effect, Label, Receipt};
use serde_json::json;
use tokio::sync::oneshot;

use super::super::answer;
use super::super::ask::Era;
use super::super::edit;
use super::super::message::{Kind, Message};
use super::call::{Call, Round, known};
use super::{Gateway, Session, locked};

/// How long a person may think about whether something happened.
const QUESTION_MAX: Duration = Duration::from_secs(10 * 60);

/// The most questions of one session that wait for a person.
const QUESTIONS_MAX: usize = 64;

/// What a person said.
enum Said {
    Happened,
    DidNot,
    Nothing,
}

impl Gateway {
    /// Tells of a doubt; where a person can be asked and says what happened, it is resolved.
    pub(super) async fn doubt(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        record: &Record,
    ) -> Round {
        let to = call.to(self);
        let Some(receipt) = &self.receipt(record, None) else {
            return Round::Over(answer::expired(&to, &identity.key, &call.identity).into());
        };
        let told = || Round::Over(answer::in_doubt(&to, &known(receipt, identity)).into());
        let can_ask = call.ask.era == Era::Legacy && call.ask.capabilities.elicitation;
        if !can_ask {
            return told();
        }
        let said = self.ask_person(call, receipt).await;
        let by = Label::new("mcp").expect("three letters are a label");
        let operator = self
            .engine
            .operator(&receipt.namespace, &receipt.key, record.version(), by);
        let resolved = match said {
            Said::Nothing => return told(),
            Said::Happened => {
                let effect = call.policy.effect.unwrap_or(Effect::Updated);
                operator.resolve_done(true, effect, None).await
            }
            Said::DidNot => operator.resolve_not_done().await,
        };
        match resolved {
            // The next round replays it or runs it.
            Ok(_) => Round::Again,
            Err(error) => Round::Over(self.refusal(call, &error).into()),
        }
    }

    /// Asks the person at the client whether the doubted call took effect.
    async fn ask_person(&self, call: &Call<'_>, receipt: &Receipt) -> Said {
        let id = self.own_id();
        let tool = call.ask.name.as_str();
        let when = receipt
            .started_at
            .map_or_else(String::new, |at| format!(" at {at}"));
        let message = format!(
            "An earlier call of `{tool}`{when} got no answer, and nobody knows whether it took effect. \
             Please look. Did it happen?"
        );
        let question = json!({
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {"happened": {
                    "type": "string", "title": "Did it happen?", "enum": ["yes", "no"],
                    "enumNames": ["Yes: do not do it again", "No: do it now"],
                }},
                "required": ["happened"],
            },
        });
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{question}}}"#
        );
        let Ok(request) = Message::read(request) else {
            return Said::Nothing;
        };
        let Some(answer) = call.session.question(&id, call, request).await else {
            return Said::Nothing;
        };
        let result = answer.outcome().filter(|_| *answer.kind() == Kind::Result);
        let result = result.unwrap_or("{}");
        let accepted = edit::text(result, &["action"]).as_deref() == Some("accept");
        let happened = edit::text(result, &["content", "happened"]);
        match happened.as_deref().filter(|_| accepted) {
            Some("yes") => Said::Happened,
            Some("no") => Said::DidNot,
            Some(_) | None => Said::Nothing,
        }
    }
}

impl Session {
    /// Asks the client something and waits for what it says; `None` when it says nothing in time.
    async fn question(&self, id: &str, call: &Call<'_>, request: Message) -> Option<Message> {
        let (sender, answer) = oneshot::channel();
        {
            let mut questions = locked(&self.questions);
            if questions.len() >= QUESTIONS_MAX {
                return None;
            }
            questions.insert(id.to_owned(), sender);
        }
        // It goes where the answer of the call will go; a client that is gone says nothing.
        self.aside(call.asked, request).await;
        let answered = tokio::time::timeout(QUESTION_MAX, answer).await;
        locked(&self.questions).remove(id);
        answered.ok().and_then(Result::ok)
    }
}
