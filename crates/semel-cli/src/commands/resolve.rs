//! `semel resolve`

use std::process::ExitCode;
use std::sync::Arc;

use semel::core::Digest;
use semel::core::http::Place;
use semel::core::ledger::{Attempt, Command, Decision, Expire, Rejection, StateKind, decide};
use semel::http::HeaderMap;
use semel::store::PAYLOAD_MAX;
use semel::{Effect, Engine, Note, Probe};

use super::run::data::RunData;
use super::run::listen;
use crate::args::operate::Resolve;
use crate::args::values::StateWord;
use crate::context::Context;
use crate::failure::Failure;
use crate::found::Found;
use crate::given;
use crate::liveness;
use crate::look_up::{self, Looked};
use crate::order::{Choice, Desk, refused};
use crate::probe;
use crate::selection::{Selection, Tally, select, unconfirmed};

pub(crate) async fn run(context: &Context, args: &Resolve) -> Result<ExitCode, Failure> {
    let desk = Desk::new(context, &args.said)?;
    let known = Known::new(args)?;
    let engine = context.open_existing().await?;
    let states = [StateWord::Doubtful];
    let clerk = Clerk {
        context,
        engine: &engine,
        desk: &desk,
        known: &known,
    };
    let key = args.key.as_deref();
    match select(context, &engine, key, &args.filters, &states).await? {
        Selection::One(found) => {
            clerk.resolve(&found, args.yes).await?;
            Ok(ExitCode::SUCCESS)
        }
        Selection::Many { found, more } => clerk.resolve_many(&found, more, args.yes).await,
    }
}

/// What is known about the doubted effect, or who knows it.
enum Known {
    Already(Choice),
    Probe {
        /// Without one, requests of the proxy are looked up.
        command: Option<String>,
        /// What it did where the probe does not say.
        effect: Option<Effect>,
        /// What a request that is looked up is asked with.
        headers: HeaderMap,
    },
}

impl Known {
    fn new(args: &Resolve) -> Result<Self, Failure> {
        let usual = if args.failed {
            Effect::Unknown
        } else {
            Effect::Updated
        };
        Ok(match &args.known.probe {
            Some(command) => Self::Probe {
                command: command.as_deref().map(shell_command).transpose()?,
                effect: args.effect,
                headers: look_up::headers(&args.header)?,
            },
            None if args.known.done => Self::Already(Choice::Done {
                ok: !args.failed,
                effect: args.effect.unwrap_or(usual),
                data: args.data.as_deref().map(answer).transpose()?,
            }),
            None => Self::Already(Choice::NotDone),
        })
    }

    const fn words(&self) -> &'static str {
        match self {
            Self::Already(choice) => choice.words(),
            Self::Probe { .. } => "ask the probe and resolve by its answer",
        }
    }
}

/// Reads the command of a probe: an empty one would exit with 0, and settle a doubt without looking.
fn shell_command(text: &str) -> Result<String, Failure> {
    let probe = Probe::new(text).map_err(|error| Failure::input(format!("--probe: {error}")))?;
    Ok(probe.as_str().to_owned())
}

/// Reads the answer that later callers are to get.
fn answer(text: &str) -> Result<Vec<u8>, Failure> {
    given::json("--data", "the answer", text, PAYLOAD_MAX)
}

/// Makes the answer that later callers get of what a probe wrote: as a recorded command, where a
/// command is replayed, and as plain JSON otherwise.
fn answer_of(found: &Found, data: &RunData) -> Vec<u8> {
    let spec = found.operation().map(|operation| &operation.spec);
    let door = spec.and_then(|spec| spec.door.as_ref());
    if door.is_some_and(|door| door.as_str() == "run") {
        data.to_json()
    } else {
        data.plain_json()
    }
}

/// What finds out whether a doubted effect happened.
enum Inquiry<'a> {
    /// A command of this caller's.
    Shell(&'a str),
    /// A GET to an upstream of this caller's settings.
    LookUp(Place),
}

struct Clerk<'a> {
    context: &'a Context,
    engine: &'a Engine,
    desk: &'a Desk,
    known: &'a Known,
}

impl Clerk<'_> {
    async fn resolve(&self, found: &Found, yes: bool) -> Result<(), Failure> {
        let found = self.ended(found).await?;
        self.check_holders(&found, yes)?;
        let (desk, choice) = match self.known {
            Known::Already(choice) => (self.desk.clone(), choice.clone()),
            Known::Probe {
                command,
                effect,
                headers,
            } => {
                let inquiry = self.inquiry(&found, command.as_deref())?;
                if self.desk.dry_run {
                    let (words, usual) = (self.known.words(), Choice::NotDone);
                    return self.desk.announce(self.context, &found, words, &usual);
                }
                match (inquiry, found.operation()) {
                    (Inquiry::LookUp(place), Some(operation)) => {
                        let looked = look_up::look(operation, &place, headers.clone()).await;
                        self.looked(&found, &place, looked, *effect)?
                    }
                    (Inquiry::LookUp(_), None) => return Err(no_command(&found)),
                    (Inquiry::Shell(command), _) => self.ask(&found, command, *effect).await?,
                }
            }
        };
        desk.decide(self.context, self.engine, &found, choice).await
    }

    async fn resolve_many(
        &self,
        found: &[Found],
        more: bool,
        yes: bool,
    ) -> Result<ExitCode, Failure> {
        let rehearsal = Desk {
            dry_run: self.desk.dry_run || !yes,
            ..self.desk.clone()
        };
        let clerk = Clerk {
            desk: &rehearsal,
            ..*self
        };
        let mut tally = Tally::default();
        for one in found {
            // The word for many is none about a holder that may still act: that needs a look each.
            let answer = clerk.resolve(one, false).await;
            tally.count(self.context, one, answer);
        }
        if rehearsal.dry_run && !self.desk.dry_run && !found.is_empty() {
            return Err(unconfirmed(found.len(), self.known.words()));
        }
        Ok(tally.finish(self.context, "resolved", more))
    }

    /// Returns the operation once its attempt has ended: a holder that is gone holds nothing.
    async fn ended(&self, found: &Found) -> Result<Found, Failure> {
        let running = found
            .operation()
            .filter(|_| found.state() == StateKind::Running);
        let Some((operation, attempt)) = running.and_then(|it| Some((it, it.latest()?))) else {
            return Ok(found.clone());
        };
        let (namespace, key) = (&found.namespace, &found.key);
        if !self.engine.is_gone(namespace, key, attempt) {
            let until = operation.lease_until();
            let mut failure = refused(found, Rejection::InFlight { until });
            failure.message = format!(
                "{}: attempt {} is running: {}; {}",
                found.key,
                attempt.number,
                self.holder(found, attempt),
                liveness::lease(attempt, found.now)
            );
            return Err(failure.hint(
                "what runs cannot be resolved: wait for it, or end its process and wait for its lease to end",
            ));
        }
        if self.desk.dry_run {
            let gone = Some(attempt.fence);
            let expire = Command::Expire(Expire { gone });
            let decision = decide(Some(&found.record), &expire, found.now);
            return match decision.map_err(|rejection| refused(found, rejection))? {
                Decision::Write(write) => Ok(write
                    .next
                    .map_or_else(|| found.clone(), |next| found.with(Arc::new(next)))),
                Decision::Answer(_) => Ok(found.clone()),
            };
        }
        let noticed = self.engine.notice_gone(&found.namespace, &found.key);
        let record = noticed.await?;
        Ok(record.map_or_else(|| found.clone(), |record| found.with(record)))
    }

    /// Tells who held the doubted attempts, and refuses while one of them may still act.
    fn check_holders(&self, found: &Found, yes: bool) -> Result<(), Failure> {
        let Some(operation) = found.operation() else {
            return Ok(());
        };
        let judged = operation.judged_at(found.now);
        for attempt in judged.attempts.iter().filter(|attempt| attempt.open) {
            self.context.printer.note(&format!(
                "{}: attempt {} was held by {}; {}",
                found.key,
                attempt.number,
                self.holder(found, attempt),
                liveness::lease(attempt, found.now)
            ));
        }
        let (namespace, key) = (&found.namespace, &found.key);
        let held = |attempt: &Attempt| self.engine.may_be_held(namespace, key, attempt.fence);
        let acting = liveness::may_act(&judged, found.now, held);
        let Some(attempt) = acting.first().filter(|_| !yes) else {
            return Ok(());
        };
        let mut failure = refused(found, Rejection::InFlight { until: None });
        failure.message = format!(
            "{}: the holder of attempt {} may still act: {}; {}",
            found.key,
            attempt.number,
            self.holder(found, attempt),
            liveness::lease(attempt, found.now)
        );
        Err(failure.hint("make sure that it does nothing any more, then add --yes"))
    }

    /// Says whether a process that an attempt started is there.
    fn is_held(&self, found: &Found, attempt: &Attempt) -> bool {
        let (namespace, key) = (&found.namespace, &found.key);
        self.engine.is_held(namespace, key, attempt.fence)
    }

    fn holder(&self, found: &Found, attempt: &Attempt) -> String {
        liveness::holder(attempt, self.is_held(found, attempt))
    }

    /// Chooses what is asked: this caller's command, or the look-up of a request in this caller's settings. The store
    /// has neither.
    fn inquiry<'a>(&self, found: &Found, command: Option<&'a str>) -> Result<Inquiry<'a>, Failure> {
        if let Some(command) = command {
            return Ok(Inquiry::Shell(command));
        }
        let request = found
            .operation()
            .and_then(|it| Some((it, look_up::digest(it)?)));
        let (operation, digest) = request.ok_or_else(|| no_command(found))?;
        let routes = self.context.settings.routes();
        look_up::place(operation, &digest, &routes).map(Inquiry::LookUp)
    }

    /// Asks a probe, and says so in the note: which one it was, by its digest.
    async fn ask(
        &self,
        found: &Found,
        command: &str,
        effect: Option<Effect>,
    ) -> Result<(Desk, Choice), Failure> {
        let attempt = found.operation().map_or(0, |operation| operation.attempt);
        let mut shell = probe::shell(command);
        shell
            .env("SEMEL_KEY", found.key.as_str())
            .env("SEMEL_NAMESPACE", found.namespace.as_str())
            .env("SEMEL_FENCE", found.record.fence().0.to_string())
            .env("SEMEL_ATTEMPT", attempt.to_string());
        let (choice, exit) = match probe::look(shell, &listen()?).await? {
            probe::Found::Done(data) => (
                Choice::Done {
                    ok: true,
                    effect: data
                        .declared()
                        .effect()
                        .or(effect)
                        .unwrap_or(Effect::Updated),
                    data: Some(answer_of(found, &data)),
                },
                0,
            ),
            probe::Found::NotDone => (Choice::NotDone, 1),
            probe::Found::Unknown(how) => return Err(unknown(found, &how)),
        };
        let digest = Digest::of(command.as_bytes());
        Ok((
            self.noted(&format!("the probe (sha256 {digest}) exited {exit}")),
            choice,
        ))
    }

    /// Decides by what was looked up, and says so in the note.
    fn looked(
        &self,
        found: &Found,
        place: &Place,
        looked: Looked,
        effect: Option<Effect>,
    ) -> Result<(Desk, Choice), Failure> {
        let (choice, shows) = match looked {
            Looked::Done(usual, answer) => (
                Choice::Done {
                    ok: true,
                    effect: effect.unwrap_or(usual),
                    data: Some(answer),
                },
                "that it happened",
            ),
            Looked::NotDone => (Choice::NotDone, "that it did not happen"),
            Looked::Unknown(how) => return Err(unknown(found, &how)),
        };
        let line = place.line();
        Ok((
            self.noted(&format!("the probe `{line}` shows {shows}")),
            choice,
        ))
    }

    /// Notes what was found, unless somebody has said why.
    fn noted(&self, said: &str) -> Desk {
        let note = self.desk.note.clone().or_else(|| Note::from_lossy(said));
        Desk {
            note,
            ..self.desk.clone()
        }
    }
}

/// Says that a command is missing: the ledger has only the digest of the one that the operation was begun with.
fn no_command(found: &Found) -> Failure {
    let text = format!("{}: --probe needs the command here", found.key);
    Failure::input(text).hint("give it: --probe='CMD'; the ledger keeps only the digest of a probe")
}

/// Says that a probe does not know.
fn unknown(found: &Found, how: &str) -> Failure {
    let text = format!("{}: the probe does not know ({how})", found.key);
    Failure::new("in_doubt", text).hint("it stays in doubt; say --done or --not-done once you know")
}
