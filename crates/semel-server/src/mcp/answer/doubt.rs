//! What is said of doubts: what is known, and how to end them.

use semel::{Key, Receipt};

use super::receipt::{Known, Outcome, Problem, receipt};
use super::{ResolveBy, To, own, shell_quoted};
use crate::mcp::message::{Message, quoted};

/// A doubt in words.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    /// What is known, that nothing was done now, and what to do.
    pub(crate) text: String,
    hint: String,
}

impl Doubt {
    /// Speaks of a call that was sent just now: its answer was lost, or does not say what happened.
    pub(crate) fn lost(to: &To<'_>, about: &Receipt, why: &str) -> Self {
        let (tool, hint) = (to.tool, how_to_resolve(to, &about.key));
        let text = format!(
            "semel: `{tool}` was sent, and it is not known whether it took effect: {why}. It is not sent again. \
             {hint}"
        );
        Self { text, hint }
    }

    /// Speaks of an earlier call.
    pub(crate) fn earlier(to: &To<'_>, about: &Receipt) -> Self {
        let (tool, hint) = (to.tool, how_to_resolve(to, &about.key));
        let when = about.started_at;
        let when = when.map_or_else(String::new, |at| format!(" at {at}"));
        let text = format!(
            "semel: nothing was done now. It is not known whether an earlier call of `{tool}`{when} took effect. \
             {hint}"
        );
        Self { text, hint }
    }

    /// Writes the receipt of a call that is told of it.
    pub(super) fn receipt(&self, known: &Known<'_>) -> String {
        let problem = Problem::new("in_doubt", self.hint.clone());
        receipt(known, Outcome::InDoubt, Some((problem, &self.text)))
    }
}

/// Tells of a doubt in a result with a text.
pub(crate) fn in_doubt(to: &To<'_>, known: &Known<'_>, doubt: &Doubt) -> Message {
    own(to, &doubt.text, &[], &doubt.receipt(known))
}

fn how_to_resolve(to: &To<'_>, key: &Key) -> String {
    match to.resolve {
        ResolveBy::Command => {
            let key = shell_quoted(key.as_str());
            format!(
                "Look whether it happened. If it did: `semel resolve {key} --done`; if not: `semel resolve \
                 {key} --not-done`, and then call again."
            )
        }
        ResolveBy::LookUp => {
            "Call it again with the same arguments: whether it took effect is looked up first."
                .to_owned()
        }
        ResolveBy::Tool => {
            let key = quoted(key.as_str());
            format!(
                "Look whether it happened, then call `semel_resolve` with \"key\": {key} and \"happened\": \
                 true or false; after false, call again."
            )
        }
    }
}
