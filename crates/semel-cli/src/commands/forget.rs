//! `semel forget`

use std::process::ExitCode;

use crate::args::operate::Forget;
use crate::context::Context;
use crate::failure::Failure;
use crate::found;
use crate::order::{Choice, Desk};

pub(crate) async fn run(context: &Context, args: &Forget) -> Result<ExitCode, Failure> {
    let desk = Desk::new(context, &args.said)?;
    let engine = context.open_existing().await?;
    let found = found::find_trace(context, &engine, &args.key).await?;
    desk.decide(context, &engine, &found, Choice::Forget)
        .await?;
    Ok(ExitCode::SUCCESS)
}
