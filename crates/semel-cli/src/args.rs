//! What can be said on the command line.

use clap::{Parser, Subcommand};

/// Makes what agents do happen once.
#[derive(Debug, Parser)]
#[command(name = "semel", version, propagate_version = true)]
pub(crate) struct Args {
    /// Where the ledger is: `sqlite:PATH` [default: sqlite: in the user's data directory]
    #[arg(long, global = true, env = "SEMEL_STORE", value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Answers with JSON on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Replays the log and compares it with what is stored
    ///
    /// Every log entry is decided again by the same rules, and the result is compared with the
    /// stored record, its place in the index and its payload. Exits 0 when all agree, and 1 when
    /// something is wrong; the first difference is named.
    #[command(
        after_help = "Examples:\n  semel verify\n  semel --store sqlite:orders.db verify --json"
    )]
    Verify,
}
