//! The promise itself, in a small honest world: holders act only under a permit that is still good,
//! report only what they know, and may fall silent at any point; messages are duplicated and come
//! late; operators resolve by looking. However that goes, an opaque effect happens at most once,
//! and nothing is told as not applied that was or may be yet.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::world::*;
use crate::effect::Effect;
use crate::ledger::{AttemptKind, Command, Decision, Grant, Reply, State};
use crate::policy::{OnDoubt, Policy};
use crate::time::Timestamp;

/// One step; the numbers choose among the holders and messages that there are.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Submit,
    Begin,
    /// A door looks whether the holder of the present lease is alive, and then asks.
    LookAndBegin,
    Renew(prop::sample::Index),
    Act(prop::sample::Index),
    Report(prop::sample::Index),
    /// A holder that did not act says that the action failed and changed nothing.
    Decline(prop::sample::Index),
    Shrug(prop::sample::Index),
    Crash(prop::sample::Index),
    Expire,
    Resolve,
    Retry,
    Cancel,
    Bury,
    Adopt,
    /// A message that was sent before arrives once more.
    Again(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => prop::sample::select(vec![1, 30, 59, 60, 70, 71]).prop_map(Step::Wait),
        1 => Just(Step::Submit),
        6 => Just(Step::Begin),
        2 => Just(Step::LookAndBegin),
        1 => index().prop_map(Step::Renew),
        4 => index().prop_map(Step::Act),
        3 => index().prop_map(Step::Report),
        1 => index().prop_map(Step::Decline),
        2 => index().prop_map(Step::Shrug),
        2 => index().prop_map(Step::Crash),
        1 => Just(Step::Expire),
        2 => Just(Step::Resolve),
        1 => Just(Step::Retry),
        1 => Just(Step::Cancel),
        1 => Just(Step::Bury),
        1 => Just(Step::Adopt),
        6 => index().prop_map(Step::Again),
    ]
}

/// Somebody who was granted a permit.
#[derive(Clone, Debug)]
struct Holder {
    name: String,
    kind: AttemptKind,
    /// Until when it starts anything.
    until: Timestamp,
    acted: bool,
    /// It crashed, reported or gave up: it will never start anything again.
    ended: bool,
}

struct Reality {
    world: World,
    on_doubt: OnDoubt,
    holders: Vec<Holder>,
    sent: Vec<Command>,
    effects: u32,
}

impl Reality {
    fn new(policy: Policy) -> Self {
        Self {
            world: World::new(policy),
            on_doubt: policy.on_doubt,
            holders: vec![],
            sent: vec![],
            effects: 0,
        }
    }

    fn may_still_act(&self) -> bool {
        let now = self.world.now;
        let may = |holder: &Holder| {
            holder.kind == AttemptKind::Act && !holder.ended && now < holder.until
        };
        self.holders.iter().any(may)
    }

    fn send(&mut self, command: Command) {
        let reply = match self.world.run(&command) {
            Ok(Decision::Answer(reply)) => reply,
            Ok(Decision::Write(write)) => write.reply,
            Err(_) => Reply::Kept,
        };
        match (&command, reply) {
            (Command::Begin(begin), Reply::Granted(grant)) => {
                self.start(begin.attempt.as_str(), grant);
            }
            (Command::Renew(renew), Reply::Renewed { lease_until }) => {
                let name = renew.attempt.as_str();
                if let Some(holder) = self.holders.iter_mut().find(|h| h.name == name) {
                    holder.until = lease_until;
                }
            }
            (_, _) => {}
        }
        self.sent.push(command);
    }

    /// A permit that is given once more is still one holder's.
    fn start(&mut self, name: &str, grant: Grant) {
        if self.holders.iter().all(|holder| holder.name != name) {
            self.holders.push(Holder {
                name: name.to_owned(),
                kind: grant.kind,
                until: grant.lease_until,
                acted: false,
                ended: false,
            });
        }
    }

    fn take(&mut self, step: &Step) {
        let fresh = format!("n{}", self.sent.len());
        let w = &self.world;
        match step {
            Step::Wait(seconds) => self.world = self.world.clone().wait(*seconds),
            Step::Submit => self.send(w.submit()),
            Step::Begin => self.send(w.begin(&fresh)),
            Step::LookAndBegin => {
                let command = match self.holders.last() {
                    Some(seen) => w.begin_seeing(&fresh, &seen.name, !seen.ended),
                    None => w.begin(&fresh),
                };
                self.send(command);
            }
            Step::Renew(index) => {
                if let Some(holder) = self.pick(index) {
                    let command = self.world.renew(&self.holders[holder].name);
                    self.send(command);
                }
            }
            Step::Act(index) => self.act(index),
            Step::Report(index) => self.report(index),
            Step::Decline(index) => self.decline(index),
            Step::Shrug(index) => {
                if let Some(holder) = self.pick(index) {
                    self.holders[holder].ended = true;
                    let command = self.world.unknown(&self.holders[holder].name);
                    self.send(command);
                }
            }
            Step::Crash(index) => {
                if let Some(holder) = self.pick(index) {
                    self.holders[holder].ended = true;
                }
            }
            Step::Expire => self.send(w.expire()),
            Step::Resolve => self.resolve(),
            // An operator who is told that nobody knows what a failure did does not try again.
            Step::Retry if self.failed_with(Effect::Unknown) => {}
            Step::Retry => self.send(w.retry()),
            Step::Cancel => self.send(w.cancel()),
            Step::Bury => self.send(w.bury()),
            Step::Adopt => self.send(w.adopt()),
            Step::Again(index) => {
                if !self.sent.is_empty() {
                    let command = index.get(&self.sent).clone();
                    self.send(command);
                }
            }
        }
    }

    fn pick(&self, index: &prop::sample::Index) -> Option<usize> {
        let alive: Vec<_> = (0..self.holders.len())
            .filter(|holder| !self.holders[*holder].ended)
            .collect();
        (!alive.is_empty()).then(|| *index.get(&alive))
    }

    fn act(&mut self, index: &prop::sample::Index) {
        let Some(index) = self.pick(index) else {
            return;
        };
        let holder = &mut self.holders[index];
        let may = holder.kind == AttemptKind::Act && self.world.now < holder.until;
        if may && !holder.acted {
            holder.acted = true;
            self.effects += 1;
        }
    }

    fn decline(&mut self, index: &prop::sample::Index) {
        let Some(index) = self.pick(index) else {
            return;
        };
        let holder = &mut self.holders[index];
        if holder.kind == AttemptKind::Act && !holder.acted {
            holder.ended = true;
            let command = self.world.done(&holder.name, HARMLESS);
            self.send(command);
        }
    }

    fn report(&mut self, index: &prop::sample::Index) {
        let Some(index) = self.pick(index) else {
            return;
        };
        let holder = &mut self.holders[index];
        holder.ended = true;
        let done = match holder.kind {
            AttemptKind::Act => holder.acted,
            AttemptKind::Probe => self.effects > 0,
        };
        let command = if done {
            self.world.done(&holder.name, GOOD)
        } else {
            self.world.not_done(&holder.name)
        };
        self.send(command);
    }

    fn failed_with(&self, effect: Effect) -> bool {
        // The end of a lease counts, written or not.
        let mut judged = self.world.clone();
        let _ = judged.run(&self.world.expire());
        let operation = judged.record.as_ref().and_then(|r| r.operation());
        let state = operation.map(|operation| &operation.state);
        matches!(state, Some(State::Failed(settled)) if settled.outcome.effect == effect)
    }

    /// An operator looks at the outside world, once nothing can change there any more.
    fn resolve(&mut self) {
        if self.effects > 0 {
            self.send(self.world.resolve_done(GOOD));
        } else if !self.may_still_act() {
            self.send(self.world.resolve_not_done());
        }
    }

    /// What the ledger says is true outside, and the effect happened at most once unless doubts
    /// are retried.
    fn check(&self) {
        let once = self.on_doubt != OnDoubt::Retry;
        assert!(!once || self.effects <= 1, "the effect happened twice");
        let Some(operation) = self.world.record.as_ref().and_then(|r| r.operation()) else {
            return;
        };
        let not_applied = match &operation.state {
            State::Succeeded(_) => {
                assert!(self.effects > 0, "succeeded without an effect");
                false
            }
            State::Failed(_) => self.failed_with(Effect::Noop),
            State::Dead => true,
            State::Pending | State::Running { .. } | State::Doubtful => false,
        };
        if not_applied {
            assert_eq!(self.effects, 0, "told as not applied, and it was");
            assert!(
                !self.may_still_act(),
                "told as not applied, and it may be yet"
            );
        }
    }
}

#[test]
fn an_opaque_effect_happens_at_most_once_and_is_never_misreported() {
    let config = ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let policies = vec![
        hold(),
        probe(),
        retry(),
        limited(1, hold()),
        limited(2, probe()),
        limited(3, retry()),
    ];
    let runs = (
        prop::sample::select(policies),
        prop::collection::vec(step(), 1..60),
    );
    let result = TestRunner::new(config).run(&runs, |(policy, steps)| {
        let mut reality = Reality::new(policy);
        for step in &steps {
            reality.take(step);
            reality.check();
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
