//! `semel log`

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use semel::core::KeyHash;
use semel::core::ledger::{Event, Record};
use semel::store::{Logged, PAGE_MAX, Place};
use semel::view::EventView;
use semel::{Engine, Error, Events};

use crate::args::query::Log;
use crate::context::Context;
use crate::failure::Failure;
use crate::found;

/// How soon a follower looks again after something came.
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// How long a follower waits at most: a second is soon enough for a person, and costs nothing.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How much further back the last entries are looked for each time.
const BACK_FACTOR: u64 = 32;

pub(crate) async fn run(context: &Context, args: &Log) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let only = match &args.key {
        Some(key) => Some(Subject::find(context, &engine, key).await?),
        None => None,
    };
    let end = engine.last_entry().await?;
    let mut reader = Reader {
        context,
        events: Events::new(&engine),
        engine,
        only,
    };
    let limit = args.limit as usize;
    match args.after {
        Some(after) if args.follow => reader.first(after, end, usize::MAX).await?,
        Some(after) => reader.first(after, end, limit).await?,
        None => reader.last(end, limit).await?,
    }
    if args.follow {
        reader.follow(end.max(args.after.unwrap_or(0))).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The operation whose entries are wanted.
struct Subject {
    place: Place,
    hash: KeyHash,
    /// How many entries it has: each accepted command is one.
    entries: u64,
}

impl Subject {
    async fn find(context: &Context, engine: &Engine, key: &str) -> Result<Self, Failure> {
        let found = found::find_trace(context, engine, key).await?;
        Ok(Self {
            place: found.place,
            hash: KeyHash::of(&found.namespace, &found.key),
            entries: Record::version(&found.record).0,
        })
    }

    fn owns(&self, logged: &Logged) -> bool {
        logged.place == Some(self.place) || logged.entry.unplaced == Some(self.hash)
    }
}

struct Reader<'a> {
    context: &'a Context,
    engine: Engine,
    events: Events,
    only: Option<Subject>,
}

impl Reader<'_> {
    async fn page(&self, after: u64) -> Result<Vec<Logged>, Failure> {
        let page = self.engine.store().log(after, PAGE_MAX).await;
        Ok(page.map_err(Error::from)?)
    }

    fn wants(&self, logged: &Logged) -> bool {
        self.only.as_ref().is_none_or(|only| only.owns(logged))
    }

    async fn print(&mut self, logged: &Logged) -> Result<(), Failure> {
        let view = self.events.view(logged).await?;
        self.context
            .printer
            .answer(&view, &line(self.context, &view));
        Ok(())
    }

    /// Writes the first entries after a number.
    async fn first(&mut self, after: u64, end: u64, limit: usize) -> Result<(), Failure> {
        let (mut cursor, mut written, mut last) = (after, 0, after);
        while cursor < end && !self.context.printer.is_closed() {
            let page = self.page(cursor).await?;
            let Some(newest) = page.last() else { break };
            cursor = newest.seq;
            for logged in page.iter().filter(|logged| logged.seq <= end) {
                if !self.wants(logged) {
                    continue;
                }
                if written == limit {
                    let hint = format!("more with --after {last}");
                    self.context.printer.hint(&hint);
                    return Ok(());
                }
                self.print(logged).await?;
                (written, last) = (written + 1, logged.seq);
            }
        }
        Ok(())
    }

    /// Writes the newest entries, the newest last.
    async fn last(&mut self, end: u64, limit: usize) -> Result<(), Failure> {
        // An operation's entries begin at its place and are as many as its version; without one,
        // every entry counts, and where numbers have gaps the last ones are found further back.
        let (mut start, expected) = match &self.only {
            Some(only) => (only.place.0.saturating_sub(1), only.entries),
            None => (end.saturating_sub(limit as u64), u64::MAX),
        };
        let mut back = limit as u64;
        let (kept, dropped) = loop {
            let (kept, dropped) = self.between(start, end, limit, expected).await?;
            if kept.len() >= limit || start == 0 || self.only.is_some() {
                break (kept, dropped || (start > 0 && self.only.is_none()));
            }
            back = back.saturating_mul(BACK_FACTOR);
            start = end.saturating_sub(back);
        };
        for logged in kept {
            self.print(&logged).await?;
        }
        if dropped {
            self.context.printer.hint("earlier entries with --after 0");
        }
        Ok(())
    }

    /// Reads the newest of the entries between two numbers; says whether there were more.
    async fn between(
        &mut self,
        after: u64,
        end: u64,
        limit: usize,
        mut expected: u64,
    ) -> Result<(VecDeque<Logged>, bool), Failure> {
        let (mut cursor, mut kept, mut dropped) = (after, VecDeque::new(), false);
        while cursor < end && expected > 0 {
            let page = self.page(cursor).await?;
            let Some(newest) = page.last() else { break };
            cursor = newest.seq;
            for logged in page {
                if logged.seq <= end && self.wants(&logged) {
                    expected -= u64::from(logged.place.is_some());
                    kept.push_back(logged);
                    if kept.len() > limit {
                        kept.pop_front();
                        dropped = true;
                    }
                }
                if expected == 0 {
                    break;
                }
            }
        }
        Ok((kept, dropped))
    }

    /// Goes on with what comes, until nobody reads it any more.
    async fn follow(&mut self, after: u64) -> Result<(), Failure> {
        let (mut cursor, mut pause) = (after, PAUSE_FIRST);
        while !self.context.printer.is_closed() && !self.context.printer.is_left() {
            let page = self.page(cursor).await?;
            if page.is_empty() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            }
            pause = PAUSE_FIRST;
            for logged in page {
                cursor = logged.seq;
                if self.wants(&logged) {
                    self.print(&logged).await?;
                }
            }
        }
        Ok(())
    }
}

fn line(context: &Context, view: &EventView) -> String {
    let key = match (&view.namespace, &view.key) {
        (Some(namespace), Some(key)) if namespace.as_str() == context.settings.get("namespace") => {
            key.to_string()
        }
        (Some(namespace), Some(key)) => format!("{namespace}/{key}"),
        _ => "(forgotten)".to_owned(),
    };
    let by = match &view.by {
        Some(by) => format!("  by {by}"),
        None => String::new(),
    };
    let unusual: Vec<_> = view
        .events
        .iter()
        .filter(|event| is_unusual(**event))
        .collect();
    let unusual = unusual.iter().map(|event| event.as_str().replace('_', " "));
    let unusual = unusual.collect::<Vec<_>>().join(", ");
    let why = if unusual.is_empty() {
        unusual
    } else {
        format!("  ({unusual})")
    };
    format!(
        "{:>6}  {}  {:<7}  {:<9}  {key}  fence {}{by}{why}",
        view.seq,
        view.at,
        view.command,
        view.state.unwrap_or("-"),
        view.fence
    )
}

/// Says whether an event tells more than the command and the state do.
const fn is_unusual(event: Event) -> bool {
    match event {
        Event::DoubtWaived
        | Event::LeaseEnded
        | Event::HolderGone
        | Event::SettledLate
        | Event::EvidenceKept
        | Event::Conflict
        | Event::MarkCleared
        | Event::Unplaced => true,
        Event::Submitted
        | Event::QueueAttached
        | Event::Begun
        | Event::ProbeBegun
        | Event::Renewed
        | Event::Settled
        | Event::Released
        | Event::Doubted
        | Event::Died
        | Event::Resolved
        | Event::Retried
        | Event::Cancelled
        | Event::Forgotten
        | Event::Buried
        | Event::Dropped
        | Event::Delivered
        | Event::Adopted
        // Of a breaker it is the command that says so.
        | Event::BreakerCounted
        | Event::BreakerOpened
        | Event::BreakerHalfOpen
        | Event::BreakerProbeRenewed
        | Event::BreakerProbeReturned
        | Event::BreakerClosed
        | Event::BreakerReset => false,
    }
}
