//! What is said of plans: what a call would do, and that it needs one.

use semel::core::identity::Source;
use semel::{Key, Timestamp};
use serde_json::json;

use super::receipt::{Outcome, Problem};
use super::refusal::refusal;
use super::{To, own};
use crate::mcp::message::Message;

/// What a call would do.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    /// What would become of it, in words: "it would run, as attempt 1".
    pub(crate) would: &'a str,
    /// The operation.
    pub(crate) key: &'a Key,
    /// What it is recognised by.
    pub(crate) source: Source,
    /// What repeating the tool does.
    pub(crate) class: &'static str,
    /// With this token the tool runs as previewed.
    pub(crate) token: &'a str,
    /// Until when.
    pub(crate) until: Timestamp,
}

/// Says what a call would do.
pub(crate) fn preview(to: &To<'_>, plan: &Plan<'_>) -> Message {
    let (tool, would, token) = (to.tool, plan.would, plan.token);
    let until = plan.until.to_string();
    let text = format!(
        "semel: nothing was done: this is a preview of `{tool}`. {would}. To go ahead, make the same call with \
         _meta[\"dev.semel/plan\"] = \"{token}\" until {until}."
    );
    let meta = json!({
        "ok": true, "outcome": Outcome::Preview.as_str(), "effect": "noop", "changes": [would],
        "key": plan.key.as_str(), "key_source": plan.source.as_str(), "class": plan.class,
        "plan": token, "plan_until": until,
    });
    own(to, &text, &[], &meta.to_string())
}

/// Says that a tool runs only as it was previewed.
pub(crate) fn plan_required(to: &To<'_>) -> Message {
    let tool = to.tool;
    let hint = "Ask with _meta[\"dev.semel/preview\"] = true first, then call with the plan that it gives.";
    let text = format!("semel: nothing was done now. `{tool}` runs only with a plan. {hint}");
    let problem = Problem::new("invalid_input", hint.to_owned());
    refusal(to, &text, Outcome::Refused, problem)
}

/// Says that a plan is not for this call.
pub(crate) fn plan_mismatch(to: &To<'_>, why: &str) -> Message {
    let tool = to.tool;
    let hint = "Ask for a preview of this call, and use its plan.";
    let text = format!(
        "semel: nothing was done now. The plan is not one for this call of `{tool}`: {why}. {hint}"
    );
    let problem = Problem::new("invalid_input", hint.to_owned());
    refusal(to, &text, Outcome::Refused, problem)
}
