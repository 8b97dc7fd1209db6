//! The `semel` command.

mod args;
mod commands;
mod printer;
mod settings;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Args, Verb};
use self::printer::Printer;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return printer::usage(&error),
    };
    let printer = Printer::new(args.json);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return printer.fail("internal", &error.to_string(), None),
    };
    let ended = runtime.block_on(async {
        match &args.verb {
            Verb::Verify => commands::verify::run(&args, &printer).await,
        }
    });
    match ended {
        Ok(code) => code,
        Err(error) => printer.error(&error),
    }
}
