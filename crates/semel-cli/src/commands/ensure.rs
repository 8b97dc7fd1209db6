//! `semel ensure`

use std::process::ExitCode;

use semel::core::ledger::StateKind;
use semel::{Engine, Key};
use serde_json::json;

use super::run::inject::Moment;
use super::run::job::Job;
use super::run::{carry_out, housekeeping, listen};
use crate::args::run::Ensure;
use crate::child::signals::Signals;
use crate::context::Context;
use crate::failure::Failure;
use crate::probe::{self, Found};

pub(crate) async fn run(context: &Context, args: &Ensure) -> Result<ExitCode, Failure> {
    context.prepare().await?;
    let mut job = Job::new(context, &args.common)?.check(&args.check)?;
    let signals = listen()?;
    if is_so(&job, &args.check, &signals).await? {
        return Ok(already(&job));
    }
    if args.common.dry_run {
        let line = job.command_line();
        job.would(&format!(
            "would run `{line}`, as the check says that it is not so"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    job.say_derived_key();
    job.faults.strike(Moment::BeforeClaim);
    let engine = context.open().await?;
    job.faults.plan(&engine);
    let occurrence = next_occurrence(&job, &engine).await?;
    job.rename(occurrence);
    let answer = carry_out(&job, &engine, &signals, None).await?;
    let code = answer.give(&job)?;
    housekeeping(context, &engine).await;
    Ok(code)
}

/// Asks the check; one that does not know must not lead to anything.
async fn is_so(job: &Job<'_>, check: &str, signals: &Signals) -> Result<bool, Failure> {
    let mut command = probe::shell(check);
    job.identity().name_for(&mut command);
    match probe::look(command, signals).await? {
        Found::Done(_) => Ok(true),
        Found::NotDone => Ok(false),
        Found::Unknown(how) => Err(Failure::input(format!(
            "the check does not know ({how}); nothing was run"
        ))
        .hint("a check exits with 0 when it is so and with 1 when it is not")),
    }
}

fn already(job: &Job<'_>) -> ExitCode {
    let reason = "the check says that it is so already";
    let object = job.loose(&[
        ("ok", json!(true)),
        ("effect", json!("noop")),
        ("reason", json!(reason)),
        ("data", json!(null)),
    ]);
    let printer = &job.context.printer;
    if printer.is_json() {
        printer.object(&object);
    } else {
        printer.note(&format!("{}: {reason}", job.key));
    }
    ExitCode::SUCCESS
}

/// Finds the first occurrence that is not settled: that of an interrupted call, or a new one.
///
/// Occurrences are settled one after the other, so the border is found by halving.
async fn next_occurrence(job: &Job<'_>, engine: &Engine) -> Result<Key, Failure> {
    let mut settled = 0;
    let mut open = 1;
    while is_settled(job, engine, open).await? {
        settled = open;
        open = open.saturating_mul(2);
    }
    while open - settled > 1 {
        let middle = settled + (open - settled) / 2;
        if is_settled(job, engine, middle).await? {
            settled = middle;
        } else {
            open = middle;
        }
    }
    occurrence(job, open)
}

async fn is_settled(job: &Job<'_>, engine: &Engine, number: u32) -> Result<bool, Failure> {
    let record = engine
        .load(&job.namespace, &occurrence(job, number)?)
        .await?;
    Ok(record.is_some_and(|record| match record.kind() {
        StateKind::Succeeded | StateKind::Failed | StateKind::Tombstone => true,
        StateKind::Pending
        | StateKind::Running
        | StateKind::Doubtful
        | StateKind::Dead
        | StateKind::Stub
        | StateKind::Breaker(_) => false,
    }))
}

fn occurrence(job: &Job<'_>, number: u32) -> Result<Key, Failure> {
    if number == 1 {
        return Ok(job.key.clone());
    }
    Ok(Key::new(&format!("{}#{number}", job.key)).map_err(semel::Error::from)?)
}
