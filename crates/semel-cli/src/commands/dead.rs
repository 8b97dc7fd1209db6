//! `semel dead`

use std::process::ExitCode;
use std::time::Instant;

use semel::core::ledger::StateKind;
use semel::core::queue::{Pace, Rate};
use semel::store::{PAGE_MAX, Query, Stored};
use semel::{Engine, Timestamp};

use crate::args::query::List;
use crate::args::queue::{Bulk, Dead, DeadVerb};
use crate::args::values::StateWord;
use crate::commands::{list, show};
use crate::context::Context;
use crate::failure::Failure;
use crate::found::{self, Found};
use crate::order::{Choice, Desk};
use crate::selection::Tally;

pub(crate) async fn run(context: &Context, args: &Dead) -> Result<ExitCode, Failure> {
    match &args.verb {
        DeadVerb::List(args) => list(context, args).await,
        DeadVerb::Show(args) => show::run(context, args).await,
        DeadVerb::Retry(args) => many(context, args, &Choice::Retry, "retried").await,
        DeadVerb::Discard(args) => many(context, args, &Choice::Cancel, "discarded").await,
    }
}

async fn list(context: &Context, args: &List) -> Result<ExitCode, Failure> {
    let mut args = args.clone();
    if args.filters.state.is_empty() {
        args.filters.state = vec![StateWord::Dead, StateWord::Doubtful];
    }
    list::show(context, &args, is_held).await
}

/// Says whether it waits for somebody: a doubt about what was no task is its caller's to see.
fn is_held(stored: &Stored, now: Timestamp) -> bool {
    let is_task = || {
        let operation = stored.record.operation();
        operation.is_some_and(|operation| operation.queue.is_some())
    };
    stored.record.kind_at(now) != StateKind::Doubtful || is_task()
}

async fn many(
    context: &Context,
    args: &Bulk,
    choice: &Choice,
    done: &str,
) -> Result<ExitCode, Failure> {
    let desk = Desk::new(context, &args.said)?;
    let engine = context.open_existing().await?;
    if let Some(key) = &args.key {
        if !args.filters.is_empty() || args.all {
            let text = "a KEY names one operation; filters choose many: use one of the two";
            return Err(Failure::input(text));
        }
        let found = found::find(context, &engine, key).await?;
        return one(context, &engine, &desk, &found, choice).await;
    }
    if args.filters.is_empty() && !args.all {
        let text = "name a KEY, choose many with filters, or say --all";
        return Err(Failure::input(text));
    }
    let mut tally = Tally::default();
    let mut pacer = Pacer::new(args.rate.filter(|_| !desk.dry_run));
    let mut query = query(context, &engine, args)?;
    loop {
        let page = engine.list(query.clone()).await?;
        let now = engine.store().now();
        for stored in page.items {
            let Some(found) = Found::listed(stored, now) else {
                continue;
            };
            pacer.wait().await;
            let answer = desk.decide(context, &engine, &found, choice.clone()).await;
            tally.count(context, &found, answer);
            if context.printer.is_closed() {
                return Ok(tally.finish(context, done, true));
            }
        }
        query.cursor = page.next;
        if page.next.is_none() {
            return Ok(tally.finish(context, done, false));
        }
    }
}

/// One that is not dead is left as it is, whatever else could be decided about it. Who says the same twice is told the same
/// twice.
async fn one(
    context: &Context,
    engine: &Engine,
    desk: &Desk,
    found: &Found,
    choice: &Choice,
) -> Result<ExitCode, Failure> {
    let state = found.state();
    let is_meant = matches!(state, StateKind::Dead | StateKind::Doubtful);
    if !is_meant && !desk.is_repeat(found, choice) {
        let (key, state) = (&found.key, state.as_str());
        let text = format!("{key} is not dead; it is {state}");
        return Err(Failure::input(text).hint("`semel dead list` lists those that are"));
    }
    desk.decide(context, engine, found, choice.clone()).await?;
    Ok(ExitCode::SUCCESS)
}

fn query(context: &Context, engine: &Engine, args: &Bulk) -> Result<Query, Failure> {
    let filters = &args.filters;
    if filters.state.iter().any(|state| *state != StateWord::Dead) {
        let text = "only dead operations are meant here: --state can be dead alone";
        return Err(Failure::input(text));
    }
    Ok(Query {
        states: vec![StateKind::Dead],
        limit: PAGE_MAX,
        ..filters.query(context.namespace()?, engine.store().now())
    })
}

/// Keeps to a rate, from the first one on.
#[derive(Debug)]
struct Pacer {
    rate: Option<Rate>,
    pace: Pace,
    since: Instant,
}

impl Pacer {
    fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            pace: Pace::default(),
            since: Instant::now(),
        }
    }

    async fn wait(&mut self) {
        let Some(rate) = self.rate else { return };
        let wait = self.pace.evenly(rate, self.since.elapsed());
        tokio::time::sleep(wait).await;
    }
}
