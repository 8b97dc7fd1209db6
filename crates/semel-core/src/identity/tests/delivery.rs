use super::Observation::*;
use super::*;
use crate::ledger::Delivery::{Delivered, Undelivered, Unknown};

/// So long after a call that nobody takes it for the retry of another that goes now.
const LATER: Timestamp = Timestamp(NOW.0 + 60_000_000);

const TICK: Duration = Duration::from_millis(1);

const ALL: [Observation; 9] = [
    Written,
    PutOff,
    NotWritten,
    Cancelled,
    Closed,
    Reset,
    RepeatedHere,
    Acknowledged,
    WentOn,
];

#[test]
fn an_answer_is_delivered_when_it_was_written_first_and_proved_after() {
    let cases: &[(&[Observation], Delivery)] = &[
        (&[], Unknown),
        (&[Written], Unknown),
        (&[Written, RepeatedHere], Delivered),
        (&[Written, Acknowledged], Delivered),
        (&[Written, WentOn], Delivered),
        // A proof before the answer is none.
        (&[RepeatedHere, Written], Unknown),
        (&[Acknowledged, Written], Unknown),
        (&[WentOn, Written], Unknown),
        // Gone before the answer: nothing proves it afterwards.
        (&[Cancelled, Written, WentOn], Undelivered),
        (&[Closed, Written, Acknowledged], Undelivered),
        (&[Reset], Undelivered),
        (&[NotWritten, WentOn], Undelivered),
        // A close in good order after the answer: the connection proves no more, the conversation does.
        (&[Written, Closed], Unknown),
        (&[Written, Closed, Acknowledged], Unknown),
        (&[Written, Closed, RepeatedHere], Unknown),
        (&[Written, Closed, WentOn], Delivered),
        (&[Written, Acknowledged, Closed], Delivered),
        // Cancelled or reset after the answer: downgraded, for good.
        (&[Written, Cancelled], Undelivered),
        (&[Written, Reset], Undelivered),
        (&[Written, Acknowledged, Cancelled], Undelivered),
        (&[Written, Acknowledged, Reset], Undelivered),
        (&[Written, WentOn, Cancelled, WentOn], Undelivered),
        (&[Written, NotWritten], Undelivered),
        // Told to come again: however well that arrived, the outcome did not.
        (&[PutOff, Acknowledged], Undelivered),
        (&[PutOff, WentOn], Undelivered),
        (&[PutOff, Written, WentOn], Undelivered),
    ];
    for (seen, delivery) in cases {
        let exchange = Exchange::of(seen.iter().copied());
        assert_eq!(exchange.delivery(), *delivery, "{seen:?}");
    }
}

/// Every sequence of up to five observations, against the rule said in one sentence.
#[test]
fn nothing_else_is_ever_delivered() {
    for code in 0..ALL.len().pow(5) {
        let mut digits = code;
        let seen: Vec<Observation> = std::iter::from_fn(|| {
            let next = ALL[digits % ALL.len()];
            digits /= ALL.len();
            Some(next)
        })
        .take(5)
        .collect();
        let written = seen.iter().position(|one| *one == Written);
        let proved = written.is_some_and(|at| {
            let closed = seen[at..].iter().position(|one| *one == Closed);
            let before_close = &seen[at..closed.map_or(seen.len(), |more| at + more)];
            seen[at..].contains(&WentOn)
                || before_close.contains(&RepeatedHere)
                || before_close.contains(&Acknowledged)
        });
        let left_before =
            written.is_some_and(|at| seen[..at].contains(&Closed) || seen[..at].contains(&PutOff));
        let left = [Cancelled, Reset, NotWritten]
            .iter()
            .any(|one| seen.contains(one));
        assert_eq!(
            Exchange::of(seen.iter().copied()).delivery() == Delivered,
            proved && !left_before && !left,
            "{seen:?}"
        );
    }
}

/// The callers of an operation that ran once and was joined by the others.
fn callers(seen: &[&[Observation]]) -> Callers {
    let mut callers = Callers::default();
    let relations = [Relation::First]
        .into_iter()
        .chain([Relation::Joined].into_iter().cycle());
    let entered: Vec<_> = relations
        .zip(seen)
        .map(|(relation, seen)| (callers.enter(relation, NOW).unwrap(), *seen))
        .collect();
    for (id, seen) in entered {
        for observation in seen {
            callers.see(id, *observation, LATER);
        }
    }
    callers
}

#[test]
fn an_operation_is_delivered_when_each_of_its_calls_is() {
    let (told, lost, written, waiting) = (
        &[Written, WentOn][..],
        &[Reset][..],
        &[Written][..],
        &[][..],
    );
    for (seen, delivery, is_waiting) in [
        (&[][..], None, false),
        (&[waiting][..], Some(Unknown), true),
        (&[told], Some(Delivered), false),
        (&[told, told], Some(Delivered), false),
        (&[told, waiting], Some(Unknown), true),
        (&[written, told], Some(Unknown), false),
        // Two calls joined; one of them got nothing, and will come again.
        (&[told, lost], Some(Undelivered), false),
        (&[lost, told], Some(Undelivered), false),
        (&[waiting, lost, written], Some(Undelivered), true),
    ] {
        let callers = callers(seen);
        assert_eq!(
            (callers.mark(), callers.is_waiting()),
            (delivery, is_waiting),
            "{seen:?}"
        );
    }
}

#[test]
fn a_retry_takes_the_place_of_those_that_do_not_wait() {
    let mut held = callers(&[&[Reset], &[], &[Written]]);
    let retry = held.enter(Relation::Retry, NOW).unwrap();
    assert_eq!((held.mark(), held.is_waiting()), (Some(Unknown), true));
    held.see(retry, Reset, LATER);
    assert_eq!(held.mark(), Some(Undelivered));
    // What is seen of a call after its place was taken says nothing any more.
    let mut held = Callers::default();
    let first = held.enter(Relation::First, NOW).unwrap();
    held.see(first, Cancelled, LATER);
    let retry = held.enter(Relation::Retry, NOW).unwrap();
    held.see(retry, Written, LATER);
    held.see(retry, Acknowledged, LATER);
    held.see(first, Reset, LATER);
    assert_eq!(held.mark(), Some(Delivered));
}

/// A client that gives up says so and asks again in one breath; on two connections either may be read first.
#[test]
fn a_retry_that_overtakes_the_word_that_its_caller_gave_up_takes_its_place_too() {
    for (gone, after, mark) in [
        (Cancelled, CROSSING, Delivered),
        (Closed, CROSSING, Delivered),
        (Reset, CROSSING, Delivered),
        (NotWritten, CROSSING, Delivered),
        // Told to come again, it will.
        (PutOff, Duration::ZERO, Undelivered),
        // It gave up for reasons of its own, and will come again.
        (Cancelled, CROSSING + TICK, Undelivered),
    ] {
        for answered in [false, true] {
            let mut held = Callers::default();
            let first = held.enter(Relation::First, NOW.minus(MINUTE)).unwrap();
            let second = held.enter(Relation::Joined, NOW).unwrap();
            let told = |held: &mut Callers| {
                held.see(second, Written, NOW);
                held.see(second, Acknowledged, NOW);
            };
            if answered {
                told(&mut held);
            }
            held.see(first, gone, NOW.plus(after));
            if !answered {
                told(&mut held);
            }
            assert_eq!(held.mark(), Some(mark), "{gone:?}, {after:?}, {answered}");
        }
    }
    // The newest of them has nobody to take its place.
    let mut held = callers(&[&[], &[]]);
    let newest = held.enter(Relation::Joined, NOW).unwrap();
    held.see(newest, Cancelled, NOW);
    assert_eq!(held.mark(), Some(Undelivered));
    // Nor has one whose retry was withdrawn.
    let mut held = Callers::default();
    let first = held.enter(Relation::First, NOW).unwrap();
    let second = held.enter(Relation::Joined, NOW).unwrap();
    held.withdraw(second);
    held.see(first, Cancelled, NOW);
    assert_eq!(held.mark(), Some(Undelivered));
    // What went well before it was taken back is taken back like the rest.
    let mut held = Callers::default();
    let first = held.enter(Relation::First, NOW).unwrap();
    held.see(first, Written, NOW);
    held.see(first, Acknowledged, NOW);
    let second = held.enter(Relation::Joined, NOW).unwrap();
    held.see(second, Reset, NOW);
    held.see(first, Cancelled, NOW);
    assert_eq!(held.mark(), Some(Undelivered));
}

#[test]
fn a_refused_call_belongs_to_no_operation() {
    let mut held = callers(&[&[Written, WentOn]]);
    assert_eq!(held.enter(Relation::Challenged, NOW), None);
    assert_eq!(held.mark(), Some(Delivered));
}

#[test]
fn what_the_door_holds_goes_before_what_the_record_says() {
    let stored = prior(1, StateKind::Succeeded, Undelivered);
    assert_eq!(stored.clone().with(&Callers::default(), NOW), stored);
    let seen = stored.clone().with(&callers(&[&[]]), NOW);
    assert_eq!(
        (seen.delivery, seen.waiting, seen.last_seen),
        (Unknown, true, NOW)
    );
    let seen = stored
        .clone()
        .with(&callers(&[&[Written, WentOn]]), NOW.minus(DAY));
    assert_eq!(
        (seen.delivery, seen.waiting, seen.last_seen),
        (Delivered, false, stored.last_seen)
    );
}
