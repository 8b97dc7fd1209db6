//! `semel completions`

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::Args;
use crate::args::look::Completions;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(printer: &Printer, args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut Args::command(), "semel", &mut script);
    let script = String::from_utf8(script)
        .map_err(|error| Failure::internal(format!("the script is not text: {error}")))?;
    printer.line(script.trim_end());
    Ok(ExitCode::SUCCESS)
}
