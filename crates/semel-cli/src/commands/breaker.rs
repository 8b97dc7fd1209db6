//! `semel breaker`

use std::process::ExitCode;

use semel::breaker::{Breaker, BreakerView, Choice, Decided, PhaseKind};
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
            let order = Order {
                decided: decided(args.note.as_deref())?,
                choice: Choice::Close,
                dry_run: args.dry_run,
            };
            said(context, &engine, &breaker, order, "closed").await
        }
        BreakerVerb::Reset(args) => {
            let (engine, breaker) = find(context, &args.name).await?;
            let order = Order {
                decided: decided(args.note.as_deref())?,
                choice: Choice::Reset,
                dry_run: args.dry_run,
            };
            said(context, &engine, &breaker, order, "reset").await
        }
    }
}

async fn open(context: &Context, args: &args::Open) -> Result<ExitCode, Failure> {
    // Whoever opens a breaker before it is used makes it, so a store is made, too.
    let engine = match args.dry_run {
        true => context.open_existing().await?,
        false => context.open().await?,
    };
    let breaker = handle(context, &engine, &args.name)?;
    let order = Order {
        decided: decided(args.note.as_deref())?,
        choice: Choice::Open(args.length),
        dry_run: args.dry_run,
    };
    let word = match args.length {
        Some(length) => format!("open for {}", span(length)),
        None => "open until it is closed".to_owned(),
    };
    said(context, &engine, &breaker, order, &word).await
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

/// What is decided, and whether it is only tried out.
struct Order {
    decided: Decided,
    choice: Choice,
    dry_run: bool,
}

/// Carries an order out, or only says what it would do; answers with what is stored now.
async fn said(
    context: &Context,
    engine: &Engine,
    breaker: &Breaker,
    order: Order,
    word: &str,
) -> Result<ExitCode, Failure> {
    let name = breaker.name();
    let ordered = async {
        if order.dry_run {
            return breaker.foresee(order.decided, order.choice).await;
        }
        let ordered = breaker.decide(order.decided, order.choice).await?;
        Ok((ordered, breaker.view().await?))
    };
    let (ordered, view) = ordered.await.map_err(|error| match error.code() {
        "not_found" => Failure::not_found(format!("{name}: there is no such breaker"))
            .hint("`semel breaker list` shows what there is"),
        _ => Failure::from(error),
    })?;
    let (effect, reason) = match (ordered.repeated, order.dry_run) {
        (true, _) => {
            let reason = format!("it is {} already", words(ordered.phase));
            (Effect::Noop, Some(reason))
        }
        (false, true) => (Effect::WouldUpdate, None),
        (false, false) => (Effect::Updated, None),
    };
    let would = format!("would be {word}");
    let line = match (&reason, order.dry_run) {
        (Some(reason), _) => reason,
        (None, true) => &would,
        (None, false) => word,
    };
    let mut json = receipt(
        effect,
        reason.as_deref(),
        view.as_ref(),
        engine.store().now(),
    )?;
    if order.dry_run {
        json["dry_run"] = json!(true);
        let changes: Vec<_> = (!ordered.repeated)
            .then_some(would.as_str())
            .into_iter()
            .collect();
        json["changes"] = json!(changes);
    }
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
