//! One command that is to run once: what it is, how it is started, and what came of it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use semel::core::identity::CommandLine;
use semel::core::ledger::{Fence, Record};
use semel::store::Chunk;
use semel::{
    Class, Effect, Engine, Key, Label, Lease, Namespace, OnDoubt, Permit, Probe, Receipt, Redactor,
    Request,
};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::answer::{Answer, NotStarted};
use super::data::RunData;
use super::inject::{self, Faults, Moment};
use super::verdict::{Meaning, meaning};
use crate::args::run::Common;
use crate::args::values::{ClassWord, OnDoubtWord};
use crate::child::identity::Identity;
use crate::child::recording::{Keep, Seen};
use crate::child::signals::Signals;
use crate::child::{self, Ended, signals};
use crate::context::Context;
use crate::failure::Failure;
use crate::probe::{self, Found};
use crate::settings::without_password;

/// A command, its key and what is asked for it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) context: &'a Context,
    pub(crate) args: &'a Common,
    pub(crate) name: Label,
    pub(crate) key: Key,
    pub(crate) namespace: Namespace,
    pub(crate) request: Request,
    pub(crate) faults: Faults,
    parent: Option<Key>,
    /// What must be so after the command.
    check: Option<String>,
    /// What this call looks a doubt up with.
    pub(crate) probe: Option<Probe>,
    /// The store, as a child in another directory can find it.
    store: String,
    redactor: Redactor,
}

impl<'a> Job<'a> {
    pub(crate) fn new(context: &'a Context, args: &'a Common) -> Result<Self, Failure> {
        let name = name_of(args.name.as_deref(), &args.command)?;
        let key = match &args.key {
            Some(key) => Key::new(key).map_err(semel::Error::from)?,
            None => derived_key(&name, &args.command)?,
        };
        let line = CommandLine {
            name: &name,
            arguments: &bytes_of(&args.command),
            input: args.input.as_deref().map(digest).transpose()?,
        };
        let namespace = context.namespace()?;
        let settings = &context.settings;
        let store = absolute(settings.store())?;
        let lease = args.lease.map_or_else(|| settings.lease(), Ok)?;
        let mut request = Request::new(name.as_str(), key.clone())
            .namespace(namespace.clone())
            .input_bytes(&line.input())
            .lease(lease)
            .wait(args.wait.map_or_else(|| settings.wait(), Ok)?)
            .retention(args.retention.map_or_else(|| settings.retention(), Ok)?)
            .door(Label::new("run").map_err(|error| Failure::internal(error.to_string()))?);
        let parent = parent(&namespace, &store)?;
        if let Some((key, fence)) = &parent {
            request = request.parent(key.clone(), *fence);
        }
        Ok(Self {
            context,
            args,
            name,
            key,
            namespace,
            request,
            faults: Faults::from_environment()?,
            parent: parent.map(|(key, _)| key),
            check: None,
            probe: None,
            store,
            redactor: settings.redactor()?,
        })
    }

    /// Asks this after the command, and when it is in doubt.
    pub(crate) fn check(mut self, check: &str) -> Result<Self, Failure> {
        self.request = self.request.on_doubt(OnDoubt::Probe);
        self.check = Some(check.to_owned());
        self.probe(check)
    }

    /// Asks this when it is in doubt. The text stays here: the ledger is told its digest.
    pub(crate) fn probe(mut self, probe: &str) -> Result<Self, Failure> {
        let probe = Probe::new(probe).map_err(|error| Failure::input(error.to_string()))?;
        self.request = self.request.probe_digest(probe.digest());
        self.probe = Some(probe);
        Ok(self)
    }

    /// Makes it another operation of the same description.
    pub(crate) fn rename(&mut self, key: Key) {
        self.request = self.request.clone().key(key.clone());
        self.key = key;
    }

    /// Says how repeats and doubts are to be treated.
    pub(crate) fn policy(
        mut self,
        class: Option<ClassWord>,
        on_doubt: Option<OnDoubtWord>,
    ) -> Self {
        let class = class.map_or(Class::Unsafe, Class::from);
        self.request = self.request.class(class);
        if let Some(on_doubt) = on_doubt {
            self.request = self.request.on_doubt(on_doubt.into());
        }
        self
    }

    pub(crate) fn say_derived_key(&self) {
        if self.args.key.is_none() {
            let (key, store) = (&self.key, without_password(&self.store));
            self.context.printer.say(&format!("key {key} in {store}"));
        }
    }

    /// Returns the command as a person would write it, without its secrets.
    pub(crate) fn command_line(&self) -> String {
        let words = self.args.command.iter().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.collect();
        let shown = self.redactor.arguments(words.iter().map(|word| &**word));
        let written = words.iter().zip(&shown).map(|(word, shown)| {
            // A word of which something is hidden would not be read by a shell as it was.
            if word == shown {
                quoted(OsStr::new(shown))
            } else {
                shown.clone()
            }
        });
        written.collect::<Vec<_>>().join(" ")
    }

    /// Starts the command and reports what came of it.
    pub(crate) async fn execute(
        &self,
        permit: Permit,
        signals: &Signals,
    ) -> Result<Answer, Failure> {
        self.faults.strike(Moment::AfterClaim);
        // Whatever comes from here on is for the command, if it is started.
        signals.expect_child();
        if let Some(signal) = signals.was_asked_to_end() {
            permit
                .not_done("asked to end before the command was started")
                .await?;
            return Ok(Answer::ended_by(signal));
        }
        let hold = match permit.hold() {
            Ok(hold) => hold,
            Err(error) => {
                let text = format!("the command's lock cannot be made: {error}");
                permit.not_done(&text).await?;
                return Err(Failure::new("store_unavailable", text));
            }
        };
        // We may have been stopped since the claim. From here on the hold tells that we are there; what
        // came before it, only the deadline knows.
        if !permit.is_alive() {
            drop(hold.release());
            return self.too_late(permit).await;
        }
        let mut command = self.bare_command();
        self.identity().tell(&mut command, &permit);
        let started = child::start(
            command,
            !self.context.printer.is_json(),
            Keep::Both,
            |command| hold.spawn(command),
        );
        let answer = match started {
            Err(error) => {
                let not_started = self.not_started(&error);
                let receipt = permit.not_done(&not_started.message).await?;
                Answer::not_started(self, Some(receipt), not_started)
            }
            Ok(running) => {
                self.faults.strike(Moment::MidEffect);
                let (ended, mut seen) = self.ended(running, &permit, signals).await?;
                self.faults.strike(Moment::AfterEffect);
                let meaning = self.meaning(&ended, &permit, signals).await?;
                if let Meaning::Unknown(_) = meaning {
                    self.keep(&permit, ended.recording.since(&mut seen)).await;
                }
                let answer = self.report(permit, ended, meaning).await?;
                self.faults.strike(Moment::AfterSettle);
                answer
            }
        };
        // What is left of it says nothing: the attempt has been reported.
        drop(hold.release());
        Ok(answer)
    }

    /// Starts nothing, as the lease is over and somebody else may have begun.
    async fn too_late(&self, permit: Permit) -> Result<Answer, Failure> {
        let why = "its lease ended before the command was started";
        let receipt = permit.not_done(why).await?;
        if receipt.settled_at.is_some() {
            return Ok(Answer::replay(&receipt));
        }
        let text = format!("{}: {why}; nothing was run", self.key);
        Err(Failure::new("fenced", text)
            .about(&self.key)
            .hint("ask again"))
    }

    /// Waits for the command's end; a person may stop us for a while.
    async fn ended(
        &self,
        running: child::Running,
        permit: &Permit,
        signals: &Signals,
    ) -> Result<(Ended, Seen), Failure> {
        let (recording, mut seen) = (running.recording(), Seen::default());
        let mut store = tokio::time::interval(STORE_EVERY);
        store.set_missed_tick_behavior(MissedTickBehavior::Delay);
        store.tick().await;
        let end = running.end(signals, self.args.timeout);
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                ended = &mut end => {
                    let ended = ended.map_err(|error| {
                        Failure::new("in_doubt", format!("{}: waiting for the command failed: {error}", self.key))
                    })?;
                    return Ok((ended, seen));
                }
                _ = store.tick() => {
                    self.keep(permit, recording.since(&mut seen)).await;
                }
                () = signals.asked_to_stop() => {
                    // While we are stopped nobody renews the lease. If it is too late for that,
                    // the report will be a late one.
                    drop(permit.renew_for(longest_lease()?).await);
                    signals::stop().map_err(|error| Failure::internal(error.to_string()))?;
                }
            }
        }
    }

    /// Judges the command's end; where there is a check, success is what the check says.
    async fn meaning(
        &self,
        ended: &Ended,
        permit: &Permit,
        signals: &Signals,
    ) -> Result<Meaning, Failure> {
        let meaning = meaning(ended, &self.args.retry_exit);
        let (Meaning::Done { ok: true }, Some(check)) = (&meaning, &self.check) else {
            return Ok(meaning);
        };
        let mut command = probe::shell(check);
        self.identity().tell(&mut command, permit);
        Ok(match probe::look(command, signals).await? {
            Found::Done(_) => meaning,
            Found::NotDone => Meaning::Done { ok: false },
            Found::Unknown(how) => Meaning::Unknown(format!("the check does not know ({how})")),
        })
    }

    /// Stores what was written, so that whoever must find out what happened sees it. The answer does not
    /// rest on it, so a store that fails now is no reason to stop.
    async fn keep(&self, permit: &Permit, written: Vec<(u8, Vec<u8>)>) {
        let pieces = written.into_iter();
        // Of an answer that is not complete nobody can tell what a rule names in it.
        let exact = |(stream, _): &(u8, _)| *stream != STDOUT || !self.redactor.names_outputs();
        let pieces: Vec<_> = pieces
            .filter(exact)
            .map(|(stream, bytes)| Chunk { stream, bytes })
            .collect();
        if !pieces.is_empty() {
            drop(permit.append(pieces).await);
        }
    }

    async fn report(
        &self,
        permit: Permit,
        ended: Ended,
        meaning: Meaning,
    ) -> Result<Answer, Failure> {
        let mut exit = ended.exit_code();
        let mut code = ended.status.code().and_then(|code| u8::try_from(code).ok());
        if meaning == (Meaning::Done { ok: false }) && exit == 0 {
            let text = format!(
                "{}: the command succeeded, but the check is still false",
                self.key
            );
            self.context.printer.say(&text);
            (exit, code) = (1, Some(1));
        }
        let data = RunData::new(code, ended.status.signal(), ended.recording);
        let declared = data.declared();
        let answer = match &meaning {
            Meaning::Done { ok } => {
                let effect = match (declared.effect(), ok) {
                    (Some(effect), _) => effect,
                    (None, true) => self.args.effect.unwrap_or(Effect::Updated),
                    (None, false) => Effect::Unknown,
                };
                permit.finish(*ok, effect, Some(data.to_json())).await
            }
            Meaning::NotDone(reason) => permit.not_done(reason).await,
            Meaning::Unknown(reason) => permit.unknown(reason).await,
        };
        Ok(match answer {
            Ok(receipt) => Answer::reported(receipt, &meaning, exit, &data, declared.reason),
            Err(error) => Answer::unstored(self, error, &data),
        })
    }

    /// Runs the command without claiming anything.
    pub(crate) async fn pass_through(&self, signals: &Signals) -> Result<Answer, Failure> {
        let mut command = self.bare_command();
        command.env_remove(inject::VARIABLE);
        let live = !self.context.printer.is_json();
        match child::start(command, live, Keep::Both, Command::spawn) {
            Err(error) => {
                let not_started = self.not_started(&error);
                Ok(Answer::not_started(self, None, not_started))
            }
            Ok(running) => {
                let ended = running.end(signals, self.args.timeout).await;
                let ended = ended.map_err(|error| Failure::internal(error.to_string()))?;
                Ok(Answer::unrecorded(self, ended))
            }
        }
    }

    fn not_started(&self, error: &io::Error) -> NotStarted {
        let mut not_started = NotStarted::new(&self.args.command[0], error);
        not_started.message = self.redactor.text(&not_started.message).into_owned();
        not_started
    }

    fn bare_command(&self) -> Command {
        let key = self.key.as_str().as_bytes();
        let mut words = self.args.command.iter().map(|word| with_key(word, key));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Returns what its children are told.
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            key: &self.key,
            namespace: &self.namespace,
            parent: self.parent.as_ref(),
            store: &self.store,
        }
    }

    /// Says who runs it.
    pub(crate) async fn in_flight(&self, engine: &Engine) -> Result<Failure, Failure> {
        let record = engine.load(&self.namespace, &self.key).await?;
        let text = match record.as_deref().and_then(holder_of) {
            Some(holder) => format!("{} is still running: {holder}", self.key),
            None => format!("{} waits to be carried out elsewhere", self.key),
        };
        let failure = Failure::new("in_flight", text).about(&self.key);
        Ok(failure.hint("ask again later, or wait longer with --wait"))
    }

    pub(crate) fn in_doubt(&self, record: &Record) -> Failure {
        let key = &self.key;
        let who = holder_of(record).map_or_else(String::new, |holder| format!(" ({holder})"));
        let word = quoted(OsStr::new(key.as_str()));
        let resolve = format!("`semel resolve {word} --done` or `semel resolve {word} --not-done`");
        let digest = self.probe.as_ref().map(Probe::digest);
        let operation = record.operation();
        let refusal = operation.and_then(|it| it.spec.probe_refusal(digest.as_ref()));
        let hint = match refusal {
            Some(why) => format!(
                "{why}: nothing was looked up. Give {} of the first call, or find out, then {resolve}",
                self.probe_option()
            ),
            None => format!("find out, then {resolve}"),
        };
        Failure::new(
            "in_doubt",
            format!("{key} is in doubt: an earlier attempt started{who}, and nobody knows whether it took effect"),
        )
        .about(key)
        .hint(hint)
    }

    /// Returns the option that this call is given its probe with.
    const fn probe_option(&self) -> &'static str {
        if self.check.is_some() {
            "the --check"
        } else {
            "the --probe"
        }
    }

    /// Writes what a dry run found.
    pub(crate) fn would(&self, change: &str) {
        let effect = match self.args.effect.unwrap_or(Effect::Updated) {
            Effect::Created => Effect::WouldCreate,
            Effect::Deleted => Effect::WouldDelete,
            Effect::Noop => Effect::Noop,
            Effect::Updated
            | Effect::WouldCreate
            | Effect::WouldUpdate
            | Effect::WouldDelete
            | Effect::Unknown => Effect::WouldUpdate,
        };
        let object = self.loose(&[
            ("ok", json!(true)),
            ("effect", json!(effect.as_str())),
            ("dry_run", json!(true)),
            ("changes", json!([change])),
        ]);
        self.context.printer.answer(&object, change);
    }

    /// Makes an object like a receipt for what is in no store.
    pub(crate) fn loose(&self, fields: &[(&str, Value)]) -> Value {
        let mut object = json!({
            "replayed": false, "reason": null,
            "namespace": self.namespace.as_str(), "key": self.key.as_str(),
            "name": self.name.as_str(), "state": null, "attempt": null, "fence": null,
            "started_at": null, "settled_at": null,
        });
        for (name, value) in fields {
            object[name] = value.clone();
        }
        object
    }

    pub(crate) fn would_replay(&self, receipt: &Receipt) {
        let reason = receipt.reason.as_deref().unwrap_or("already done");
        let change = format!("would run nothing: {reason}");
        if self.context.printer.is_json() {
            self.context.printer.object(receipt);
        } else {
            self.context.printer.line(&change);
        }
    }
}

/// The number of the stream that a command answers on.
const STDOUT: u8 = 1;

/// How often what a command has written so far is stored.
const STORE_EVERY: Duration = Duration::from_secs(1);

fn longest_lease() -> Result<Lease, Failure> {
    Lease::new(Lease::MAX).map_err(|error| Failure::internal(error.to_string()))
}

/// Names the holder of the newest attempt.
fn holder_of(record: &Record) -> Option<String> {
    let attempt = record.operation()?.latest()?;
    let since = attempt.started_at;
    Some(match &attempt.holder {
        Some(holder) => format!("since {since} by process {} on {}", holder.pid, holder.host),
        None => format!("since {since}"),
    })
}

/// Returns what is done: what was said, or the command's name.
pub(crate) fn name_of(said: Option<&str>, command: &[OsString]) -> Result<Label, Failure> {
    let name = said.map_or_else(|| base_name(command), str::to_owned);
    Label::new(&name).map_err(|error| Failure::input(error.to_string()))
}

/// Derives a key for a command in this directory.
pub(crate) fn derived_key(name: &Label, command: &[OsString]) -> Result<Key, Failure> {
    let line = CommandLine {
        name,
        arguments: &bytes_of(command),
        input: None,
    };
    Ok(line.derived_key(working_directory()?.as_os_str().as_bytes()))
}

fn bytes_of(command: &[OsString]) -> Vec<&[u8]> {
    command.iter().map(|word| word.as_bytes()).collect()
}

/// Returns the last part of the program's path.
fn base_name(command: &[OsString]) -> String {
    let program = command.first().map(Path::new);
    let name = program.and_then(Path::file_name).unwrap_or_default();
    let text: String = name
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_control() { '_' } else { c })
        .take(NAME_CHARS)
        .collect();
    text
}

/// A name has 255 bytes at most, and a character four.
const NAME_CHARS: usize = 63;

fn digest(path: &Path) -> Result<semel::core::Digest, Failure> {
    let wrong = |error: io::Error| {
        Failure::input(format!(
            "--input {} cannot be read: {error}",
            path.display()
        ))
    };
    let mut file = std::fs::File::open(path).map_err(wrong)?;
    let mut piece = || {
        let mut bytes = vec![0; INPUT_PIECE];
        loop {
            match file.read(&mut bytes) {
                Ok(0) => return None,
                Ok(size) => {
                    bytes.truncate(size);
                    return Some(Ok(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(error)),
            }
        }
    };
    semel::core::Digest::of_pieces(std::iter::from_fn(&mut piece)).map_err(wrong)
}

/// How much of an input file is read at once.
const INPUT_PIECE: usize = 256 * 1024;

fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::input(format!("the working directory is not known: {error}"))
            .hint("give a key with --key")
    })
}

/// Makes a file's path in a store's URL independent of the directory.
pub(crate) fn absolute(url: &str) -> Result<String, Failure> {
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => {
            let path = std::path::absolute(path)
                .map_err(|error| Failure::input(format!("the store's path: {error}")))?;
            Ok(format!("sqlite:{}", path.display()))
        }
        Some(_) | None => Ok(url.to_owned()),
    }
}

/// Returns the operation that this process is part of, if it is one behind the same wall of the same
/// store.
fn parent(namespace: &Namespace, store: &str) -> Result<Option<(Key, Fence)>, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let (Some(key), Some(fence)) = (variable("SEMEL_KEY"), variable("SEMEL_FENCE")) else {
        return Ok(None);
    };
    let same = variable("SEMEL_STORE").as_deref() == Some(store)
        && variable("SEMEL_NAMESPACE").as_deref() == Some(namespace.as_str());
    if !same {
        return Ok(None);
    }
    let wrong =
        |what: &str| Failure::input(format!("{what} in the environment is not one of ours"));
    let key = Key::new(&key).map_err(|_| wrong("SEMEL_KEY"))?;
    let fence = fence.parse().map_err(|_| wrong("SEMEL_FENCE"))?;
    Ok(Some((key, Fence(fence))))
}

/// Puts the key where an argument says `{key}`.
pub(crate) fn with_key(word: &OsStr, key: &[u8]) -> OsString {
    const PLACE: &[u8] = b"{key}";
    let mut rest = word.as_bytes();
    let mut bytes = vec![];
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(key);
        rest = &rest[at + PLACE.len()..];
    }
    bytes.extend_from_slice(rest);
    OsString::from_vec(bytes)
}

/// Writes a word so that a shell reads it as one.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_put_where_it_is_asked_for() {
        let put = |word: &str| with_key(OsStr::new(word), b"k-1");
        assert_eq!(put("--id={key}"), "--id=k-1");
        assert_eq!(put("{key}{key}"), "k-1k-1");
        assert_eq!(put("{ke}y}"), "{ke}y}");
        assert_eq!(put(""), "");
    }

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        for (word, written) in [
            ("a-b", "a-b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), written);
        }
    }
}
