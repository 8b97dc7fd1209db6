//! `semel run`

pub(crate) mod answer;
mod breaking;
pub(crate) mod data;
pub(crate) mod inject;
pub(crate) mod job;
pub(crate) mod probe;
pub(crate) mod verdict;

use std::process::ExitCode;

use semel::core::ledger::{Record, StateKind};
use semel::{Admission, Engine, Label, Preview};

use self::answer::Answer;
use self::breaking::Breaking;
use self::inject::Moment;
use self::job::Job;
use crate::args::run::Run;
use crate::args::values::{ClassWord, OnDoubtWord};
use crate::child::signals::{self, Signals};
use crate::context::Context;
use crate::failure::Failure;
use crate::order;

pub(crate) async fn run(context: &Context, args: &Run) -> Result<ExitCode, Failure> {
    if matches!(args.class, Some(ClassWord::Safe)) {
        if args.breaker.is_some() {
            let text = "--breaker is for what is recorded; --class safe is not";
            return Err(Failure::input(text));
        }
        return unrecorded(&Job::new(context, &args.common)?, args).await;
    }
    context.prepare().await?;
    let job = Job::new(context, &args.common)?;
    let mut job = job.policy(args.class, policy(args)?);
    if let Some(probe) = &args.probe {
        job = job.probe(probe)?;
    }
    if args.common.dry_run {
        return dry_run(&job, args.breaker.as_deref()).await;
    }
    job.say_derived_key();
    let signals = listen()?;
    job.faults.strike(Moment::BeforeClaim);
    let engine = context.open().await?;
    job.faults.plan(&engine);
    // Before anything is claimed, or taken back.
    let breaking = match &args.breaker {
        Some(name) => {
            let runs = args.retry && is_retried(&job, &engine).await?;
            Some(Breaking::ask(&job, &engine, name, runs).await?)
        }
        None => None,
    };
    if args.retry {
        retry(&job, &engine).await?;
    }
    let answer = carry_out(&job, &engine, &signals, breaking).await?;
    let code = answer.give(&job)?;
    housekeeping(context, &engine).await;
    Ok(code)
}

/// Does a bounded piece of what a daemon would do, now and then; the answer was given already.
pub(crate) async fn housekeeping(context: &Context, engine: &Engine) {
    if let Err(error) = engine.sweep_if_due().await {
        context.printer.note(&format!("housekeeping: {error}"));
    }
}

pub(crate) fn listen() -> Result<Signals, Failure> {
    Signals::listen().map_err(|error| Failure::internal(format!("signals: {error}")))
}

/// Begins until there is an answer: what a probe found not to be done is begun anew.
pub(crate) async fn carry_out(
    job: &Job<'_>,
    engine: &Engine,
    signals: &Signals,
    mut breaking: Option<Breaking>,
) -> Result<Answer, Failure> {
    loop {
        let begin = engine.begin(job.request.clone());
        tokio::pin!(begin);
        let admission = loop {
            tokio::select! {
                biased;
                signal = signals.asked_to_end() => return Ok(Answer::ended_by(signal)),
                // Nothing is held yet, so there is nothing to renew.
                () = signals.asked_to_stop() => signals::stop()
                    .map_err(|error| Failure::internal(error.to_string()))?,
                admission = &mut begin => break admission?,
            }
        };
        match admission {
            Admission::Execute(mut permit) => {
                if let Some(breaking) = &mut breaking {
                    permit = breaking.still(job, permit).await?;
                }
                let answer = job.execute(permit, signals).await?;
                if let Some(breaking) = breaking {
                    // Whoever ends it by hand says nothing about its target.
                    let ok = (!signals.was_told_to_end()).then(|| answer.is_success());
                    breaking.ended(job, ok).await;
                }
                return Ok(answer);
            }
            Admission::Probe(permit) => {
                if let Some(answer) = probe::ask(job, permit, signals).await? {
                    return Ok(answer);
                }
            }
            Admission::Replay(receipt) => return Ok(Answer::replay(&receipt)),
            Admission::Wait { .. } => return Err(job.in_flight(engine).await?),
            Admission::InDoubt(record) => return Err(job.in_doubt(&record)),
        }
    }
}

/// Chooses the policy; a probe that was given is meant to be used.
fn policy(args: &Run) -> Result<Option<OnDoubtWord>, Failure> {
    match (args.on_doubt, &args.probe) {
        (Some(OnDoubtWord::Probe), None) => Err(Failure::input(
            "--on-doubt probe needs --probe CMD, which finds out what happened",
        )),
        (Some(OnDoubtWord::Hold | OnDoubtWord::Retry), Some(_)) => Err(Failure::input(
            "--probe is asked only with --on-doubt probe",
        )),
        (Some(word), _) => Ok(Some(word)),
        (None, Some(_)) => Ok(Some(OnDoubtWord::Probe)),
        (None, None) => Ok(None),
    }
}

/// Says whether an operation is one that gets fresh attempts.
async fn is_retried(job: &Job<'_>, engine: &Engine) -> Result<bool, Failure> {
    let record = engine.load(&job.namespace, &job.key).await?;
    Ok(record.is_some_and(|record| is_over_in_vain(&record)))
}

fn is_over_in_vain(record: &Record) -> bool {
    matches!(record.kind(), StateKind::Failed | StateKind::Dead)
}

/// Gives a failed or dead operation fresh attempts; any other is left as it is.
async fn retry(job: &Job<'_>, engine: &Engine) -> Result<(), Failure> {
    let record = engine.load(&job.namespace, &job.key).await?;
    let Some(record) = record.filter(|record| is_over_in_vain(record)) else {
        return Ok(());
    };
    let by = Label::new(&order::login())
        .map_err(|error| Failure::input(format!("your name: {error}")))?;
    let operator = engine.operator(&job.namespace, &job.key, record.version(), by);
    match operator.retry().await {
        Ok(_) => Ok(()),
        // Somebody else was faster: begin says what it is now.
        Err(error) if error.code() == "fenced" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Says what would happen; not even a store is made.
async fn dry_run(job: &Job<'_>, breaker: Option<&str>) -> Result<ExitCode, Failure> {
    let would_run = |attempt: u32| {
        let line = job.command_line();
        job.would(&format!("would run `{line}` (attempt {attempt})"));
    };
    if job.context.missing().is_some() {
        would_run(1);
        return Ok(ExitCode::SUCCESS);
    }
    let engine = job.context.open().await?;
    let foreseen = engine.preview(job.request.clone()).await?;
    if let (Preview::Execute { .. } | Preview::Probe, Some(name)) = (&foreseen, breaker) {
        breaking::foresee(job, &engine, name).await?;
    }
    match foreseen {
        Preview::Execute { attempt } => would_run(attempt),
        Preview::Probe => job.would("would ask the probe what came of the earlier attempt"),
        Preview::Replay(receipt) => job.would_replay(&receipt),
        Preview::InDoubt(record) => return Err(job.in_doubt(&record)),
        Preview::Wait { .. } => return Err(job.in_flight(&engine).await?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs what only reads: nothing is claimed and nothing is kept.
async fn unrecorded(job: &Job<'_>, args: &Run) -> Result<ExitCode, Failure> {
    if args.common.dry_run {
        job.would(&format!("would run `{}`, unrecorded", job.command_line()));
        return Ok(ExitCode::SUCCESS);
    }
    let signals = listen()?;
    let answer = job.pass_through(&signals).await?;
    answer.give(job)
}
