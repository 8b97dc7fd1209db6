//! `semel key`

use std::process::ExitCode;

use serde_json::json;

use super::run::job;
use crate::args::run::Key;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn run(context: &Context, args: &Key) -> Result<ExitCode, Failure> {
    let name = job::name_of(args.name.as_deref(), &args.command)?;
    let key = job::derived_key(&name, &args.command)?;
    let json = json!({"ok": true, "key": key.as_str(), "name": name.as_str()});
    context.printer.answer(&json, key.as_str());
    Ok(ExitCode::SUCCESS)
}
