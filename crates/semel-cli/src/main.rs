//! The `semel` command.

mod advice;
mod args;
mod child;
mod commands;
mod context;
mod failure;
mod found;
mod given;
mod liveness;
mod look_up;
mod order;
mod printer;
mod probe;
mod selection;
mod settings;
mod table;
mod usage;
mod visible;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Args, Verb};
use self::context::Context;
use self::failure::Failure;
use self::printer::Printer;
use self::settings::Settings;

/// A server's requests begin in one thread and end in another; the C library's allocator made that cost
/// a third of all that `semel serve` does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage::explain(&error),
    };
    let printer = Printer::new(args.global.json, args.global.quiet);
    // These two are about the command itself and work where nothing can be set.
    let about_itself = match &args.verb {
        Verb::Completions(args) => Some(commands::completions::run(&printer, args)),
        Verb::Man(args) => Some(commands::man::run(&printer, args)),
        _ => None,
    };
    if let Some(code) = about_itself {
        let code = code.unwrap_or_else(|failure| printer.failure(&failure));
        return printer.finish(code);
    }
    let settings = match Settings::load(&args) {
        Ok(settings) => settings,
        Err(failure) => return printer.failure(&failure),
    };
    let context = Context::new(settings, printer);
    let code = match start(&context, args.verb) {
        Ok(code) => code,
        Err(failure) => context.printer.failure(&failure),
    };
    context.printer.finish(code)
}

/// Descriptors that the runtime opens when it is built: it panics where it gets only some of them.
const RUNTIME_DESCRIPTORS: usize = 8;

/// Refuses to start where too few files can be opened.
fn refuse_few_descriptors() -> Result<(), Failure> {
    let open = || rustix::io::dup(std::io::stderr());
    let opened: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(|_| open()).collect();
    match opened {
        Ok(_) => Ok(()),
        // Without a standard error there is nothing to count with; the runtime says what it misses.
        Err(rustix::io::Errno::BADF) => Ok(()),
        Err(error) => Err(Failure::new(
            "store_unavailable",
            format!("too few files can be opened here: {error}"),
        )
        .hint("raise the limit (`ulimit -n 256`)")),
    }
}

fn start(context: &Context, verb: Verb) -> Result<ExitCode, Failure> {
    refuse_few_descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        match verb {
            Verb::Run(run) => commands::run::run(context, &run).await,
            Verb::Ensure(ensure) => commands::ensure::run(context, &ensure).await,
            Verb::Key(key) => commands::key::run(context, &key),
            Verb::List(args) => commands::list::run(context, &args).await,
            Verb::Show(args) => commands::show::run(context, &args).await,
            Verb::Log(args) => commands::log::run(context, &args).await,
            Verb::Resolve(args) => commands::resolve::run(context, &args).await,
            Verb::Retry(args) => commands::retry::run(context, &args).await,
            Verb::Cancel(args) => commands::cancel::run(context, &args).await,
            Verb::Forget(args) => commands::forget::run(context, &args).await,
            Verb::Submit(args) => commands::submit::run(context, &args).await,
            Verb::Work(args) => commands::work::run(context, &args).await,
            Verb::Dead(args) => commands::dead::run(context, &args).await,
            Verb::Stats(_) => commands::stats::run(context).await,
            Verb::Doctor(args) => commands::doctor::run(context, &args).await,
            Verb::Backup(args) => commands::backup::run(context, &args).await,
            Verb::Restore(args) => commands::restore::run(context, &args).await,
            Verb::Copy(args) => commands::copy::run(context, &args).await,
            Verb::Verify => commands::verify::run(context).await,
            Verb::Serve(args) => commands::serve::run(context, &args).await,
            Verb::Mcp(args) => commands::mcp::run(context, &args).await,
            Verb::Proxy(args) => commands::proxy::run(context, &args).await,
            Verb::Token(args) => commands::token::run(context, &args).await,
            Verb::Breaker(args) => commands::breaker::run(context, &args).await,
            Verb::Inbox(args) => commands::inbox::run(context, &args).await,
            Verb::Config(args) => Ok(commands::config::run(context, &args)),
            Verb::Completions(args) => commands::completions::run(&context.printer, &args),
            Verb::Man(args) => commands::man::run(&context.printer, &args),
        }
    })
}
