//! Every cell of the table: what is asked in each phase, and what is decided.

use Cell::{Answer, Refused, Writes};
use PhaseKind::{Closed, HalfOpen, Open};

use super::*;

/// Checks cells of one phase: what is asked, when, and what is decided.
#[track_caller]
fn check<const N: usize>(world: &World, cells: [(Command, Timestamp, Cell); N]) {
    for (n, (command, now, expected)) in cells.iter().enumerate() {
        let decided = cell(world, command, *now);
        assert_eq!(&decided, expected, "cell {n}: {command:?} at {now}");
    }
}

fn admitted(fence: u64) -> Cell {
    Answer(Reply::Admitted(Admitted {
        fence: Fence(fence),
        probe_until: None,
    }))
}

fn open_until(at: Timestamp) -> Cell {
    Refused(Rejection::BreakerOpen { retry_at: Some(at) })
}

fn open_for_ever() -> Cell {
    Refused(Rejection::BreakerOpen { retry_at: None })
}

fn already(phase: PhaseKind) -> Cell {
    Answer(Reply::Ordered {
        phase,
        repeated: true,
    })
}

fn opening(fence: u64) -> Command {
    ask(Act::Open(order(fence), None))
}

fn closing(fence: u64) -> Command {
    ask(Act::Close(order(fence)))
}

fn resetting(fence: u64) -> Command {
    ask(Act::Reset(order(fence)))
}

#[test]
fn nobody_knows_anything_so_calls_go_through_and_the_first_report_makes_it() {
    check(
        &World::default(),
        [
            (admit(1), START, admitted(0)),
            (
                report(0, None, 1, 0, START),
                START,
                Writes(Closed, Event::BreakerCounted, 0),
            ),
            (
                report(0, None, 0, 3, START),
                START,
                Writes(Open, Event::BreakerOpened, 1),
            ),
            (report(7, None, 0, 3, START), START, Answer(Reply::Ignored)),
        ],
    );
}

#[test]
fn a_person_can_open_what_nobody_knows_and_do_nothing_else_about_it() {
    check(
        &World::default(),
        [
            (opening(0), START, Writes(Open, Event::BreakerOpened, 1)),
            (opening(1), START, Refused(Rejection::Fenced)),
            (closing(0), START, Refused(Rejection::NotFound)),
            (resetting(0), START, Refused(Rejection::NotFound)),
        ],
    );
}

#[test]
fn while_it_is_closed_everything_goes_through_and_the_third_failure_in_a_row_opens_it() {
    check(
        &World::closed(),
        [
            (admit(1), START, admitted(0)),
            (
                report(0, None, 1, 0, START),
                START,
                Writes(Closed, Event::BreakerCounted, 0),
            ),
            (
                report(0, None, 1, 1, START),
                START,
                Writes(Closed, Event::BreakerCounted, 0),
            ),
            (
                report(0, None, 0, 1, START),
                START,
                Writes(Open, Event::BreakerOpened, 1),
            ),
            (report(1, None, 0, 9, START), START, Answer(Reply::Ignored)),
        ],
    );
}

#[test]
fn a_person_opens_and_resets_what_is_closed() {
    check(
        &World::closed(),
        [
            (opening(0), START, Writes(Open, Event::BreakerOpened, 1)),
            (closing(0), START, already(Closed)),
            (resetting(0), START, Writes(Closed, Event::BreakerReset, 1)),
            (resetting(1), START, Refused(Rejection::Fenced)),
        ],
    );
}

#[test]
fn while_it_is_open_nothing_goes_through_before_its_time_and_then_one_call() {
    check(
        &World::open(),
        [
            (admit(1), START, open_until(at(10))),
            (admit(1), at(9), open_until(at(10))),
            (
                admit(1),
                at(10),
                Writes(HalfOpen, Event::BreakerHalfOpen, 2),
            ),
        ],
    );
}

#[test]
fn a_clock_that_went_back_by_more_than_the_whole_wait_is_not_believed() {
    check(
        &World::open(),
        [
            (admit(1), START.minus(SECOND * 10), open_until(at(10))),
            (
                admit(1),
                START.minus(SECOND * 11),
                Writes(HalfOpen, Event::BreakerHalfOpen, 2),
            ),
        ],
    );
}

#[test]
fn while_it_is_open_reports_of_calls_from_before_say_nothing() {
    check(
        &World::open(),
        [
            (report(0, None, 9, 0, START), at(1), Answer(Reply::Ignored)),
            (report(0, None, 0, 9, START), at(1), Answer(Reply::Ignored)),
            (
                report(1, Some(1), 1, 0, START),
                at(1),
                Answer(Reply::Ignored),
            ),
        ],
    );
}

#[test]
fn a_person_decides_about_what_is_open_on_the_fence_that_they_saw() {
    check(
        &World::open(),
        [
            (opening(1), at(1), Writes(Open, Event::BreakerOpened, 2)),
            (opening(0), at(1), Refused(Rejection::Fenced)),
            (closing(1), at(1), Writes(Closed, Event::BreakerClosed, 2)),
            (closing(0), at(1), Refused(Rejection::Fenced)),
            (resetting(1), at(1), Writes(Closed, Event::BreakerReset, 2)),
        ],
    );
}

#[test]
fn while_it_is_half_open_the_probe_goes_on_and_others_wait_until_it_is_silent() {
    check(
        &World::half_open(),
        [
            (admit(2), at(11), open_until(at(12))),
            (
                admit(1),
                at(11),
                Writes(HalfOpen, Event::BreakerProbeRenewed, 2),
            ),
            (admit(2), at(69).plus(SECOND / 2), open_until(at(70))),
            (
                admit(2),
                at(70),
                Writes(HalfOpen, Event::BreakerHalfOpen, 3),
            ),
            // The clock went back by more than the whole wait.
            (
                admit(2),
                START.minus(SECOND * 51),
                Writes(HalfOpen, Event::BreakerHalfOpen, 3),
            ),
        ],
    );
}

#[test]
fn the_probe_alone_tells_what_became_of_it() {
    check(
        &World::half_open(),
        [
            (
                report(2, Some(1), 1, 0, START),
                at(11),
                Writes(Closed, Event::BreakerClosed, 3),
            ),
            (
                report(2, Some(1), 0, 1, START),
                at(11),
                Writes(Open, Event::BreakerOpened, 3),
            ),
            // Late, but nobody took over.
            (
                report(2, Some(1), 1, 0, START),
                at(99),
                Writes(Closed, Event::BreakerClosed, 3),
            ),
            (
                report(2, Some(2), 1, 0, START),
                at(11),
                Answer(Reply::Ignored),
            ),
            (report(2, None, 1, 0, START), at(11), Answer(Reply::Ignored)),
            (report(0, None, 9, 0, START), at(11), Answer(Reply::Ignored)),
            (
                report(1, Some(1), 1, 0, START),
                at(11),
                Answer(Reply::Ignored),
            ),
        ],
    );
}

#[test]
fn a_probe_that_never_came_to_call_leaves_its_place_to_another() {
    check(
        &World::half_open(),
        [
            (
                report(2, Some(1), 0, 0, START),
                at(11),
                Writes(Open, Event::BreakerProbeReturned, 3),
            ),
            (
                report(2, Some(2), 0, 0, START),
                at(11),
                Answer(Reply::Ignored),
            ),
        ],
    );
}

#[test]
fn a_person_decides_while_a_probe_is_under_way() {
    check(
        &World::half_open(),
        [
            (opening(2), at(11), Writes(Open, Event::BreakerOpened, 3)),
            (closing(2), at(11), Writes(Closed, Event::BreakerClosed, 3)),
            (resetting(2), at(11), Writes(Closed, Event::BreakerReset, 3)),
        ],
    );
}

#[test]
fn what_a_person_opened_only_a_person_ends() {
    check(
        &World::forced(),
        [
            (admit(1), START, open_for_ever()),
            (admit(1), at(1_000_000), open_for_ever()),
            (report(1, None, 9, 0, START), at(1), Answer(Reply::Ignored)),
            (opening(0), at(1), already(Open)),
            (closing(1), at(1), Writes(Closed, Event::BreakerClosed, 2)),
            (resetting(1), at(1), Writes(Closed, Event::BreakerReset, 2)),
        ],
    );
}
