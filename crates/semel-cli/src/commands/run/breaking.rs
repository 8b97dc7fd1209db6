//! A command before a target that fails: `semel run --breaker NAME`.

use semel::breaker::{Breaker, Pass};
use semel::{Engine, Permit, Preview};

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
        let target = job.context.settings.breaker(name)?;
        let breaker = engine.breaker_in(&job.namespace, &target);
        let pass = match breaker.pass_if_closed().await? {
            Some(pass) => Some(pass),
            None if runs || would_run(job, engine).await => Some(breaker.admit().await?),
            None => None,
        };
        Ok(Self { breaker, pass })
    }

    /// Asks once more when the claim is there: the breaker may have opened meanwhile. Then the claim is given back.
    pub(crate) async fn still(&mut self, permit: Permit) -> Result<Permit, Failure> {
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
                Err(error.into())
            }
        }
    }

    /// Says what became of the command, and has it stored: this process ends.
    pub(crate) async fn ended(self, job: &Job<'_>, ok: bool) {
        if let Some(pass) = self.pass {
            pass.ended(ok).await;
        }
        if let Err(error) = self.breaker.flush().await {
            let name = self.breaker.name();
            let text =
                format!("breaker {name}: what became of the command is not counted: {error}");
            job.context.printer.say(&text);
        }
    }
}

/// Says whether the command would run, or a probe ask its target. What is wrong with it is said by whoever begins it.
async fn would_run(job: &Job<'_>, engine: &Engine) -> bool {
    let foreseen = engine.preview(job.request.clone()).await;
    match foreseen {
        Ok(Preview::Execute { .. } | Preview::Probe) => true,
        Ok(Preview::Replay(_) | Preview::Wait { .. } | Preview::InDoubt(_)) | Err(_) => false,
    }
}
