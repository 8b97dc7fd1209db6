//! What can be said on the command line.

pub(crate) mod breaker;
pub(crate) mod inbox;
pub(crate) mod look;
pub(crate) mod mcp;
pub(crate) mod operate;
pub(crate) mod proxy;
pub(crate) mod query;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Makes what agents do happen once.
#[derive(Debug, Parser)]
#[command(name = "semel", version, propagate_version = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb understands.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where the ledger is: `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `http://HOST:PORT` [default: a file in the user's data directory]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// The wall behind which keys live [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// The settings file [default: ./semel.toml, then the user's config directory]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,

    /// The token for a remote store; others on this machine can read it here, SEMEL_TOKEN they cannot
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// Answers with JSON on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Says nothing but the answer and errors
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Runs a command once; its retry gets the recorded answer
    ///
    /// The first call with a key claims it, runs the command and records its output and exit code.
    /// Later calls with that key write the same output and exit with the same code; nothing runs.
    /// If nobody can know whether the command took effect (it was killed, or this process was),
    /// the operation is in doubt, and later calls exit with 120 until it is resolved.
    #[command(after_long_help = run::EXAMPLES)]
    Run(Box<run::Run>),

    /// Brings something about, unless a check says that it is so already
    ///
    /// The check is run first: if it is true, nothing is done. Otherwise the command runs once and
    /// the check must be true afterwards. If the command was interrupted, the check finds out what
    /// came of it.
    #[command(after_long_help = run::ENSURE_EXAMPLES)]
    Ensure(Box<run::Ensure>),

    /// Prints the key that `run` derives for a command in this directory
    ///
    /// The key is made from the command's name, its arguments and the working directory, and it
    /// stays the same in every version of Semel.
    #[command(after_long_help = run::KEY_EXAMPLES)]
    Key(run::Key),
    List(query::List),
    Show(query::Show),
    Log(query::Log),
    Resolve(operate::Resolve),
    Retry(operate::Retry),
    Cancel(operate::Cancel),
    Forget(operate::Forget),
    Submit(Box<queue::Submit>),
    Work(Box<queue::Work>),
    Dead(queue::Dead),
    Stats(look::Stats),
    Doctor(look::Doctor),
    Backup(look::Backup),
    Restore(look::Restore),
    Copy(Box<look::Copy>),

    /// Replays the log and compares it with what is stored
    ///
    /// Every log entry is decided again by the same rules, and the result is compared with the
    /// stored record, its place in the index and its payload. Exits 0 when all agree, and 1 when
    /// something is wrong; the first difference is named.
    #[command(
        after_long_help = "Examples:\n  semel verify\n  semel --store sqlite:orders.db verify --json"
    )]
    Verify,

    Serve(serve::Serve),
    Mcp(Box<mcp::Mcp>),
    Proxy(proxy::Proxy),
    Token(token::Token),
    Breaker(breaker::Breaker),
    Inbox(inbox::Inbox),
    Config(look::Config),
    Completions(look::Completions),
    Man(look::Man),
}

impl Verb {
    /// Returns the setting that a flag of the verb's own sets: its name, the flag and the value.
    pub(crate) fn said(&self) -> Option<(&'static str, &'static str, &String)> {
        match self {
            Self::Serve(serve) => {
                let listen = serve.listen.as_ref()?;
                Some(("serve.listen", "--listen", listen))
            }
            Self::Proxy(proxy) => {
                let listen = proxy.listen.as_ref()?;
                Some(("proxy.listen", "--listen", listen))
            }
            _ => None,
        }
    }
}
