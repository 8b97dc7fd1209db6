//! Tasks: what they are given, how long they wait, and in which line they stand.

use core::time::Duration;

use super::world::{GOOD, LEASE, START, WINDOW, World, hold, id, label, limited, probe, retry};
use crate::ledger::{Decision, Reply, StateKind as S};
use crate::policy::Policy;
use crate::queue::{
    Backoff, LineChange, Priority, QueueHash, RETRY_AFTER_MAX, Spot, Standing, Task, lane_hash,
};
use crate::retry::backoff;
use crate::text::Namespace;
use crate::time::Timestamp;
use crate::verdict::Verdict;

fn task(priority: i64, lane: Option<&str>) -> Task {
    Task {
        priority: Priority::new(priority).expect("the priority is valid"),
        lane: lane.map(label),
        ..Task::default()
    }
}

fn queued(policy: Policy) -> World {
    World::new(policy).then(|w| w.submit_task("mail", Task::default()))
}

fn spot(world: &World) -> Option<Spot> {
    world.record.as_ref().and_then(Spot::of)
}

fn standing(world: &World) -> Option<Standing> {
    spot(world).map(|spot| spot.standing)
}

fn waiting(at: Timestamp) -> Option<Standing> {
    waiting_until(at, None)
}

fn waiting_until(at: Timestamp, until: Option<Timestamp>) -> Option<Standing> {
    Some(Standing::Waiting { rank: 0, at, until })
}

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

#[test]
fn a_task_is_fixed_by_the_submit_that_queues_it() {
    let world = queued(hold()).then(|w| w.work("a"));
    let again = world.ask(|w| w.submit_task("mail", task(5, Some("x"))));
    let direct = World::new(hold())
        .then(World::submit)
        .then(|w| w.submit_task("mail", task(5, Some("x"))));
    assert_eq!(
        direct.operation().task.as_deref(),
        Some(&task(5, Some("x")))
    );
    assert!(matches!(
        again,
        Ok(Decision::Answer(Reply::Submitted { created: false }))
    ));
    assert_eq!(world.operation().task.as_deref(), Some(&Task::default()));
}

#[test]
fn where_a_task_stands_follows_from_its_record() {
    let backed_off = queued(hold())
        .then(|w| w.work("a"))
        .then(|w| w.not_done("a"));
    let run_at = backed_off.operation().run_at.expect("it waits");
    let pause = backoff(Backoff::default(), 1, &id("a"));
    let lapsed = |policy| {
        queued(policy)
            .then(|w| w.work("a"))
            .wait(LEASE)
            .then(World::expire)
    };
    let window_ends = Some(after(WINDOW));
    for (what, world, expected) in [
        ("absent", World::new(hold()), None),
        ("no queue", World::new(hold()).then(World::submit), None),
        ("pending", queued(hold()), waiting(START)),
        (
            "put off",
            World::new(hold()).then(|w| w.submit_to(Some("mail"), Some(after(9)))),
            waiting(after(9)),
        ),
        (
            "running",
            queued(hold()).then(|w| w.work("a")),
            Some(Standing::Taken),
        ),
        (
            "renewed",
            queued(hold())
                .then(|w| w.work("a"))
                .wait(1)
                .then(|w| w.renew("a")),
            Some(Standing::Taken),
        ),
        ("released", backed_off, waiting(run_at)),
        ("held doubt", lapsed(hold()), None),
        (
            "waived doubt",
            lapsed(retry()),
            waiting_until(after(LEASE).plus(pause), window_ends),
        ),
        ("doubt without attempts", lapsed(limited(1, retry())), None),
        (
            "doubt to look up",
            lapsed(probe()),
            Some(Standing::Waiting {
                rank: 101,
                at: after(LEASE + 10),
                until: None,
            }),
        ),
        (
            "succeeded",
            queued(hold())
                .then(|w| w.work("a"))
                .then(|w| w.done("a", GOOD)),
            None,
        ),
        (
            "rejected",
            queued(hold()).then(|w| w.work("a")).then(|w| w.reject("a")),
            None,
        ),
        (
            "retried",
            queued(hold())
                .then(|w| w.work("a"))
                .then(|w| w.reject("a"))
                .then(World::retry),
            waiting(START),
        ),
        ("cancelled", queued(hold()).then(World::cancel), None),
    ] {
        assert_eq!(standing(&world), expected, "{what}");
    }
}

#[test]
fn a_waived_task_that_was_released_waits_within_its_window_only() {
    let world = queued(retry())
        .then(|w| w.work("a"))
        .wait(LEASE)
        .then(World::expire)
        .then(|w| w.work("b"))
        .then(|w| w.not_done("b"));
    let run_at = world.operation().run_at.expect("it waits");
    assert_eq!(standing(&world), waiting_until(run_at, Some(after(WINDOW))));
    // What the line says no more, the ledger refuses.
    let late = world.wait(WINDOW);
    assert!(late.ask(|w| w.work("c")).is_err());
}

#[test]
fn priorities_and_lanes_are_part_of_the_spot() {
    let world = World::new(hold()).then(|w| w.submit_task("mail", task(7, Some("agent-1"))));
    let expected = Spot {
        queue: QueueHash::of(&Namespace::default(), &label("mail")),
        lane: lane_hash(Some(&label("agent-1"))),
        standing: Standing::Waiting {
            rank: -7,
            at: START,
            until: None,
        },
    };
    assert_eq!(spot(&world), Some(expected));
    assert_ne!(lane_hash(Some(&label("agent-2"))), expected.lane);
    assert_eq!(lane_hash(None), 0);
}

#[test]
fn a_queue_is_another_one_behind_another_wall() {
    let walls = ["a", "ab"].map(|wall| Namespace::new(wall).expect("a namespace"));
    let hashes = [
        QueueHash::of(&walls[0], &label("mail")),
        QueueHash::of(&walls[1], &label("mail")),
        QueueHash::of(&walls[0], &label("bmail")),
    ];
    for (n, hash) in hashes.iter().enumerate() {
        assert!(!hashes[n + 1..].contains(hash));
    }
    // Fixed for ever: it is stored.
    assert_eq!(
        QueueHash::of(&Namespace::default(), &label("mail")),
        QueueHash(7_189_161_035_989_696_467)
    );
    assert_eq!(
        lane_hash(Some(&label("agent-1"))),
        1_430_511_317_287_384_581
    );
}

#[test]
fn a_line_changes_when_a_spot_does() {
    let before = queued(hold());
    let renewed = |world: &World| world.clone().wait(1).then(|w| w.renew("a"));
    let taken = before.clone().then(|w| w.work("a"));
    let between =
        |from: &World, to: &World| LineChange::between(from.record.as_ref(), to.record.as_ref());
    let change = between(&before, &taken);
    assert_eq!(
        (change.leaves, change.enters),
        (spot(&before), spot(&taken))
    );
    assert_eq!(change.offers(), None);
    assert_eq!(between(&taken, &renewed(&taken)), LineChange::default());
    let submitted = between(&World::new(hold()), &before);
    assert_eq!(submitted.offers(), spot(&before).map(|spot| spot.queue));
    assert_eq!(submitted.leaves, None);
}

#[test]
fn a_task_waits_as_long_as_it_was_told_to_at_least() {
    let told = |seconds: u64| {
        let world = queued(hold()).then(|w| w.work("a"));
        let verdict = Verdict::NotDone {
            reject: false,
            error: None,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        world.then(|w| w.settle("a", verdict.clone()))
    };
    assert_eq!(told(3_600).operation().run_at, Some(after(3_600)));
    assert!(told(0).operation().run_at.is_some_and(|at| at <= after(1)));
    let most = START.plus(RETRY_AFTER_MAX);
    assert_eq!(told(u64::MAX / 2_000_000).operation().run_at, Some(most));
}

#[test]
fn a_task_has_a_backoff_of_its_own() {
    let slow = Backoff::new(Duration::from_secs(3_600), Duration::from_secs(86_400));
    let slow = Task {
        backoff: slow.expect("the backoff is valid"),
        ..Task::default()
    };
    let world = World::new(hold()).then(|w| w.submit_task("mail", slow.clone()));
    let waits = (0..50).map(|n| {
        let name = format!("n{n}");
        let world = world
            .clone()
            .then(|w| w.work(&name))
            .then(|w| w.not_done(&name));
        world.operation().run_at.expect("it waits")
    });
    let longest = waits.max().expect("there are fifty");
    assert!(longest > after(3_000) && longest <= after(3_600));
}

#[test]
fn a_direct_operation_that_was_told_to_wait_does_not() {
    let verdict = Verdict::NotDone {
        reject: false,
        error: None,
        retry_after: Some(Duration::from_secs(60)),
    };
    let world = World::new(hold())
        .then(|w| w.begin("a"))
        .then(|w| w.settle("a", verdict.clone()));
    assert_eq!(world.kind(), Some(S::Pending));
    assert_eq!(world.operation().run_at, None);
    assert!(world.ask(|w| w.begin("b")).is_ok());
}
