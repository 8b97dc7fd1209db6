//! Agents: processes that call through the library, are told something, die, restart and retry.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::{Engine, Error, Queueing, Receipt, Rules};
use semel_core::Digest;
use semel_core::ledger::{StateKind, decide};

use super::bugs::Bug;
use super::checker::{Invariant, Told};
use super::history::Sim;
use super::plan::KeyPlan;
use super::process::Process;
use super::raw::Raw;
use super::rng::Rng;
use super::store::SimStore;
use super::trace::Seen;

/// One process that uses the library.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Process,
    pub(crate) engine: Engine,
    pub(crate) raw: Raw,
}

/// One thing that an agent wants done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) way: Way,
    /// Whether the caller means something else by the key.
    pub(crate) stranger: bool,
    /// How long it waits for somebody else's attempt.
    pub(crate) wait: Duration,
    /// After how long it goes away, whatever is under way.
    pub(crate) patience: Option<Duration>,
}

/// How a call goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Permit,
    Run,
    Protocol,
    Submit,
    Sweep,
}

/// What a caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It has its answer.
    Rest,
    /// It tries again.
    Again,
}

impl Call {
    fn draw(rng: &mut Rng, keys: &[KeyPlan]) -> Self {
        let key = loop {
            let key = rng.index(keys.len());
            // A child is begun by whoever holds its parent.
            if keys[key].parent.is_none() {
                break key;
            }
        };
        let way = match rng.below(20) {
            0..=7 => Way::Permit,
            8..=11 => Way::Run,
            12..=17 => Way::Protocol,
            18 => Way::Submit,
            _ => Way::Sweep,
        };
        Self {
            key,
            way,
            stranger: rng.chance(30),
            wait: rng.pick(&[
                Duration::ZERO,
                Duration::ZERO,
                Duration::from_millis(100),
                Duration::from_millis(1_500),
            ]),
            patience: rng.chance(80).then(|| rng.millis(1, 800)),
        }
    }

    /// A call by somebody who takes his time and means what everybody means.
    pub(crate) fn plain(key: usize, stranger: bool) -> Self {
        Self {
            key,
            way: Way::Permit,
            stranger,
            wait: Duration::ZERO,
            patience: None,
        }
    }
}

/// How often a caller that got no answer comes back.
const TRIES: usize = 4;

/// How often an engine that sweeps by itself does.
const SWEEP_EVERY: Duration = Duration::from_millis(1_500);

/// How long a process that died stays down, in milliseconds.
const DOWN: (u64, u64) = (1, 2_500);

/// Lives the life of one agent: calls, deaths and restarts.
pub(crate) async fn live(sim: Arc<Sim>, number: usize) {
    let calls: Vec<Call> = sim.draw(|rng| {
        let calls = rng.between(1, sim.plan.calls);
        (0..calls)
            .map(|_| Call::draw(rng, &sim.plan.keys))
            .collect()
    });
    let mut starts = 0;
    let mut alive: Option<Agent> = None;
    for call in calls {
        let twice = sim.draw(|rng| rng.chance(120));
        for _ in 0..TRIES {
            // Some come back at once, some after the lease.
            let longest = sim.draw(|rng| rng.pick(&[60, 700, 3_500]));
            sim.nap(0, longest).await;
            let agent = match alive.take() {
                Some(agent) => agent,
                None => {
                    starts += 1;
                    let name = format!("a{number}.{starts}");
                    match Agent::start(&sim, &name, true).await {
                        Some(agent) => agent,
                        None => continue,
                    }
                }
            };
            let next = tokio::select! {
                biased;
                () = agent.process.died() => None,
                next = agent.perform_once_or_twice(call, twice) => Some(next),
            };
            match next {
                Some(Next::Rest) => {
                    alive = Some(agent);
                    break;
                }
                Some(Next::Again) => alive = Some(agent),
                None => {
                    drop(agent);
                    sim.nap(DOWN.0, DOWN.1).await;
                }
            }
        }
    }
}

impl Agent {
    /// Starts a process with an engine; its attempt ids are made for it alone. Without a store
    /// that answers, or when it dies on the way, there is none.
    pub(crate) async fn start(sim: &Arc<Sim>, name: &str, mortal: bool) -> Option<Self> {
        let process = Process::start(sim, name, mortal);
        let sweeps = mortal && sim.sometimes(100);
        let store = SimStore::new(sim, &process);
        let start = Engine::builder()
            .store(Arc::clone(&store) as Arc<dyn semel::store::Store>)
            .rules(sim.bug.map_or(decide as Rules, Bug::rules))
            .ids(ids(sim, name))
            .holder(None)
            .sweep_every(sweeps.then_some(SWEEP_EVERY))
            .start();
        let started = tokio::select! {
            biased;
            () = process.died() => return None,
            started = start => started,
        };
        // What was noted is delivered first, and that may fail like everything else.
        let Ok(engine) = started else {
            sim.with(|s| s.seen.note(Seen::Did("did not start")));
            return None;
        };
        let agent = Self {
            sim: Arc::clone(sim),
            process,
            engine,
            raw: Raw::new(&store),
        };
        if mortal {
            agent.inject();
        }
        Some(agent)
    }

    /// Plans a fault by the library's own means, now and then.
    fn inject(&self) {
        let points = [
            semel::Point::Begin,
            semel::Point::Renew,
            semel::Point::Settle,
        ];
        let (kind, point) = self.sim.draw(|rng| (rng.below(30), rng.pick(&points)));
        match kind {
            0 => self.engine.inject_error(point, semel::Fault::Refuse, 1),
            1 => self.engine.inject_error(point, semel::Fault::LoseReply, 1),
            2 => self.engine.inject_repeat(point, 1),
            _ => return,
        }
        self.saw(Seen::Did("injected a fault"));
    }

    pub(crate) fn plan(&self, key: usize) -> &KeyPlan {
        &self.sim.plan.keys[key]
    }

    pub(crate) fn saw(&self, seen: Seen) {
        self.sim.with(|s| s.seen.note(seen));
    }

    /// Two callers in one process ask for the same thing at the same time, or only one does.
    async fn perform_once_or_twice(&self, call: Call, twice: bool) -> Next {
        if !twice {
            return Box::pin(self.perform(call)).await;
        }
        self.saw(Seen::Did("called twice at once"));
        let (one, other) = tokio::join!(self.perform(call), self.perform(call));
        if one == Next::Again { one } else { other }
    }

    async fn perform(&self, call: Call) -> Next {
        match call.way {
            Way::Run => self.by_run(call).await,
            Way::Permit => self.by_permit(call, None).await,
            Way::Protocol => self.by_protocol(call.key, call.stranger).await,
            Way::Submit => Box::pin(self.submit(call)).await,
            Way::Sweep => {
                let swept = self.engine.sweep().await;
                self.saw(Seen::Did(if swept.is_ok() {
                    "swept"
                } else {
                    "sweep failed"
                }));
                Next::Rest
            }
        }
    }

    /// Does something for a caller who may go away half-way.
    pub(crate) async fn patiently<T>(
        &self,
        patience: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(patience) = patience else {
            return Some(work.await);
        };
        let done = tokio::time::timeout(patience, work).await.ok();
        if done.is_none() {
            self.saw(Seen::Did("gave up half-way"));
            self.sim
                .with(|s| s.say(&self.process.name, format_args!("'s caller goes away")));
        }
        done
    }

    async fn submit(&self, call: Call) -> Next {
        let (queue, run_at) = self.sim.draw(|rng| (rng.chance(300), rng.chance(200)));
        let work = || semel::Label::new("work").expect("a label");
        let mut to = if queue {
            Queueing::on(work())
        } else {
            Queueing::nobody()
        };
        if run_at {
            to = to.at(self.sim.now().plus(Duration::from_secs(1)));
        }
        let since = self.sim.with(|s| s.checker.tick());
        let request = self.plan(call.key).request(call.stranger);
        let submitted = self.engine.submit(request, to);
        match Box::pin(self.patiently(call.patience, submitted)).await {
            Some(Ok(receipt)) => {
                self.hear(call.key, since, &receipt);
                Next::Rest
            }
            Some(Err(error)) => self.fail(&error),
            None => Next::Again,
        }
    }

    pub(crate) fn admitted(&self, call: Call, since: u64) {
        let meaning = KeyPlan::fingerprint(call.stranger);
        self.sim
            .with(|s| s.checker.admitted(call.key, since, meaning));
    }

    /// A caller hears a receipt.
    pub(crate) fn hear(&self, key: usize, since: u64, receipt: &Receipt) {
        let settled = matches!(receipt.state, StateKind::Succeeded | StateKind::Failed);
        let told = Told::heard(receipt);
        let state = receipt.state.as_str();
        self.sim.with(|s| {
            s.seen.note(Seen::Told(state));
            s.say(
                &self.process.name,
                format_args!("is told {state} of k{key}"),
            );
            if settled {
                s.checker.told(key, since, told);
            }
        });
    }

    /// A caller hears an error.
    pub(crate) fn fail(&self, error: &Error) -> Next {
        self.sim.with(|s| {
            s.seen.note(Seen::Told(match error {
                Error::Unstored { noted: true, .. } => "noted",
                Error::Unstored { noted: false, .. } => "unstored",
                other => other.code(),
            }));
            s.say(&self.process.name, format_args!("is told: {error}"));
            if error.code() == "internal" {
                s.checker.fail(
                    Invariant::NothingVanishes,
                    format!("told of damage: {error}"),
                );
            }
        });
        match error.code() {
            "dead" | "expired" | "key_reused" => Next::Rest,
            _ => Next::Again,
        }
    }
}

/// Attempt ids are drawn anew for every claim; only a planted bug repeats them after a restart.
fn ids(sim: &Arc<Sim>, name: &str) -> Arc<dyn Fn() -> u128 + Send + Sync> {
    if sim.has(Bug::AttemptIdReused) {
        let owner = name.split('.').next().unwrap_or(name).to_owned();
        let next = AtomicU64::new(0);
        return Arc::new(move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let hash = Digest::of(format!("{owner}/{number}").as_bytes()).0;
            hash.iter()
                .take(16)
                .fold(0, |id, byte| (id << 8) | u128::from(*byte))
        });
    }
    let sim = Arc::clone(sim);
    Arc::new(move || sim.draw(Rng::wide))
}
