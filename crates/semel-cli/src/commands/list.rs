//! `semel list`

use std::process::ExitCode;

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
    let engine = context.open_existing().await?;
    let store = engine.store();
    let mut query = args.filters.query(context.namespace()?, store.now());
    query.cursor = args.after.map(semel::store::Place);
    let wanted = args.limit as usize;
    let mut items: Vec<Stored> = vec![];
    loop {
        query.limit = wanted - items.len();
        let page = engine.list(query.clone()).await?;
        items.extend(page.items);
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
        for line in lay_out(items.iter().map(|stored| &*stored.record), now) {
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

fn row(record: &Record, now: Timestamp) -> Option<[Cell; 7]> {
    let view = RecordView::of(record, now)?;
    let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".to_owned()));
    let judged = record.operation().map(|operation| operation.judged_at(now));
    let since = view.created_at.or(view.settled_at);
    Some([
        words::state(view.state),
        view.key.into(),
        or_dash(view.name.map(|name| name.to_string())),
        or_dash(view.effect.map(|effect| effect.to_string())),
        or_dash(view.attempt.map(|attempt| attempt.to_string())),
        or_dash(since.map(|since| span(now.since(since)))),
        judged
            .map_or_else(String::new, |judged| words::remark(&judged, now))
            .into(),
    ])
}
