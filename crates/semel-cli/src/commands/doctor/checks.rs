//! What a doctor looks at in a ledger.

use std::path::Path;
use std::time::Duration;

use semel::core::clock::DISAGREEMENT;
use semel::core::ledger::StateKind;
use semel::core::webhook::Scheme;
use semel::store::{PAGE_MAX, Query, Stage, Standing};
use semel::{Engine, Error, Timestamp, span};

use super::files;
use super::{Check, Grade};
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::inbox::Source;
use crate::words;

/// Makes every check that can be made.
pub(super) async fn all(context: &Context, doubt_limit: Duration) -> Vec<Check> {
    let url = context.settings.store();
    let mut checks = vec![];
    let engine = match context.open_existing().await {
        Ok(engine) => {
            checks.push(Check::new(
                "store",
                Grade::Ok,
                context.settings.shown_store(),
            ));
            engine
        }
        Err(failure) => {
            let hint = match context.missing() {
                Some(_) => Some("the first operation makes it; or name another with --store"),
                None => failure.hint.as_deref(),
            };
            let mut check = Check::new("store", Grade::Bad, failure.message);
            check.hint = hint.map(str::to_owned);
            checks.push(check);
            return checks;
        }
    };
    checks.push(match engine.store().namespace() {
        Some(namespace) => Check::new("server", Grade::Ok, format!("namespace {namespace}")),
        None => Check::new("sqlite", Grade::Ok, semel::store::sqlite::version()),
    });
    if let Some(path) = url.strip_prefix("sqlite:").map(Path::new) {
        checks.push(files::permissions(path));
        checks.push(files::disk(path));
        checks.extend(engine.store().as_sqlite().map(files::copies));
    }
    checks.extend(inbox(context));
    checks.push(clock(&engine));
    checks.push(files::notes(&engine));
    checks.extend(standing(&engine).await);
    for found in [
        stuck(context, &engine, doubt_limit).await,
        log(&engine).await.map(|check| vec![check]),
    ] {
        match found {
            Ok(found) => checks.extend(found),
            Err(failure) => checks.push(unreadable(&failure)),
        }
    }
    checks
}

fn unreadable(failure: &Failure) -> Check {
    Check::new("ledger", Grade::Bad, &failure.message).hint("run `semel verify`")
}

/// Says whose webhooks nobody verifies, and whose are not taken because a secret cannot be used.
fn inbox(context: &Context) -> Option<Check> {
    let sources = context.settings.inbox();
    let open = sources.values().filter(|it| it.scheme == Scheme::None);
    let open: Vec<_> = open.map(|source| source.name.as_str()).collect();
    if let Some(text) = sources.values().find_map(Source::unusable_secret) {
        let check = Check::new("inbox", Grade::Warn, text);
        return Some(
            check.hint("put the sender's secret there: a running server reads it within a second"),
        );
    }
    match (sources.len(), open.len()) {
        (0, _) => None,
        (count, 0) => Some(Check::new("inbox", Grade::Ok, format!("{count} verified"))),
        (_, _) => {
            let text = format!("anybody can post to {}", open.join(", "));
            let check = Check::new("inbox", Grade::Warn, text);
            Some(check.hint("say how the sender signs (`scheme`), if it does"))
        }
    }
}

/// Says when not everything may be done with the store.
async fn standing(engine: &Engine) -> Option<Check> {
    let store = engine.store();
    if let Some(refusal) = store.as_sqlite().and_then(|sqlite| sqlite.only_reads()) {
        let failure = Failure::from(Error::from(refusal.clone()));
        let check = Check::new("standing", Grade::Bad, failure.message);
        return Some(check.hint(failure.hint.unwrap_or_default()));
    }
    let stands = match (store.standing().await, store.origin(None).await) {
        (Ok(standing), Ok(origin)) => (standing, origin.map(|origin| origin.stage)),
        (Err(error), _) | (_, Err(error)) => return Some(unreadable(&Error::from(error).into())),
    };
    match stands {
        (Standing::Open, _) => None,
        (Standing::Closed(moved), _) => {
            let text = format!("closed: the ledger has moved to {}", moved.to);
            let check = Check::new("standing", Grade::Bad, text);
            // A server does not say where its ledger has gone.
            Some(match store.namespace() {
                Some(_) => check.hint("ask the operator of the server for the new address"),
                None => check.hint(format!("say --store {} (or SEMEL_STORE)", moved.to)),
            })
        }
        (Standing::Copy, Some(Stage::Filling | Stage::Adopting)) => {
            let text = "an unfinished copy, which can only be read";
            let check = Check::new("standing", Grade::Bad, text);
            Some(check.hint("run the same `semel copy` again: it goes on where it stopped"))
        }
        (Standing::Copied { from }, _) => {
            let text = format!("the file is a copy of {from}, which can only be read");
            let check = Check::new("standing", Grade::Warn, text);
            Some(check.hint("`semel restore` goes on with it, if the original does not"))
        }
        (Standing::Copy, Some(Stage::Whole) | None) => {
            let check = Check::new("standing", Grade::Warn, "a copy, which can only be read");
            Some(check.hint("`semel restore` goes on with it, if the original does not"))
        }
    }
}

/// Compares the time by which leases are judged with the machine's clock.
fn clock(engine: &Engine) -> Check {
    let store = engine.store();
    let (judged, wall) = (store.now(), store.reading().wall);
    let apart = judged.since(wall).max(wall.since(judged));
    if apart > DISAGREEMENT {
        let text = format!("the clock says {wall}, and the ledger believes {judged}");
        return Check::new("clock", Grade::Bad, text)
            .hint("set the clock; until then the ledger counts the time that passes by itself");
    }
    Check::new("clock", Grade::Ok, format!("{wall}"))
}

/// Looks for operations that only a person can move on.
async fn stuck(context: &Context, engine: &Engine, limit: Duration) -> Result<Vec<Check>, Failure> {
    let mut seen = Stuck::default();
    let mut query = Query {
        states: vec![StateKind::Doubtful, StateKind::Dead],
        limit: PAGE_MAX,
        ..Query::default()
    };
    loop {
        let page = engine.list(query.clone()).await?;
        let now = engine.store().now();
        for stored in &page.items {
            if let Some(operation) = stored.record.operation() {
                seen.count(operation, now, limit);
            }
        }
        query.cursor = page.next;
        if page.next.is_none() {
            return Ok(seen.checks(context, limit));
        }
    }
}

#[derive(Default)]
struct Stuck {
    doubts: usize,
    /// Doubts that nobody has written down yet.
    lapsed: usize,
    /// Doubts older than the limit.
    old: usize,
    oldest: Duration,
    dead: usize,
}

impl Stuck {
    fn count(
        &mut self,
        operation: &semel::core::ledger::Operation,
        now: Timestamp,
        limit: Duration,
    ) {
        let judged = operation.judged_at(now);
        if judged.state.kind() == StateKind::Dead {
            self.dead += 1;
            return;
        }
        let since = words::doubt_since(&judged).unwrap_or(operation.created_at);
        let age = now.since(since);
        self.doubts += 1;
        self.lapsed += usize::from(operation.state.kind() == StateKind::Running);
        self.old += usize::from(age > limit);
        self.oldest = self.oldest.max(age);
    }

    fn checks(&self, context: &Context, limit: Duration) -> Vec<Check> {
        let list = |state| context.command(&["list", "--state", state]);
        let doubts = match (self.doubts, self.old) {
            (0, _) => Check::new("doubts", Grade::Ok, "none"),
            (doubts, 0) => {
                let text = format!("{doubts}, the oldest for {}", span(self.oldest));
                Check::new("doubts", Grade::Warn, text)
            }
            (doubts, old) => {
                let text = format!(
                    "{doubts}, the oldest for {}; {old} older than {}",
                    span(self.oldest),
                    span(limit)
                );
                Check::new("doubts", Grade::Bad, text)
            }
        };
        let doubts = if self.doubts > 0 {
            doubts.hint(format!(
                "`{}` names them; find out what happened and resolve them",
                list("doubtful")
            ))
        } else {
            doubts
        };
        let stuck = match self.lapsed {
            0 => Check::new("leases", Grade::Ok, "no attempt is past its lease"),
            lapsed => Check::new(
                "leases",
                Grade::Warn,
                format!("{lapsed} past their lease without a word"),
            )
            .hint("their processes died or are stopped; they count as doubts"),
        };
        let dead = match self.dead {
            0 => Check::new("dead", Grade::Ok, "none"),
            dead => Check::new("dead", Grade::Warn, dead.to_string())
                .hint(format!("`{}` names them", list("dead"))),
        };
        vec![stuck, doubts, dead]
    }
}

/// Reads the end of the log, as whatever is wrong with a disk shows there first.
async fn log(engine: &Engine) -> Result<Check, Failure> {
    let end = engine.last_entry().await?;
    if end == 0 {
        return Ok(Check::new("log", Grade::Ok, "empty"));
    }
    if engine.store().namespace().is_some() {
        // The last entry may be another namespace's.
        let text = format!("can be read up to entry {end}");
        return Ok(Check::new("log", Grade::Ok, text));
    }
    let last = engine.store().log(end - 1, 1).await.map_err(Error::from)?;
    Ok(match last.first() {
        Some(last) => Check::new(
            "log",
            Grade::Ok,
            format!("ends with entry {}, {}", last.seq, last.entry.at),
        ),
        None => Check::new("log", Grade::Bad, format!("entry {end} is missing"))
            .hint("run `semel verify`"),
    })
}
