//! Which reports may be committed together with their effect: those that settle, and no other.

use super::states::*;
use super::world::*;
use crate::ledger::{Command, Decision};

/// Says whether the effect of an attempt may be committed with this report.
fn settles(world: &World, report: impl Fn(&World) -> Command) -> bool {
    match world.ask(report) {
        Ok(Decision::Write(write)) => write.settles(world.record.as_ref()),
        Ok(Decision::Answer(_)) | Err(_) => false,
    }
}

#[test]
fn the_attempt_that_runs_may_commit_its_effect_also_when_it_is_late() {
    assert!(settles(&running(hold()), |w| w.done("a", GOOD)));
    assert!(settles(&running(hold()).wait(LEASE), |w| w.done("a", GOOD)));
    assert!(settles(&running_second(retry()), |w| w.done("b", GOOD)));
}

#[test]
fn a_late_attempt_may_commit_its_effect_while_nobody_else_acts() {
    for world in [pending_with_open(), resolved_to_pending(), doubtful(hold())] {
        assert!(settles(&world, |w| w.done("a", GOOD)), "{world:?}");
    }
    let dead = doubtful(limited(1, hold())).then(World::resolve_not_done);
    assert_eq!(dead.operation().state, crate::ledger::State::Dead);
    assert!(settles(&dead, |w| w.done("a", GOOD)));
}

#[test]
fn an_effect_is_not_committed_with_a_report_that_is_only_kept_as_evidence() {
    let second = running_second(retry());
    let Ok(Decision::Write(kept)) = second.ask(|w| w.done("a", GOOD)) else {
        panic!("it is kept");
    };
    assert!(!kept.settles(second.record.as_ref()));
}

#[test]
fn an_effect_is_not_committed_beside_one_that_evidence_tells_of() {
    for world in [
        running_with_evidence(),
        // The end of the lease settles by the evidence, and the report agrees with it.
        running_with_evidence().wait(LEASE),
    ] {
        assert!(!settles(&world, |w| w.done("b", GOOD)), "{world:?}");
        assert!(!settles(&world, |w| w.done("b", OTHER)), "{world:?}");
    }
}

#[test]
fn an_effect_is_not_committed_once_the_operation_is_settled() {
    let settled = running_second(retry()).then(|w| w.done("b", GOOD));
    // The same again, the first word of the older attempt, and a contradiction.
    assert!(!settles(&settled, |w| w.done("b", GOOD)));
    assert!(!settles(&settled, |w| w.done("a", GOOD)));
    assert!(!settles(&settled, |w| w.done("a", OTHER)));
}

#[test]
fn an_effect_is_not_committed_with_a_report_that_leaves_the_operation_open() {
    assert!(!settles(&running(hold()), |w| w.not_done("a")));
    assert!(!settles(&running(hold()), |w| w.unknown("a")));
}
