//! `semel stats`

use std::collections::BTreeMap;
use std::process::ExitCode;

use semel::core::ledger::{Event, StateKind};
use semel::store::{PAGE_MAX, Query};
use semel::view::RecordView;
use semel::{Engine, Error, Namespace, Replayed, Saved, Timestamp, span};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{self, Cell};
use crate::words;

/// What the log is asked for, and what it is called.
const COUNTED: [(&str, Event); 12] = [
    ("attempts", Event::Begun),
    ("probes", Event::ProbeBegun),
    ("doubts", Event::Doubted),
    ("doubts waived", Event::DoubtWaived),
    ("resolutions", Event::Resolved),
    ("leases ended", Event::LeaseEnded),
    ("holders gone", Event::HolderGone),
    ("settled late", Event::SettledLate),
    ("conflicts", Event::Conflict),
    ("retries", Event::Retried),
    ("cancelled", Event::Cancelled),
    ("forgotten", Event::Forgotten),
];

pub(crate) async fn run(context: &Context) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let namespace = context.namespace()?;
    let now = Counts::of(&engine, namespace.clone()).await?;
    let history = History::of(&engine).await?;
    let replayed = engine.replayed();
    if context.printer.is_json() {
        context.printer.object(&json!({
            "namespace": namespace.as_str(),
            "operations": now.operations,
            "states": now.states_json(),
            "answer_bytes": now.answer_bytes,
            "log": history.json(),
            "replayed": replayed_json(&replayed),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows: Vec<[Cell; 2]> = vec![[
        format!("operations in {namespace}").into(),
        now.operations.into(),
    ]];
    for (state, count) in &now.states {
        rows.push([
            Cell::styled(format!("  {}", state.as_str()), words::style(*state)),
            count.into(),
        ]);
    }
    rows.push(["  bytes of answers".into(), now.answer_bytes.into()]);
    rows.push(["entries in the log".into(), history.entries.into()]);
    for (name, count) in history.named() {
        rows.push([format!("  {name}").into(), count.into()]);
    }
    rows.extend(replayed_rows(&replayed));
    for line in table::lines(&rows) {
        context.printer.line(&line);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what was saved: all of it, then by what saved it.
fn replayed_rows(replayed: &Replayed) -> Vec<[Cell; 2]> {
    let all = &replayed.all;
    let mut rows: Vec<[Cell; 2]> = vec![
        ["answers given again".into(), all.calls.into()],
        ["  time saved".into(), span(all.time).into()],
    ];
    for (currency, money) in &all.money {
        let money = format!("{money} {currency}");
        rows.push(["  money saved".into(), money.into()]);
    }
    for (by, saved) in &replayed.by {
        let name = by.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" {name}"));
        let mut parts = vec![saved.calls.to_string(), span(saved.time)];
        let money = saved.money.iter();
        parts.extend(money.map(|(currency, money)| format!("{money} {currency}")));
        let by = format!("  by {}{name}", by.door);
        rows.push([by.into(), parts.join(", ").into()]);
    }
    rows
}

fn replayed_json(replayed: &Replayed) -> Value {
    let mut all = saved_json(&replayed.all);
    let by = replayed.by.iter().map(|(by, saved)| {
        let mut one = saved_json(saved);
        one["door"] = json!(by.door.as_str());
        one["name"] = json!(by.name.as_ref().map(|name| name.as_str()));
        one
    });
    all["by"] = by.collect();
    all
}

fn saved_json(saved: &Saved) -> Value {
    let money = saved.money.iter();
    let money = money.map(|(currency, money)| (currency.to_string(), json!(money.to_string())));
    json!({
        "count": saved.calls,
        "saved_ms": u64::try_from(saved.time.as_millis()).unwrap_or(u64::MAX),
        "money": money.collect::<serde_json::Map<_, _>>(),
    })
}

/// What a namespace holds now.
struct Counts {
    operations: u64,
    states: BTreeMap<StateKind, u64>,
    answer_bytes: u64,
}

impl Counts {
    async fn of(engine: &Engine, namespace: Namespace) -> Result<Self, Failure> {
        let states = StateKind::OPERATIONS.into_iter();
        let mut counts = Self {
            operations: 0,
            // What is left of a forgotten operation belongs to no namespace any more.
            states: states
                .filter(|state| *state != StateKind::Stub)
                .map(|state| (state, 0))
                .collect(),
            answer_bytes: 0,
        };
        let mut query = Query {
            namespace: Some(namespace),
            limit: PAGE_MAX,
            ..Query::default()
        };
        loop {
            let page = engine.list(query.clone()).await?;
            let now = engine.store().now();
            for stored in &page.items {
                let Some(view) = RecordView::of(&stored.record, now) else {
                    continue;
                };
                counts.operations += 1;
                *counts.states.entry(view.state).or_default() += 1;
                let settled = stored.record.operation().and_then(|it| it.settled());
                let answer = settled.and_then(|settled| settled.outcome.payload);
                counts.answer_bytes += answer.map_or(0, |payload| payload.size);
            }
            query.cursor = page.next;
            if page.next.is_none() {
                return Ok(counts);
            }
        }
    }

    fn states_json(&self) -> Value {
        let states = self.states.iter();
        states
            .map(|(state, count)| (state.as_str().to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// What happened in the whole store.
#[derive(Default)]
struct History {
    entries: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    events: BTreeMap<Event, u64>,
}

impl History {
    async fn of(engine: &Engine) -> Result<Self, Failure> {
        let mut history = Self::default();
        // What is written meanwhile is left for the next time.
        let end = engine.last_entry().await?;
        let mut cursor = 0;
        while cursor < end {
            let page = engine.store().log(cursor, PAGE_MAX).await;
            let page = page.map_err(Error::from)?;
            let Some(newest) = page.last() else { break };
            cursor = newest.seq;
            for logged in page.iter().filter(|logged| logged.seq <= end) {
                history.entries += 1;
                history.first.get_or_insert(logged.entry.at);
                history.last = Some(logged.entry.at);
                for event in &logged.entry.events {
                    *history.events.entry(*event).or_default() += 1;
                }
            }
        }
        Ok(history)
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTED
            .iter()
            .map(|(name, event)| (*name, self.events.get(event).copied().unwrap_or(0)))
    }

    fn json(&self) -> Value {
        let mut object = serde_json::Map::new();
        object.insert("entries".to_owned(), json!(self.entries));
        for (name, count) in self.named() {
            object.insert(name.replace(' ', "_"), json!(count));
        }
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        object.insert("first_at".to_owned(), json!(time(self.first)));
        object.insert("last_at".to_owned(), json!(time(self.last)));
        object.into()
    }
}
