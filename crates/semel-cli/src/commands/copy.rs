//! `semel copy`

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use semel::{Copied, Engine, Label, Phase, Way, span};
use serde_json::{Value, json};

use crate::args::look::Copy;
use crate::context::Context;
use crate::failure::Failure;
use crate::order;
use crate::printer::Printer;
use crate::settings::without_password;

/// How often a person at a terminal is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(context: &Context, args: &Copy) -> Result<ExitCode, Failure> {
    if let Some(path) = args.from.strip_prefix("sqlite:").map(Path::new)
        && !path.exists()
    {
        let text = format!("there is no store at {}", path.display());
        return Err(Failure::input(text));
    }
    let by = args.by.clone().unwrap_or_else(order::login);
    let by = Label::new(&by).map_err(|error| Failure::input(format!("--by: {error}")))?;
    let (from, to) = (without_password(&args.from), without_password(&args.to));
    let way = if args.snapshot {
        Way::Snapshot
    } else {
        Way::Move {
            drain: args.drain,
            shown: absolute(&to),
            by,
        }
    };
    let source = Engine::builder().copied(context.settings.copied());
    let source = source.open(&args.from).await?;
    if args.dry_run {
        return would(context, &source, args, (&from, &to)).await;
    }
    let target = Engine::open_copy(&args.to).await?;
    let mut told = Told::new(&context.printer);
    let copied = source
        .copy_to(&target, &way, |copied| told.tell(copied))
        .await?;
    let code = answer(context, &copied, args.snapshot, (&from, &to));
    advise(context, &copied, args.snapshot, (&from, &to));
    Ok(code)
}

/// Names a file so that it is found from everywhere.
fn absolute(url: &str) -> String {
    let path = url.strip_prefix("sqlite:").map(std::path::absolute);
    match path {
        Some(Ok(path)) => format!("sqlite:{}", path.display()),
        Some(Err(_)) | None => url.to_owned(),
    }
}

async fn would(
    context: &Context,
    source: &Engine,
    args: &Copy,
    (from, to): (&str, &str),
) -> Result<ExitCode, Failure> {
    let last = source.last_entry().await?;
    let mut changes = vec![format!(
        "would copy {from} (log entries up to {last}) to {to}"
    )];
    if !args.snapshot {
        changes.push(format!("would close {from} for begins and adopt {to}"));
    }
    let json = json!({"ok": true, "effect": "would_create", "changes": changes});
    context.printer.answer(&json, &changes.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Tells people which phase it is in, and how far.
struct Told<'a> {
    printer: &'a Printer,
    phases: usize,
    started: Instant,
    /// The first number that was copied in this run, for the rate.
    first: Option<u64>,
    last: Instant,
}

impl<'a> Told<'a> {
    fn new(printer: &'a Printer) -> Self {
        Self {
            printer,
            phases: 0,
            started: Instant::now(),
            first: None,
            last: Instant::now(),
        }
    }

    fn tell(&mut self, copied: &Copied) {
        let Some((phase, _)) = copied.phases.last() else {
            return;
        };
        let first = *self.first.get_or_insert(copied.through);
        if copied.phases.len() > self.phases {
            self.phases = copied.phases.len();
            self.printer
                .say(&format!("{}: {}", phase.as_str(), meaning(*phase)));
        } else if self.last.elapsed() >= TELL_EVERY {
            self.last = Instant::now();
            self.printer.note(&self.progress(*phase, copied, first));
        }
    }

    fn progress(&self, phase: Phase, copied: &Copied, first: u64) -> String {
        match phase {
            Phase::Copying | Phase::Closing => {
                let took = self.started.elapsed();
                let rate = copied.entries as f64 / took.as_secs_f64().max(0.001);
                let (gone, left) = (
                    copied.through.saturating_sub(first),
                    copied.end.saturating_sub(copied.through),
                );
                let all = copied.end.max(1);
                let left = took.as_secs_f64() * left as f64 / gone.max(1) as f64;
                format!(
                    "{} log entries copied, {}% of the log, {rate:.0}/s, about {} left",
                    copied.entries,
                    copied.through.saturating_mul(100) / all,
                    span(Duration::from_secs_f64(left.min(1e9)))
                )
            }
            Phase::Draining => format!("{} attempts still run in the source", copied.running),
            Phase::Verifying | Phase::Comparing => format!("{} records compared", copied.records),
            Phase::Adopting => {
                let adopted = copied.adopted.unwrap_or_default();
                format!("{} operations adopted", adopted.records)
            }
        }
    }
}

const fn meaning(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "the log is replayed into the target; the source is in use",
        Phase::Verifying => "the target is verified and compared; the source is in use",
        Phase::Closing => "the source takes no begins from now on; the rest of its log is copied",
        Phase::Draining => "attempts that run in the source may report",
        Phase::Comparing => "what has changed since is compared",
        Phase::Adopting => "the target's fences are raised, and what ran is in doubt",
    }
}

fn answer(
    context: &Context,
    copied: &Copied,
    snapshot: bool,
    (from, to): (&str, &str),
) -> ExitCode {
    let adopted = copied.adopted.unwrap_or_default();
    let seconds = |took: Duration| (took.as_secs_f64() * 1000.0).round() / 1000.0;
    let phases: Vec<Value> = copied
        .phases
        .iter()
        .map(|(phase, took)| json!({"phase": phase.as_str(), "seconds": seconds(*took)}))
        .collect();
    let all: Duration = copied.phases.iter().map(|(_, took)| *took).sum();
    let ok = copied.difference.is_none();
    let json = json!({
        "ok": ok,
        "effect": if copied.repeated { "noop" } else { "created" },
        "reason": copied.repeated.then_some("the ledger has moved there already"),
        "from": from,
        "to": to,
        "snapshot": snapshot,
        "entries": copied.entries,
        "skipped": copied.skipped,
        "records": copied.records,
        "payloads": copied.verified.as_ref().map(|verified| verified.payloads),
        "tokens": copied.tokens,
        "running": copied.running,
        "doubtful": adopted.doubtful,
        "seconds": seconds(all),
        "phases": phases,
        "difference": copied.difference.as_ref().map(|difference| json!({
            "seq": difference.seq,
            "record": difference.place.map(|place| place.0),
            "what": difference.what,
        })),
    });
    let counts = format!(
        "{} log entries copied, {} records compared",
        copied.entries, copied.records
    );
    let line = match &copied.difference {
        Some(difference) => format!("{counts}, then {difference}"),
        None if copied.repeated => format!("the ledger has moved to {to} already"),
        None if snapshot => format!("{to}: {counts}; it can only be read"),
        None => format!(
            "{to}: {counts}, {} operations adopted, {} of them ran and are in doubt now",
            adopted.records, adopted.doubtful
        ),
    };
    context.printer.answer(&json, &line);
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Says what there is to know and to do next.
fn advise(context: &Context, copied: &Copied, snapshot: bool, (from, to): (&str, &str)) {
    let printer = &context.printer;
    if copied.difference.is_some() {
        let closed = |(phase, _): &(Phase, Duration)| *phase == Phase::Closing;
        if copied.phases.iter().any(closed) {
            printer.say(&format!(
                "{from} is closed and {to} was not adopted: nothing can begin in either"
            ));
        }
        printer.hint(&format!("run `semel --store {from} verify`"));
        return;
    }
    if snapshot || copied.repeated {
        return;
    }
    printer.say(&format!(
        "{from} is closed: begins there are refused; say --store {to} from now on"
    ));
    if copied.running > 0 {
        printer.say(&format!(
            "{} attempts still ran in {from}: what they report there does not reach {to}",
            copied.running
        ));
    }
    if copied.adopted.unwrap_or_default().doubtful > 0 {
        printer.hint(&format!(
            "`semel --store {to} list --state doubtful` shows what is in doubt"
        ));
    }
}
