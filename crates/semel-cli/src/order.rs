//! An operator's decision about one operation: tried out on the rules, or given.

use std::sync::Arc;

use semel::core::ledger::{
    Command, Decision, Order, Record, Rejection, Reply, Resolution, Resolve, StateKind, Version,
    decide,
};
use semel::view::RecordView;
use semel::{Effect, Engine, Error, Label, Note, Outcome, Payload, Redactor, Refusal};
use serde_json::{Value, json};

use crate::args::operate::Said;
use crate::context::Context;
use crate::failure::Failure;
use crate::found::Found;

/// What is decided.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    Done {
        ok: bool,
        effect: Effect,
        data: Option<Vec<u8>>,
    },
    NotDone,
    Retry,
    Cancel,
    Forget,
}

impl Choice {
    /// Says what it does, after "would".
    pub(crate) const fn words(&self) -> &'static str {
        match self {
            Self::Done { ok: true, .. } => "resolve it as done",
            Self::Done { ok: false, .. } => "resolve it as done, in failure",
            Self::NotDone => "resolve it as not done",
            Self::Retry => "give it fresh attempts",
            Self::Cancel => "cancel it",
            Self::Forget => "forget it",
        }
    }

    /// Makes the command as the engine decides it, redacted.
    fn command(&self, order: Order, redactor: &Redactor) -> Command {
        let payload = |bytes: &[u8]| match semel::redacted_answer(redactor, bytes) {
            Some(answer) => Payload {
                redacted: true,
                ..Payload::of(&answer)
            },
            None => Payload::of(bytes),
        };
        let resolve = |resolution| {
            Command::Resolve(Resolve {
                order: order.clone(),
                resolution,
            })
        };
        let command = match self {
            Self::Done { ok, effect, data } => resolve(Resolution::Done(Outcome {
                ok: *ok,
                effect: *effect,
                payload: data.as_deref().map(payload),
            })),
            Self::NotDone => resolve(Resolution::NotDone),
            Self::Retry => Command::Retry(order),
            Self::Cancel => Command::Cancel(order),
            Self::Forget => Command::Forget(order),
        };
        redactor.command(&command).into_owned()
    }
}

/// Who decides, and why.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) by: Label,
    pub(crate) note: Option<Note>,
    pub(crate) dry_run: bool,
    pub(crate) redactor: Redactor,
}

impl Desk {
    pub(crate) fn new(context: &Context, said: &Said) -> Result<Self, Failure> {
        let by = said.by.clone().unwrap_or_else(login);
        let wrong =
            |flag: &str, error: semel::core::TextError| Failure::input(format!("{flag}: {error}"));
        let note = said.note.as_deref().map(Note::new).transpose();
        Ok(Self {
            by: Label::new(&by).map_err(|error| wrong("--by", error))?,
            note: note.map_err(|error| wrong("--note", error))?,
            dry_run: said.dry_run,
            redactor: context.settings.redactor()?,
        })
    }

    /// Carries a decision out, or only says what it would do; answers with a receipt.
    pub(crate) async fn decide(
        &self,
        context: &Context,
        engine: &Engine,
        found: &Found,
        choice: Choice,
    ) -> Result<(), Failure> {
        if self.dry_run {
            return self.rehearse(context, found, &choice);
        }
        let version = self.version(found, &choice);
        let operator = engine.operator(&found.namespace, &found.key, version, self.by.clone());
        let operator = match &self.note {
            Some(note) => operator.note(note.clone()),
            None => operator,
        };
        let receipt = match choice {
            Choice::Done { ok, effect, data } => operator.resolve_done(ok, effect, data).await?,
            Choice::NotDone => operator.resolve_not_done().await?,
            Choice::Retry => operator.retry().await?,
            Choice::Cancel => operator.cancel().await?,
            Choice::Forget => {
                operator.forget().await?;
                let (line, receipt) = forgotten(found);
                context.printer.answer(&receipt, &line);
                return Ok(());
            }
        };
        let (key, before, after) = (&found.key, found.state(), receipt.state);
        let line = if before == after {
            format!("{key}: {} already", after.as_str())
        } else {
            format!("{key}: {} -> {}", before.as_str(), after.as_str())
        };
        context.printer.answer(&receipt, &line);
        Ok(())
    }

    /// Asks the rules what a decision would do, and writes nothing.
    fn rehearse(&self, context: &Context, found: &Found, choice: &Choice) -> Result<(), Failure> {
        let before = found.state();
        let after = self.foresee(found, choice)?;
        let change = after.map(|after| {
            let moved = format!("{} -> {}", before.as_str(), state_word(after));
            format!("would {}: {moved}", choice.words())
        });
        let effect = match (&change, choice) {
            (None, _) => Effect::Noop,
            (Some(_), Choice::Forget) => Effect::WouldDelete,
            (Some(_), Choice::Done { .. } | Choice::NotDone | Choice::Retry | Choice::Cancel) => {
                Effect::WouldUpdate
            }
        };
        tell(context, found, effect, change);
        Ok(())
    }

    /// Says that something would be done whose end nobody knows, if the rules allow `example`.
    pub(crate) fn announce(
        &self,
        context: &Context,
        found: &Found,
        words: &str,
        example: &Choice,
    ) -> Result<(), Failure> {
        self.foresee(found, example)?;
        let change = Some(format!("would {words}"));
        tell(context, found, Effect::Unknown, change);
        Ok(())
    }

    fn order(&self, version: Version) -> Order {
        Order {
            version,
            by: self.by.clone(),
            note: self.note.clone(),
        }
    }

    /// Returns the version that is decided on: the one that was read; or the one before, when the
    /// last thing that happened is this very decision, so that giving it twice changes nothing.
    fn version(&self, found: &Found, choice: &Choice) -> Version {
        if self.is_repeat(found, choice) {
            before(found)
        } else {
            found.record.version()
        }
    }

    /// Says whether the last thing that happened is this very decision.
    pub(crate) fn is_repeat(&self, found: &Found, choice: &Choice) -> bool {
        let last = found.operation().and_then(|it| it.last_order);
        let order = self.order(before(found));
        let repeat = choice.command(order, &self.redactor).digest();
        last.is_some_and(|last| last.digest == repeat)
    }

    /// Returns the state that a decision would lead to; `None` when nothing would change.
    fn foresee(&self, found: &Found, choice: &Choice) -> Result<Option<StateKind>, Failure> {
        let command = choice.command(self.order(self.version(found, choice)), &self.redactor);
        let decision = decide(Some(&found.record), &command, found.now);
        match decision.map_err(|rejection| refused(found, rejection))? {
            Decision::Write(write) if write.reply != Reply::Replay => {
                Ok(write.next.as_ref().map(Record::kind))
            }
            Decision::Answer(_) | Decision::Write(_) => Ok(None),
        }
    }
}

/// Tells what a dry run would change, if anything.
fn tell(context: &Context, found: &Found, effect: Effect, change: Option<String>) {
    let (key, state) = (&found.key, found.state());
    let line = match &change {
        Some(change) => format!("{key}: {change}"),
        None => format!("{key}: {} already; nothing would change", state_word(state)),
    };
    let mut receipt = receipt(found, effect, state);
    receipt["changes"] = json!(change.into_iter().collect::<Vec<_>>());
    context.printer.answer(&receipt, &line);
}

/// Returns the version before the last thing that happened.
fn before(found: &Found) -> Version {
    Version(found.record.version().0.saturating_sub(1))
}

/// Names a state; what is left of a forgotten operation is nothing to its operator.
const fn state_word(state: StateKind) -> &'static str {
    match state {
        StateKind::Stub => "forgotten",
        StateKind::Pending
        | StateKind::Running
        | StateKind::Succeeded
        | StateKind::Failed
        | StateKind::Doubtful
        | StateKind::Dead
        | StateKind::Breaker(_)
        | StateKind::Tombstone => state.as_str(),
    }
}

/// Makes the error of a refused decision.
pub(crate) fn refused(found: &Found, rejection: Rejection) -> Failure {
    Failure::from(Error::Refused(Box::new(Refusal {
        rejection,
        key: Some(found.key.clone()),
        record: Some(Arc::clone(&found.record)),
    })))
}

/// Tells that an operation was forgotten, now or before.
fn forgotten(found: &Found) -> (String, Value) {
    let key = &found.key;
    let before = found.state();
    if before == StateKind::Stub {
        return (
            format!("{key}: forgotten already"),
            receipt(found, Effect::Noop, StateKind::Stub),
        );
    }
    (
        format!("{key}: {} -> forgotten", before.as_str()),
        receipt(found, Effect::Deleted, StateKind::Stub),
    )
}

/// Makes a receipt where the ledger gives none: of a dry run, and of what was forgotten.
fn receipt(found: &Found, effect: Effect, state: StateKind) -> Value {
    let view = RecordView::of(&found.record, found.now);
    let view = view.and_then(|view| serde_json::to_value(view).ok());
    let shown = |field: &str| {
        view.as_ref()
            .map_or(Value::Null, |view| view[field].clone())
    };
    json!({
        "ok": true,
        "effect": effect.as_str(),
        "replayed": false,
        "reason": null,
        "namespace": found.namespace.as_str(),
        "key": found.key.as_str(),
        "name": shown("name"),
        "state": state.as_str(),
        "attempt": shown("attempt"),
        "fence": found.record.fence().0,
        "started_at": shown("started_at"),
        "settled_at": shown("settled_at"),
        "data": null,
    })
}

/// Returns the name of whoever runs the command.
pub(crate) fn login() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    named("USER")
        .or_else(|| named("LOGNAME"))
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}
