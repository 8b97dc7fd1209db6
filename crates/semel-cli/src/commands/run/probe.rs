//! Asking the probe about a doubted attempt.

use semel::{Effect, Permit};

use super::answer::Answer;
use super::job::Job;
use crate::child::signals::Signals;
use crate::failure::Failure;
use crate::probe::{self, Found};

/// Looks up what came of an earlier attempt; `None` when it did nothing and may be begun again.
pub(crate) async fn ask(
    job: &Job<'_>,
    permit: Permit,
    signals: &Signals,
) -> Result<Option<Answer>, Failure> {
    // Only this call's own command is run, and only if it is the one that the operation was begun with.
    let given = job.probe.as_ref().filter(|probe| {
        let recorded = permit.probe_digest();
        recorded.is_none_or(|recorded| recorded == probe.digest())
    });
    let found = match given {
        Some(probe) => {
            let mut command = probe::shell(probe.as_str());
            job.identity().tell(&mut command, &permit);
            probe::look(command, signals).await?
        }
        None => {
            Found::Unknown("this call does not bring the one that it was begun with".to_owned())
        }
    };
    let data = match found {
        Found::NotDone => {
            permit
                .not_done("the probe says that it was not done")
                .await?;
            return Ok(None);
        }
        Found::Unknown(how) => {
            let why = format!("the probe does not know ({how})");
            permit.unknown(&why).await?;
            let text = format!("{} is in doubt: {why}", job.key);
            return Err(Failure::new("in_doubt", text)
                .hint("fix the probe, or resolve it with `semel resolve`"));
        }
        Found::Done(data) => data,
    };
    let effect = data.declared().effect().or(job.args.effect);
    let effect = effect.unwrap_or(Effect::Updated);
    let receipt = permit.finish(true, effect, Some(data.to_json())).await?;
    Ok(Some(Answer::looked_up(receipt)))
}
