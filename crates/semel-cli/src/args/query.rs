//! Looking at operations: which ones, and how many.

use semel::core::identity::Door;
use semel::core::ledger::StateKind;
use semel::store::Query;
use semel::{Namespace, Timestamp};

use super::values::{Moment, StateWord, moment};

/// The most operations on one page: a page is laid out as a whole, so that its columns align.
const LIMIT_MAX: u32 = 1_000;

/// Which operations are meant.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only in this state, as of now; may be given several times
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<StateWord>,

    /// Only with this name
    #[arg(long)]
    name: Option<String>,

    /// Only through this door
    #[arg(long)]
    door: Option<String>,

    /// Only on this queue
    #[arg(long)]
    queue: Option<String>,

    /// Only keys that begin so, or clients' own keys that do
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// Only created at or after this time: RFC 3339, or how long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,

    /// Only created before this time: RFC 3339, or how long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
}

impl Filters {
    /// Says whether any filter was given.
    pub(crate) fn is_empty(&self) -> bool {
        let words = [&self.name, &self.door, &self.queue, &self.prefix];
        self.state.is_empty()
            && words.iter().all(|word| word.is_none())
            && (self.since, self.until) == (None, None)
    }

    /// Returns the door whose operations are meant, where it scopes its callers' keys.
    pub(crate) fn scoping_door(&self) -> Option<Door> {
        self.door.as_deref().and_then(Door::parse)
    }

    /// Makes the question to the store.
    pub(crate) fn query(&self, namespace: Namespace, now: Timestamp) -> Query {
        Query {
            namespace: Some(namespace),
            states: self.state.iter().copied().map(StateKind::from).collect(),
            name: self.name.clone(),
            door: self.door.clone(),
            queue: self.queue.clone(),
            prefix: self.prefix.clone(),
            since: self.since.map(|moment| moment.from(now)),
            until: self.until.map(|moment| moment.from(now)),
            ..Query::default()
        }
    }
}

/// Lists operations, the newest first
///
/// Shows the operations of the namespace with their state as of now: one whose lease has ended is
/// doubtful, whether anybody has noticed it before or not. With --door mcp the table is made for calls
/// of tools: what became of each, what it was recognised by, and whether its caller got the answer. With
/// --json each line is one Record without `attempts` and `data`. When there are more, a hint on standard
/// error says how to go on.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel list
  semel list --state doubtful,dead --since 24h
  semel list --door mcp
  semel list --prefix order- --limit 200 --json")]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) filters: Filters,

    /// How many, at most 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    pub(crate) limit: u32,

    /// Goes on after the last page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<u64>,
}

/// Shows one operation with all its attempts
///
/// Tells what the operation is, where it stands as of now, what each attempt came to and who held
/// it, who resolved a doubt, what the answer was, and what can be done next. The process of a holder
/// is alive, gone, or cannot be seen from here. With --json the answer is one Record; `data` is the
/// stored answer where it is JSON.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel show order-7
  semel show order-7 --json | jq .data")]
pub(crate) struct Show {
    /// The operation's key; or what its client calls it, where only one operation is called so
    pub(crate) key: String,
}

/// Shows the log: every accepted command, in order
///
/// Without --after it shows the newest entries, with --after those that follow that number. A KEY
/// leaves only its own entries; without one the whole store's are shown, of every namespace. The key
/// of an operation that was forgotten or dropped is no longer known. With --json each line is one
/// Event.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel log
  semel log order-7
  semel log --follow --json
  semel log --after 1200 --limit 500")]
pub(crate) struct Log {
    /// Only this operation: its key, or what its client calls it
    pub(crate) key: Option<String>,

    /// Goes on with what comes, until it is interrupted; --limit counts only what was there before
    #[arg(long)]
    pub(crate) follow: bool,

    /// Only entries after this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,

    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}
