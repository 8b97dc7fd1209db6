//! A command before a target that fails: `semel run --breaker NAME`.

use semel::breaker::{Breaker, Pass};
use semel::{Engine, Error, Permit, Preview};

use super::job::Job;
use crate::failure::Failure;

/// The breaker of a command, and what lets it through.
#[derive(Debug)]
pub(crate) struct Breaking {
    breaker: Breaker,
    pass: Option<Pass>,
}

impl Breaking {
    /// Asks whether the command may be run, before anything is claimed. Whoever only gets a recorded answer runs
    /// nothing, and is not refused.
    pub(crate) async fn ask(
        job: &Job<'_>,
        engine: &Engine,
        name: &str,
        runs: bool,
    ) -> Result<Self, Failure> {
        let breaker = named(job, engine, name)?;
        let pass = match breaker.pass_if_closed().await? {
            Some(pass) => Some(pass),
            None if runs || would_run(job, engine).await => {
                let admitted = breaker.admit().await;
                Some(admitted.map_err(|error| refused(job, error))?)
            }
            None => None,
        };
        Ok(Self { breaker, pass })
    }

    /// Asks once more when the claim is there: the breaker may have opened meanwhile. Then the claim is given back.
    pub(crate) async fn still(&mut self, job: &Job<'_>, permit: Permit) -> Result<Permit, Failure> {
        if self.pass.as_ref().is_some_and(Pass::is_probe) {
            return Ok(permit);
        }
        match self.breaker.admit().await {
            Ok(pass) => {
                self.pass = Some(pass);
                Ok(permit)
            }
            Err(error) => {
                let why = "the breaker opened before the command was started";
                permit.not_done(why).await?;
                Err(refused(job, error))
            }
        }
    }

    /// Says what became of the command, where that says something of its target, and has it stored: this process ends.
    pub(crate) async fn ended(self, job: &Job<'_>, ok: Option<bool>) {
        if let Some(pass) = self.pass {
            match ok {
                Some(ok) => pass.ended(ok).await,
                None => pass.give_back().await,
            }
        }
        if let Err(error) = self.breaker.flush().await {
            let name = self.breaker.name();
            let text =
                format!("breaker {name}: what became of the command is not counted: {error}");
            job.context.printer.say(&text);
        }
    }
}

/// Says whether the breaker would let the command through, and takes no place.
pub(crate) async fn foresee(job: &Job<'_>, engine: &Engine, name: &str) -> Result<(), Failure> {
    let admitted = named(job, engine, name)?.would_admit().await;
    admitted.map_err(|error| refused(job, error))
}

fn named(job: &Job<'_>, engine: &Engine, name: &str) -> Result<Breaker, Failure> {
    let target = job.context.settings.breaker(name)?;
    Ok(engine.breaker_in(&job.namespace, &target))
}

/// A refusal by a breaker is about the command, which keeps its key.
fn refused(job: &Job<'_>, error: Error) -> Failure {
    Failure::from(error).about(&job.key)
}

/// Says whether the command would run, or a probe ask its target. What is wrong with it is said by whoever begins it.
async fn would_run(job: &Job<'_>, engine: &Engine) -> bool {
    let foreseen = engine.preview(job.request.clone()).await;
    match foreseen {
        Ok(Preview::Execute { .. } | Preview::Probe) => true,
        Ok(Preview::Replay(_) | Preview::Wait { .. } | Preview::InDoubt(_)) | Err(_) => false,
    }
}
