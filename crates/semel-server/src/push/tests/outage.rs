//! A target that is down for an hour and comes back, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::breaker::Decided;
use semel::core::ledger::{Event, StateKind};
use semel::core::queue::Rate;
use semel::{Label, QueueSettings};
use tokio::time::Instant;

use super::target::{Down, HOUR, Way, World, attempts, retrying};
use crate::push::Push;

const MINUTE: Duration = Duration::from_secs(60);

/// While it is down, each minute but the first has room for one probe after each cool-down: those of 10, 20 and 40 s
/// end within the first two minutes.
const PROBES_A_MINUTE: usize = 3;

/// Cool-downs of 10, 20, 40, 80 and 160 s, then of 5 min until the hour is over; and what was under way when it opened.
const CALLS_MAX: usize = 5 + 11 + 1 + 2 * Push::CONCURRENCY;

fn keys(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

/// Counts calls by the minute in which they came.
fn by_minute(calls: &[Instant], since: Instant) -> BTreeMap<u64, usize> {
    let mut minutes = BTreeMap::new();
    for call in calls.iter().filter(|call| **call >= since) {
        let minute = call.duration_since(since).as_secs() / MINUTE.as_secs();
        *minutes.entry(minute).or_default() += 1;
    }
    minutes
}

/// Sends a few, goes down for an hour in which many are submitted, and comes back; returns what was sent for later.
async fn an_hour(down: Down, settings: QueueSettings) -> (World, Vec<String>) {
    let way = Way::new(Duration::from_millis(200));
    let mut world = World::new(way, settings).await;
    world.start();
    let before = keys("before", 20);
    world.submit(before.clone()).await;
    world.all_succeeded(&before).await;
    assert_eq!(world.events(Event::BreakerOpened), 0);

    world.way.set(Some(down));
    let fell = Instant::now();
    let meanwhile = keys("meanwhile", 300);
    for some in meanwhile.chunks(50) {
        world.submit(some.to_vec()).await;
        tokio::time::sleep(HOUR / 6).await;
    }
    assert_eq!(fell.elapsed().as_secs(), HOUR.as_secs());
    let calls = world.way.got().calls.clone();
    let minutes = by_minute(&calls, fell);
    let all: usize = minutes.values().sum();
    assert!(all <= CALLS_MAX, "{minutes:?}");
    for (minute, calls) in minutes.range(1..) {
        assert!(*calls <= PROBES_A_MINUTE, "minute {minute}: {minutes:?}");
    }
    // It was tried again and again, and nothing got through.
    assert!(minutes.len() >= 10, "{minutes:?}");
    assert_eq!(world.way.got().effects.len(), before.len());
    assert!(world.events(Event::BreakerOpened) >= 10);
    assert_eq!(world.events(Event::BreakerClosed), 0);
    world.way.set(None);
    (world, meanwhile)
}

/// Expects that everything is done, once each, and that nobody was overrun.
async fn all_once(mut world: World, tasks: &[String]) {
    world.all_succeeded(tasks).await;
    world.stop().await;
    {
        let got = world.way.got();
        let once = got.effects.values().all(|count| *count == 1);
        assert!(once, "{:?}", got.effects);
        assert_eq!(got.effects.len(), tasks.len() + 20);
        let most = got.most_at_once;
        assert!(most <= Push::CONCURRENCY, "{most}");
    }
    assert_eq!(world.events(Event::BreakerClosed), 1);
    let view = world.breaker().view().await.expect("the store works");
    assert_eq!(view.expect("it is known").state, "closed");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_there_for_an_hour_and_no_task_is_lost() {
    let (world, tasks) = an_hour(Down::Refuses, QueueSettings::default()).await;
    all_once(world, &tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_overloaded_for_an_hour_is_left_alone() {
    let (world, tasks) = an_hour(Down::Answers(429), QueueSettings::default()).await;
    all_once(world, &tasks).await;
}

#[tokio::test(start_paused = true)]
async fn doubts_are_tried_again_where_the_queue_says_so() {
    let (world, tasks) = an_hour(Down::Answers(503), retrying()).await;
    all_once(world, &tasks).await;
}

#[tokio::test(start_paused = true)]
async fn doubts_are_held_and_the_others_are_sent() {
    let (mut world, tasks) = an_hour(Down::Answers(503), QueueSettings::default()).await;
    let (mut held, mut sent) = (vec![], vec![]);
    for task in tasks {
        match world.state(&task).await {
            StateKind::Doubtful => held.push(task),
            _ => sent.push(task),
        }
    }
    // Each call that was answered so is a doubt, and nothing else is.
    assert!(!held.is_empty() && held.len() <= CALLS_MAX, "{held:?}");
    world.all_succeeded(&sent).await;
    world.stop().await;
    for task in &held {
        assert_eq!(world.state(task).await, StateKind::Doubtful, "{task}");
        assert_eq!(world.way.got().effects.get(task), None, "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_backlog_drains_at_the_queues_rate() {
    let rate: Rate = "10/s".parse().expect("a rate");
    let settings = QueueSettings {
        rate: Some(rate),
        ..QueueSettings::default()
    };
    let (world, tasks) = an_hour(Down::Refuses, settings).await;
    let back = Instant::now();
    world.all_succeeded(&tasks).await;
    let mut seconds = BTreeMap::<u64, usize>::new();
    for call in &world.way.got().calls {
        if let Some(since) = call.checked_duration_since(back) {
            *seconds.entry(since.as_secs()).or_default() += 1;
        }
    }
    // A rate lets through what an idle second left, and one at either edge of a second.
    let seconds: Vec<usize> = seconds.into_values().collect();
    assert!(seconds.len() >= 25, "{seconds:?}");
    assert!(seconds[0] <= 20, "{seconds:?}");
    assert!(seconds[1..].iter().all(|each| *each <= 11), "{seconds:?}");
    all_once(world, &tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_task_outlives_a_target_that_is_not_there() {
    let way = Way::new(Duration::from_millis(200));
    let mut world = World::new(way, QueueSettings::default()).await;
    world.way.set(Some(Down::Refuses));
    world.start();
    world.submit(keys("alone", 1)).await;
    tokio::time::sleep(HOUR).await;
    // The calls that opened the breaker were attempts; those that looked for the target were not.
    assert_eq!(world.record("alone-0").await.attempt, 5);
    assert!(world.counts.probes() >= 10);
    world.way.set(None);
    world.all_succeeded(&keys("alone", 1)).await;
    world.stop().await;
    assert_eq!(world.way.got().effects["alone-0"], 1);
    assert_eq!(world.record("alone-0").await.attempt, 6);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_claims_nothing() {
    let way = Way::new(Duration::from_millis(200));
    let mut world = World::new(way, QueueSettings::default()).await;
    let ann = || Decided::by(Label::new("ann").expect("a label"));
    let opened = world.breaker().open(ann(), None).await;
    opened.expect("it opens");
    world.start();
    let tasks = keys("task", 20);
    world.submit(tasks.clone()).await;
    tokio::time::sleep(HOUR).await;
    for task in &tasks {
        let record = world.record(task).await;
        assert_eq!((record.attempt, record.fence.0), (0, 0), "{task}");
    }
    assert_eq!(world.way.got().calls.len(), 0);
    world.breaker().close(ann()).await.expect("it closes");
    world.all_succeeded(&tasks).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_place_of_the_probe_is_left_to_others_while_nothing_is_due() {
    let way = Way::new(Duration::from_millis(200));
    let mut world = World::new(way, QueueSettings::default()).await;
    let ann = Decided::by(Label::new("ann").expect("a label"));
    let opened = world.breaker().open(ann, Some(MINUTE)).await;
    opened.expect("it opens");
    world.start();
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.events(Event::BreakerHalfOpen), 0);
    let tasks = keys("task", 20);
    world.submit(tasks.clone()).await;
    world.all_succeeded(&tasks).await;
    world.stop().await;
    assert_eq!(world.events(Event::BreakerHalfOpen), 1);
    assert_eq!(world.counts.probes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_nothing_more_and_follows_what_is_under_way() {
    let way = Way::new(Duration::from_secs(20));
    let settings = QueueSettings {
        concurrency: attempts(2),
        ..QueueSettings::default()
    };
    let mut world = World::new(way, settings).await;
    world.start();
    let tasks = keys("task", 5);
    world.submit(tasks.clone()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.counts.under_way(), 2);
    world.stop().await;
    let mut states = BTreeMap::<_, usize>::new();
    for task in &tasks {
        *states.entry(world.state(task).await.as_str()).or_default() += 1;
    }
    assert_eq!(states, BTreeMap::from([("pending", 3), ("succeeded", 2)]));
    assert_eq!(world.way.got().effects.len(), 2);
    // Nobody had those that wait.
    for task in &tasks {
        assert!(world.record(task).await.attempt <= 1, "{task}");
    }
    assert_eq!(world.counts.under_way(), 0);
}
