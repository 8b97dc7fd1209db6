//! Receipts where the ledger gives none: of dry runs, and of what was forgotten.

use std::time::Duration;

use semel::core::ledger::{Command, StateKind};
use semel::view::RecordView;
use semel::{Effect, Key};
use serde::Serialize;

use super::Server;
use super::body::Answer;
use super::problem::Problem;
use crate::auth::Caller;

/// The receipt of a dry run, which wrote nothing and promises nothing; or of what was forgotten.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    /// What a begin would be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    ok: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    effect: &'static str,
    replayed: bool,
    reason: Option<String>,
    /// What would change; nothing is said of what was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<String>>,
    namespace: String,
    key: String,
    name: Option<String>,
    /// The state that it leads to.
    state: &'static str,
    attempt: Option<u32>,
    fence: u64,
    started_at: Option<String>,
    settled_at: Option<String>,
    data: Option<serde_json::Value>,
}

impl Plan {
    pub(crate) fn new(caller: &Caller, key: &Key, effect: Effect, state: StateKind) -> Self {
        Self {
            decision: None,
            ok: true,
            dry_run: true,
            effect: effect.as_str(),
            replayed: false,
            reason: None,
            changes: Some(vec![]),
            namespace: caller.namespace.to_string(),
            key: key.to_string(),
            name: None,
            state: state.as_str(),
            attempt: None,
            fence: 0,
            started_at: None,
            settled_at: None,
            data: None,
        }
    }

    /// Makes the receipt of an operation that was forgotten, now or before.
    pub(crate) fn forgotten(caller: &Caller, key: &Key, before: Option<RecordView>) -> Self {
        let effect = if before.is_some() {
            Effect::Deleted
        } else {
            Effect::Noop
        };
        let plan = Self {
            dry_run: false,
            changes: None,
            ..Self::new(caller, key, effect, StateKind::Stub)
        };
        match before {
            Some(view) => plan.of_record(view),
            None => plan,
        }
    }

    pub(crate) const fn decision(mut self, decision: &'static str) -> Self {
        self.decision = Some(decision);
        self
    }

    pub(crate) fn change(mut self, change: String) -> Self {
        self.changes.get_or_insert_default().push(change);
        self
    }

    fn of_record(mut self, view: RecordView) -> Self {
        self.name = view.name.map(|name| name.to_string());
        self.attempt = view.attempt;
        self.fence = view.fence;
        self.started_at = view.started_at.map(|at| at.to_string());
        self.settled_at = view.settled_at.map(|at| at.to_string());
        self
    }
}

/// Asks the rules what a command would do; `effect` is what it would be if something changed.
pub(crate) async fn rehearse(
    server: &Server,
    caller: &Caller,
    key: &Key,
    command: &Command,
    effect: Effect,
) -> Result<Answer, Problem> {
    let rehearsal = server.engine().rehearse(&caller.namespace, key, command);
    let rehearsal = server.within(Duration::ZERO, rehearsal).await?;
    let before = rehearsal.before.map_or("absent", StateKind::as_str);
    let state = rehearsal.after.or(rehearsal.before);
    let effect = if rehearsal.after.is_some() {
        effect
    } else {
        Effect::Noop
    };
    let mut plan = Plan::new(caller, key, effect, state.unwrap_or(StateKind::Stub));
    let record = rehearsal.record.as_deref();
    if let Some(view) = record.and_then(|record| RecordView::of(record, rehearsal.at)) {
        plan = plan.of_record(view);
    }
    plan = match rehearsal.after {
        Some(after) => {
            let (name, after) = (command.name(), after.as_str());
            plan.change(format!("would {name} {key}: {before} -> {after}"))
        }
        None => {
            plan.reason = Some(format!("{before} already; nothing would change"));
            plan
        }
    };
    Answer::ok(&plan)
}
