//! What is said about operations to people.

use anstyle::{AnsiColor, Style};
use semel::core::ledger::{Operation, StateKind};
use semel::{Timestamp, span};

use crate::table::Cell;

/// Returns a state as a terminal shows it; its word alone says all.
pub(crate) fn state(state: StateKind) -> Cell {
    Cell::styled(state.as_str(), style(state))
}

pub(crate) fn style(state: StateKind) -> Style {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    match state {
        StateKind::Pending => Style::new(),
        StateKind::Running => colour(AnsiColor::Cyan),
        StateKind::Succeeded => colour(AnsiColor::Green),
        StateKind::Failed | StateKind::Dead => colour(AnsiColor::Red),
        StateKind::Doubtful => colour(AnsiColor::Yellow).bold(),
        StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => Style::new().dimmed(),
    }
}

/// Returns since when an operation has been in doubt, given as of now.
pub(crate) fn doubt_since(judged: &Operation) -> Option<Timestamp> {
    let open = judged.attempts.iter().filter(|attempt| attempt.open);
    let ended = open.filter_map(|attempt| attempt.ended_at);
    judged.forgotten_open.into_iter().chain(ended).min()
}

/// Says what matters most about an operation right now, given as of now.
pub(crate) fn remark(judged: &Operation, now: Timestamp) -> String {
    let error = judged.latest().and_then(|attempt| attempt.error.as_ref());
    let because = |text: String| match error {
        Some(error) => format!("{text}: {error}"),
        None => text,
    };
    match judged.state.kind() {
        StateKind::Running => judged.lease_until().map_or_else(String::new, |until| {
            format!("lease ends in {}", span(until.since(now)))
        }),
        StateKind::Doubtful => {
            let since = doubt_since(judged).map_or_else(String::new, |since| {
                format!(" for {}", span(now.since(since)))
            });
            because(format!("in doubt{since}"))
        }
        StateKind::Pending if judged.open_since().is_some() => {
            "an earlier attempt is still open".to_owned()
        }
        StateKind::Pending => match judged.run_at.filter(|at| *at > now) {
            Some(at) => because(format!("waits for {}", span(at.since(now)))),
            None if judged.attempt > 0 => because("tried before".to_owned()),
            None => String::new(),
        },
        StateKind::Dead => because("out of attempts".to_owned()),
        StateKind::Succeeded | StateKind::Failed => match &judged.resolved {
            Some(resolved) => format!("resolved by {}", resolved.by),
            None => String::new(),
        },
        StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => String::new(),
    }
}
