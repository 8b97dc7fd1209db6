//! Looking at the store and at the command itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use clap_complete::Shell;

use super::values;

/// Counts what is in the ledger and what happened in it
///
/// Counts the namespace's operations by their state as of now, and the whole store's history from
/// its log: attempts, doubts, resolutions, late reports, conflicts. All operations and all entries
/// are read for it. Answers that were given again are counted on this machine, without a sync: after
/// a power loss the last ones may be missing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel stats
  semel stats --json")]
pub(crate) struct Stats {}

/// Looks for what is wrong or needs a person
///
/// Checks that the store can be used, its version, who can read its files, the clock, the disk, notes
/// that could not be delivered, and operations that are stuck or in doubt. Each line is ok, warn or
/// bad. Exits 1 when something is bad, such as a doubt older than the limit; looking changes nothing
/// but what opening a store always does.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel doctor
  semel doctor --doubt-limit 15m --json")]
pub(crate) struct Doctor {
    /// How old a doubt may be [default: the setting doctor.doubt_limit]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) doubt_limit: Option<Duration>,
}

/// Writes a copy of the store into a file, while others go on
///
/// The copy is one moment of the whole store, in one new file. It can be read with every verb that
/// only looks, but nothing can be claimed in it: it knows nothing of what the store does afterwards.
/// `semel restore` makes it a store again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel backup /backups/semel-2026-11-15.db
  semel --store sqlite:/backups/semel-2026-11-15.db list")]
pub(crate) struct Backup {
    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Makes a backup a store again
///
/// Copies the file to where the store is to be, and adopts it: every fence is raised above all that
/// the lost store can have granted, and what ran is in doubt. What was begun after the backup was
/// made cannot be known: such a key would run again. Without FILE, a copy that lies in the store's
/// place already is adopted: a backup, a snapshot, or a PostgreSQL database that was restored from a
/// dump.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel restore /backups/semel-2026-11-15.db
  semel --store sqlite:/srv/semel.db restore --dry-run /backups/semel-2026-11-15.db
  semel --store postgres://semel@db/restored restore")]
pub(crate) struct Restore {
    /// The backup; the store must not exist then
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Who restores [default: your login name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Moves the ledger to another store, while it is in use
///
/// Replays the log of one store into another, of the same kind or of another, by the same rules; the
/// target must be new. The phases, each said on standard error: copying and verifying, while the
/// source is in use; closing, after which the source takes no begins, only the reports of attempts
/// that run; draining, which waits for those; comparing what has changed since; adopting, which
/// raises the target's fences and turns what still runs into doubts. Then begins go to the target.
/// When it is interrupted, the same command goes on where it stopped. With --snapshot the source
/// stays open, and the target can only be read. Exits 1 when the target is not what the source is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel copy --from sqlite:/srv/semel.db --to postgres://semel@db/semel
  semel copy --from postgres://semel@db/semel --to sqlite:/srv/semel.db --drain 2m
  semel copy --snapshot --from postgres://semel@db/semel --to sqlite:/tmp/look.db")]
pub(crate) struct Copy {
    /// The store to copy: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,

    /// The store to fill: a new file, or a database without a ledger
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,

    /// Leaves the source open and makes a copy that can only be read
    #[arg(long)]
    pub(crate) snapshot: bool,

    /// How long attempts that run in the closed source may take to report
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration, conflicts_with = "snapshot")]
    pub(crate) drain: Duration,

    /// Who moves the ledger [default: your login name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// Says what would happen and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Tells about the settings
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel config show
  semel config show --json")]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Shows every setting, its value and where that came from
    ///
    /// A flag beats the environment, which beats the file, which beats the default. Secrets are not
    /// shown. With --json each line is one setting.
    #[command(after_long_help = "Examples:\n  semel config show\n  semel config show --json")]
    Show,
}

/// Writes completions for a shell
///
/// The script goes to standard output; where it belongs depends on the shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel completions bash > ~/.local/share/bash-completion/completions/semel
  semel completions zsh > ~/.zfunc/_semel
  semel completions fish > ~/.config/fish/completions/semel.fish")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Writes the manual
///
/// Without --out the page of `semel` itself goes to standard output; with it, one page per verb is
/// written into the directory.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel man | man -l -
  semel man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Writes every page into this directory, which is made if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
