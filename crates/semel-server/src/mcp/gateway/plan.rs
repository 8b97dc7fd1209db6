//! Previews: what a call would do, and a plan that lets exactly that call through.

use std::time::Duration;

use semel::Preview as Foreseen;
use semel::core::Digest;
use semel::core::identity::{ClientText, Identity, Relation};
use semel::door::{Preview, Previewed};

use super::super::answer::{self, Plan};
use super::super::message::Message;
use super::super::seal::Purpose;
use super::Gateway;
use super::call::Call;

/// How long a plan can be used.
const PLAN_FOR: Duration = Duration::from_secs(15 * 60);

/// 128 bits: no two plans will ever share them.
const CALL_ID_DIGITS: usize = 32;

impl Gateway {
    /// Says what a call would do, and writes nothing.
    pub(super) async fn preview(&self, call: &mut Call<'_>) -> Message {
        let until = self.engine.store().now().plus(PLAN_FOR);
        let about = about(call);
        let about = about.each_ref().map(String::as_str);
        let token = self.seal.issue(Purpose::Plan, &about, until);
        call.identity.call_id = call_id(&token);
        let call = &*call;
        let to = call.to(self);
        let foreseen = self.doorway.preview(&call.identity, self.claim(call)).await;
        let Previewed { identity, preview } = match foreseen {
            Ok(foreseen) => foreseen,
            Err(error) => return self.refusal(call, &error),
        };
        let would = would(&identity, &preview);
        answer::preview(
            &to,
            &Plan {
                would: &would,
                key: &identity.key,
                source: identity.source,
                class: call.class.as_str(),
                token: &token,
                until,
            },
        )
    }

    /// Refuses a call whose plan is not one for it, and one without a plan where the tool needs one.
    ///
    /// A plan names its call from then on, whatever id its harness gave it: who uses it twice gets the
    /// outcome of the first use.
    pub(super) fn check_plan(&self, call: &mut Call<'_>) -> Result<(), Message> {
        let to = call.to(self);
        let Some(plan) = call.ask.plan.as_deref() else {
            return if call.policy.require_plan {
                Err(answer::plan_required(&to))
            } else {
                Ok(())
            };
        };
        let about = about(call);
        let about = about.each_ref().map(String::as_str);
        let now = self.engine.store().now();
        let checked = self.seal.check(plan, Purpose::Plan, &about, now);
        checked.map_err(|broken| answer::plan_mismatch(&to, &broken.to_string()))?;
        call.identity.call_id = call_id(plan);
        Ok(())
    }
}

/// Returns the call id that a plan stands for.
fn call_id(token: &str) -> Option<ClientText> {
    let digest = Digest::of(token.as_bytes()).hex();
    ClientText::new(&format!("plan-{}", &digest[..CALL_ID_DIGITS])).ok()
}

/// What a plan is about: who asks, and what for.
fn about(call: &Call<'_>) -> [String; 2] {
    let identity = &call.identity;
    [identity.scope.tag(), identity.fingerprint.to_string()]
}

fn would(identity: &Identity, preview: &Preview) -> String {
    let Preview::Ledger(foreseen) = preview else {
        return "It would be asked about: an identical call was made before".to_owned();
    };
    let text = match foreseen {
        Foreseen::Execute { attempt } => match identity.relation {
            Relation::IntendedRepeat => {
                let number = identity.occurrence;
                return format!("It would run once more, as occurrence {number}");
            }
            Relation::First | Relation::Retry | Relation::Joined | Relation::Challenged => {
                return format!("It would run, as attempt {attempt}");
            }
        },
        Foreseen::Probe => "It would be looked up whether an earlier call took effect",
        Foreseen::Replay(_) => "It would get the answer of an earlier call, and nothing would run",
        Foreseen::Wait { .. } => "It would wait for an identical call that is under way",
        Foreseen::InDoubt(_) => "It would be held: an earlier call is in doubt",
    };
    text.to_owned()
}
