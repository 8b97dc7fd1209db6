//! Telling of a doubt in the clearest way that the client has: a question to the person, or a text.

use std::time::Duration;

use semel::core::identity::Identity;
use semel::core::ledger::Record;
use semel::{Effect, Label, Receipt};
use tokio::sync::oneshot;

use super::super::answer::{self, Said};
use super::super::ask::Era;
use super::super::message::{Kind, Message};
use super::super::seal::Purpose;
use super::call::{Call, Round, known};
use super::{Gateway, Session, locked};

/// How long a person may think about whether something happened.
const QUESTION_FOR: Duration = Duration::from_secs(10 * 60);

/// The most questions of one session that wait for a person.
const QUESTIONS_MAX: usize = 64;

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
            return Round::over(answer::expired(&to, &identity.key, &call.identity));
        };
        let known = known(receipt, identity);
        let said = match (call.ask.era, call.ask.capabilities.elicitation) {
            (_, false) => Said::Nothing,
            (Era::Legacy, true) => {
                let question = answer::question(&to, &known);
                self.ask_person(call, &question).await
            }
            // What the person said came with the call; otherwise it is asked for.
            (Era::Modern, true) => match self.said_with(call, receipt, record) {
                Some(said) => said,
                None if call.ask.is_continuation => Said::Nothing,
                None => {
                    let until = self.engine.store().now().plus(QUESTION_FOR);
                    let about = about(receipt, record, call);
                    let about = about.each_ref().map(String::as_str);
                    let state = self.seal.issue(Purpose::Question, &about, until);
                    return Round::over(answer::asked(&to, &known, &state));
                }
            },
        };
        match said {
            Said::Nothing => Round::over(answer::in_doubt(&to, &known)),
            Said::Happened | Said::DidNot => {
                self.resolved(call, receipt, record, said == Said::Happened)
                    .await
            }
        }
    }

    /// Settles a doubt by what the person said; the next round replays it or runs it.
    async fn resolved(
        &self,
        call: &Call<'_>,
        receipt: &Receipt,
        record: &Record,
        happened: bool,
    ) -> Round {
        let by = Label::new("mcp").expect("three letters are a label");
        let (namespace, key) = (&receipt.namespace, &receipt.key);
        let operator = self.engine.operator(namespace, key, record.version(), by);
        let resolved = if happened {
            let effect = call.policy.effect.unwrap_or(Effect::Updated);
            operator.resolve_done(true, effect, None).await
        } else {
            operator.resolve_not_done().await
        };
        match resolved {
            Ok(_) => Round::Again,
            Err(error) => Round::over(self.refusal(call, &error)),
        }
    }

    /// Reads what a person said to our own question about this doubt, if that came with the call.
    fn said_with(&self, call: &Call<'_>, receipt: &Receipt, record: &Record) -> Option<Said> {
        let state = call.ask.request_state.as_deref()?;
        let about = about(receipt, record, call);
        let about = about.each_ref().map(String::as_str);
        let now = self.engine.store().now();
        let is_ours = self.seal.check(state, Purpose::Question, &about, now);
        is_ours.ok()?;
        Some(answer::said_in(call.ask.input_responses.as_deref()?))
    }

    /// Asks the person at a client of the older kind, while its call waits.
    async fn ask_person(&self, call: &Call<'_>, question: &str) -> Said {
        let id = self.own_id();
        let Ok(request) = Message::request(&id, "elicitation/create", question) else {
            return Said::Nothing;
        };
        let answer = call.session.question(&id, call, request).await;
        let result = answer.as_ref().filter(|it| *it.kind() == Kind::Result);
        let result = result.and_then(Message::outcome);
        result.map_or(Said::Nothing, answer::said)
    }
}

/// What a question is about: an answer to it settles nothing else.
fn about(receipt: &Receipt, record: &Record, call: &Call<'_>) -> [String; 3] {
    [
        receipt.key.to_string(),
        record.version().0.to_string(),
        call.identity.scope.tag(),
    ]
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
        let answered = tokio::time::timeout(QUESTION_FOR, answer).await;
        locked(&self.questions).remove(id);
        answered.ok().and_then(Result::ok)
    }
}
