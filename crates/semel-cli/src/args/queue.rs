//! `semel submit`, `semel work` and `semel dead`

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use semel::core::queue::{Priority, Rate};
use semel::{Effect, Lease, Retention, Timestamp};

use super::operate::Said;
use super::query::{Filters, List, Show};
use super::values::{self, ClassWord, OnDoubtWord};

/// The most tasks that one worker carries out at once: each is a process.
const CONCURRENCY_MAX: i64 = 256;

/// Leaves a task for the workers of a queue
///
/// The first call with a key stores the task and its input; the same call again answers `noop` with the task's state,
/// and with its result once there is one. The same key with another input is refused (exit 121). Nothing is carried
/// out here: `semel work`, or any worker that leases over HTTP, does that.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel submit mail --key welcome-7 --input '{\"to\": \"ann@example.com\"}'
  semel submit mail --key reminder-7 --input @reminder.json --delay 2d
  semel submit report --key report-2026-11 --at 2026-12-01T06:00:00Z --priority 5
  semel submit mail --key welcome-8 --input '{\"to\": \"bob@example.com\"}' --wait 1m --json
  semel submit mail --batch tasks.jsonl

A batch has one JSON object on each line: {\"key\": \"a/1\", \"input\": {}, \"priority\": 1}. Its members are key, input,
name, lane, priority, delay_ms and run_at; what it does not say is as the flags say.")]
pub(crate) struct Submit {
    /// The queue
    pub(crate) queue: String,

    /// Names the task
    #[arg(
        long,
        visible_alias = "idempotency-key",
        value_name = "KEY",
        required_unless_present = "batch"
    )]
    pub(crate) key: Option<String>,

    /// What its worker is given: JSON, or @FILE, or @- for standard input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,

    /// Submits one task for each line of this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "input", "wait"])]
    pub(crate) batch: Option<PathBuf>,

    /// What is done [default: the queue's name]
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Not before this long from now
    #[arg(long, value_parser = values::duration, value_name = "DURATION", allow_hyphen_values = true, conflicts_with = "at")]
    pub(crate) delay: Option<Duration>,

    /// Not before this time, as RFC 3339 has it
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Timestamp>,

    /// Goes before those with a lower number: -100 to 100
    #[arg(long, value_name = "N", value_parser = priority, default_value = "0", allow_hyphen_values = true)]
    pub(crate) priority: Priority,

    /// Whose task it is: lanes take turns [default: the key up to its first / or :]
    #[arg(long, value_name = "NAME")]
    pub(crate) lane: Option<String>,

    /// How many attempts there may be [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<NonZeroU32>,

    /// How long the result is kept [default: 30d]
    #[arg(long, value_parser = values::retention, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) retention: Option<Retention>,

    /// What to do when a worker vanished and nobody knows whether the task took effect
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) on_doubt: Option<OnDoubtWord>,

    /// What repeating the task would do
    #[arg(long, value_enum)]
    pub(crate) class: Option<ClassWord>,

    /// Waits for the result, this long at most
    #[arg(long, value_parser = values::duration, value_name = "DURATION", num_args = 0..=1, default_missing_value = "24h")]
    pub(crate) wait: Option<Duration>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Reads a priority.
fn priority(text: &str) -> Result<Priority, String> {
    let number: i64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a whole number"))?;
    Priority::new(number).map_err(|error| error.to_string())
}

/// Carries out the tasks of a queue: a command for each
///
/// The command gets the task's input on standard input and its identity in the environment (SEMEL_KEY, SEMEL_ATTEMPT,
/// SEMEL_FENCE, SEMEL_NAMESPACE, SEMEL_QUEUE, SEMEL_NAME). What it writes to standard output is the result, and its exit
/// code says what became of the task; see below.
///
/// A worker that vanishes leaves its tasks in doubt; `semel dead list` shows them. The first SIGTERM or Ctrl-C lets the
/// commands under way finish and takes no more; the second ends them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel work mail -- ./send-mail
  semel work mail --concurrency 8 --timeout 2m -- ./send-mail --id {key}
  semel work report --until-empty --json -- sh -c 'jq .month | ./make-report'

The exit code of the command:
  0               it is done; standard output is the result
  75              nothing was done: try again later (and --retry-exit)
  65              nothing was done, and never will be: dead at once (and --reject-exit)
  129-192, 255    nobody knows: in doubt, as after --timeout or a signal
  any other       it is done, in failure

A command that asks to be tried again may say when: {\"retry_after_ms\": 60000} on standard output.

Exit codes:
  0 when it was told to end, or the queue is empty with --until-empty; 125 when the store fails, 64 wrong usage")]
pub(crate) struct Work {
    /// The queue
    pub(crate) queue: String,

    /// How many tasks at once, at most 256
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=CONCURRENCY_MAX))]
    pub(crate) concurrency: u16,

    /// How long this process may be silent about a task before it is in doubt [default: 60s]
    #[arg(long, value_parser = values::lease, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) lease: Option<Lease>,

    /// Ends a command after this long; its task is then in doubt
    #[arg(long, value_parser = values::some_duration, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// Exit codes that mean: nothing was done, try again (75 always does)
    #[arg(long, value_parser = values::failing_exit, value_delimiter = ',', value_name = "CODES")]
    pub(crate) retry_exit: Vec<u8>,

    /// Exit codes that mean: nothing was done, and never will be (65 always does)
    #[arg(long, value_parser = values::failing_exit, value_delimiter = ',', value_name = "CODES")]
    pub(crate) reject_exit: Vec<u8>,

    /// What success does, unless the command says so itself
    #[arg(long, value_parser = values::effect)]
    pub(crate) effect: Option<Effect>,

    /// Ends when no task is due, none is under way, and none that was begun here waits for its next attempt
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// The command; `{key}` in an argument becomes the task's key
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Looks after tasks that no worker will take: dead ones, and those in doubt
#[derive(Debug, clap::Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    pub(crate) verb: DeadVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadVerb {
    /// Lists dead operations and tasks in doubt, the newest first
    ///
    /// A dead operation is out of attempts, or was rejected, and was certainly not applied. A task in doubt is one whose
    /// worker vanished: `semel resolve` frees it.
    #[command(after_long_help = "Examples:
  semel dead list
  semel dead list --queue mail --since 24h
  semel dead list --state dead --json")]
    List(List),

    /// Shows one with the error of every attempt
    Show(Show),

    /// Gives dead operations fresh attempts
    ///
    /// They are pending afterwards, and workers take them again. What took effect stays taken: a dead operation was
    /// certainly not applied, and the steps that it has taken are replayed. One in doubt is refused: resolve it first.
    #[command(after_long_help = "Examples:
  semel dead retry welcome-7
  semel dead retry --queue mail --dry-run
  semel dead retry --queue mail --rate 10/s --note 'the mail server is back'
  semel dead retry --all")]
    Retry(Bulk),

    /// Ends dead operations for good
    ///
    /// They become failed with the effect noop: whoever asks is told so, and nothing runs.
    #[command(after_long_help = "Examples:
  semel dead discard welcome-7 --note 'the customer left'
  semel dead discard --queue mail --until 30d --dry-run")]
    Discard(Bulk),
}

/// One dead operation, or many.
#[derive(Debug, clap::Args)]
pub(crate) struct Bulk {
    /// The operation's key; without it all that match the filters are meant
    pub(crate) key: Option<String>,

    /// All of them, where no filter is given
    #[arg(long)]
    pub(crate) all: bool,

    /// No more often than this, as in 10/s or 100/m
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    #[command(flatten)]
    pub(crate) said: Said,

    #[command(flatten)]
    pub(crate) filters: Filters,
}
