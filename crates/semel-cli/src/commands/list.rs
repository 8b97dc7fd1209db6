//! `semel list`

use std::process::ExitCode;

use semel::core::identity::Door;
use semel::core::ledger::Record;
use semel::store::Stored;
use semel::view::RecordView;
use semel::{Timestamp, span};

use crate::args::query::List;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{self, Cell};
use crate::words;

pub(crate) async fn run(context: &Context, args: &List) -> Result<ExitCode, Failure> {
    show(context, args, |_, _| true).await
}

/// Lists what is wanted of what the filters find.
pub(crate) async fn show(
    context: &Context,
    args: &List,
    is_wanted: impl Fn(&Stored, Timestamp) -> bool,
) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let store = engine.store();
    let mut query = args.filters.query(context.namespace()?, store.now());
    query.cursor = args.after.map(semel::store::Place);
    let wanted = args.limit as usize;
    let mut items: Vec<Stored> = vec![];
    loop {
        query.limit = wanted - items.len();
        let page = engine.list(query.clone()).await?;
        let now = store.now();
        let found = page.items.into_iter();
        items.extend(found.filter(|stored| is_wanted(stored, now)));
        query.cursor = page.next;
        if page.next.is_none() || items.len() >= wanted {
            break;
        }
    }
    let now = store.now();
    if context.printer.is_json() {
        for stored in &items {
            if let Some(view) = RecordView::of(&stored.record, now) {
                context.printer.object(&view.shown(engine.redactor()));
            }
        }
    } else if !items.is_empty() {
        let records = items.iter().map(|stored| &*stored.record);
        let lines = match args.filters.scoping_door() {
            Some(Door::Mcp) => lay_out_calls(records, "TOOL", now),
            Some(Door::Proxy) => lay_out_calls(records, "NAME", now),
            // A webhook's caller waits for no answer of its workers.
            Some(Door::Inbox) | None => lay_out(records, now),
        };
        for line in lines {
            context.printer.line(&line);
        }
    }
    if let Some(next) = query.cursor {
        context
            .printer
            .hint(&format!("more with --after {}", next.0));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lays records out as a table for people.
pub(crate) fn lay_out<'a>(
    records: impl Iterator<Item = &'a Record>,
    now: Timestamp,
) -> Vec<String> {
    let head = ["STATE", "KEY", "NAME", "EFFECT", "TRY", "AGE", "NOTE"];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(records.filter_map(|record| row(record, now)));
    table::lines(&rows)
}

/// Lays the records of a door that scopes keys out: what was called, what became of it, by what it was
/// recognised and whether its callers got their answers. Their keys are long, so they come late.
fn lay_out_calls<'a>(
    records: impl Iterator<Item = &'a Record>,
    name: &str,
    now: Timestamp,
) -> Vec<String> {
    let head = [
        "STATE",
        name,
        "DECISION",
        "KEY SOURCE",
        "DELIVERY",
        "AGE",
        "KEY",
        "NOTE",
    ];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(records.filter_map(|record| call_row(record, now)));
    table::lines(&rows)
}

fn call_row(record: &Record, now: Timestamp) -> Option<[Cell; 8]> {
    let view = RecordView::of(record, now)?;
    let age = age(&view, now);
    Some([
        words::state(view.state),
        or_dash(view.name),
        or_dash(view.decision),
        or_dash(view.key_source),
        view.delivery.into(),
        or_dash(age),
        view.key.into(),
        remark(record, now),
    ])
}

fn row(record: &Record, now: Timestamp) -> Option<[Cell; 7]> {
    let view = RecordView::of(record, now)?;
    let age = age(&view, now);
    Some([
        words::state(view.state),
        view.key.into(),
        or_dash(view.name),
        or_dash(view.effect),
        or_dash(view.attempt),
        or_dash(age),
        remark(record, now),
    ])
}

fn age(view: &RecordView, now: Timestamp) -> Option<String> {
    let since = view.created_at.or(view.settled_at)?;
    Some(span(now.since(since)))
}

fn remark(record: &Record, now: Timestamp) -> Cell {
    let judged = record.operation().map(|operation| operation.judged_at(now));
    let remark = judged.map(|judged| words::remark(&judged, now));
    remark.unwrap_or_default().into()
}

fn or_dash(text: Option<impl ToString>) -> Cell {
    text.map_or_else(|| Cell::from("-"), Cell::from)
}
