//! The worlds that the tables and the rules share, each in a state that real commands led to.

use super::world::{BAD, GOOD, LEASE, MONTH, World, hold, limited, probe, retry};
use crate::policy::Policy;

/// Submitted and never tried.
pub(super) fn submitted() -> World {
    World::new(hold()).then(World::submit)
}

/// Submitted to the queue `mail`, and never tried.
pub(super) fn queued() -> World {
    World::new(limited(10, hold())).then(|w| w.queue("mail"))
}

/// `a` said `not_done`, and attempts are left.
pub(super) fn released() -> World {
    running(hold()).then(|w| w.not_done("a"))
}

/// Waits for an attempt while `a` is open and `b` said `not_done`.
pub(super) fn pending_with_open() -> World {
    running_second(retry()).then(|w| w.not_done("b"))
}

/// A person said that the unspoken `a` did nothing, and attempts are left.
pub(super) fn resolved_to_pending() -> World {
    doubtful(hold()).then(World::resolve_not_done)
}

/// `a` runs.
pub(super) fn running(policy: Policy) -> World {
    World::new(policy).then(|w| w.begin("a"))
}

/// `b` runs while `a` is open.
pub(super) fn running_second(policy: Policy) -> World {
    doubtful(policy).then(|w| w.begin("b"))
}

/// `b` runs after `a` said `not_done`.
pub(super) fn running_after_release() -> World {
    released().then(|w| w.begin("b"))
}

/// `b` runs, and `a` came back with [`GOOD`] meanwhile.
pub(super) fn running_with_evidence() -> World {
    running_second(retry()).then(|w| w.done("a", GOOD))
}

/// `p` probes while `a` is open.
pub(super) fn probing(policy: Policy) -> World {
    doubtful(policy).wait(LEASE + 10).then(|w| w.begin("p"))
}

/// `p` probes, and `a` said meanwhile that it did nothing: there is nothing to look up any more.
pub(super) fn probing_nothing(policy: Policy) -> World {
    probing(policy).then(|w| w.not_done("a"))
}

/// `a` said that it does not know.
pub(super) fn doubtful(policy: Policy) -> World {
    running(policy).then(|w| w.unknown("a"))
}

/// `a` said nothing until its lease ended, and that is written.
pub(super) fn lapsed(policy: Policy) -> World {
    running(policy).wait(LEASE).then(World::expire)
}

/// `a` and `b` are both open, and both unspoken.
pub(super) fn doubtful_twice(policy: Policy) -> World {
    running_second(policy).then(|w| w.unknown("b"))
}

/// Out of attempts after `b` said `not_done`, but `a` is open.
pub(super) fn exhausted_with_open() -> World {
    running_second(limited(2, retry())).then(|w| w.not_done("b"))
}

/// `b` rejected it, but `a` is open.
pub(super) fn rejected_with_open() -> World {
    running_second(retry()).then(|w| w.reject("b"))
}

/// `q` probes while `a` is open, after `b` rejected what a person had asked to retry.
pub(super) fn probing_rejected() -> World {
    probing(probe())
        .then(|w| w.done("p", BAD))
        .then(World::retry)
        .then(|w| w.begin("b"))
        .then(|w| w.reject("b"))
        .wait(LEASE + 10)
        .then(|w| w.begin("q"))
}

/// `a` settled it in success.
pub(super) fn succeeded() -> World {
    running(hold()).then(|w| w.done("a", GOOD))
}

/// `a` settled it in failure.
pub(super) fn failed() -> World {
    running(hold()).then(|w| w.done("a", BAD))
}

/// The last attempt `a` said `not_done`.
pub(super) fn dead() -> World {
    running(limited(1, hold())).then(|w| w.not_done("a"))
}

/// The last attempt `a` said that it does not know.
pub(super) fn resolvable_to_dead() -> World {
    doubtful(limited(1, hold()))
}

/// A person said that the last attempt, the unspoken `a`, did nothing.
pub(super) fn resolved_to_dead() -> World {
    resolvable_to_dead().then(World::resolve_not_done)
}

/// Settled in success, and past its retention.
pub(super) fn tombstone() -> World {
    succeeded().wait(MONTH).then(World::bury)
}

/// Settled in success, and forgotten.
pub(super) fn stub() -> World {
    succeeded().then(World::forget)
}

/// Never heard of.
pub(super) fn absent() -> World {
    World::new(hold())
}
