//! `semel submit`

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::core::queue::Priority;
use semel::store::{INPUT_MAX, StoreError};
use semel::{
    Class, Effect, Engine, Error, Key, Label, Namespace, Queueing, Receipt, Rehearsal, Request,
    Retention, Timestamp,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use crate::args::queue::Submit;
use crate::context::Context;
use crate::failure::Failure;
use crate::given;
use crate::printer::{explain, failure_object};

/// How many tasks of a batch are submitted at once: one group of the store, and another one in the making.
const TOGETHER: usize = 512;

/// The longest line of a batch: the largest input, and what is said beside it.
const LINE_MAX: usize = INPUT_MAX + 64 * 1024;

pub(crate) async fn run(context: &Context, args: &Submit) -> Result<ExitCode, Failure> {
    context.prepare().await?;
    let engine = match &args.batch {
        Some(_) => context.open_wide().await?,
        None => context.open().await?,
    };
    let desk = Desk::new(context, args, &engine)?;
    if let Some(path) = &args.batch {
        return batch(context, &desk, path).await;
    }
    let given = |text| given::json("--input", "the input", text, INPUT_MAX);
    let input = args.input.as_deref().map(given).transpose()?;
    let input = input.and_then(|json| String::from_utf8(json).ok());
    let input = input.and_then(|json| RawValue::from_string(json).ok());
    let described = desk.describe(Task {
        key: args.key.clone().unwrap_or_default(),
        input,
        ..Task::default()
    })?;
    if args.dry_run {
        return dry_run(context, &desk, &described).await;
    }
    let submitted = described.submit(&engine).await;
    match args.wait {
        None => {
            tell(context, &submitted?);
            Ok(ExitCode::SUCCESS)
        }
        Some(wait) => {
            is_known(submitted)?;
            let receipt = engine
                .settled(&desk.namespace, &described.key, wait)
                .await?;
            waited(context, &receipt, wait)
        }
    }
}

/// A task as a line of a batch has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    key: String,
    input: Option<Box<RawValue>>,
    name: Option<String>,
    lane: Option<String>,
    priority: Option<i64>,
    delay_ms: Option<u64>,
    run_at: Option<String>,
}

/// Says whether there is something to wait for: whoever waits is told what became of it.
fn is_known(submitted: semel::Result<Receipt>) -> semel::Result<()> {
    match submitted {
        Err(error) if matches!(error.code(), "in_doubt" | "dead") => Ok(()),
        submitted => submitted.map(drop),
    }
}

/// A task that is to be submitted.
#[derive(Clone, Debug)]
struct Described {
    key: Key,
    request: Request,
    to: Queueing,
}

impl Described {
    async fn submit(&self, engine: &Engine) -> semel::Result<Receipt> {
        engine.submit(self.request.clone(), self.to.clone()).await
    }
}

/// What the flags say about every task.
#[derive(Debug)]
struct Desk<'a> {
    args: &'a Submit,
    engine: Engine,
    namespace: Namespace,
    queue: Label,
    retention: Retention,
    door: Label,
}

impl<'a> Desk<'a> {
    fn new(context: &Context, args: &'a Submit, engine: &Engine) -> Result<Self, Failure> {
        let settings = &context.settings;
        Ok(Self {
            args,
            engine: engine.clone(),
            namespace: context.namespace()?,
            queue: label("QUEUE", &args.queue)?,
            retention: args.retention.map_or_else(|| settings.retention(), Ok)?,
            door: label("the door", "queue")?,
        })
    }

    /// Describes one task.
    fn describe(&self, task: Task) -> Result<Described, Failure> {
        let key = Key::new(&task.key).map_err(Error::from)?;
        let name = task.name.as_deref().or(self.args.name.as_deref());
        let name = name.unwrap_or(self.queue.as_str());
        let mut request = Request::new(name, key.clone())
            .namespace(self.namespace.clone())
            .retention(self.retention)
            .class(self.args.class.map_or(Class::Unsafe, Class::from))
            .door(self.door.clone());
        if let Some(on_doubt) = self.args.on_doubt {
            request = request.on_doubt(on_doubt.into());
        }
        if let Some(limit) = self.args.max_attempts {
            request = request.max_attempts(limit);
        }
        if let Some(input) = &task.input {
            request = request.input_json(input.get().as_bytes());
        }
        let mut to = Queueing::on(self.queue.clone()).priority(match task.priority {
            Some(number) => Priority::new(number).map_err(|it| Failure::input(it.to_string()))?,
            None => self.args.priority,
        });
        if let Some(lane) = task.lane.as_deref().or(self.args.lane.as_deref()) {
            to = to.lane(label("lane", lane)?);
        }
        let to = self.timed(to, &task)?;
        Ok(Described { key, request, to })
    }

    fn timed(&self, to: Queueing, task: &Task) -> Result<Queueing, Failure> {
        let said = match (&task.run_at, task.delay_ms) {
            (Some(_), Some(_)) => {
                return Err(Failure::input("run_at and delay_ms exclude each other"));
            }
            (Some(at), None) => {
                let at = at.parse::<Timestamp>();
                Some(at.map_err(|error| Failure::input(format!("run_at: {error}")))?)
            }
            (None, Some(millis)) => Some(self.later(Duration::from_millis(millis))),
            (None, None) => None,
        };
        let flag = || {
            self.args
                .delay
                .map(|delay| self.later(delay))
                .or(self.args.at)
        };
        Ok(match said.or_else(flag) {
            Some(at) => to.at(at),
            None => to,
        })
    }

    async fn foresee(&self, task: &Described) -> semel::Result<Rehearsal> {
        let command = task.request.submission(&task.to)?;
        let engine = &self.engine;
        engine.rehearse(&self.namespace, &task.key, &command).await
    }

    fn later(&self, delay: Duration) -> Timestamp {
        self.engine.store().now().plus(delay)
    }
}

fn label(what: &str, text: &str) -> Result<Label, Failure> {
    Label::new(text).map_err(|error| Failure::input(format!("{what}: {error}")))
}

/// Tells what became of a submission.
fn tell(context: &Context, receipt: &Receipt) {
    let (key, effect, state) = (&receipt.key, receipt.effect, receipt.state.as_str());
    let line = match &receipt.reason {
        Some(reason) if receipt.replayed => {
            format!("{key}: {} ({state}): {reason}", effect.as_str())
        }
        Some(_) | None => format!("{key}: {} ({state})", effect.as_str()),
    };
    context.printer.answer(receipt, &line);
}

/// Answers with the result, if there is one by now.
fn waited(context: &Context, receipt: &Receipt, wait: Duration) -> Result<ExitCode, Failure> {
    let key = &receipt.key;
    let word = semel::span(wait);
    match receipt.state {
        StateKind::Succeeded | StateKind::Failed => {
            let state = receipt.state.as_str();
            let data = receipt.data().unwrap_or("null");
            context
                .printer
                .answer(receipt, &format!("{key}: {state}: {data}"));
            Ok(ExitCode::from(u8::from(!receipt.ok)))
        }
        StateKind::Doubtful => {
            let text = format!("{key} is in doubt: its worker vanished");
            let hint = context.command(&["show", key.as_str()]);
            Err(Failure::new("in_doubt", text)
                .about(key)
                .hint(format!("`{hint}` shows it")))
        }
        StateKind::Dead => {
            let text = format!("{key} is dead: it was not applied, and is not tried again");
            let hint = context.command(&["dead", "show", key.as_str()]);
            Err(Failure::new("dead", text)
                .about(key)
                .hint(format!("`{hint}` shows why")))
        }
        StateKind::Tombstone => Err(Failure::new(
            "expired",
            format!("{key} is past its retention"),
        )),
        StateKind::Pending | StateKind::Running | StateKind::Stub | StateKind::Breaker(_) => {
            let text = format!("{key} has no result after {word}");
            Err(Failure::new("in_flight", text)
                .about(key)
                .hint("ask again later"))
        }
    }
}

async fn dry_run(
    context: &Context,
    desk: &Desk<'_>,
    task: &Described,
) -> Result<ExitCode, Failure> {
    let (key, foreseen) = (&task.key, desk.foresee(task).await?);
    let (effect, change) = match foreseen.after {
        Some(after) => {
            let text = format!("would submit it: {}", after.as_str());
            (Effect::WouldCreate, Some(text))
        }
        None => (Effect::Noop, None),
    };
    let line = match (&change, foreseen.before) {
        (Some(change), _) => format!("{key}: {change}"),
        (None, Some(state)) => format!("{key}: {} already; nothing would change", state.as_str()),
        (None, None) => format!("{key}: nothing would change"),
    };
    let receipt = serde_json::json!({
        "ok": true, "effect": effect.as_str(), "replayed": false, "reason": null,
        "namespace": desk.namespace.as_str(), "key": key.as_str(),
        "state": foreseen.before.map(StateKind::as_str), "dry_run": true,
        "changes": change.into_iter().collect::<Vec<_>>(),
    });
    context.printer.answer(&receipt, &line);
    Ok(ExitCode::SUCCESS)
}

/// Submits many; each that is refused is named, and the first of them gives the exit code.
async fn batch(context: &Context, desk: &Desk<'_>, path: &Path) -> Result<ExitCode, Failure> {
    let mut lines = lines(path)?;
    let mut under_way = JoinSet::new();
    let mut tally = Tally::default();
    let mut number = 0u64;
    while let Some(line) = lines.next().transpose()? {
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let task = serde_json::from_slice::<Task>(&line);
        let task = task.map_err(|error| Failure::input(error.to_string()));
        let task = task
            .and_then(|task| desk.describe(task))
            .map_err(|failure| {
                let text = format!("{}, line {number}: {}", path.display(), failure.message);
                Failure {
                    message: text,
                    ..failure
                }
            })?;
        if desk.args.dry_run {
            let foreseen = desk.foresee(&task).await;
            tally.count(
                context,
                foreseen.map(|foreseen| (foreseen.after.is_some(), None)),
            );
            continue;
        }
        let engine = desk.engine.clone();
        under_way.spawn(async move {
            let receipt = task.submit(&engine).await?;
            Ok((receipt.effect == Effect::Created, Some(receipt)))
        });
        if under_way.len() >= TOGETHER
            && let Some(ended) = under_way.join_next().await
        {
            tally.count(context, joined(ended));
        }
    }
    while let Some(ended) = under_way.join_next().await {
        tally.count(context, joined(ended));
    }
    Ok(tally.finish(context, desk.args.dry_run))
}

/// Whether it is new, and its receipt.
type Submitted = semel::Result<(bool, Option<Receipt>)>;

fn joined(ended: Result<Submitted, tokio::task::JoinError>) -> Submitted {
    ended.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string()).into()))
}

/// What became of a batch.
#[derive(Debug, Default)]
struct Tally {
    created: u64,
    known: u64,
    refused: u64,
    exit: u8,
}

impl Tally {
    fn count(&mut self, context: &Context, submitted: Submitted) {
        match submitted {
            Ok((is_new, receipt)) => {
                if is_new {
                    self.created += 1;
                } else {
                    self.known += 1;
                }
                if let Some(receipt) = receipt.filter(|_| context.printer.is_json()) {
                    context.printer.object(&receipt);
                }
            }
            // It was submitted before, whatever became of it.
            Err(error) if matches!(error.code(), "in_doubt" | "dead" | "expired") => {
                self.known += 1;
                if context.printer.is_json() {
                    context.printer.object(&failure_object(&error.into()));
                }
            }
            Err(error) => {
                let failure = Failure::from(error);
                self.refused += 1;
                if self.exit == 0 {
                    self.exit = failure.exit();
                }
                if context.printer.is_json() {
                    context.printer.object(&failure_object(&failure));
                }
                explain(&failure.message, failure.hint.as_deref());
            }
        }
    }

    fn finish(&self, context: &Context, dry_run: bool) -> ExitCode {
        let word = if dry_run {
            "would be submitted"
        } else {
            "submitted"
        };
        let line = format!(
            "{} {word}, {} known already, {} refused",
            self.created, self.known, self.refused
        );
        if context.printer.is_json() {
            context.printer.say(&line);
        } else {
            context.printer.line(&line);
        }
        ExitCode::from(self.exit)
    }
}

/// Reads the lines of a file, none of them longer than a task can be.
fn lines(path: &Path) -> Result<impl Iterator<Item = Result<Vec<u8>, Failure>>, Failure> {
    let shown = path.display().to_string();
    let wrong = move |error: io::Error| Failure::input(format!("{shown} cannot be read: {error}"));
    let mut reader: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(path).map_err(&wrong)?))
    };
    Ok(std::iter::from_fn(move || {
        let mut line = vec![];
        let limit = u64::try_from(LINE_MAX).unwrap_or(u64::MAX);
        let read = io::Read::take(&mut *reader, limit + 1).read_until(b'\n', &mut line);
        match read {
            Ok(0) => None,
            Ok(size) if size > LINE_MAX => Some(Err(Failure::new(
                "too_large",
                "a line of the batch is longer than a task can be",
            ))),
            Ok(_) => Some(Ok(line)),
            Err(error) => Some(Err(wrong(error))),
        }
    }))
}
