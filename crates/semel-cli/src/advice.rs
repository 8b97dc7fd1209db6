//! What can be done next about an operation.

use semel::Engine;
use semel::core::ledger::StateKind;

use crate::context::Context;
use crate::found::Found;

/// Says what the next step is, if somebody has to take one.
pub(crate) fn next_step(context: &Context, engine: &Engine, found: &Found) -> Option<String> {
    let key = found.key.as_str();
    let command = |words: &[&str]| {
        let mut line = vec![words[0], key];
        line.extend(&words[1..]);
        format!("`{}`", context.command(&line))
    };
    let resolve = || {
        format!(
            "find out whether the effect happened, then say so: {} or {}",
            command(&["resolve", "--done"]),
            command(&["resolve", "--not-done"])
        )
    };
    match found.state() {
        StateKind::Doubtful => Some(resolve()),
        StateKind::Dead => Some(format!(
            "mend the cause, then {}; or end it with {}",
            command(&["retry"]),
            command(&["cancel"])
        )),
        StateKind::Failed => Some(format!("{} lets it run again", command(&["retry"]))),
        StateKind::Running => {
            let attempt = found.operation()?.latest()?;
            let gone = engine.is_gone(&found.namespace, &found.key, attempt);
            Some(if gone {
                format!("its process is gone; {}", resolve())
            } else {
                format!("{} shows what comes of it", command(&["log", "--follow"]))
            })
        }
        StateKind::Pending
        | StateKind::Succeeded
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => None,
    }
}
