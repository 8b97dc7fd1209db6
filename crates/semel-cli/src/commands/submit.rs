//! `semel submit`

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use semel::core::ledger::StateKind;
use semel::core::queue::Priority;
use semel::store::INPUT_MAX;
use semel::{
    Class, Effect, Engine, Error, Key, Label, Namespace, Queueing, Receipt, Rehearsal, Request,
    Retention, Timestamp,
};
use serde::Deserialize;
use serde_json::value::RawValue;

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
            let receipt = settled(&desk, &described, submitted, wait).await?;
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

/// Waits for what becomes of a task that was submitted, now or before.
async fn settled(
    desk: &Desk<'_>,
    task: &Described,
    submitted: semel::Result<Receipt>,
    wait: Duration,
) -> semel::Result<Receipt> {
    let known = match submitted {
        // Whoever waits is told what became of it, or will yet.
        Err(error) if matches!(error.code(), "in_doubt" | "dead") => None,
        submitted => Some(submitted?),
    };
    if let Some(known) = known.as_ref().filter(|known| known.settled_at.is_some()) {
        return Ok(known.clone());
    }
    let settled = desk
        .engine
        .settled(&desk.namespace, &task.key, wait)
        .await?;
    Ok(match known {
        Some(known) => settled.as_seen_by(&known),
        None => settled,
    })
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

    /// Reads a line of a batch.
    fn read(&self, line: &[u8]) -> Result<Described, Failure> {
        let task = serde_json::from_slice::<Task>(line);
        self.describe(task.map_err(|error| Failure::input(error.to_string()))?)
    }

    /// Submits a line of a batch, or only says what that would do.
    async fn leave(&self, task: Result<Described, Failure>) -> Submitted {
        let task = task?;
        if self.args.dry_run {
            let foreseen = self.foresee(&task).await?;
            return Ok((foreseen.after.is_some(), None));
        }
        let receipt = Box::pin(task.submit(&self.engine)).await?;
        Ok((receipt.effect == Effect::Created, Some(receipt)))
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
            let text = format!("{key} is in doubt: nobody knows whether it took effect");
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

/// Submits many, in the order of their lines; each that is refused is named, and the first of them gives the exit code.
async fn batch(context: &Context, desk: &Desk<'_>, path: &Path) -> Result<ExitCode, Failure> {
    let mut under_way = FuturesOrdered::new();
    // Of two lines with one key the first has to be there before the second.
    let mut keys: BTreeSet<Key> = BTreeSet::new();
    let mut tally = Tally::default();
    let mut broken = None;
    for (number, line) in (1u64..).zip(lines(path)?) {
        let line = match line {
            Ok(line) => line,
            Err(failure) => {
                broken = Some(failure);
                break;
            }
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let task = desk.read(&line).map_err(|failure| Failure {
            message: format!("{}, line {number}: {}", path.display(), failure.message),
            ..failure
        });
        let key = task.as_ref().ok().map(|task| task.key.clone());
        let is_under_way = key.as_ref().is_some_and(|key| keys.contains(key));
        while under_way.len() >= TOGETHER || is_under_way && !under_way.is_empty() {
            if let Some((key, ended)) = under_way.next().await {
                tally.count(context, ended);
                if let Some(key) = key {
                    keys.remove(&key);
                }
            }
        }
        keys.extend(key.clone());
        under_way.push_back(async move { (key, desk.leave(task).await) });
    }
    while let Some((_, ended)) = under_way.next().await {
        tally.count(context, ended);
    }
    let code = tally.finish(context, desk.args.dry_run);
    broken.map_or(Ok(code), Err)
}

/// Whether it is new, and its receipt.
type Submitted = Result<(bool, Option<Receipt>), Failure>;

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
            Err(failure) if matches!(failure.code, "in_doubt" | "dead" | "expired") => {
                self.known += 1;
                if context.printer.is_json() {
                    context.printer.object(&failure_object(&failure));
                }
            }
            Err(failure) => {
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
