//! Lines of tasks: those that a queue's workers may take are found in their order, and nothing else is.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use semel::store::{INPUT, Place, Store, Waiting};
use semel_core::ledger::{
    Begin, Command, Expire, Order, Rejection, Reply, Resolution, Resolve, Spec, Submit,
};
use semel_core::queue::{Backoff, Limits, Priority, QueueHash, Task, lane_hash};
use semel_core::{AttemptId, Label, Lease, Namespace, OnDoubt, Payload, Timestamp, Verdict};
use tokio::task::JoinSet;

use super::hand::{AFTER_LEASE, Applied, Asked, hash, settle, spec, stored};
use super::{Bed, cases};

cases![
    behaviour: [
        the_highest_priority_comes_first_and_then_the_oldest,
        lanes_take_turns,
        those_at_the_head_can_be_left_to_others,
        a_task_that_was_put_off_is_found_when_it_is_due,
        a_task_that_was_taken_is_counted_and_found_no_more,
        what_was_not_done_waits_for_its_next_attempt,
        a_doubt_under_hold_is_in_no_line_until_it_is_resolved,
        a_doubt_that_may_be_retried_waits_until_its_window_is_over,
        a_probe_is_due_when_it_may_look,
        what_is_over_is_in_no_line,
        queues_and_namespaces_are_apart,
        a_queue_that_is_attached_later_is_a_line_too,
        what_a_task_is_given_comes_back_and_goes_with_it,
        a_small_input_comes_along_if_asked_for,
        a_crowd_takes_each_task_once,
        a_crowd_takes_no_more_than_the_limits_allow,
    ],
    storage: [a_change_that_lost_its_race_moves_nobody],
];

fn label(text: &str) -> Label {
    Label::new(text).expect("a valid label")
}

fn mails() -> QueueHash {
    QueueHash::of(&Namespace::default(), &label("mails"))
}

/// A task of the queue, with this priority and lane.
fn task(priority: i64, lane: Option<&str>) -> Task {
    Task {
        priority: Priority::new(priority).expect("a valid priority"),
        lane: lane.map(label),
        input: None,
        backoff: Backoff::default(),
    }
}

fn submission(spec: &Spec, task: Task, run_at: Option<Timestamp>) -> Asked {
    let command = Command::Submit(Submit {
        spec: Arc::new(spec.clone()),
        queue: Some(label("mails")),
        run_at,
        task: Some(Arc::new(task)),
    });
    let mut asked = Asked::new(hash(spec), command);
    asked.named = Some(spec.key.clone());
    asked
}

async fn submit(store: &dyn Store, spec: &Spec, task: Task) -> Place {
    let submitted = submission(spec, task, None).apply(store, None).await;
    submitted.expect("it is taken").place()
}

fn take(spec: &Spec, attempt: u128) -> Asked {
    let mut asked = Asked::new(
        hash(spec),
        Command::Begin(Begin {
            spec: Arc::new(spec.clone()),
            attempt: AttemptId::from_random(attempt),
            lease: Lease::DEFAULT,
            holder: None,
            worker: true,
            sighting: None,
        }),
    );
    asked.named = Some(spec.key.clone());
    asked
}

async fn taken(store: &dyn Store, spec: &Spec, attempt: u128) -> Applied {
    let taken = take(spec, attempt).apply(store, None).await;
    taken.expect("it is taken")
}

async fn settled(store: &dyn Store, spec: &Spec, verdict: Verdict) {
    let settled = settle(spec, 1, 1, verdict).apply(store, None).await;
    assert!(settled.expect("it is settled").wrote);
}

fn asking(store: &dyn Store) -> Waiting {
    Waiting {
        queue: mails(),
        now: store.now(),
        after_lane: 0,
        skip: 0,
        limit: 100,
        taken: false,
        inputs: false,
    }
}

async fn look(store: &dyn Store, ask: Waiting) -> Vec<Place> {
    let found = store.waiting(ask).await.expect("it is looked for");
    found.into_iter().map(|stored| stored.place).collect()
}

async fn found(store: &dyn Store) -> Vec<Place> {
    // Whoever looks has its time from a store that has looked.
    store.load(&hash(&spec("any"))).await.expect("it loads");
    look(store, asking(store)).await
}

async fn the_highest_priority_comes_first_and_then_the_oldest(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut places = vec![];
    for (key, priority) in [("a", 0), ("b", -5), ("c", 7), ("d", 0)] {
        places.push(submit(&*store, &spec(key), task(priority, None)).await);
        bed.clock().advance(Duration::from_secs(1));
    }
    let [a, b, c, d] = places[..] else {
        unreachable!("there are four");
    };
    assert_eq!(found(&*store).await, [c, a, d, b]);
    let some = Waiting {
        limit: 2,
        ..asking(&*store)
    };
    assert_eq!(look(&*store, some).await, [c, a]);
}

async fn lanes_take_turns(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut places = vec![];
    for n in 0..4 {
        let key = format!("many-{n}");
        places.push(submit(&*store, &spec(&key), task(0, Some("many"))).await);
        bed.clock().advance(Duration::from_secs(1));
    }
    let few = submit(&*store, &spec("few"), task(0, Some("few"))).await;
    let [first, second, ..] = places[..] else {
        unreachable!("there are four");
    };
    let [many, few_lane] = ["many", "few"].map(|lane| lane_hash(Some(&label(lane))));
    for (after_lane, turns) in [
        (many, [few, first, second]),
        (few_lane, [first, few, second]),
    ] {
        let ask = Waiting {
            after_lane,
            limit: 3,
            ..asking(&*store)
        };
        assert_eq!(look(&*store, ask).await, turns);
    }
}

async fn those_at_the_head_can_be_left_to_others(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut places = vec![];
    for n in 0..4 {
        places.push(submit(&*store, &spec(&format!("t{n}")), task(0, None)).await);
        bed.clock().advance(Duration::from_secs(1));
    }
    for skip in 0..6 {
        let ask = Waiting {
            skip,
            ..asking(&*store)
        };
        assert_eq!(look(&*store, ask).await, places[skip.min(4)..]);
    }
}

async fn a_task_that_was_put_off_is_found_when_it_is_due(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let later = store.now().plus(Duration::from_secs(30));
    let asked = submission(&spec("later"), task(0, None), Some(later));
    let put_off = asked.apply(&*store, None).await.expect("taken").place();
    assert_eq!(found(&*store).await, []);
    bed.clock().advance(Duration::from_secs(31));
    assert_eq!(found(&*store).await, [put_off]);
}

async fn a_task_that_was_taken_is_counted_and_found_no_more(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    submit(&*store, &spec("a"), task(0, Some("ann"))).await;
    submit(&*store, &spec("b"), task(3, None)).await;
    let ann = lane_hash(Some(&label("ann")));
    for (key, attempt, of_ann, all) in [("a", 1, 1, 1), ("b", 2, 1, 2)] {
        taken(&*store, &spec(key), attempt).await;
        for (lane, expected) in [(Some(ann), of_ann), (None, all)] {
            let count = store.taken(mails(), lane, 100).await.expect("counted");
            assert_eq!(count, expected, "{key} {lane:?}");
        }
    }
    assert_eq!(store.taken(mails(), None, 1).await.expect("counted"), 1);
    for (skip, count) in [(0, 2), (1, 1), (2, 0)] {
        let ask = Waiting {
            taken: true,
            skip,
            ..asking(&*store)
        };
        assert_eq!(look(&*store, ask).await.len(), count);
    }
    assert_eq!(found(&*store).await, []);
}

async fn what_was_not_done_waits_for_its_next_attempt(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let place = submit(&*store, &spec("a"), task(0, None)).await;
    taken(&*store, &spec("a"), 1).await;
    let not_done = Verdict::NotDone {
        reject: false,
        error: None,
        retry_after: Some(Duration::from_secs(20)),
    };
    settled(&*store, &spec("a"), not_done).await;
    assert_eq!(store.taken(mails(), None, 9).await.expect("counted"), 0);
    assert_eq!(found(&*store).await, []);
    bed.clock().advance(Duration::from_secs(22));
    assert_eq!(found(&*store).await, [place]);
}

async fn a_doubt_under_hold_is_in_no_line_until_it_is_resolved(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let place = submit(&*store, &spec("a"), task(0, None)).await;
    taken(&*store, &spec("a"), 1).await;
    bed.clock().advance(AFTER_LEASE);
    let expire = Asked::new(hash(&spec("a")), Command::Expire(Expire { gone: None }));
    let doubt = expire.apply(&*store, None).await.expect("it is a doubt");
    assert_eq!(found(&*store).await, []);
    assert_eq!(store.taken(mails(), None, 9).await.expect("counted"), 0);
    let order = Order {
        version: stored(&doubt.current).record.version(),
        by: label("ann"),
        note: None,
    };
    let resolve = Command::Resolve(Resolve {
        order,
        resolution: Resolution::NotDone,
    });
    let resolve = Asked::new(hash(&spec("a")), resolve);
    assert!(resolve.apply(&*store, None).await.expect("resolved").wrote);
    bed.clock().advance(Duration::from_secs(2));
    assert_eq!(found(&*store).await, [place]);
}

async fn a_doubt_that_may_be_retried_waits_until_its_window_is_over(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut spec = spec("a");
    spec.policy.on_doubt = OnDoubt::Retry;
    spec.policy.max_attempts = NonZeroU32::new(5);
    let place = submit(&*store, &spec, task(0, None)).await;
    taken(&*store, &spec, 1).await;
    settled(&*store, &spec, Verdict::Unknown { error: None }).await;
    bed.clock().advance(Duration::from_secs(1));
    assert_eq!(found(&*store).await, [place]);
    bed.clock().advance(spec.policy.retry_within);
    assert_eq!(found(&*store).await, []);
}

async fn a_probe_is_due_when_it_may_look(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let mut spec = spec("a");
    spec.policy.on_doubt = OnDoubt::Probe;
    let place = submit(&*store, &spec, task(0, None)).await;
    taken(&*store, &spec, 1).await;
    settled(&*store, &spec, Verdict::Unknown { error: None }).await;
    bed.clock().advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(found(&*store).await, [place]);
}

async fn what_is_over_is_in_no_line(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let rejected = Verdict::NotDone {
        reject: true,
        error: None,
        retry_after: None,
    };
    let done = Verdict::Done(super::hand::outcome(true, b"x"));
    for (key, verdict) in [("dead", rejected), ("done", done)] {
        submit(&*store, &spec(key), task(0, None)).await;
        taken(&*store, &spec(key), 1).await;
        let mut settle = settle(&spec(key), 1, 1, verdict);
        settle.payload = (key == "done").then(|| super::hand::Brought::Bytes(b"x"[..].into()));
        assert!(settle.apply(&*store, None).await.expect("settled").wrote);
        assert_eq!(found(&*store).await, [], "{key}");
        assert_eq!(store.taken(mails(), None, 9).await.expect("counted"), 0);
    }
}

async fn queues_and_namespaces_are_apart(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let place = submit(&*store, &spec("a"), task(0, None)).await;
    assert_eq!(found(&*store).await, [place]);
    let elsewhere = Namespace::new("elsewhere").expect("a valid namespace");
    for queue in [
        QueueHash::of(&Namespace::default(), &label("parcels")),
        QueueHash::of(&elsewhere, &label("mails")),
    ] {
        let ask = Waiting {
            queue,
            ..asking(&*store)
        };
        assert_eq!(look(&*store, ask).await, []);
    }
}

async fn a_queue_that_is_attached_later_is_a_line_too(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let plain = Command::Submit(Submit {
        spec: Arc::new(spec("a")),
        queue: None,
        run_at: None,
        task: None,
    });
    let mut plain = Asked::new(hash(&spec("a")), plain);
    plain.named = Some(spec("a").key);
    let submitted = plain.apply(&*store, None).await.expect("taken");
    assert_eq!(found(&*store).await, []);
    submit(&*store, &spec("a"), task(0, None)).await;
    assert_eq!(found(&*store).await, [submitted.place()]);
}

async fn what_a_task_is_given_comes_back_and_goes_with_it(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("a");
    // Too long to be kept as it is.
    let given = b"to whom, and what ".repeat(100);
    let with_input = Task {
        input: Some(Payload::of(&given)),
        ..task(0, None)
    };
    let mut asked = submission(&spec, with_input, None);
    asked.input = Some(given.clone().into());
    let place = asked.apply(&*store, None).await.expect("taken").place();
    let input = async || {
        let stream = store.stream(place, INPUT).await.expect("it is read");
        stream
            .into_iter()
            .flat_map(|chunk| chunk.bytes)
            .collect::<Vec<u8>>()
    };
    assert_eq!(input().await, given);
    asked.apply(&*store, None).await.expect("it is known");
    assert_eq!(input().await, given);
    taken(&*store, &spec, 1).await;
    let mut done = settle(&spec, 1, 1, Verdict::Done(super::hand::outcome(true, b"x")));
    done.payload = Some(super::hand::Brought::Bytes(b"x"[..].into()));
    let done = done.apply(&*store, None).await.expect("it is settled");
    assert_eq!(input().await, given, "it outlives the attempt");
    let order = Order {
        version: stored(&done.current).record.version(),
        by: label("ann"),
        note: None,
    };
    let forget = Asked::new(hash(&spec), Command::Forget(order));
    assert!(forget.apply(&*store, None).await.expect("forgotten").wrote);
    assert_eq!(input().await, b"");
}

async fn a_crowd_takes_each_task_once(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let specs: Vec<Spec> = (0..20).map(|n| spec(&format!("t{n}"))).collect();
    for spec in &specs {
        submit(&*store, spec, task(0, None)).await;
    }
    assert_eq!(found(&*store).await.len(), 20);
    let mut crowd = JoinSet::new();
    for worker in 0..4u128 {
        for (n, spec) in specs.iter().enumerate() {
            let (store, asked) = (bed.open().await, take(spec, worker * 100 + n as u128 + 1));
            crowd.spawn(async move { asked.apply(&*store, None).await });
        }
    }
    let all = crowd.join_all().await;
    let replies = all
        .into_iter()
        .map(|applied| applied.expect("it is answered").reply);
    let granted = replies.filter(|reply| matches!(reply, Ok(Reply::Granted(_))));
    assert_eq!(granted.count(), 20);
    assert_eq!(found(&*store).await, []);
    assert_eq!(store.taken(mails(), None, 100).await.expect("counted"), 20);
}

async fn a_crowd_takes_no_more_than_the_limits_allow(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let specs: Vec<Spec> = (0..24).map(|n| spec(&format!("t{n}"))).collect();
    for (n, spec) in specs.iter().enumerate() {
        submit(&*store, spec, task(0, Some(["ann", "bob"][n % 2]))).await;
    }
    let limits = |queue, lane| Limits {
        queue: NonZeroU32::new(queue),
        lane: NonZeroU32::new(lane),
    };
    let mut attempt = 0;
    // Those whom the first rounds took stay where they are.
    for (limits, total, of_ann) in [
        (limits(3, 0), 3, 0..=3),
        (limits(0, 4), 8, 4..=4),
        (limits(9, 6), 9, 4..=5),
        (limits(9, 6), 9, 4..=5),
    ] {
        let mut crowd = JoinSet::new();
        for spec in &specs {
            attempt += 1;
            let (store, mut asked) = (bed.open().await, take(spec, attempt));
            asked.limits = limits;
            crowd.spawn(async move { asked.apply(&*store, None).await });
        }
        for applied in crowd.join_all().await {
            let reply = applied.expect("it is answered").reply;
            assert!(
                matches!(
                    reply,
                    Ok(Reply::Granted(_)) | Err(Rejection::InFlight { .. })
                ),
                "{reply:?}"
            );
        }
        let count = async |lane| store.taken(mails(), lane, 100).await.expect("counted");
        assert_eq!(count(None).await, total, "{limits:?}");
        let ann = count(Some(lane_hash(Some(&label("ann"))))).await;
        assert!(of_ann.contains(&ann), "{limits:?}: {ann}");
    }
    assert_eq!(found(&*store).await.len(), 24 - 9);
}

async fn a_small_input_comes_along_if_asked_for(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let given = [None, Some(b"7".repeat(700)), Some(noise(40_000))];
    for (n, given) in given.iter().enumerate() {
        let spec = spec(&format!("t{n}"));
        let with_input = Task {
            input: given.as_deref().map(Payload::of),
            ..task(0, None)
        };
        let mut asked = submission(&spec, with_input, None);
        asked.input = given.clone().map(Into::into);
        asked.apply(&*store, None).await.expect("it is taken");
    }
    for inputs in [false, true] {
        let ask = Waiting {
            inputs,
            ..asking(&*store)
        };
        let found = store.waiting(ask).await.expect("it is looked for");
        let along: Vec<_> = found
            .iter()
            .map(|stored| stored.payload.as_deref())
            .collect();
        let small = given[1].as_deref().filter(|_| inputs);
        assert_eq!(along[..2], [None, small], "{inputs}");
        // What is large may come or not, and is what was given if it does.
        assert!(along[2].is_none_or(|along| given[2].as_deref() == Some(along)));
    }
}

/// Bytes that cannot be made shorter.
fn noise(length: usize) -> Vec<u8> {
    let blocks = (0u32..).map(|n| semel_core::Digest::of(&n.to_be_bytes()).0);
    blocks.flatten().take(length).collect()
}

async fn a_change_that_lost_its_race_moves_nobody(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("a");
    let place = submit(&*store, &spec, task(0, None)).await;
    let before = store.load(&hash(&spec)).await.expect("it loads");
    let late = take(&spec, 2)
        .change(&before, store.now())
        .expect("a change");
    let rejected = Verdict::NotDone {
        reject: false,
        error: None,
        retry_after: Some(Duration::ZERO),
    };
    taken(&*store, &spec, 1).await;
    settled(&*store, &spec, rejected).await;
    let lost = store.commit(late).await.expect("it is answered");
    assert!(matches!(lost, semel::store::Commit::Conflict(_)));
    bed.clock().advance(Duration::from_secs(2));
    assert_eq!(found(&*store).await, [place]);
    assert_eq!(store.taken(mails(), None, 9).await.expect("counted"), 0);
}
