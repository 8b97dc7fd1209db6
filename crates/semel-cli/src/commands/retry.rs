//! `semel retry`

use std::process::ExitCode;

use crate::args::operate::Retry;
use crate::args::values::StateWord;
use crate::context::Context;
use crate::failure::Failure;
use crate::order::{Choice, Desk};
use crate::selection::{Selection, Tally, select, unconfirmed};

pub(crate) async fn run(context: &Context, args: &Retry) -> Result<ExitCode, Failure> {
    let desk = Desk::new(context, &args.said)?;
    let engine = context.open_existing().await?;
    let states = [StateWord::Failed, StateWord::Dead];
    let key = args.key.as_deref();
    let (found, more) = match select(context, &engine, key, &args.filters, &states).await? {
        Selection::One(found) => {
            desk.decide(context, &engine, &found, Choice::Retry).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Selection::Many { found, more } => (found, more),
    };
    let rehearsal = Desk {
        dry_run: desk.dry_run || !args.yes,
        ..desk.clone()
    };
    let mut tally = Tally::default();
    for one in &found {
        let answer = rehearsal.decide(context, &engine, one, Choice::Retry).await;
        tally.count(context, one, answer);
    }
    if rehearsal.dry_run && !desk.dry_run && !found.is_empty() {
        return Err(unconfirmed(found.len(), Choice::Retry.words()));
    }
    Ok(tally.finish(context, "retried", more))
}
