//! What operators decide.

use semel::Effect;

use super::query::Filters;
use super::values;

/// What every decision carries.
#[derive(Debug, clap::Args)]
pub(crate) struct Said {
    /// Why; the log keeps it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Who decides [default: the user's login name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What is known about the doubted effect.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Known {
    /// The effect happened
    #[arg(long)]
    pub(crate) done: bool,

    /// The effect did not happen: the operation may run again
    #[arg(long)]
    pub(crate) not_done: bool,

    /// Asks this command, run by `sh -c`: exit 0 means done, 1 not done, anything else unknown. A
    /// request through the proxy needs no CMD: it is looked up by the GET that the `probe` of its
    /// route in your settings names
    #[arg(long, value_name = "CMD", num_args = 0..=1, require_equals = true)]
    pub(crate) probe: Option<Option<String>>,
}

/// Settles a doubt: says whether the effect happened
///
/// An operation is in doubt when an attempt started and nobody knows whether its effect happened.
/// Find out, then say so. `--done` settles it with the answer that later callers get; `--not-done`
/// lets it run again. `--probe` asks a command that gets SEMEL_KEY, SEMEL_NAMESPACE, SEMEL_FENCE and
/// SEMEL_ATTEMPT; what it writes becomes the answer.
///
/// While the process that held the attempt may still act, --yes is needed: make sure first that it
/// does nothing any more. An attempt whose lease has not ended cannot be resolved at all, unless its
/// process is provably gone.
///
/// Without a KEY all that match the filters are resolved, with --yes; an operation whose holder may
/// still act is left out then.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel resolve order-7 --done --effect created --data '{\"id\": 42}' --note 'seen in the shop'
  semel resolve order-7 --not-done
  semel resolve order-7 --probe='curl -fs https://shop.example/orders/$SEMEL_KEY'
  semel resolve proxy/3b1f0a77c2d4e659/order-7 --probe --header \"Authorization: Bearer $TOKEN\"
  semel resolve --state doubtful --name send-mail --not-done --dry-run")]
pub(crate) struct Resolve {
    /// The operation's key, or what its client calls it, where only one operation is called so; without it
    /// all that match the filters are meant
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) known: Known,

    /// It happened, and ended in failure
    #[arg(long, conflicts_with_all = ["not_done", "probe"])]
    pub(crate) failed: bool,

    /// What it did: created, updated, deleted or noop [default: updated; unknown with --failed]
    #[arg(long, value_name = "EFFECT", value_parser = values::effect, conflicts_with = "not_done")]
    pub(crate) effect: Option<Effect>,

    /// What it answered: JSON, or @FILE, or @- for standard input
    #[arg(long, value_name = "JSON", conflicts_with_all = ["not_done", "probe"])]
    pub(crate) data: Option<String>,

    /// A header of the GET that a request through the proxy is looked up by, such as `Authorization:
    /// Bearer ...`; may be repeated. Credentials are stored nowhere
    #[arg(long, value_name = "NAME: VALUE", requires = "probe")]
    pub(crate) header: Vec<String>,

    /// Goes ahead although the holder may still act, or although many are meant
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) said: Said,

    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Gives a failed or dead operation fresh attempts
///
/// The operation is pending afterwards; the next call with its key, or a worker, carries it out
/// again. The receipt says whether the earlier attempts may have had an effect. A doubtful operation
/// is refused: resolve it first. Without a KEY all that match the filters are retried, with --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel retry order-7 --note 'the shop is back'
  semel retry --state dead --queue mail --dry-run
  semel retry --state failed,dead --since 2h --yes --json")]
pub(crate) struct Retry {
    /// The operation's key, or what its client calls it, where only one operation is called so; without it
    /// all that match the filters are meant
    pub(crate) key: Option<String>,

    /// Goes ahead although many are meant
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) said: Said,

    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Ends an operation that was not applied
///
/// A pending or dead operation becomes failed with the effect noop: later callers are told so and
/// nothing runs. What runs or is in doubt is refused, as it may have been applied.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel cancel order-7 --note 'the customer left'")]
pub(crate) struct Cancel {
    /// The operation's key; or what its client calls it, where only one operation is called so
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) said: Said,
}

/// Erases a settled operation, so that its key can be used anew
///
/// Its name, its input's hash, its answer and its attempts are erased. Only a hash of the key stays,
/// with the number that keeps late reports of old attempts out. The next call with the key runs.
/// What is not settled is refused.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel forget order-7 --note 'asked for by the customer'")]
pub(crate) struct Forget {
    /// The operation's key; or what its client calls it, where only one operation is called so
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) said: Said,
}
