//! Operators: people who look at an operation, wait, and then decide about it.

use std::sync::Arc;

use semel::{Effect, Label, Namespace, Timestamp};
use semel_core::ledger::{AttemptKind, Fence, Operation, Record, StateKind};

use super::agent::Agent;
use super::bugs::Bug;
use super::history::Sim;
use super::trace::Seen;
use super::world::payload_of;

/// Signs for an operator who says `not_done` only of what can no longer act.
pub(crate) const CAREFUL: &str = "careful";

/// Signs for an operator who says what it looks like.
pub(crate) const HASTY: &str = "hasty";

/// How often an operator looks at something.
const LOOKS: usize = 4;

/// How often a careful operator looks whether a holder can still act before it gives up.
const WAITS: usize = 4;

/// Looks at operations and decides about them, some time later.
pub(crate) async fn operate(sim: Arc<Sim>, number: usize) {
    let Some(agent) = Agent::start(&sim, &format!("o{number}"), true).await else {
        return;
    };
    let work = async {
        for _ in 0..LOOKS {
            sim.nap(0, 4_000).await;
            let key = sim.draw(|rng| rng.index(sim.plan.keys.len()));
            agent.decide_about(key).await;
        }
    };
    tokio::select! {
        biased;
        () = agent.process.died() => {}
        () = work => {}
    }
}

impl Agent {
    async fn decide_about(&self, key: usize) {
        let Ok(Some(record)) = self.load(key).await else {
            return;
        };
        let hasty = self.sim.draw(|rng| rng.chance(350));
        match &*record {
            Record::Operation(operation) => match operation.kind_at(self.sim.now()) {
                StateKind::Doubtful => self.resolve(key, operation, hasty).await,
                StateKind::Pending if operation.open_since().is_some() => {
                    self.resolve(key, operation, hasty).await;
                }
                kind => self.order(key, &record, kind).await,
            },
            Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_) => {
                self.order(key, &record, record.kind()).await;
            }
        }
    }

    pub(crate) async fn load(&self, key: usize) -> semel::Result<Option<Arc<Record>>> {
        let key = &self.plan(key).key;
        self.engine.load(&Namespace::default(), key).await
    }

    fn orders(&self, key: usize, record: &Record, by: &str) -> semel::Operator {
        let by = Label::new(by).expect("an operator has a name");
        let key = &self.plan(key).key;
        self.engine
            .operator(&Namespace::default(), key, record.version(), by)
    }

    /// Settles a doubt by what the world says, as of when the operator looked.
    pub(crate) async fn resolve(&self, key: usize, operation: &Operation, hasty: bool) {
        let doubted = doubted(operation);
        self.sim.nap(0, 400).await;
        if !hasty && !self.wait_until_quiet(key, operation).await {
            return;
        }
        let upstream = self.plan(key).upstream;
        let (mut found, misled) = self.sim.with(|s| {
            let found = s.world.look(key, upstream, None, &doubted);
            (found, s.checker.disturbances > 0)
        });
        // Who judges leases by a clock that jumped ahead cannot be careful.
        let hasty = hasty || misled;
        if self.sim.has(Bug::ResolvedWithoutLooking) {
            found = None;
        }
        self.sim.nap(0, 1_500).await;
        let record = Record::Operation(operation.clone());
        let operator = self.orders(key, &record, if hasty { HASTY } else { CAREFUL });
        let since = self.sim.with(|s| {
            s.say(
                &self.process.name,
                format_args!("resolves {doubted:?} of k{key} to {found:?}, hasty: {hasty}"),
            );
            s.checker.tick()
        });
        let resolved = match found {
            Some(serial) => {
                let data = Some(payload_of(serial));
                operator.resolve_done(true, Effect::Created, data).await
            }
            None => operator.resolve_not_done().await,
        };
        self.note(key, since, resolved);
    }

    /// Waits until no doubted attempt can act any more; `false` when that takes too long.
    async fn wait_until_quiet(&self, key: usize, operation: &Operation) -> bool {
        for _ in 0..WAITS {
            let now = self.sim.now();
            let flying = self.sim.with(|s| s.world.flying(key));
            if !flying && lapsed(operation, now) {
                return true;
            }
            self.sim.nap(100, 2_000).await;
        }
        false
    }

    /// Does what the state of an operation suggests.
    async fn order(&self, key: usize, record: &Record, kind: StateKind) {
        let (draw, later) = self.sim.draw(|rng| (rng.below(10), rng.millis(0, 1_500)));
        tokio::time::sleep(later).await;
        let operator = self.orders(key, record, CAREFUL);
        let since = self.sim.with(|s| s.checker.tick());
        match (kind, draw) {
            (StateKind::Failed | StateKind::Dead, 0..=4) | (StateKind::Succeeded, 0) => {
                self.saw(Seen::Did("asked for a retry"));
                self.note(key, since, operator.retry().await);
            }
            (StateKind::Dead | StateKind::Pending, 5..=6) => {
                self.saw(Seen::Did("cancelled"));
                self.note(key, since, operator.cancel().await);
            }
            (
                StateKind::Succeeded
                | StateKind::Failed
                | StateKind::Tombstone
                | StateKind::Doubtful
                | StateKind::Running,
                7..,
            ) => {
                self.saw(Seen::Did("asked to forget"));
                let forgotten = operator.forget().await;
                self.saw(Seen::Did(if forgotten.is_ok() {
                    "forgot"
                } else {
                    "could not forget"
                }));
            }
            (
                StateKind::Pending
                | StateKind::Running
                | StateKind::Succeeded
                | StateKind::Failed
                | StateKind::Doubtful
                | StateKind::Dead
                | StateKind::Tombstone
                | StateKind::Stub
                | StateKind::Breaker(_),
                _,
            ) => {}
        }
    }

    fn note(&self, key: usize, since: u64, ordered: semel::Result<semel::Receipt>) {
        match ordered {
            Ok(receipt) => self.hear(key, since, &receipt),
            Err(error) => self.saw(Seen::Told(error.code())),
        }
    }
}

/// Returns the attempts of which nobody knows, by what the record says.
fn doubted(operation: &Operation) -> Vec<Fence> {
    let latest = operation.latest().map(|attempt| attempt.fence);
    let runs = operation.state.kind() == StateKind::Running;
    let doubted = operation.attempts.iter().filter(|attempt| {
        attempt.kind == AttemptKind::Act
            && (attempt.open || (runs && Some(attempt.fence) == latest))
    });
    doubted.map(|attempt| attempt.fence).collect()
}

/// Says whether every attempt that has not ended by its own word is past its lease.
fn lapsed(operation: &Operation, now: Timestamp) -> bool {
    let silent = operation
        .attempts
        .iter()
        .filter(|attempt| attempt.verdict.is_none());
    silent.into_iter().all(|attempt| attempt.lease_until <= now)
}
