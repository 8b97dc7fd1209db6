//! The inbox: whose webhooks are received.

use clap::Subcommand;

use super::operate::Said;
use super::values::{Moment, StateWord, moment};

/// Receives webhooks: each becomes a task once, however often it is sent
///
/// A source is one sender, with its secret and the queue that its webhooks go to. `semel serve` takes them at
/// /in/NAME: it verifies the signature over the bytes as they came, finds the sender's own id, stores the webhook as a
/// task and answers at once. A webhook that comes again is answered with success and does nothing; the same id
/// with another body is refused (`key_reused`). Nothing is written for a request that is not proven to be the sender's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel inbox add stripe --scheme stripe --queue payments --secret-env STRIPE_WEBHOOK_SECRET
  semel inbox list
  semel inbox test stripe
  semel inbox replay stripe evt_1")]
pub(crate) struct Inbox {
    #[command(subcommand)]
    pub(crate) verb: InboxVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxVerb {
    Add(Box<Add>),
    List(List),
    Test(Test),
    Replay(Box<Replay>),
}

/// Adds a source to the settings file
///
/// The section [inbox.NAME] is written at the end of the file that is in use (`./semel.toml` if there is none); what
/// is there stays as it is. A running server sees it within a second. Secrets are named, never written: an
/// environment variable of the server, or a file that it can read; two of them while one replaces the other. Adding
/// the same source again changes nothing; a name that is there with other settings is refused.
///
/// Schemes: `standard` (Standard Webhooks, Svix), `stripe`, `github`, `slack`, `hmac` (any header), `none` (nothing is
/// verified: whoever knows the address can send). The id is found by itself but for `hmac` and `none`: `header:NAME`,
/// a JSON pointer into the body such as /event/id, `cloudevents` (source and id), or `body` (the body stands for
/// itself).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel inbox add stripe --scheme stripe --queue payments --secret-env STRIPE_WEBHOOK_SECRET
  semel inbox add github --scheme github --queue builds --secret-file /run/secrets/github
  semel inbox add shop --scheme hmac --header X-Shopify-Hmac-Sha256 --encoding base64 \\
    --id header:X-Shopify-Event-Id --queue orders --secret-env SHOP_SECRET")]
pub(crate) struct Add {
    /// What it is called, in its address and in keys
    pub(crate) name: String,

    /// How the sender signs
    #[arg(long, value_name = "SCHEME", value_parser = semel::core::webhook::Scheme::WORDS)]
    pub(crate) scheme: String,

    /// The queue whose workers get its webhooks
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: String,

    /// The server's environment variable that has the secret; may be given more than once
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) secret_env: Vec<String>,

    /// The file that has the secret; may be given more than once
    #[arg(long, value_name = "PATH")]
    pub(crate) secret_file: Vec<String>,

    /// Where the sender's id is [default: as the scheme has it]
    #[arg(long, value_name = "PLACE")]
    pub(crate) id: Option<String>,

    /// The lane of the queue that they are in: lanes take turns [default: the source's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) lane: Option<String>,

    /// Which of the queue's tasks go first, the highest, from -100 to 100 [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) priority: Option<i64>,

    /// A header that workers get beside the usual ones; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) keep_header: Vec<String>,

    /// How far the time of a signature may be from now [default: 5m]
    #[arg(long, value_name = "DURATION")]
    pub(crate) tolerance: Option<String>,

    /// How long its webhooks are kept [default: 30d]
    #[arg(long, value_name = "DURATION")]
    pub(crate) retention: Option<String>,

    /// The largest body [default: 1008KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_body: Option<String>,

    /// With `hmac`: the header that has the signature
    #[arg(long, value_name = "NAME")]
    pub(crate) header: Option<String>,

    /// With `hmac`: what comes before the signature there, such as sha256=
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,

    /// With `hmac`: what it is hashed with, sha256 or sha512 [default: sha256]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,

    /// With `hmac`: how it is written, hex or base64 [default: hex]
    #[arg(long, value_name = "NAME")]
    pub(crate) encoding: Option<String>,

    /// With `hmac`: what is signed [default: {body}, or {timestamp}.{body} where there is a time]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) signed: Option<String>,

    /// With `hmac`: the header that has the time of the signature, in seconds since 1970
    #[arg(long, value_name = "NAME")]
    pub(crate) timestamp_header: Option<String>,

    /// Says what would be written and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Lists the sources
///
/// With --json each line is one source. Of secrets only where they come from is shown.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel inbox list
  semel inbox list --json")]
pub(crate) struct List {}

/// Sends a webhook to a running server as the sender would, twice
///
/// Signs a sample with the first secret of the source, which must be known here, too, and sends it to the server; then
/// once more, as senders do whose answer was lost. The first is stored as a task, which a worker will get; the second
/// must do nothing. Exits with 0 when it is so, and with 1 when not.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel inbox test stripe
  semel inbox test stripe --url https://semel.example --body '{\"id\": \"evt_test\", \"type\": \"ping\"}'")]
pub(crate) struct Test {
    /// The source
    pub(crate) name: String,

    /// Where the server is [default: as the setting serve.listen says]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// What is sent [default: a small JSON object with an id]
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,

    /// The sender's id [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// Hands webhooks that were received to the workers again
///
/// Each KEY is the sender's id, or the whole key. What failed or is dead gets fresh attempts, as with `semel retry`.
/// What succeeded is handed on again only with --again, as a new operation (KEY#2, KEY#3, …): its workers act once
/// more. What still waits or runs is left alone, what is in doubt is refused until it is resolved, and of what is past
/// its retention nothing is left to hand on. Without a KEY all of the source that match the filters are meant, with
/// --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel inbox replay stripe evt_1
  semel inbox replay stripe evt_1 --again --note 'the books were restored'
  semel inbox replay stripe --state dead --since 24h --dry-run
  semel inbox replay stripe --state failed,dead --yes --json")]
pub(crate) struct Replay {
    /// The source
    pub(crate) name: String,

    /// The sender's ids, or whole keys
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,

    /// Hands on what succeeded, too, as a new operation
    #[arg(long)]
    pub(crate) again: bool,

    /// Goes ahead although many are meant
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) said: Said,

    /// Only in this state; may be given several times
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        conflicts_with = "keys"
    )]
    pub(crate) state: Vec<StateWord>,

    /// Only received at or after this time: RFC 3339, or how long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "keys")]
    pub(crate) since: Option<Moment>,

    /// Only received before this time: RFC 3339, or how long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "keys")]
    pub(crate) until: Option<Moment>,
}
