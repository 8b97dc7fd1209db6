//! Breakers: which targets are left alone.

use std::time::Duration;

use clap::Subcommand;

use super::values;

/// Shows breakers, and opens and closes them by hand
///
/// A breaker stands before a target (an upstream, a tool, a service that a command calls). It opens when too many
/// calls fail; then they are refused with `breaker_open` and claim nothing. After a while one call is let through: if
/// it succeeds the breaker closes, if not it stays open, for twice as long. All who share the store share it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel run --breaker payments --key invoice-7 -- send-invoice --id 7
  semel breaker list
  semel breaker open payments --for 30m --note 'maintenance of the bank'
  semel breaker close payments")]
pub(crate) struct Breaker {
    #[command(subcommand)]
    pub(crate) verb: BreakerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BreakerVerb {
    List(List),
    Open(Open),
    Close(Close),
    Reset(Reset),
}

/// Lists breakers by their names
///
/// A breaker is listed from the first call that was reported to it. With --json each line is one breaker, with its
/// thresholds as whoever called last had them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel breaker list
  semel breaker list --json")]
pub(crate) struct List {}

/// Opens a breaker by hand: nothing goes through
///
/// It stays open until somebody closes it, or for as long as --for says; then one call is let through, as after any
/// opening. Doing it again begins anew.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel breaker open payments
  semel breaker open payments --for 30m --note 'maintenance of the bank'")]
pub(crate) struct Open {
    /// Its name
    pub(crate) name: String,

    /// How long [default: until somebody closes it]
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    pub(crate) length: Option<Duration>,

    /// Why; the log keeps it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The longest that a breaker is opened for.
const LENGTH_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn length(text: &str) -> Result<Duration, String> {
    let length = values::some_duration(text)?;
    if length > LENGTH_MAX {
        return Err("at most 365d; without --for it is open until somebody closes it".to_owned());
    }
    Ok(length)
}

/// Closes a breaker by hand: calls go through again
///
/// Closing one that is closed changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel breaker close payments
  semel breaker close payments --note 'the bank is back' --json")]
pub(crate) struct Close {
    /// Its name
    pub(crate) name: String,

    /// Why; the log keeps it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Closes a breaker and forgets what became of the calls before
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel breaker reset payments")]
pub(crate) struct Reset {
    /// Its name
    pub(crate) name: String,

    /// Why; the log keeps it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
