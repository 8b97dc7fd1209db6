//! What must hold of breakers whatever is asked; every cell of the rule is in `table`.

mod table;

use core::num::NonZeroU32;
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ledger::{
    Adopt, Command, Decision, Event, Fence, Record, Rejection, StateKind, Write, decide as rule,
};
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::{Lease, Timestamp};

const START: Timestamp = Timestamp(1_700_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    START.plus(SECOND * u32::try_from(seconds).expect("the tests are short"))
}

fn settings() -> Settings {
    Settings {
        failures: NonZeroU32::new(3),
        ..Settings::default()
    }
}

fn id(n: u128) -> AttemptId {
    AttemptId::from_random(n)
}

fn ask(act: Act) -> Command {
    Command::Breaker(Box::new(Ask {
        namespace: Namespace::default(),
        name: Key::new("payments").expect("it is a name"),
        settings: settings(),
        act,
    }))
}

fn admit(n: u128) -> Command {
    ask(Act::Admit(Admit {
        id: id(n),
        lease: Lease::DEFAULT,
    }))
}

fn calls(succeeded: u32, failed: u32, now: Timestamp) -> Window {
    let mut window = Window::default();
    for n in 0..succeeded + failed {
        window.count(n < succeeded, &settings(), now);
    }
    window
}

fn report(fence: u64, probe: Option<u128>, ok: u32, failed: u32, now: Timestamp) -> Command {
    ask(Act::Report(Report {
        fence: Fence(fence),
        probe: probe.map(id),
        calls: calls(ok, failed, now),
    }))
}

fn order(fence: u64) -> Order {
    Order {
        fence: Fence(fence),
        by: Label::new("ops").expect("it is a name"),
        note: Note::new("maintenance").ok(),
    }
}

/// A breaker and its clock.
#[derive(Clone, Debug, Default)]
struct World {
    record: Option<Record>,
}

impl World {
    fn decided(&self, command: &Command, now: Timestamp) -> Result<Decision, Rejection> {
        rule(self.record.as_ref(), command, now)
    }

    /// Carries something out that must be written, and returns what the log says.
    fn write(&mut self, command: &Command, now: Timestamp) -> Write {
        match self.decided(command, now) {
            Ok(Decision::Write(write)) => {
                let before = self
                    .record
                    .as_ref()
                    .map(Record::version)
                    .unwrap_or_default();
                let next = write.next.as_ref().expect("a breaker never vanishes");
                assert_eq!(next.version(), before.next());
                self.record = write.next.clone();
                *write
            }
            other => panic!("{command:?} was not written: {other:?}"),
        }
    }

    fn breaker(&self) -> &Breaker {
        self.record
            .as_ref()
            .and_then(Record::breaker)
            .expect("it is a breaker")
    }

    /// Closed, with two failures in a row.
    fn closed() -> Self {
        let mut world = Self::default();
        world.write(&report(0, None, 0, 2, START), START);
        world
    }

    /// Open until 10 s, by a third failure.
    fn open() -> Self {
        let mut world = Self::closed();
        world.write(&report(0, None, 0, 1, START), START);
        world
    }

    /// Half-open from 10 s on, with probe 1.
    fn half_open() -> Self {
        let mut world = Self::open();
        world.write(&admit(1), at(10));
        world
    }

    /// Open by a person, for ever.
    fn forced() -> Self {
        let mut world = Self::closed();
        world.write(&ask(Act::Open(order(0), None)), START);
        world
    }
}

/// What a cell of the table says.
#[derive(Debug, PartialEq)]
enum Cell {
    Answer(Reply),
    Writes(PhaseKind, Event, u64),
    Refused(Rejection),
}

fn cell(world: &World, command: &Command, now: Timestamp) -> Cell {
    match world.decided(command, now) {
        Err(rejection) => Cell::Refused(rejection),
        Ok(Decision::Answer(crate::ledger::Reply::Breaker(reply))) => Cell::Answer(reply),
        Ok(Decision::Answer(other)) => panic!("{other:?} is no answer of a breaker"),
        Ok(Decision::Write(write)) => {
            let next = write.next.expect("a breaker never vanishes");
            let breaker = next.breaker().expect("it stays a breaker");
            assert_eq!(write.events.len(), 1);
            Cell::Writes(breaker.kind(), write.events[0], breaker.fence.0)
        }
    }
}

#[test]
fn a_probe_that_fails_doubles_the_wait_up_to_its_limit() {
    let mut world = World::open();
    let mut waits = vec![];
    let mut now = START;
    for n in 0..8 {
        let Phase::Open(open) = &world.breaker().phase else {
            panic!("it is open");
        };
        let until = open.until.expect("it ends by itself");
        waits.push(until.since(now).as_secs());
        now = until;
        world.write(&admit(n), now);
        let fence = world.breaker().fence.0;
        world.write(&report(fence, Some(n), 0, 1, now), now);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
}

#[test]
fn a_probe_that_succeeds_lets_calls_through_and_begins_anew() {
    let mut world = World::half_open();
    world.write(&report(2, Some(1), 1, 0, at(11)), at(11));
    assert_eq!(world.breaker().phase, Phase::Closed(Window::default()));
    let fence = world.breaker().fence.0;
    world.write(&report(fence, None, 0, 3, at(12)), at(12));
    assert_eq!(world.breaker().next_try(), Some(at(22)));
}

#[test]
fn the_rate_counts_only_with_enough_calls_and_within_the_window() {
    let by_rate = Settings {
        failures: None,
        ..Settings::default()
    };
    let window = |calls: &[(u64, bool)]| {
        let mut window = Window::default();
        for (second, ok) in calls {
            window.count(*ok, &by_rate, at(*second));
        }
        window
    };
    let mixed = |n: u64| (0..n).map(|n| (n, n % 2 == 0)).collect::<Vec<_>>();
    assert!(
        !window(&mixed(9)).is_too_bad(&by_rate, at(9)),
        "nine calls say nothing"
    );
    assert!(
        window(&mixed(10)).is_too_bad(&by_rate, at(9)),
        "half of ten failed"
    );
    let good = [mixed(9), vec![(9, true)]].concat();
    assert!(
        !window(&good).is_too_bad(&by_rate, at(9)),
        "less than half failed"
    );
    let old = window(&mixed(10));
    assert_eq!(old.counts(&by_rate, at(59)).calls(), 10);
    assert_eq!(old.counts(&by_rate, at(75)), Counts::default());
    assert!(
        !old.is_too_bad(&by_rate, at(75)),
        "what is past counts no more"
    );
}

#[test]
fn counts_of_several_callers_add_up() {
    let mut world = World::default();
    let settings = settings();
    world.write(&report(0, None, 4, 2, at(1)), at(1));
    world.write(&report(0, None, 3, 1, at(20)), at(20));
    let Phase::Closed(window) = &world.breaker().phase else {
        panic!("it is closed");
    };
    let counts = window.counts(&settings, at(20));
    assert_eq!((counts.succeeded, counts.failed), (7, 3));
    assert_eq!(
        window.in_row, 1,
        "the last report had a success before its failure"
    );
    // A caller whose clock is ahead has counted nothing in the future.
    world.write(&report(0, None, 1, 0, at(500)), at(21));
    let Phase::Closed(window) = &world.breaker().phase else {
        panic!("it is closed");
    };
    assert_eq!(window.counts(&settings, at(21)).succeeded, 8);
}

#[test]
fn a_probe_that_is_given_back_is_anybodys_at_once_and_costs_nothing() {
    let mut world = World::half_open();
    world.write(&report(2, Some(1), 0, 0, at(11)), at(11));
    world.write(&admit(2), at(11));
    let fence = world.breaker().fence.0;
    world.write(&report(fence, Some(2), 0, 1, at(12)), at(12));
    let again = at(12).plus(SECOND * 20);
    assert_eq!(world.breaker().next_try(), Some(again));
}

#[test]
fn an_order_is_carried_out_once() {
    let mut world = World::closed();
    let opening = ask(Act::Open(order(0), Some(SECOND * 60)));
    world.write(&opening, START);
    let repeated = Decision::Answer(crate::ledger::Reply::Breaker(Reply::Ordered {
        phase: PhaseKind::Open,
        repeated: true,
    }));
    assert_eq!(world.decided(&opening, at(1)), Ok(repeated));
    world.write(&ask(Act::Close(order(1))), at(2));
    // The first order, delivered again: it was decided on what is no more.
    assert_eq!(world.decided(&opening, at(3)), Err(Rejection::Fenced));
}

#[test]
fn opened_for_a_while_it_lets_a_probe_through_afterwards() {
    let mut world = World::closed();
    world.write(&ask(Act::Open(order(0), Some(SECOND * 60))), START);
    assert!(world.decided(&admit(1), at(59)).is_err());
    world.write(&admit(1), at(60));
    world.write(&report(2, Some(1), 0, 1, at(61)), at(61));
    assert_eq!(
        world.breaker().next_try(),
        Some(at(71)),
        "as after the first opening"
    );
}

#[test]
fn an_adopted_breaker_hears_nothing_of_the_originals_probe() {
    let mut world = World::half_open();
    let adopt = Command::Adopt(Adopt {
        fence_step: 1 << 32,
        by: Label::new("restore").expect("it is a name"),
    });
    let write = world.write(&adopt, at(11));
    assert_eq!(write.events, [Event::Adopted]);
    assert_eq!(world.breaker().kind(), PhaseKind::Open);
    let late = report(2, Some(1), 1, 0, at(12));
    assert_eq!(cell(&world, &late, at(12)), Cell::Answer(Reply::Ignored));
    world.write(&admit(9), at(12));
}

#[test]
fn no_operation_is_a_breaker_and_no_breaker_an_operation() {
    let world = World::open();
    let bury = Command::Bury(crate::ledger::Horizon(at(1 << 30)));
    let drop = Command::Drop(crate::ledger::Horizon(at(1 << 30)));
    let state = StateKind::Breaker(PhaseKind::Open);
    for command in [bury, drop] {
        let refused = world.decided(&command, at(1 << 30));
        assert_eq!(refused, Err(Rejection::Refused { state }));
    }
    let (wall, name) = (&world.breaker().namespace, &world.breaker().name);
    assert_ne!(Breaker::hash_of(wall, name), crate::KeyHash::of(wall, name));
}

/// Something that happens to a breaker.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Back(u64),
    Admit,
    /// One of those admitted reports.
    Report(usize, bool),
    Open(bool),
    Close,
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..40_u64).prop_map(Step::Wait),
        1 => (0..400_u64).prop_map(Step::Back),
        8 => Just(Step::Admit),
        8 => (any::<usize>(), proptest::bool::weighted(0.3)).prop_map(|(n, ok)| Step::Report(n, ok)),
        1 => any::<bool>().prop_map(Step::Open),
        1 => Just(Step::Close),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    /// Never two probes at once, nothing before its time, and no wait without an end.
    #[test]
    fn whatever_happens_the_target_is_left_alone_while_it_must_be(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        let mut now = START;
        let mut next_id = 100;
        let mut admitted: Vec<(AttemptId, Admitted)> = vec![];
        for step in steps {
            let fence = world.record.as_ref().map_or(0, |record| record.fence().0);
            let before = world.record.clone();
            let command = match step {
                Step::Wait(seconds) => { now = now.plus(SECOND * u32::try_from(seconds).unwrap()); continue }
                Step::Back(seconds) => { now = now.minus(SECOND * u32::try_from(seconds).unwrap()); continue }
                Step::Admit => { next_id += 1; admit(next_id) }
                Step::Report(n, ok) => {
                    let Some((id, terms)) = admitted.get(n % admitted.len().max(1)) else { continue };
                    let probe = terms.probe_until.map(|_| id.clone());
                    let (ok, failed) = (u32::from(ok), u32::from(!ok));
                    ask(Act::Report(Report { fence: terms.fence, probe, calls: calls(ok, failed, now) }))
                }
                Step::Open(for_ever) => ask(Act::Open(order(fence), (!for_ever).then_some(SECOND * 30))),
                Step::Close => ask(Act::Close(order(fence))),
                Step::Reset => ask(Act::Reset(order(fence))),
            };
            let decided = world.decided(&command, now);
            if let (Command::Breaker(ask), Some(Record::Breaker(breaker))) = (&command, &before)
                && let Act::Admit(wanted) = &ask.act
            {
                match (&breaker.phase, &decided) {
                    (Phase::Closed(_), decided) => assert!(decided.is_ok()),
                    (Phase::Open(open), Ok(_)) => {
                        let until = open.until.expect("a person's word was passed over");
                        let back = breaker.since.since(now) > until.since(breaker.since);
                        assert!(now >= until || back, "admitted before its time");
                    }
                    (Phase::HalfOpen(probe), Ok(_)) => {
                        let back = breaker.since.since(now) > probe.until.since(breaker.since);
                        assert!(now >= probe.until || back || wanted.id == probe.id, "two probes at once");
                    }
                    (_, Err(Rejection::BreakerOpen { retry_at: Some(at) })) => {
                        // Whatever the clock does, no wait is longer than twice the longest.
                        assert!(at.since(now) <= Settings::default().cool_down_max * 2);
                    }
                    (Phase::Open(open), Err(refused)) => {
                        assert_eq!((open.until, *refused), (None, Rejection::BreakerOpen { retry_at: None }));
                    }
                    (_, Err(other)) => panic!("{other:?}"),
                }
            }
            if let Ok(decision) = decided {
                let reply = match decision {
                    Decision::Answer(reply) => reply,
                    Decision::Write(write) => {
                        let next = write.next.expect("a breaker never vanishes");
                        let codec = crate::ledger::codec::decode_record(&crate::ledger::codec::encode_record(&next));
                        assert_eq!(codec.as_ref(), Ok(&next));
                        assert!(next.fence().0 >= fence, "the fence went back");
                        world.record = Some(next);
                        write.reply
                    }
                };
                if let (crate::ledger::Reply::Breaker(Reply::Admitted(terms)), Command::Breaker(ask)) = (reply, &command)
                    && let Act::Admit(wanted) = &ask.act
                {
                    admitted.push((wanted.id.clone(), terms));
                }
            }
        }
    }
}

#[test]
fn failures_in_a_row_count_as_far_as_the_window_reaches() {
    let settings = settings();
    let limit = settings.failures.expect("it has a limit").get();
    let mut window = Window::default();
    for _ in 1..limit {
        window.count(false, &settings, at(0));
    }
    assert_eq!(window.failures_in_row(&settings, at(1)), limit - 1);
    let late = at(0).plus(settings.window * 2);
    assert_eq!(window.failures_in_row(&settings, late), 0);
    window.count(false, &settings, late);
    assert!(
        !window.is_too_bad(&settings, late),
        "the others are too old"
    );
    for _ in 1..limit {
        window.count(false, &settings, late);
    }
    assert!(window.is_too_bad(&settings, late));
}
