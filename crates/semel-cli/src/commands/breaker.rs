//! `semel breaker`

use std::process::ExitCode;

use semel::breaker::{Breaker, BreakerView, Decided, Ordered, PhaseKind};
use semel::{Effect, Engine, Key, Label, Note, Timestamp, span};
use serde_json::{Value, json};

use crate::args::breaker::{self as args, BreakerVerb};
use crate::context::Context;
use crate::failure::Failure;
use crate::order;
use crate::table::{self, Cell};

pub(crate) async fn run(context: &Context, args: &args::Breaker) -> Result<ExitCode, Failure> {
    match &args.verb {
        BreakerVerb::List(_) => list(context).await,
        BreakerVerb::Open(args) => open(context, args).await,
        BreakerVerb::Close(args) => {
            let (engine, breaker) = find(context, &args.name).await?;
            let ordered = breaker.close(decided(args.note.as_deref())?).await;
            said(context, &engine, &breaker, ordered, "closed").await
        }
        BreakerVerb::Reset(args) => {
            let (engine, breaker) = find(context, &args.name).await?;
            let ordered = breaker.reset(decided(args.note.as_deref())?).await;
            said(context, &engine, &breaker, ordered, "reset").await
        }
    }
}

async fn open(context: &Context, args: &args::Open) -> Result<ExitCode, Failure> {
    // Whoever opens a breaker before it is used makes it, so a store is made, too.
    let engine = context.open().await?;
    let breaker = handle(context, &engine, &args.name)?;
    let decided = decided(args.note.as_deref())?;
    let ordered = breaker.open(decided, args.length).await;
    let word = match args.length {
        Some(length) => format!("open for {}", span(length)),
        None => "open until it is closed".to_owned(),
    };
    said(context, &engine, &breaker, ordered, &word).await
}

async fn find(context: &Context, name: &str) -> Result<(Engine, Breaker), Failure> {
    let engine = context.open_existing().await?;
    let breaker = handle(context, &engine, name)?;
    Ok((engine, breaker))
}

fn handle(context: &Context, engine: &Engine, name: &str) -> Result<Breaker, Failure> {
    let target = context.settings.breaker(name)?;
    Ok(engine.breaker_in(&context.namespace()?, &target))
}

/// Says who decides, and why, about what is stored now.
fn decided(note: Option<&str>) -> Result<Decided, Failure> {
    let by = Label::new(&order::login());
    let by = by.map_err(|error| Failure::input(format!("your name: {error}")))?;
    let note = note.map(Note::new).transpose();
    let note = note.map_err(|error| Failure::input(format!("--note: {error}")))?;
    Ok(Decided {
        note,
        ..Decided::by(by)
    })
}

/// Answers an order with what is stored now.
async fn said(
    context: &Context,
    engine: &Engine,
    breaker: &Breaker,
    ordered: semel::Result<Ordered>,
    word: &str,
) -> Result<ExitCode, Failure> {
    let name = breaker.name();
    let ordered = ordered.map_err(|error| match error.code() {
        "not_found" => Failure::not_found(format!("{name}: there is no such breaker"))
            .hint("`semel breaker list` shows what there is"),
        _ => Failure::from(error),
    })?;
    let (effect, reason) = if ordered.repeated {
        (
            Effect::Noop,
            Some(format!("it is {} already", words(ordered.phase))),
        )
    } else {
        (Effect::Updated, None)
    };
    let line = reason.as_deref().unwrap_or(word);
    let view = breaker.view().await?;
    let json = receipt(
        effect,
        reason.as_deref(),
        view.as_ref(),
        engine.store().now(),
    )?;
    context.printer.answer(&json, &format!("{name}: {line}"));
    Ok(ExitCode::SUCCESS)
}

const fn words(phase: PhaseKind) -> &'static str {
    match phase {
        PhaseKind::Closed => "closed",
        PhaseKind::Open => "open",
        PhaseKind::HalfOpen => "half-open",
    }
}

fn receipt(
    effect: Effect,
    reason: Option<&str>,
    view: Option<&BreakerView>,
    now: Timestamp,
) -> Result<Value, Failure> {
    let mut json =
        json!({"ok": true, "effect": effect.as_str(), "reason": reason, "at": now.to_string()});
    let view = serde_json::to_value(view).map_err(|error| Failure::internal(error.to_string()))?;
    if let (Some(receipt), Value::Object(view)) = (json.as_object_mut(), view) {
        receipt.extend(view);
    }
    Ok(json)
}

async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let views = engine.breakers(Some(&context.namespace()?)).await?;
    if context.printer.is_json() {
        views.iter().for_each(|view| context.printer.object(view));
        return Ok(ExitCode::SUCCESS);
    }
    let now = engine.store().now();
    let head = [
        "NAME", "STATE", "SINCE", "NEXT TRY", "CALLS", "FAILED", "BY", "NOTE",
    ];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(views.iter().map(|view| row(view, now)));
    if rows.len() > 1 {
        for line in table::lines(&rows) {
            context.printer.line(&line);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(view: &BreakerView, now: Timestamp) -> [Cell; 8] {
    let next = match view.retry_at {
        Some(at) if at > now => format!("in {}", span(at.since(now))),
        Some(_) => "now".to_owned(),
        None if view.state == PhaseKind::Open.as_str() => "when closed".to_owned(),
        None => String::new(),
    };
    [
        Key::as_str(&view.name).into(),
        view.state.into(),
        format!("{} ago", span(now.since(view.since))).into(),
        next.into(),
        view.calls.to_string().into(),
        view.failures.to_string().into(),
        view.by.as_ref().map_or("", Label::as_str).into(),
        view.note.as_ref().map_or("", Note::as_str).into(),
    ]
}
