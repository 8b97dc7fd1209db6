//! One task: a command is started for it, and what came of that is reported.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use semel::{Effect, Key, Label, Namespace, Permit, Receipt, Redactor, Taken};
use serde::Deserialize;

use crate::args::queue::Work;
use crate::child::identity::Identity;
use crate::child::recording::Keep;
use crate::child::{self, Ended as Exited};
use crate::commands::run::answer::NotStarted;
use crate::commands::run::data::RunData;
use crate::commands::run::inject::{Faults, Moment};
use crate::commands::run::job::{absolute, with_key};
use crate::commands::run::verdict::{Meaning, meaning};
use crate::context::Context;
use crate::failure::Failure;

/// The exit code by which a command says that its input is of no use, as `sysexits.h` has it.
const EX_DATAERR: u8 = 65;

/// How much of what a command said in the end is told with its failure.
const WHY_MAX: usize = 200;

/// What every task of a worker is carried out with.
#[derive(Debug)]
pub(super) struct Bench {
    command: Vec<OsString>,
    timeout: Option<Duration>,
    retry_exit: Vec<u8>,
    reject_exit: Vec<u8>,
    effect: Effect,
    queue: Label,
    namespace: Namespace,
    store: String,
    redactor: Redactor,
    faults: Faults,
    /// The groups of the commands under way.
    under_way: Mutex<BTreeSet<i32>>,
}

/// What became of a task.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) answer: semel::Result<Receipt>,
    pub(super) why: Option<String>,
}

/// What a command that asks to be tried again may say.
#[derive(Debug, Default, Deserialize)]
struct Later {
    retry_after_ms: Option<u64>,
}

impl Bench {
    pub(super) fn new(context: &Context, args: &Work, queue: Label) -> Result<Self, Failure> {
        Ok(Self {
            command: args.command.clone(),
            timeout: args.timeout,
            retry_exit: args.retry_exit.clone(),
            reject_exit: [&args.reject_exit[..], &[EX_DATAERR]].concat(),
            effect: args.effect.unwrap_or(Effect::Updated),
            queue,
            namespace: context.namespace()?,
            store: absolute(context.settings.store())?,
            redactor: context.settings.redactor()?,
            faults: Faults::from_environment()?,
            under_way: Mutex::default(),
        })
    }

    pub(super) const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Asks all commands under way to end, and ends those that do not.
    pub(super) fn end_all(self: &Arc<Self>) {
        self.signal(Signal::TERM);
        let bench = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(child::KILL_AFTER).await;
            bench.signal(Signal::KILL);
        });
    }

    fn signal(&self, signal: Signal) {
        for pid in self.groups().iter() {
            if let Some(group) = Pid::from_raw(*pid) {
                // It can only fail when all of them have ended.
                let _ = kill_process_group(group, signal);
            }
        }
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a task out and reports what came of it.
    pub(super) async fn carry_out(self: Arc<Self>, task: Taken) -> Ended {
        let (key, name) = (task.key().clone(), task.name().clone());
        let (permit, input) = task.permit();
        let (answer, why) = self.act(permit, &name, input).await;
        Ended { key, answer, why }
    }

    async fn act(
        &self,
        permit: Permit,
        name: &Label,
        input: Option<Vec<u8>>,
    ) -> (semel::Result<Receipt>, Option<String>) {
        self.faults.strike(Moment::AfterClaim);
        let hold = match permit.hold() {
            Ok(hold) => hold,
            Err(error) => {
                let why = format!("the command's lock cannot be made: {error}");
                return (permit.not_done(&why).await, Some(why));
            }
        };
        if !permit.is_alive() {
            drop(hold.release());
            let why = "its lease ended before the command was started".to_owned();
            return (permit.not_done(&why).await, Some(why));
        }
        let mut command = self.command_for(&permit, name);
        command.stdin(Stdio::piped());
        let mut pid = None;
        let started = child::start(command, false, Keep::Result, |command| {
            let mut child = hold.spawn(command)?;
            pid = i32::try_from(child.id()).ok();
            feed(child.stdin.take(), input);
            Ok(child)
        });
        let ended = match started {
            Err(error) => {
                drop(hold.release());
                let program = self.command.first().cloned().unwrap_or_default();
                let why = NotStarted::new(&program, &error).message;
                let why = self.redactor.text(&why).into_owned();
                return (permit.not_done(&why).await, Some(why));
            }
            Ok(running) => {
                self.faults.strike(Moment::MidEffect);
                self.groups().extend(pid);
                let forget = || self.groups().retain(|group| Some(*group) != pid);
                running.end_group(self.timeout, forget).await
            }
        };
        self.faults.strike(Moment::AfterEffect);
        let reported = match ended {
            Ok(ended) => self.report(permit, ended).await,
            Err(error) => {
                let why = format!("waiting for the command failed: {error}");
                (permit.unknown(&why).await, Some(why))
            }
        };
        drop(hold.release());
        self.faults.strike(Moment::AfterSettle);
        reported
    }

    fn command_for(&self, permit: &Permit, name: &Label) -> Command {
        let key = permit.key().as_str().as_bytes();
        let mut words = self.command.iter().map(|word| with_key(word, key));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        // What a terminal sends to its group is for the worker, who lets its commands finish.
        command.process_group(0);
        let identity = Identity {
            key: permit.key(),
            namespace: &self.namespace,
            parent: None,
            store: &self.store,
        };
        identity.tell(&mut command, permit);
        command
            .env("SEMEL_QUEUE", self.queue.as_str())
            .env("SEMEL_NAME", name.as_str());
        command
    }

    async fn report(
        &self,
        permit: Permit,
        ended: Exited,
    ) -> (semel::Result<Receipt>, Option<String>) {
        let code = ended.status.code().and_then(|code| u8::try_from(code).ok());
        let meaning = meaning(&ended, &self.retry_exit);
        let data = RunData::new(code, ended.status.signal(), ended.recording);
        let is_rejected = code.is_some_and(|code| self.reject_exit.contains(&code));
        let said = self.last_words(&data);
        let with_words = |why: String| match &said {
            Some(said) => format!("{why}: {said}"),
            None => why,
        };
        match meaning {
            Meaning::Done { ok: false } if is_rejected => {
                let why = with_words(format!(
                    "the command rejected it (exit {})",
                    code.unwrap_or_default()
                ));
                (permit.reject(&why).await, Some(why))
            }
            Meaning::Done { ok } => {
                let effect = match (data.declared().effect(), ok) {
                    (Some(effect), _) => effect,
                    (None, true) => self.effect,
                    (None, false) => Effect::Unknown,
                };
                let answer = if ok {
                    data.plain_json()
                } else {
                    data.to_json()
                };
                let why = said.filter(|_| !ok);
                (permit.finish(ok, effect, Some(answer)).await, why)
            }
            Meaning::NotDone(why) => {
                let why = with_words(why);
                let later: Later = data.read().unwrap_or_default();
                let reported = match later.retry_after_ms.map(Duration::from_millis) {
                    Some(wait) => permit.not_done_for(&why, wait).await,
                    None => permit.not_done(&why).await,
                };
                (reported, Some(why))
            }
            Meaning::Unknown(why) => {
                let why = with_words(why);
                (permit.unknown(&why).await, Some(why))
            }
        }
    }

    /// Returns the last line that a command wrote to standard error, without its secrets.
    fn last_words(&self, data: &RunData) -> Option<String> {
        let said = data.last_error_line()?;
        let said = self.redactor.text(&said);
        Some(said.chars().take(WHY_MAX).collect())
    }
}

/// Writes a task's input to a command, which may have no use for all of it.
fn feed(stdin: Option<std::process::ChildStdin>, input: Option<Vec<u8>>) {
    let Some((mut stdin, input)) = stdin.zip(input) else {
        return;
    };
    // A command that does not read must not hold the worker up.
    tokio::task::spawn_blocking(move || -> io::Result<()> { stdin.write_all(&input) });
}
