//! Wrong usage, in our words: what is wrong, and what was probably meant.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};

use crate::args::Args;
use crate::failure::{Failure, USAGE};
use crate::printer::Printer;
use crate::settings::nearest;

/// Writes what clap has to say: help and version are answers, the rest is wrong usage.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Whoever closed the pipe does not want to read it.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        drop(error.print());
        return ExitCode::from(USAGE);
    }
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .take_while(|word| word != "--")
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let json = words.iter().any(|word| word == "--json");
    Printer::new(json, false).failure(&reworded(error, &words))
}

fn reworded(error: &clap::Error, words: &[String]) -> Failure {
    let rendered = error.render().to_string();
    let mut message = vec![];
    let mut hints = vec![];
    let mut usage = None;
    for line in rendered
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push(tip.to_owned());
        } else if let Some(text) = line.strip_prefix("Usage: ") {
            usage = Some(format!("usage: {text}"));
        } else if !line.starts_with("For more information") {
            message.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidArg)
        && let Some(flag) = nearest_flag(written, words)
    {
        hints = vec![format!("did you mean `--{flag}`?")];
    }
    hints.extend(usage);
    hints.push("see --help".to_owned());
    Failure::input(message.join(" ")).hint(hints.join("; "))
}

/// Finds the flag of this verb that was probably meant.
fn nearest_flag(written: &str, words: &[String]) -> Option<String> {
    let mut command = Args::command();
    command.build();
    let mut flags = long_flags(&command);
    let mut verb = &command;
    for word in words {
        if let Some(inner) = verb.find_subcommand(word) {
            flags.extend(long_flags(inner));
            verb = inner;
        }
    }
    let written = written.trim_start_matches('-').split('=').next()?;
    nearest(written, flags.iter().map(String::as_str)).map(str::to_owned)
}

fn long_flags(command: &Command) -> Vec<String> {
    let longs = command.get_arguments().flat_map(|argument| {
        let own = argument.get_long().map(str::to_owned);
        let others = argument.get_all_aliases().unwrap_or_default();
        own.into_iter().chain(others.into_iter().map(str::to_owned))
    });
    longs.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn failure(line: &str) -> Failure {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Args::try_parse_from(["semel".to_owned()].iter().chain(&words));
        reworded(&error.expect_err("it is wrong"), &words)
    }

    #[test]
    fn a_wrong_flag_is_answered_with_the_nearest_one() {
        for (line, flag) in [
            ("run --kye k -- true", "--key"),
            ("run --idempotncy-key=k -- true", "--idempotency-key"),
            ("run --stroe x -- true", "--store"),
            ("ensure --chek x -- true", "--check"),
        ] {
            let failure = failure(line);
            let hint = failure.hint.as_deref().unwrap_or_default();
            assert!(
                hint.starts_with(&format!("did you mean `{flag}`?")),
                "{line}: {hint}"
            );
            assert_eq!(failure.exit(), 64);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let failure = failure("run --key k");
        assert!(failure.message.contains("<CMD>"), "{}", failure.message);
    }
}
