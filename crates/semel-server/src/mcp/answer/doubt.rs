//! What is said of doubts: what is known, and how to end them.

use semel::Key;

use super::receipt::{Known, Outcome, Problem, receipt};
use super::{ResolveBy, To, own, shell_quoted};
use crate::mcp::message::{Message, quoted};

/// Says that nobody knows whether this call took effect: the server was lost under way.
pub(crate) fn lost(to: &To<'_>, known: &Known<'_>, why: &str) -> Message {
    let (tool, hint) = (to.tool, how_to_resolve(to, &known.receipt.key));
    let text = format!(
        "semel: `{tool}` was sent, and no answer came ({why}). Nobody knows whether it took effect, and it \
         is not sent again. {hint}"
    );
    let problem = Problem::new("in_doubt", hint);
    own(
        to,
        &text,
        &[],
        &receipt(known, Outcome::InDoubt, Some((problem, &text))),
    )
}

/// Says that nobody knows whether an earlier call took effect.
pub(crate) fn in_doubt(to: &To<'_>, known: &Known<'_>) -> Message {
    let (tool, hint) = (to.tool, how_to_resolve(to, &known.receipt.key));
    let when = known.receipt.started_at;
    let when = when.map_or_else(String::new, |at| format!(" at {at}"));
    let text = format!(
        "semel: nothing was done now. An earlier call of `{tool}`{when} got no answer, and nobody knows \
         whether it took effect. {hint}"
    );
    let problem = Problem::new("in_doubt", hint);
    own(
        to,
        &text,
        &[],
        &receipt(known, Outcome::InDoubt, Some((problem, &text))),
    )
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
        ResolveBy::Tool => {
            let key = quoted(key.as_str());
            format!(
                "Look whether it happened, then call `semel_resolve` with \"key\": {key} and \"happened\": \
                 true or false; after false, call again."
            )
        }
    }
}
