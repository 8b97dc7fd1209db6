//! Telling of a doubt in the clearest way that the client has: a task, a question to the person, or a text.

use std::time::Duration;

use semel::core::identity::Identity;
use semel::core::ledger::{Delivery, Record, StateKind};
use semel::{Effect, Label, OnDoubt, Receipt, Scope};
use tokio::sync::oneshot;

use super::super::answer::{self, Doubt, Known, ResolveBy, Said, To};
use super::super::ask::{Ask, Era};
use super::super::message::{Kind, Message};
use super::super::seal::Purpose;
use super::call::{Call, Round, known};
use super::{Gateway, Session};
use crate::locked::locked;

/// How long a person may think about whether something happened.
const QUESTION_FOR: Duration = Duration::from_secs(10 * 60);

/// How often a doubt is settled anew that changed meanwhile: marks of delivery are few.
const RESOLVES_MAX: usize = 8;

/// The most questions of one session that wait for a person.
const QUESTIONS_MAX: usize = 64;

/// How a client is told of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It gets a task, which is settled when the doubt is.
    Task,
    /// Its person is asked.
    Question,
    /// It gets a text.
    Text,
}

impl Telling {
    /// Chooses the clearest way that a client has.
    ///
    /// A task comes first: it stays until the doubt is settled, by whomever, and nobody has to be there now.
    /// From 2026-07-28 on a server may answer with one where both sides have declared them; before that where
    /// the call asks for one, which is then the only answer that its client can read. A question comes
    /// second, for a person who may know. Everybody can read a text.
    pub(crate) const fn of(ask: &Ask, server_has_tasks: bool) -> Self {
        let takes_task = match ask.era {
            Era::Modern => ask.capabilities.tasks && server_has_tasks,
            Era::Legacy => ask.wants_task,
        };
        match (takes_task, ask.capabilities.elicitation) {
            (true, _) => Self::Task,
            (false, true) => Self::Question,
            (false, false) => Self::Text,
        }
    }
}

impl Gateway {
    /// Tells of the doubt of this very call: the server was lost under way.
    pub(super) async fn lost(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        receipt: &Receipt,
        why: &str,
    ) -> Round {
        let (namespace, key) = (&receipt.namespace, &receipt.key);
        let Ok(Some(record)) = self.engine.load(namespace, key).await else {
            // What is known is told all the same.
            let to = call.to(self);
            let doubt = Doubt::lost(&to, receipt, why);
            return Round::over(answer::in_doubt(&to, &known(receipt, identity), &doubt));
        };
        if record.kind_at(self.engine.store().now()) != StateKind::Doubtful {
            // It was settled meanwhile.
            return Round::Again;
        }
        self.doubt(call, identity, &record, Some((receipt, why)))
            .await
    }

    /// Tells of a doubt; where a person can be asked and says what happened, it is resolved. `lost` is the receipt
    /// of this very call and says why nobody knows what became of it; without it the doubt is that of an earlier one.
    pub(super) async fn doubt(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        record: &Record,
        lost: Option<(&Receipt, &str)>,
    ) -> Round {
        let to = call.to(self);
        let own = lost.map(|(receipt, _)| receipt.clone());
        let Some(receipt) = &own.or_else(|| self.receipt(record, None)) else {
            return Round::over(answer::expired(&to, &identity.key, &call.identity));
        };
        let operation = record.operation();
        let known = Known {
            delivery: operation.map_or(Delivery::Unknown, |it| it.delivery),
            ..known(receipt, identity)
        };
        let doubt = lost.map_or_else(
            || Doubt::earlier(&to, receipt),
            |(_, why)| {
                let is_probed =
                    operation.is_some_and(|it| it.spec.policy.on_doubt == OnDoubt::Probe);
                // The next call looks it up by itself.
                let resolve = match &call.policy.verify {
                    Some(_) if is_probed => ResolveBy::LookUp,
                    Some(_) | None => to.resolve,
                };
                Doubt::lost(&To { resolve, ..to }, receipt, why)
            },
        );
        let said = match self.said_with(call, receipt) {
            // What the person said came with the call.
            Some(said) => said,
            None => match self.telling(call, record, lost.is_some()).await {
                Telling::Task => {
                    let created = self.task_created(call, &known, &doubt, record).await;
                    return Round::over(created);
                }
                Telling::Question if call.ask.era == Era::Legacy => {
                    let question = answer::question(&to, &known);
                    self.ask_person(call, &question).await
                }
                Telling::Question if !call.ask.is_continuation => {
                    let until = self.engine.store().now().plus(QUESTION_FOR);
                    let about = about(receipt, call);
                    let about = about.each_ref().map(String::as_str);
                    let state = self.seal.issue(Purpose::Question, &about, until);
                    return Round::over(answer::asked(&to, &known, &state));
                }
                Telling::Question | Telling::Text => Said::Nothing,
            },
        };
        match said {
            Said::Nothing => Round::over(answer::in_doubt(&to, &known, &doubt)),
            Said::Happened | Said::DidNot => {
                let happened = said == Said::Happened;
                self.resolved(call, receipt, happened).await
            }
        }
    }

    /// Chooses how to tell of a doubt.
    async fn telling(&self, call: &Call<'_>, record: &Record, is_own: bool) -> Telling {
        let policy = record.operation().map(|operation| &operation.spec.policy);
        if is_own && policy.is_some_and(|policy| policy.on_doubt != OnDoubt::Hold) {
            // Nobody has to settle it: the next call looks it up, or sends it again.
            return Telling::Text;
        }
        match Telling::of(&call.ask, true) {
            Telling::Task if call.ask.era == Era::Modern => {
                Telling::of(&call.ask, self.has_tasks(call).await)
            }
            // What a person says there settles the doubt, and comes from the client.
            Telling::Question if !may_settle(call) => Telling::Text,
            telling => telling,
        }
    }

    /// Settles a doubt by what the person said; the next round replays it or runs it.
    async fn resolved(&self, call: &Call<'_>, receipt: &Receipt, happened: bool) -> Round {
        let (namespace, key) = (&receipt.namespace, &receipt.key);
        // Marks of delivery are stored meanwhile, and each is another version of the same doubt.
        for _ in 0..RESOLVES_MAX {
            let record = match self.engine.load(namespace, key).await {
                Ok(Some(record)) if record.fence().0 == receipt.fence => record,
                // It is another doubt by now, or none.
                Ok(_) => return Round::Again,
                Err(error) => return Round::over(self.refusal(call, &error)),
            };
            let by = Label::new("mcp").expect("three letters are a label");
            let operator = self.engine.operator(namespace, key, record.version(), by);
            let resolved = if happened {
                let effect = call.policy.effect.unwrap_or(Effect::Updated);
                operator.resolve_done(true, effect, None).await
            } else {
                operator.resolve_not_done().await
            };
            match resolved {
                Ok(_) => return Round::Again,
                Err(error) if error.code() == "fenced" => {}
                Err(error) => return Round::over(self.refusal(call, &error)),
            }
        }
        Round::Again
    }

    /// Reads what a person said to our own question about this doubt, if that came with the call.
    fn said_with(&self, call: &Call<'_>, receipt: &Receipt) -> Option<Said> {
        if !may_settle(call) {
            return None;
        }
        let state = call.ask.request_state.as_deref()?;
        let about = about(receipt, call);
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

/// Says whether a client may settle doubts, by what its person says or by itself.
fn may_settle(call: &Call<'_>) -> bool {
    call.asked.scope.includes(Scope::Operate)
}

/// What a question is about: an answer to it settles nothing else, and no later attempt.
fn about(receipt: &Receipt, call: &Call<'_>) -> [String; 3] {
    [
        receipt.key.to_string(),
        receipt.fence.to_string(),
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
