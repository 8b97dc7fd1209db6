//! The end of a history: nothing goes wrong any more, every doubt is resolved by looking, and then
//! everybody must agree.

use std::sync::Arc;
use std::time::Duration;

use semel::store::Query;
use semel_core::ledger::{Record, StateKind};

use super::agent::{Agent, Call};
use super::checker::{Invariant, Told};
use super::history::Sim;
use super::plan::KeyPlan;
use super::trace::Seen;
use super::world::FLIGHT_MAX;

/// How often the end of a history goes over its keys: a probe is followed by an attempt, a late
/// report by a resolution.
const ROUNDS: usize = 6;

/// Longer than any pause, flight or late write.
const EVERYBODY_DONE: Duration = Duration::from_secs(4 * FLIGHT_MAX.as_secs());

const DAY: Duration = Duration::from_secs(86_400);

/// Brings a history to its end and compares what everybody knows.
pub(crate) async fn conclude(sim: &Arc<Sim>) {
    sim.with(|s| {
        s.calm = true;
        s.say("sim", format_args!("nothing goes wrong from here on"));
    });
    tokio::time::sleep(EVERYBODY_DONE).await;
    let (first, second) = (
        Agent::start(sim, "first", false).await,
        Agent::start(sim, "second", false).await,
    );
    let (Some(first), Some(second)) = (first, second) else {
        sim.with(|s| s.checker.fail(Invariant::Progress, "no engine starts"));
        return;
    };
    let agents = [first, second];
    wait_for_leases(sim).await;
    sweep(&agents[0]).await;
    for key in 0..sim.plan.keys.len() {
        agree(sim, &agents, key).await;
    }
    verify(&agents[1]).await;
    if sim.plan.years {
        years(sim, &agents).await;
        verify(&agents[0]).await;
    }
    sim.with(|s| {
        let (checker, shelf) = (&mut s.checker, &s.shelf);
        checker.after_power_loss(shelf);
        if let Some(record) = shelf.lingering() {
            checker.fail(Invariant::NothingLingers, format!("{record:?}"));
        }
    });
}

/// Waits until no lease is alive: a clock that jumped back keeps them longer.
async fn wait_for_leases(sim: &Arc<Sim>) {
    let now = sim.now();
    let last = sim.with(|s| {
        let operations = s.shelf.records().filter_map(Record::operation);
        let leases = operations.flat_map(|operation| operation.attempts.iter());
        let ends = leases.map(|attempt| attempt.lease_until);
        let waits = s.shelf.records().filter_map(|r| r.operation()?.run_at);
        ends.chain(waits).max()
    });
    if let Some(last) = last {
        tokio::time::sleep(last.since(now) + Duration::from_secs(2)).await;
    }
}

async fn sweep(agent: &Agent) {
    let swept = agent.engine.sweep().await;
    agent.sim.with(|s| match swept {
        Ok(swept) => s.say("sim", format_args!("{swept:?}")),
        Err(error) => s
            .checker
            .fail(Invariant::Progress, format!("sweep: {error}")),
    });
}

async fn verify(agent: &Agent) {
    let verified = agent.engine.verify().await;
    agent.sim.with(|s| match verified {
        Ok(verified) => {
            if let Some(difference) = verified.difference {
                s.checker
                    .fail(Invariant::LogIsState, difference.to_string());
            }
        }
        Err(error) => s
            .checker
            .fail(Invariant::Progress, format!("verify: {error}")),
    });
}

/// Resolves what is in doubt, carries out what waits, and asks everybody.
async fn agree(sim: &Arc<Sim>, agents: &[Agent; 2], key: usize) {
    let is_step = sim.plan.keys[key].parent.is_some();
    for _ in 0..ROUNDS {
        let Some(record) = load(&agents[0], key).await else {
            return;
        };
        let Some(operation) = record.operation() else {
            break;
        };
        let kind = operation.kind_at(sim.now());
        if operation.open_since().is_some() && kind.is_open() || kind == StateKind::Doubtful {
            agents[0].resolve(key, operation, false).await;
        } else if kind == StateKind::Pending && !is_step {
            let stranger = operation.spec.fingerprint == KeyPlan::fingerprint(true);
            wait_for_leases(sim).await;
            let _ = agents[1].by_protocol(key, stranger).await;
        } else {
            break;
        }
    }
    let record = load(&agents[0], key).await;
    let kind = record.as_ref().map(|record| record.kind());
    let unfinished = [StateKind::Pending, StateKind::Running, StateKind::Doubtful];
    if kind.is_some_and(|kind| unfinished.contains(&kind)) && !is_step {
        let what = format!("k{key} is still {kind:?}");
        sim.with(|s| s.checker.fail(Invariant::Progress, what));
    }
    sim.with(|s| s.checker.nothing_lost(key, record.as_deref()));
    let mut answers = vec![];
    for agent in [&agents[0], &agents[1], &agents[0]] {
        answers.push(ask(agent, key, record.as_deref()).await);
    }
    let first = answers[0].clone();
    if answers.iter().any(|answer| *answer != first) {
        let what = format!("callers of k{key} are told {answers:?}");
        sim.with(|s| s.checker.fail(Invariant::SameOutcome, what));
    }
}

async fn load(agent: &Agent, key: usize) -> Option<Arc<Record>> {
    match agent.load(key).await {
        Ok(record) => record,
        Err(error) => {
            let what = format!("load: {error}");
            agent
                .sim
                .with(|s| s.checker.fail(Invariant::Progress, what));
            None
        }
    }
}

/// What a caller is told in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Outcome(Told),
    Error(&'static str),
    Other,
}

/// Asks for the outcome of an operation that nobody works on; what nobody began stays so.
async fn ask(agent: &Agent, key: usize, record: Option<&Record>) -> Heard {
    let stranger = match record {
        Some(Record::Operation(o)) => o.spec.fingerprint == KeyPlan::fingerprint(true),
        Some(Record::Tombstone(t)) => t.fingerprint == KeyPlan::fingerprint(true),
        Some(Record::Stub(_) | Record::Breaker(_)) | None => return Heard::Other,
    };
    let open = record.is_some_and(|record| record.kind().is_open());
    if open && record.map(Record::kind) != Some(StateKind::Dead) {
        return Heard::Other;
    }
    let since = agent.sim.with(|s| s.checker.tick());
    let request = agent.plan(key).request(stranger);
    match agent.engine.begin(request).await {
        Ok(semel::Admission::Replay(receipt)) => {
            agent.hear(key, since, &receipt);
            Heard::Outcome(Told::heard(&receipt))
        }
        Ok(_) => Heard::Other,
        Err(error) => Heard::Error(error.code()),
    }
}

/// Lets years pass: outcomes become tombstones, tombstones stubs, and then the key is free again.
async fn years(sim: &Arc<Sim>, agents: &[Agent; 2]) {
    let longest = sim.plan.keys.iter().map(|key| key.retention.length()).max();
    tokio::time::sleep(longest.unwrap_or_default() + DAY).await;
    sweep(&agents[0]).await;
    for key in (0..sim.plan.keys.len()).filter(|key| sim.plan.keys[*key].parent.is_none()) {
        let _ = agents[1].by_permit(Call::plain(key, false), None).await;
    }
    verify(&agents[1]).await;
    for _ in 0..2 {
        tokio::time::sleep(366 * DAY).await;
        sweep(&agents[0]).await;
        if sim.draw(|rng| rng.chance(500)) {
            let key = 0;
            let _ = agents[0].by_permit(Call::plain(key, false), None).await;
        }
    }
    let query = Query {
        limit: 10,
        ..Query::default()
    };
    if agents[0].engine.list(query).await.is_ok() {
        agents[0].saw(Seen::Did("let years pass"));
    }
}
