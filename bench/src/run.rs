//! What `semel run` costs: beside the bare command, and beside `cat`, taking turns in one run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use semel::core::ledger::StateKind;
use semel::{Admission, Effect, Engine, Key, Request};
use serde_json::{Value, json};

use crate::disk::Scratch;
use crate::progress;

/// How large the output of the chatty command is.
const OUTPUT_BYTES: usize = 100_000_000;

/// What was measured.
#[derive(Debug)]
pub(crate) struct Figures {
    bare: Duration,
    fresh: Duration,
    replay: Duration,
    cat: Duration,
    recorded: Duration,
    list: Duration,
    listed: u64,
}

/// How much is measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) semel: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) operations: u64,
}

pub(crate) fn run(scratch: &Scratch, plan: &Plan) -> Result<Figures> {
    if !plan.semel.exists() {
        bail!(
            "{} is not there\nhint: `cargo build --release` makes it, or name it with `--semel PATH`",
            plan.semel.display()
        );
    }
    let store = scratch.path().join("run.db");
    let semel = |words: &[&str]| {
        let mut command = Command::new(&plan.semel);
        command.arg("--store").arg(url(&store)).args(words);
        command
    };
    took(&mut semel(&["run", "--key", "warm", "--", "true"]))?;
    let (mut bare, mut fresh, mut replay) = (vec![], vec![], vec![]);
    for round in 0..plan.rounds {
        bare.push(took(&mut Command::new("true"))?);
        let key = format!("fresh-{round}");
        fresh.push(took(&mut semel(&["run", "--key", &key, "--", "true"]))?);
        replay.push(took(&mut semel(&["run", "--key", "warm", "--", "true"]))?);
    }
    progress::say("a chatty command");
    let output = scratch.path().join("output");
    std::fs::write(&output, line().repeat(OUTPUT_BYTES / line().len()))?;
    let output = output
        .to_str()
        .context("the directory's name is not text")?;
    let (mut cat, mut recorded) = (vec![], vec![]);
    for round in 0..(plan.rounds / 10).max(3) {
        cat.push(piped(&mut Command::new("cat"), &[output])?);
        let key = format!("chatty-{round}");
        let words = ["run", "--key", &key, "--", "cat", output];
        recorded.push(piped(&mut semel(&[]), &words)?);
    }
    progress::say("a store with many operations");
    let many = scratch.path().join("many.db");
    let listed = fill(&many, plan.operations)?;
    let mut list = vec![];
    for _ in 0..(plan.rounds / 10).max(3) {
        let mut command = Command::new(&plan.semel);
        command.arg("--store").arg(url(&many)).arg("list");
        list.push(took(&mut command)?);
    }
    Ok(Figures {
        bare: median(bare),
        fresh: median(fresh),
        replay: median(replay),
        cat: median(cat),
        recorded: median(recorded),
        list: median(list),
        listed,
    })
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

const fn line() -> &'static str {
    "a line of eighty bytes, as a chatty command writes it again and again and again\n"
}

/// Returns how long a command takes from its start to its end.
fn took(command: &mut Command) -> Result<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().context("a command cannot be run")?;
    let took = began.elapsed();
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(took)
}

/// Returns how long a command takes whose output is read through a pipe.
fn piped(command: &mut Command, words: &[&str]) -> Result<Duration> {
    let began = Instant::now();
    let mut child = command.args(words).stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("there is no pipe")?;
    let read = std::io::copy(&mut stdout, &mut std::io::sink())?;
    let status = child.wait()?;
    let took = began.elapsed();
    if !status.success() || read == 0 {
        bail!("{command:?} ended with {status} after {read} bytes");
    }
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Fills a store with settled operations, and leaves a few in doubt.
fn fill(path: &Path, count: u64) -> Result<u64> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let engine = Engine::open(&url(path)).await?;
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..256_u64 {
            let engine = engine.clone();
            tasks.spawn(async move {
                for number in (worker..count).step_by(256) {
                    let request = Request::new("fill", Key::new(&format!("key-{number}"))?);
                    let Admission::Execute(permit) = engine.begin(request).await? else {
                        continue;
                    };
                    if number % 10_000 == 0 {
                        permit.unknown("left in doubt").await?;
                    } else {
                        permit.done(Effect::Created, &number).await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let last = Key::new(&format!("key-{}", count - 1))?;
        let stored = engine.load(&semel::Namespace::default(), &last).await?;
        let kind = stored.map(|record| record.kind());
        if !matches!(kind, Some(StateKind::Succeeded | StateKind::Doubtful)) {
            bail!("the store was not filled");
        }
        Ok(count)
    })
}

impl Figures {
    pub(crate) fn json(&self) -> Value {
        let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
        json!({
            "true_ms": ms(self.bare),
            "fresh_ms": ms(self.fresh),
            "replay_ms": ms(self.replay),
            "fresh_overhead_ms": ms(self.fresh.saturating_sub(self.bare)),
            "replay_overhead_ms": ms(self.replay.saturating_sub(self.bare)),
            "cat_ms": ms(self.cat),
            "recorded_ms": ms(self.recorded),
            "recorded_speed_of_cat": self.cat.as_secs_f64() / self.recorded.as_secs_f64(),
            "list_ms": ms(self.list),
            "listed_of": self.listed,
        })
    }

    pub(crate) fn table(&self, note: &str) -> String {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let over = |time: Duration| ms(time.saturating_sub(self.bare));
        let speed = self.cat.as_secs_f64() / self.recorded.as_secs_f64();
        format!(
            "true                                  {}\n\
             semel run -- true, a fresh key        {}, {} more (aim: at most 10 ms)\n\
             semel run -- true, a replay           {}, {} more (aim: at most 8 ms)\n\
             cat of 100 MB through a pipe          {}\n\
             semel run -- cat of 100 MB            {}, {speed:.2} of cat's speed (aim: at least 0.5)\n\
             semel list of {} operations     {} (aim: at most 50 ms at a million)\n\n{note}\n",
            ms(self.bare),
            ms(self.fresh),
            over(self.fresh),
            ms(self.replay),
            over(self.replay),
            ms(self.cat),
            ms(self.recorded),
            self.listed,
            ms(self.list),
        )
    }
}
