//! `semel work`

mod script;
mod task;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use semel::core::ledger::StateKind;
use semel::store::WAITING_MAX;
use semel::{Engine, Error, Key, Label, Receipt, Take, Taken};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use self::task::{Bench, Ended};
use crate::args::queue::Work;
use crate::commands::run::housekeeping;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{explain, failure_object};

/// How long one call waits for a task: leases of the dead are noticed in between.
const WAIT: Duration = Duration::from_secs(10);

/// How long one call waits that is to find out whether there is anything left.
const LOOK: Duration = Duration::from_millis(100);

/// The pauses after a store that failed: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often a store may fail in a row before the worker gives up.
const FAILURES_MAX: u32 = 12;

pub(crate) async fn run(context: &Context, args: &Work) -> Result<ExitCode, Failure> {
    context.prepare().await?;
    let queue = Label::new(&args.queue);
    let queue = queue.map_err(|error| Failure::input(format!("QUEUE: {error}")))?;
    script::refuse_key(&args.command)?;
    let mut stop = Stop::listen()?;
    let engine = context.open_wide().await?;
    let lease = args.lease.map_or_else(|| context.settings.lease(), Ok)?;
    let shop = Shop {
        context,
        args,
        take: Take {
            lease,
            wait: if args.until_empty { LOOK } else { WAIT },
            ..Take::one(queue.clone())
        },
        bench: Arc::new(Bench::new(context, args, queue)?),
        engine,
    };
    let ended = shop.work(&mut stop).await;
    housekeeping(context, &shop.engine).await;
    ended.map(|()| ExitCode::SUCCESS)
}

/// A worker and what it works with.
struct Shop<'a> {
    context: &'a Context,
    args: &'a Work,
    engine: Engine,
    take: Take,
    bench: Arc<Bench>,
}

impl Shop<'_> {
    /// Carries tasks out until it is told to end, or there are none.
    async fn work(&self, stop: &mut Stop) -> Result<(), Failure> {
        let mut in_hand = JoinSet::new();
        // One that was asked for is waited for: whoever stopped half-way would have to give tasks back.
        let mut taking = None;
        let (mut is_ending, mut failures) = (false, 0);
        // Those that were put back: an empty queue has none of them.
        let mut again = BTreeSet::new();
        loop {
            let free = usize::from(self.args.concurrency) - in_hand.len();
            if taking.is_none() && free > 0 && !is_ending {
                taking = Some(Box::pin(self.take(free, failures)));
            }
            if taking.is_none() && in_hand.is_empty() {
                return Ok(());
            }
            let taken = async {
                match &mut taking {
                    Some(taking) => taking.await,
                    None => std::future::pending().await,
                }
            };
            let is_working = !in_hand.is_empty();
            tokio::select! {
                biased;
                () = stop.asked() => {
                    if is_ending {
                        self.bench.end_all();
                    } else if is_working {
                        self.context.printer.say("ending: waiting for what is under way");
                    }
                    is_ending = true;
                    // Nobody waits for more; what was taken by now is given back.
                    taking = None;
                }
                Some(ended) = in_hand.join_next(), if is_working => self.tell(ended, &mut again),
                taken = taken => {
                    taking = None;
                    match taken {
                        Ok(taken) => {
                            failures = 0;
                            let is_idle = self.args.until_empty && taken.is_empty() && !is_working;
                            if is_idle && self.is_drained(&mut again).await? {
                                return Ok(());
                            }
                            for task in taken {
                                in_hand.spawn(Arc::clone(&self.bench).carry_out(task));
                            }
                        }
                        Err(error) => {
                            failures += 1;
                            self.failed(error, failures)?;
                        }
                    }
                }
            }
        }
    }

    async fn take(&self, free: usize, failures: u32) -> semel::Result<Vec<Taken>> {
        if failures > 0 {
            let pause = PAUSE_FIRST * 2u32.saturating_pow(failures - 1);
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        }
        let take = Take {
            max: free.min(WAITING_MAX),
            ..self.take.clone()
        };
        let namespace = self.bench.namespace();
        self.engine.take(namespace, &take).await
    }

    async fn is_drained(&self, again: &mut BTreeSet<Key>) -> semel::Result<bool> {
        let (namespace, queue) = (self.bench.namespace(), &self.take.queue);
        self.engine.is_drained(namespace, queue, again).await
    }

    /// Goes on when a store that is away may come back.
    fn failed(&self, error: Error, failures: u32) -> Result<(), Failure> {
        let failure = Failure::from(error);
        if !failure.retryable || failures >= FAILURES_MAX || self.args.until_empty {
            return Err(failure);
        }
        self.context.printer.say(&failure.message);
        Ok(())
    }

    /// Tells what became of a task.
    fn tell(&self, ended: Result<Ended, tokio::task::JoinError>, again: &mut BTreeSet<Key>) {
        let printer = &self.context.printer;
        match ended {
            Ok(Ended {
                key,
                answer: Ok(receipt),
                why,
            }) => {
                let may_come_up = matches!(receipt.state, StateKind::Pending | StateKind::Doubtful);
                if may_come_up && self.args.until_empty {
                    again.insert(key.clone());
                }
                let mut line = format!("{key}: {}", word(&receipt));
                if let Some(why) = &why {
                    line = format!("{line}: {why}");
                }
                if printer.is_json() {
                    printer.object(&told(receipt, why));
                } else {
                    printer.line(&line);
                }
            }
            Ok(Ended {
                key,
                answer: Err(error),
                ..
            }) => {
                let failure = Failure::from(error);
                if printer.is_json() {
                    let mut object = failure_object(&failure);
                    object["key"] = json!(key.as_str());
                    printer.object(&object);
                }
                explain(
                    &format!("{key}: {}", failure.message),
                    failure.hint.as_deref(),
                );
            }
            Err(error) => explain(&format!("a task ended in an unknown way: {error}"), None),
        }
    }
}

fn word(receipt: &Receipt) -> String {
    match receipt.state {
        StateKind::Succeeded | StateKind::Failed => {
            format!("{} ({})", receipt.state.as_str(), receipt.effect.as_str())
        }
        StateKind::Pending => "to be tried again".to_owned(),
        StateKind::Doubtful => "in doubt".to_owned(),
        StateKind::Running
        | StateKind::Dead
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => receipt.state.as_str().to_owned(),
    }
}

/// A receipt says why there is no outcome, where there is none.
fn told(receipt: Receipt, why: Option<String>) -> Receipt {
    let reason = receipt.reason.clone().or(why);
    Receipt { reason, ..receipt }
}

/// Hears when the worker is to end.
struct Stop(Vec<Signal>);

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ];
        let signals = kinds.into_iter().map(signal).collect::<Result<_, _>>();
        let signals = signals.map_err(|error| Failure::internal(format!("no signals: {error}")));
        Ok(Self(signals?))
    }

    async fn asked(&mut self) {
        std::future::poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            match signals.any(|signal| signal.poll_recv(context).is_ready()) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }
}
