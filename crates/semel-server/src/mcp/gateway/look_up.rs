//! Verify tools: whether a doubted call took effect is looked up before anything runs again.

use std::time::Duration;

use semel::breaker::Pass;
use semel::core::Found;
use semel::core::identity::{Identity, Observation};
use semel::core::ledger::Record;
use semel::{Effect, OnDoubt, Permit, Timestamp};

use super::super::answer;
use super::super::edit;
use super::super::message::{Kind, Message, quoted};
use super::super::say;
use super::super::upstream::Reply;
use super::super::verdict::is_well;
use super::call::{Call, Round, known};
use super::{Exchange, Gateway};

/// How long a server may take to say whether something happened.
const LOOK_UP_MAX: Duration = Duration::from_secs(60);

impl Gateway {
    /// Says when a doubt can be looked up that cannot be yet: what was lost may still be at work.
    pub(super) fn look_up_at(&self, record: &Record) -> Option<Timestamp> {
        let operation = record.operation()?;
        let policy = &operation.spec.policy;
        let at = operation.probe_at();
        let is_later = at > self.engine.store().now();
        (policy.on_doubt == OnDoubt::Probe && is_later).then_some(at)
    }

    /// Asks the server whether the doubted call took effect, and settles the doubt by what it says.
    pub(super) async fn look_up(
        &self,
        call: &Call<'_>,
        identity: &Identity,
        (permit, pass): (Permit, Option<Pass>),
        exchange: &Exchange,
    ) -> Round {
        let to = call.to(self);
        let (proof, said) = match self.proof(call, &permit, pass).await {
            Ok(found) => found,
            Err(why) => (Found::Unclear, why),
        };
        let ended = match proof {
            Found::Happened => {
                let effect = call.policy.effect.unwrap_or(Effect::Updated);
                let payload = say::looked_up(
                    to.tool,
                    &said,
                    call.served.has_output_schema(call.ask.name.as_str()),
                );
                permit.finish(true, effect, Some(payload)).await
            }
            Found::DidNot => permit.not_done("it was looked up: it did not happen").await,
            Found::Unclear => permit.unknown(format!("it was looked up: {said}")).await,
        };
        let receipt = match ended {
            Ok(receipt) => receipt,
            Err(error) => {
                exchange.see(Observation::PutOff);
                return Round::over(self.refusal(call, &error));
            }
        };
        let known = known(&receipt, identity);
        let now = self.engine.store().now();
        match proof {
            Found::Happened => {
                Round::over(answer::replay(&to, &known, answer::Outcome::Replayed, now))
            }
            Found::DidNot => Round::Again,
            Found::Unclear => {
                exchange.see(Observation::PutOff);
                let doubt = answer::Doubt::earlier(&to, &receipt);
                Round::over(answer::in_doubt(&to, &known, &doubt))
            }
        }
    }

    /// Calls the verify tool, which only reads; returns what it proves and what it said.
    async fn proof(
        &self,
        call: &Call<'_>,
        permit: &Permit,
        pass: Option<Pass>,
    ) -> Result<(Found, String), String> {
        let verify = call.policy.verify.as_ref();
        let verify = verify.ok_or("no verify tool is configured any more")?;
        let arguments = call.ask.arguments.as_deref().unwrap_or("{}");
        let arguments = verify
            .arguments(arguments, &permit.upstream_key())
            .map_err(|error| error.to_string())?;
        let request = self.own_call(call, &verify.tool, &arguments)?;
        let headers = call.asked.headers.for_another();
        let asking = async {
            let replies = call.upstream.request(&request, &headers).await;
            let mut replies = replies.map_err(|not_sent| not_sent.to_string())?;
            while let Some(reply) = replies.0.recv().await {
                match reply {
                    Reply::Aside(_) => {}
                    last @ (Reply::Answer(..) | Reply::Http(_) | Reply::Lost(_)) => {
                        return Ok(last);
                    }
                }
            }
            Err("the server was given up".to_owned())
        };
        let came = tokio::time::timeout(LOOK_UP_MAX, asking).await;
        let came = came.unwrap_or_else(|_| Err(format!("`{}` did not answer", verify.tool)));
        if let Some(pass) = pass {
            pass.ended(came.as_ref().is_ok_and(is_well)).await;
        }
        let answered = match came? {
            Reply::Answer(message, _) | Reply::Aside(message) => message,
            Reply::Http(refusal) => {
                let (tool, status) = (&verify.tool, refusal.status);
                return Err(format!("`{tool}` answered HTTP {status}"));
            }
            Reply::Lost(lost) => return Err(lost.0),
        };
        let result = answered.outcome().unwrap_or("{}");
        if *answered.kind() != Kind::Result {
            return Err(format!("`{}` answered an error", verify.tool));
        }
        Ok((verify.proof(result), result.to_owned()))
    }

    /// Makes a call of the gateway's own, in the protocol that the client speaks.
    fn own_call(&self, call: &Call<'_>, tool: &str, arguments: &str) -> Result<Message, String> {
        let mut params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, quoted(tool));
        let asked = call.request.params().unwrap_or("{}");
        for member in [
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/clientCapabilities",
            "io.modelcontextprotocol/clientInfo",
        ] {
            if let Some(value) = edit::get(asked, &["_meta", member]) {
                params = edit::set(&params, &["_meta", member], value)
                    .map_err(|error| error.to_string())?;
            }
        }
        let id = self.own_id();
        Message::request(&id, "tools/call", &params).map_err(|error| error.to_string())
    }
}
