//! `semel run` and `semel ensure`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use semel::{Effect, Lease, Retention};

use super::values::{self, ClassWord, OnDoubtWord};

pub(crate) const EXAMPLES: &str = "\
Examples:
  semel run --key invoice-7 -- send-invoice --id 7
  semel run --key deploy-42 --on-doubt probe --probe './is-deployed 42' -- ./deploy 42
  semel run --key nightly-2026-11-15 --timeout 1h --retry-exit 69 -- ./backup
  semel run --json --key order-7 --effect created -- create-order --amount 100
  semel run --dry-run --key order-7 -- create-order --amount 100
  semel run --breaker payments --key invoice-7 -- send-invoice --id 7

Exit codes:
  the command's own, the same for a replay; 124 after --timeout, 126 and 127 if it could not be started
  120 in doubt, 121 key used for something else, 122 still running elsewhere or breaker open, 123 dead or expired,
  125 the store or Semel itself failed, 64 wrong usage";

pub(crate) const ENSURE_EXAMPLES: &str = "\
Examples:
  semel ensure --check 'id deploy' -- useradd deploy
  semel ensure --key site-v7 --check 'curl -fs https://example.org/version | grep -qx 7' -- ./publish 7";

pub(crate) const KEY_EXAMPLES: &str = "\
Examples:
  semel key -- send-invoice --id 7
  semel show \"$(semel key -- send-invoice --id 7)\"";

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to do when nobody knows whether the command took effect
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) on_doubt: Option<OnDoubtWord>,

    /// A shell command that finds out: exit 0 means done, 1 means not done
    #[arg(long, value_name = "CMD")]
    pub(crate) probe: Option<String>,

    /// What repeating the command would do
    #[arg(long, value_enum)]
    pub(crate) class: Option<ClassWord>,

    /// Leaves the command alone while this breaker is open; its failures open it
    #[arg(long, value_name = "NAME")]
    pub(crate) breaker: Option<String>,

    /// Runs it again if it failed or is dead
    #[arg(long)]
    pub(crate) retry: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ensure {
    /// A shell command that tells whether it is so: exit 0 means yes, 1 means no
    #[arg(long, value_name = "CMD")]
    pub(crate) check: String,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// What is done [default: the command's name]
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What both have.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Names the operation; without it a key is derived from the command and the directory
    #[arg(long, visible_alias = "idempotency-key", value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// What is done [default: the command's name]
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// What success does, unless the command says so itself
    #[arg(long, value_parser = values::effect)]
    pub(crate) effect: Option<Effect>,

    /// How long this process may be silent before its attempt is in doubt [default: 60s]
    #[arg(long, value_parser = values::lease, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) lease: Option<Lease>,

    /// How long to wait for the same operation running elsewhere [default: 30s]
    #[arg(long, value_parser = values::duration, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Ends the command after this long; the operation is then in doubt
    #[arg(long, value_parser = values::some_duration, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// Exit codes that mean: nothing was done, try again (75 always does)
    #[arg(long, value_parser = values::failing_exit, value_delimiter = ',', value_name = "CODES")]
    pub(crate) retry_exit: Vec<u8>,

    /// How long the answer is kept [default: 30d]
    #[arg(long, value_parser = values::retention, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) retention: Option<Retention>,

    /// A file whose bytes belong to the operation: with another content the key is refused
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The command; `{key}` in an argument becomes the key
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
