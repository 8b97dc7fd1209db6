//! What holds for every sequence of commands, also for stale, duplicated and contradictory ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::world::*;
use crate::effect::Effect;
use crate::ledger::codec::{
    decode_command, decode_entry, decode_record, encode_command, encode_entry, encode_record,
};
use crate::ledger::{
    ATTEMPTS_REMEMBERED, Attempt, AttemptKind, Begin, Command, Decision, Delivery, Entry, Event,
    Grant, Operation, Order, Record, Reply, Resolution, Resolve, Settle, Sighting, State,
    StateKind, Version, Write, decide,
};
use crate::policy::Policy;
use crate::time::Timestamp;
use crate::verdict::{Outcome, Verdict};

/// One step of a random run; commands are made from what is stored when their turn comes.
#[derive(Clone, Debug)]
enum Step {
    /// Moves the clock by seconds, also back.
    Wait(i64),
    Submit {
        queued: bool,
        run_at: Option<u64>,
    },
    Begin {
        /// An attempt that asked before, or a new one.
        attempt: Option<Who>,
        worker: bool,
        /// What a door saw of the present holder.
        alive: Option<bool>,
    },
    Renew(Who),
    Settle {
        attempt: Who,
        verdict: Verdict,
        strange_fence: bool,
    },
    Expire {
        gone: bool,
    },
    Order {
        order: Ordering,
        /// How many versions ago the operator looked.
        stale: u64,
    },
    Bury,
    Drop,
    Deliver(Delivery),
    Adopt,
    /// Delivers an earlier command once more.
    Again(prop::sample::Index),
}

/// Which attempt speaks.
#[derive(Clone, Debug)]
enum Who {
    /// The last one that was granted.
    Latest,
    /// Any that ever asked, granted or not.
    Any(prop::sample::Index),
}

#[derive(Clone, Copy, Debug)]
enum Ordering {
    ResolveDone(Outcome),
    ResolveNotDone,
    Retry,
    Cancel,
    Forget,
}

const OUTCOMES: [Outcome; 4] = [GOOD, OTHER, BAD, HARMLESS];

fn policy() -> impl Strategy<Value = Policy> {
    let limit = prop_oneof![2 => Just(None), 1 => (1u32..4).prop_map(Some)];
    (prop::sample::select(vec![hold(), retry(), probe()]), limit).prop_map(|(policy, limit)| {
        match limit {
            Some(attempts) => limited(attempts, policy),
            None => policy,
        }
    })
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        3 => Just(Who::Latest),
        2 => any::<prop::sample::Index>().prop_map(Who::Any),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        prop::sample::select(&OUTCOMES).prop_map(Verdict::Done),
        prop::bool::weighted(0.1).prop_map(|reject| Verdict::NotDone {
            retry_after: None,
            reject,
            error: None
        }),
        Just(Verdict::Unknown { error: None }),
    ]
}

fn ordering() -> impl Strategy<Value = Ordering> {
    prop_oneof![
        2 => prop::sample::select(&OUTCOMES).prop_map(Ordering::ResolveDone),
        3 => Just(Ordering::ResolveNotDone),
        4 => Just(Ordering::Retry),
        1 => Just(Ordering::Cancel),
        1 => Just(Ordering::Forget),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let seen = prop::option::weighted(0.2, any::<bool>());
    let waits = [1, 59, 60, 70, 3_600].map(i64::from);
    let leaps = [WINDOW, MONTH, YEAR].map(|seconds| seconds.cast_signed());
    let backs = [-1, -60, -100_000].map(i64::from);
    prop_oneof![
        4 => prop::sample::select(waits.to_vec()).prop_map(Step::Wait),
        2 => prop::sample::select(leaps.to_vec()).prop_map(Step::Wait),
        1 => prop::sample::select(backs.to_vec()).prop_map(Step::Wait),
        1 => (any::<bool>(), prop::option::of(0u64..100))
            .prop_map(|(queued, run_at)| Step::Submit { queued, run_at }),
        10 => (prop::option::weighted(0.2, who()), any::<bool>(), seen)
            .prop_map(|(attempt, worker, alive)| Step::Begin { attempt, worker, alive }),
        1 => who().prop_map(Step::Renew),
        10 => (who(), verdict(), prop::bool::weighted(0.05)).prop_map(
            |(attempt, verdict, strange_fence)| Step::Settle { attempt, verdict, strange_fence }
        ),
        2 => any::<bool>().prop_map(|gone| Step::Expire { gone }),
        5 => (ordering(), prop_oneof![4 => Just(0), 1 => 1u64..3])
            .prop_map(|(order, stale)| Step::Order { order, stale }),
        2 => Just(Step::Bury),
        2 => Just(Step::Drop),
        1 => prop::sample::select(vec![
            Delivery::Unknown,
            Delivery::Delivered,
            Delivery::Undelivered,
            Delivery::Lapsed,
        ])
        .prop_map(Step::Deliver),
        1 => Just(Step::Adopt),
        4 => any::<prop::sample::Index>().prop_map(Step::Again),
    ]
}

/// A step of an operation that is tried many times and does not get done.
fn churn() -> impl Strategy<Value = Step> {
    let settle = |verdict| Step::Settle {
        attempt: Who::Latest,
        verdict,
        strange_fence: false,
    };
    let not_done = Verdict::NotDone {
        retry_after: None,
        reject: false,
        error: None,
    };
    prop_oneof![
        2 => Just(Step::Begin { attempt: None, worker: true, alive: None }),
        1 => Just(settle(not_done)),
        1 => Just(settle(Verdict::Unknown { error: None })),
    ]
}

/// A world, everything that was ever asked of it, and what its log holds.
struct Run {
    world: World,
    asked: Vec<Command>,
    /// The ids of all who asked to begin.
    names: Vec<String>,
    /// The reports that were taken; another one like it is a duplicate.
    heard: Vec<Command>,
    /// Whether the log holds a `done`, and neither Retry nor Forget nor Drop came after it.
    done: bool,
}

impl Run {
    fn new(policy: Policy) -> Self {
        Self {
            world: World::new(policy),
            asked: vec![],
            names: vec![],
            heard: vec![],
            done: false,
        }
    }

    fn name(&self, who: &Who) -> &str {
        let operation = self.world.record.as_ref().and_then(Record::operation);
        match (who, operation.and_then(Operation::latest)) {
            (Who::Latest, Some(latest)) => latest.id.as_str(),
            (Who::Any(index), _) if !self.names.is_empty() => index.get(&self.names).as_str(),
            (Who::Latest | Who::Any(_), _) => "stranger",
        }
    }

    fn command(&mut self, step: Step) -> Command {
        if let Step::Begin { attempt: None, .. } = step {
            self.names.push(format!("n{}", self.names.len()));
        }
        let w = &self.world;
        let asking = match (&step, self.names.last()) {
            (
                Step::Begin {
                    attempt: Some(who), ..
                },
                _,
            ) => self.name(who),
            (_, Some(fresh)) => fresh,
            (_, None) => "stranger",
        };
        match step {
            Step::Wait(_) => w.expire(),
            Step::Submit { queued, run_at } => {
                w.submit_to(queued.then_some("mail"), run_at.map(at))
            }
            Step::Begin { worker, alive, .. } => Command::Begin(Begin {
                worker,
                sighting: alive.map(|alive| Sighting {
                    fence: w.fence(),
                    alive,
                }),
                ..w.asks_to_begin(asking)
            }),
            Step::Renew(attempt) => w.renew(self.name(&attempt)),
            Step::Settle {
                attempt,
                verdict,
                strange_fence,
            } => {
                let command = w.settle(self.name(&attempt), verdict);
                if strange_fence {
                    off_by_one(command)
                } else {
                    command
                }
            }
            Step::Expire { gone: false } => w.expire(),
            Step::Expire { gone: true } => Command::Expire(crate::ledger::Expire {
                gone: Some(w.fence()),
            }),
            Step::Order { order, stale } => self.order(order, stale),
            Step::Bury => w.bury(),
            Step::Drop => w.drop(),
            Step::Deliver(delivery) => Command::Deliver(delivery),
            Step::Adopt => w.adopt(),
            Step::Again(index) => {
                if self.asked.is_empty() {
                    w.expire()
                } else {
                    index.get(&self.asked).clone()
                }
            }
        }
    }

    fn order(&self, order: Ordering, stale: u64) -> Command {
        let named = Order {
            version: Version(self.world.version().0.saturating_sub(stale)),
            ..self.world.order()
        };
        let resolve = |resolution| {
            Command::Resolve(Resolve {
                order: named.clone(),
                resolution,
            })
        };
        match order {
            Ordering::ResolveDone(outcome) => resolve(Resolution::Done(outcome)),
            Ordering::ResolveNotDone => resolve(Resolution::NotDone),
            Ordering::Retry => Command::Retry(named),
            Ordering::Cancel => Command::Cancel(named),
            Ordering::Forget => Command::Forget(named),
        }
    }

    /// Takes one step, checks everything that must hold, and returns what was logged.
    fn take(&mut self, step: Step) -> Vec<Event> {
        if let Step::Wait(seconds) = step {
            let micros = self.world.now.0.saturating_add(seconds * 1_000_000);
            self.world.now = Timestamp(micros);
            return vec![];
        }
        let command = self.command(step);
        assert_eq!(
            decode_command(&encode_command(&command)),
            Ok(command.clone())
        );
        let (before, now) = (self.world.record.clone(), self.world.now);
        let decision = self.world.run(&command);
        let again = decide(before.as_ref(), &command, now);
        assert_eq!(decision, again, "the same inputs gave two decisions");
        self.asked.push(command.clone());
        check_reads(self.world.record.as_ref(), now);
        let events = match &decision {
            Err(_) | Ok(Decision::Answer(_)) => vec![],
            Ok(Decision::Write(write)) => {
                check_write(before.as_ref(), &command, write, now);
                self.check_log(before.as_ref(), &command, write);
                self.check_duplicate(&command, write);
                write.events.clone()
            }
        };
        let placed = before.as_ref().and_then(Record::operation).is_some();
        if placed && decision.is_ok() && matches!(command, Command::Settle(_)) {
            self.heard.push(command);
        }
        events
    }

    /// Invariant 10: an accepted Retry is not undone by a duplicate.
    fn check_duplicate(&mut self, command: &Command, write: &Write) {
        if self.heard.contains(command) {
            let settles = [Event::Settled, Event::SettledLate];
            let by_itself = !write.events.contains(&Event::LeaseEnded);
            let settled = write.events.iter().any(|event| settles.contains(event));
            assert!(!(settled && by_itself), "a duplicate settled");
        }
        if write.next.is_none() {
            // Nothing is left that could tell a duplicate from a new attempt's report.
            self.heard.clear();
        }
    }

    /// Invariant 10: no begin is granted while the log already holds a `done`.
    fn check_log(&mut self, before: Option<&Record>, command: &Command, write: &Write) {
        if let Reply::Granted(_) = write.reply {
            assert!(!self.done, "a permit was given after a done");
        }
        // A report on a key without an operation is logged, but is no operation's.
        let placed = before.and_then(Record::operation).is_some();
        match command {
            Command::Settle(Settle {
                verdict: Verdict::Done(_),
                ..
            })
            | Command::Resolve(Resolve {
                resolution: Resolution::Done(_),
                ..
            }) => self.done |= placed,
            Command::Retry(_) => self.done &= !write.events.contains(&Event::Retried),
            Command::Forget(_) | Command::Drop(_) => self.done = false,
            Command::Submit(_)
            | Command::Begin(_)
            | Command::Renew(_)
            | Command::Settle(_)
            | Command::Expire(_)
            | Command::Resolve(_)
            | Command::Cancel(_)
            | Command::Bury(_)
            | Command::Deliver(_)
            | Command::Adopt(_)
            | Command::Breaker(_) => {}
        }
    }
}

/// Two reads of one stored record show the same operation, unless its lease ends between them.
fn check_reads(record: Option<&Record>, now: Timestamp) {
    let Some(operation) = record.and_then(Record::operation) else {
        return;
    };
    let end = operation.lease_until();
    let ended_by = |moment: Timestamp| end.is_some_and(|end| moment >= end);
    let moments =
        [0, LEASE, LEASE + 1, WINDOW, MONTH, YEAR].map(|wait| now.plus(Duration::from_secs(wait)));
    for (earlier, later) in moments.iter().zip(&moments[1..]) {
        if ended_by(*earlier) == ended_by(*later) {
            assert_eq!(
                operation.judged_at(*earlier),
                operation.judged_at(*later),
                "two reads differ"
            );
        }
    }
}

fn check_write(before: Option<&Record>, command: &Command, write: &Write, now: Timestamp) {
    assert!(!write.events.is_empty(), "a write that says nothing");
    let entry = Entry {
        at: now,
        unplaced: None,
        command: command.clone(),
        events: write.events.clone(),
        state: write.next.as_ref().map(Record::kind),
        fence: write.next.as_ref().map(Record::fence).unwrap_or_default(),
    };
    assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    check_retention(before, command);
    let Some(next) = &write.next else {
        let nothing_stored = before.is_none() && matches!(command, Command::Settle(_));
        let stub_dropped = matches!((before, command), (Some(Record::Stub(_)), Command::Drop(_)));
        assert!(nothing_stored || stub_dropped, "a record vanished");
        return;
    };
    assert_eq!(decode_record(&encode_record(next)).as_ref(), Ok(next));
    let version = before.map(Record::version).unwrap_or_default();
    assert_eq!(next.version(), version.next());
    let fence = before.map(Record::fence).unwrap_or_default();
    assert!(next.fence() >= fence, "the fence went back");
    if let Reply::Granted(grant) = &write.reply {
        assert_eq!(next.fence(), fence.next());
        check_grant(before.and_then(Record::operation), next, grant, write, now);
    }
    if let Some(next) = next.operation() {
        check_operation(next);
        if let Some(before) = before.and_then(Record::operation) {
            check_history(before, next, command);
        }
    }
}

/// Invariant 5: nothing doubtful, dead, pending or running is ever purged.
fn check_retention(before: Option<&Record>, command: &Command) {
    if matches!(command, Command::Bury(_) | Command::Drop(_)) {
        let kind = before.map(Record::kind).expect("something was swept");
        assert!(!kind.is_open(), "{kind:?} was purged");
    }
}

/// A permit needs a free key, and a reason in the log when something is in doubt.
fn check_grant(
    before: Option<&Operation>,
    next: &Record,
    grant: &Grant,
    write: &Write,
    now: Timestamp,
) {
    assert_eq!(next.kind(), StateKind::Running);
    let Some(before) = before else {
        return;
    };
    let waived = write.events.contains(&Event::DoubtWaived);
    match &before.state {
        State::Pending => assert!(!waived),
        State::Running { evidence } => {
            let alive = before.lease_until().is_some_and(|until| now < until);
            let gone = write.events.contains(&Event::HolderGone);
            assert!(!alive || gone, "two leases are alive");
            assert_eq!(*evidence, None, "a permit was given in spite of evidence");
            let doubted = write.events.contains(&Event::Doubted);
            assert!(!doubted || waived || grant.kind == AttemptKind::Probe);
        }
        State::Doubtful => assert!(waived || grant.kind == AttemptKind::Probe),
        State::Succeeded(_) | State::Failed(_) | State::Dead => {
            panic!("a permit was given for what is settled or dead")
        }
    }
}

/// What every stored operation looks like.
fn check_operation(operation: &Operation) {
    let attempts = &operation.attempts;
    assert!(attempts.len() <= ATTEMPTS_REMEMBERED);
    assert!(attempts.is_sorted_by(|older, newer| older.fence < newer.fence));
    assert!(attempts.last().is_none_or(|a| a.fence <= operation.fence));
    assert!(attempts.iter().all(|a| !(a.open && a.has_spoken())));
    if operation.rejected {
        let acts = attempts.last().is_some_and(|a| a.kind == AttemptKind::Act);
        match operation.state {
            State::Pending => panic!("rejected, and waits for another attempt"),
            State::Running { .. } => assert!(!acts, "rejected, and tried again"),
            State::Succeeded(_) | State::Failed(_) | State::Doubtful | State::Dead => {}
        }
    }
    let runs = |attempt: &&Attempt| attempt.ended_at.is_none();
    let running = attempts.iter().filter(runs).count();
    match operation.state {
        State::Running { .. } => {
            assert_eq!(running, 1);
            assert!(attempts.last().is_some_and(|a| a.ended_at.is_none()));
        }
        State::Dead => {
            assert_eq!(running, 0);
            assert_eq!(operation.open_since(), None, "dead, and perhaps applied");
        }
        State::Failed(settled) => {
            assert_eq!(running, 0);
            let perhaps_applied = operation.open_since().is_some();
            assert!(
                !(perhaps_applied && settled.outcome.effect == Effect::Noop),
                "noop, and perhaps applied"
            );
        }
        State::Doubtful => {
            assert_eq!(running, 0);
            assert!(operation.open_since().is_some(), "nothing is in doubt");
        }
        State::Pending | State::Succeeded(_) => assert_eq!(running, 0),
    }
}

/// What no command may change about an operation.
fn check_history(before: &Operation, next: &Operation, command: &Command) {
    assert_eq!(before.spec, next.spec, "the policy was changed");
    let fresh = matches!(command, Command::Retry(_));
    assert!(
        !before.rejected || next.rejected || fresh,
        "a rejection was lost"
    );
    for spoken in before.attempts.iter().filter(|a| a.has_spoken()) {
        if let Some(index) = next.find(&spoken.id, spoken.fence) {
            assert_eq!(next.attempts[index].verdict, spoken.verdict);
        }
    }
    if let Some(settled) = before.settled() {
        match next.settled() {
            Some(still) => assert_eq!(still, settled, "the outcome was changed"),
            None => assert!(matches!(command, Command::Retry(_)), "the outcome was lost"),
        }
    }
}

#[test]
fn the_invariants_hold_for_every_sequence_of_commands() {
    let config = ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let happened = RefCell::new(BTreeSet::new());
    let forgot_an_open_attempt = Cell::new(false);
    let any = (policy(), prop::collection::vec(step(), 1..100));
    let long = prop_oneof![19 => churn(), 1 => step()];
    let long = (Just(retry()), prop::collection::vec(long, 40..100));
    let runs = prop_oneof![4 => any, 1 => long];
    let result = TestRunner::new(config).run(&runs, |(policy, steps)| {
        let mut run = Run::new(policy);
        for step in steps {
            happened.borrow_mut().extend(run.take(step));
            let operation = run.world.record.as_ref().and_then(Record::operation);
            if operation.is_some_and(|o| o.forgotten_open.is_some()) {
                forgot_an_open_attempt.set(true);
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // Runs that never got somewhere prove nothing about it.
    let all = Event::ALL.into_iter();
    let all: BTreeSet<_> = all.filter(|event| !event.is_of_breakers()).collect();
    let never: Vec<_> = all.difference(&happened.into_inner()).copied().collect();
    assert!(never.is_empty(), "never happened: {never:?}");
    assert!(forgot_an_open_attempt.get());
}
