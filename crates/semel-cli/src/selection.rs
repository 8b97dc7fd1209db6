//! One operation by its key, or many by filters.

use std::process::ExitCode;

use semel::Engine;
use semel::store::PAGE_MAX;

use crate::args::query::Filters;
use crate::args::values::StateWord;
use crate::context::Context;
use crate::failure::Failure;
use crate::found::{self, Found};
use crate::printer::{explain, failure_object};

/// What a command is about.
#[derive(Debug)]
pub(crate) enum Selection {
    One(Box<Found>),
    Many {
        found: Vec<Found>,
        /// Whether there are more than one command takes.
        more: bool,
    },
}

/// Finds what a command is about: by key, or all in one of these states that match the filters.
pub(crate) async fn select(
    context: &Context,
    engine: &Engine,
    key: Option<&str>,
    filters: &Filters,
    states: &[StateWord],
) -> Result<Selection, Failure> {
    let Some(key) = key else {
        return many(context, engine, filters, states).await;
    };
    if !filters.is_empty() {
        let text = "a KEY names one operation; filters choose many: use one of the two";
        return Err(Failure::input(text));
    }
    let found = found::find(context, engine, key).await?;
    Ok(Selection::One(Box::new(found)))
}

async fn many(
    context: &Context,
    engine: &Engine,
    filters: &Filters,
    states: &[StateWord],
) -> Result<Selection, Failure> {
    let fitting = !filters.state.is_empty() && filters.state.iter().all(|it| states.contains(it));
    if !fitting {
        let words = states.iter().map(|state| word(*state)).collect::<Vec<_>>();
        let text = format!(
            "name a KEY, or choose many with --state {}",
            words.join(" or --state ")
        );
        return Err(Failure::input(text));
    }
    let store = engine.store();
    let mut query = filters.query(context.namespace()?, store.now());
    query.limit = PAGE_MAX;
    let mut found = vec![];
    loop {
        let page = engine.list(query.clone()).await?;
        let now = store.now();
        let listed = page.items.into_iter();
        found.extend(listed.filter_map(|stored| Found::listed(stored, now)));
        query.cursor = page.next;
        if page.next.is_none() || found.len() >= PAGE_MAX {
            found.truncate(PAGE_MAX);
            // Those that were decided about leave the state, so the next run finds the rest.
            let more = page.next.is_some();
            return Ok(Selection::Many { found, more });
        }
    }
}

fn word(state: StateWord) -> &'static str {
    semel::core::ledger::StateKind::from(state).as_str()
}

/// Answers for many: each refusal on its own line, and the first one gives the exit code.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: usize,
    refused: usize,
    exit: Option<u8>,
}

impl Tally {
    pub(crate) fn count(&mut self, context: &Context, found: &Found, answer: Result<(), Failure>) {
        let Err(failure) = answer else {
            self.done += 1;
            return;
        };
        self.refused += 1;
        self.exit.get_or_insert_with(|| failure.exit());
        if context.printer.is_json() {
            let mut object = failure_object(&failure);
            object["namespace"] = found.namespace.as_str().into();
            object["key"] = found.key.as_str().into();
            context.printer.object(&object);
        }
        explain(&failure.message, failure.hint.as_deref());
    }

    /// Counts what was asked for and is not there.
    pub(crate) fn missing(&mut self, context: &Context, failure: &Failure) {
        self.refused += 1;
        self.exit.get_or_insert_with(|| failure.exit());
        context.printer.failure(failure);
    }

    /// Ends a command about many; `did` says what was done to them.
    pub(crate) fn finish(self, context: &Context, did: &str, more: bool) -> ExitCode {
        let Self { done, refused, .. } = self;
        context.printer.note(&match refused {
            0 => format!("{done} {did}"),
            _ => format!("{done} {did}, {refused} refused"),
        });
        if more {
            context.printer.hint(&format!(
                "one command takes {PAGE_MAX}, and there are more: give it again"
            ));
        }
        self.exit.map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

/// Refuses to go on about many without a clear word.
pub(crate) fn unconfirmed(count: usize, words: &str) -> Failure {
    Failure::input(format!(
        "nothing was done: {count} {} meant (would {words})",
        if count == 1 {
            "operation is"
        } else {
            "operations are"
        }
    ))
    .hint("add --yes to do it, or --dry-run to only look")
}
