//! The checker can fail: histories that no ledger gives are rejected, and those beside them are not.

use std::time::Duration;

use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// One call: who, from when to when (`None`: never), what, and the answer.
fn call(pid: u32, called: u64, back: u64, ask: Ask, answer: Answer) -> Exchange {
    Exchange {
        pid,
        ask,
        called,
        back: Some((back, answer)),
    }
}

fn lost(pid: u32, called: u64, ask: Ask) -> Exchange {
    Exchange {
        pid,
        ask,
        called,
        back: None,
    }
}

fn granted(fence: u64) -> Answer {
    let lease = LEASE;
    Answer::Granted { fence, lease }
}

fn done(fence: u64, answer: &str) -> Ask {
    Ask::Done(fence, answer.to_owned())
}

fn settled(answer: &str) -> Answer {
    Answer::Settled(answer.to_owned())
}

fn replay(answer: &str) -> Answer {
    Answer::Replay(answer.to_owned())
}

/// Whether the calls of a key can be put into an order, with these fences in the log.
fn linear(key: &str, exchanges: &[Exchange], fences: &[u64]) -> bool {
    linear_with(key, exchanges, fences, &[])
}

/// As [`linear`], where the leases of some attempts were renewed.
fn linear_with(key: &str, exchanges: &[Exchange], granted: &[u64], renewed: &[u64]) -> bool {
    let exchanges = BTreeMap::from([(key.to_owned(), exchanges.to_vec())]);
    let attempts = Attempts {
        granted: granted.iter().copied().collect(),
        renewed: renewed.iter().copied().collect(),
    };
    let attempts = BTreeMap::from([(key.to_owned(), attempts)]);
    check(&exchanges, &attempts).is_ok()
}

#[test]
fn an_ordinary_history_is_accepted() {
    let history = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        call(2, 5, 15, Ask::Begin, Answer::InFlight),
        call(1, 20, 40, done(1, "a"), settled("a")),
        // Both see the moment of the settlement.
        call(2, 25, 30, Ask::Begin, Answer::InFlight),
        call(3, 25, 35, Ask::Begin, replay("a")),
        call(2, 50, 60, Ask::Begin, replay("a")),
    ];
    assert!(linear("hold-1", &history, &[1]));
}

#[test]
fn a_second_grant_while_one_runs_is_rejected() {
    let history = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        call(2, 20, 30, Ask::Begin, granted(2)),
        call(1, 40, 50, done(1, "a"), Answer::Fenced),
        call(2, 60, 70, done(2, "b"), settled("b")),
    ];
    for key in ["hold-1", "retry-1", "probe-1"] {
        assert!(!linear(key, &history, &[1, 2]), "{key}");
    }
}

#[test]
fn the_same_fence_twice_is_rejected() {
    let history = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        call(2, 5, 15, Ask::Begin, granted(1)),
    ];
    assert!(!linear("retry-1", &history, &[1]));
}

#[test]
fn a_grant_that_the_log_does_not_hold_is_rejected() {
    let history = [call(1, 0, 10, Ask::Begin, granted(1))];
    assert!(linear("hold-1", &history, &[1]));
    assert!(!linear("hold-1", &history, &[]));
}

#[test]
fn a_lost_settlement_is_rejected() {
    let told = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        call(1, 20, 30, done(1, "a"), settled("a")),
    ];
    // Afterwards it is in doubt, still running, or free again.
    for answer in [Answer::InDoubt, Answer::InFlight, granted(2)] {
        let mut history = told.to_vec();
        history.push(call(2, 40, 50, Ask::Begin, answer));
        assert!(!linear("hold-1", &history, &[1, 2]), "{history:?}");
        assert!(!linear("retry-1", &history, &[1, 2]), "{history:?}");
    }
}

#[test]
fn a_fence_that_goes_back_is_rejected() {
    let history = |second| {
        [
            call(1, 0, 10, Ask::Begin, granted(1)),
            call(1, 20, 30, Ask::NotDone(1), Answer::Released),
            call(2, 40, 50, Ask::Begin, granted(2)),
            call(2, 60, 70, Ask::NotDone(2), Answer::Released),
            call(3, 80, 90, Ask::Begin, granted(second)),
        ]
    };
    assert!(linear("hold-1", &history(3), &[1, 2, 3]));
    assert!(!linear("hold-1", &history(1), &[1, 2, 3]));
    assert!(!linear("hold-1", &history(2), &[1, 2, 3]));
}

#[test]
fn a_replay_of_another_answer_is_rejected() {
    let history = |answer| {
        [
            call(1, 0, 10, Ask::Begin, granted(1)),
            call(1, 20, 30, done(1, "a"), settled("a")),
            call(2, 40, 50, Ask::Begin, replay(answer)),
        ]
    };
    assert!(linear("hold-1", &history("a"), &[1]));
    assert!(!linear("hold-1", &history("b"), &[1]));
}

#[test]
fn a_replay_before_the_settlement_was_asked_for_is_rejected() {
    let history = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        call(2, 12, 15, Ask::Begin, replay("a")),
        call(1, 20, 30, done(1, "a"), settled("a")),
    ];
    assert!(!linear("hold-1", &history, &[1]));
}

#[test]
fn a_call_that_never_returned_may_have_happened_or_not() {
    let settles = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        lost(1, 20, done(1, "a")),
    ];
    for answer in [replay("a"), Answer::InFlight, Answer::InDoubt] {
        let mut history = settles.to_vec();
        history.push(call(2, 40, 50, Ask::Begin, answer));
        assert!(linear("hold-1", &history, &[1]), "{history:?}");
    }
    // It cannot have happened and then not.
    let mut history = settles.to_vec();
    history.push(call(2, 40, 50, Ask::Begin, replay("a")));
    history.push(call(2, 60, 70, Ask::Begin, Answer::InDoubt));
    assert!(!linear("hold-1", &history, &[1]));
}

#[test]
fn a_claim_that_never_returned_explains_one_grant_and_no_more() {
    let history = [
        lost(1, 0, Ask::Begin),
        call(2, 20, 30, Ask::Begin, Answer::InDoubt),
        call(9, 40, 50, Ask::Resolve(None), Answer::Resolved),
        call(2, 60, 70, Ask::Begin, granted(2)),
    ];
    assert!(linear("hold-1", &history, &[1, 2]));
    // The log knows of no other claim: there was nothing to be in doubt about.
    assert!(!linear("hold-1", &history, &[2]));
}

#[test]
fn a_doubt_is_held_until_it_is_resolved() {
    let killed = call(1, 0, 10, Ask::Begin, granted(1));
    let again = call(2, 60, 70, Ask::Begin, granted(2));
    let doubt = call(2, 20, 30, Ask::Begin, Answer::InDoubt);
    let resolved = call(9, 40, 50, Ask::Resolve(None), Answer::Resolved);
    let with = [killed.clone(), doubt.clone(), resolved, again.clone()];
    let without = [killed, doubt, again];
    assert!(linear("hold-1", &with, &[1, 2]));
    assert!(!linear("hold-1", &without, &[1, 2]));
}

#[test]
fn a_doubt_is_taken_back_only_by_a_renewal_or_a_clock_that_is_a_little_behind() {
    let history = |after: u64| {
        let again = 30 + after;
        [
            call(1, 0, 10, Ask::Begin, granted(1)),
            call(2, 20, 30, Ask::Begin, Answer::InDoubt),
            call(2, again, again + 10, Ask::Begin, Answer::InFlight),
            call(1, again + 20, u64::MAX - 1, done(1, "a"), settled("a")),
        ]
    };
    let (soon, later) = (CLOCK_BEHIND / 2, CLOCK_BEHIND * 2);
    assert!(linear_with("hold-1", &history(later), &[1], &[1]));
    assert!(!linear_with("hold-1", &history(later), &[1], &[]));
    assert!(linear_with("hold-1", &history(soon), &[1], &[]));
}

#[test]
fn a_late_settlement_stands_only_where_no_newer_attempt_has_settled() {
    let beginning = [
        call(1, 0, 10, Ask::Begin, granted(1)),
        // The first one's lease is over.
        call(2, 20, 30, Ask::Begin, granted(2)),
        call(2, 40, 50, done(2, "b"), settled("b")),
    ];
    let late = |answer| call(1, 60, 70, done(1, "a"), answer);
    let stored = Answer::Stored("b".to_owned());
    for (answer, possible) in [(stored, true), (settled("a"), false)] {
        let mut history = beginning.to_vec();
        history.push(late(answer));
        // It spoke long after its lease.
        history[3].back.as_mut().expect("it returned").0 = u64::MAX - 1;
        assert_eq!(linear("retry-1", &history, &[1, 2]), possible);
    }
}
