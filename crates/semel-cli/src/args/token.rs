//! Tokens: who may ask a server.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use semel::Scope;

use super::values;

/// Makes, lists and revokes the tokens with which a server is asked
///
/// A token names a namespace and a scope; whoever has it may do that much there and nothing else. Tokens
/// live in the store, which keeps the hashes of their secrets only: a token is shown once, when it is made.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel token create --namespace team-a --scope write --expires 90d
  semel token list
  semel token revoke 4f7kq2m9x0ab")]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Makes a token and shows it, this once
///
/// The token goes to standard output; it cannot be shown again. It works at once for every server on
/// this store, in the namespace of --namespace. Making one again makes another: two calls, two tokens.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel token create --namespace team-a --scope write --expires 90d --label 'the build'
  SEMEL_TOKEN=$(semel token create --scope read)
  semel token create --scope admin --json")]
pub(crate) struct Create {
    /// What it allows; each one includes those before it
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: ScopeWord,

    /// How long it can be used [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = values::some_duration)]
    pub(crate) expires: Option<Duration>,

    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Lists tokens, the newest first, without their secrets
///
/// Lists the tokens of every namespace, or of the one that was named by a flag, the environment or the
/// settings file. Revoked and expired ones stay in the list. When a token was last used is exact to
/// about a minute. With --json each line is one token.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel token list
  semel token list --namespace team-a --json")]
pub(crate) struct List {}

/// Revokes a token, for ever
///
/// No server on this store accepts it any more, after a second at most. Revoking it again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel token revoke 4f7kq2m9x0ab
  semel token revoke 4f7kq2m9x0ab --dry-run --json")]
pub(crate) struct Revoke {
    /// The token's id, as `semel token list` shows it
    pub(crate) id: String,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// See [`Scope`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ScopeWord {
    /// Looks
    Read,
    /// Also begins, renews, settles and submits
    Write,
    /// Also resolves, retries, cancels and forgets
    Operate,
    /// Also makes and revokes tokens
    Admin,
}

impl From<ScopeWord> for Scope {
    fn from(word: ScopeWord) -> Self {
        match word {
            ScopeWord::Read => Self::Read,
            ScopeWord::Write => Self::Write,
            ScopeWord::Operate => Self::Operate,
            ScopeWord::Admin => Self::Admin,
        }
    }
}
