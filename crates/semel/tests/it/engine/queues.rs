//! Tasks: submitted once, taken once, tried again as their queue says.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::ledger::{Settle, StateKind};
use semel::core::queue::{Backoff, Rate};
use semel::core::{Payload, Verdict};
use semel::{
    Effect, Engine, Failure, Job, Label, OnDoubt, Outcome, QueueSettings, Queueing, Request, Take,
    Taken, Worked, Worker,
};
use tokio::time::Instant;

use super::on_both_stores;
use super::world::{Effects, World, clean, key, lease, until};

on_both_stores![
    a_task_is_submitted_once_and_taken_once,
    another_input_is_refused_and_a_known_task_answers_with_its_state,
    a_worker_that_waits_is_woken,
    whoever_asks_what_is_due_takes_nothing,
    a_taker_that_goes_away_gives_its_tasks_back,
    what_is_not_done_comes_back_and_is_dead_in_the_end_with_every_error,
    a_rejected_task_is_dead_at_once_and_can_be_retried,
    a_handler_can_say_when_it_is_to_be_tried_again,
    retries_keep_to_the_budget_of_their_queue,
    a_worker_that_vanishes_leaves_a_doubt_that_its_late_report_settles,
    a_doubt_is_retried_where_the_queue_says_so,
    workers_of_one_process_share_the_line,
    no_more_are_taken_than_the_queue_allows,
    no_lane_has_more_than_its_share,
    tasks_are_taken_no_faster_than_the_rate,
    a_full_lane_does_not_block_the_others,
    a_handler_that_panics_leaves_a_doubt,
    an_input_that_cannot_be_read_is_rejected,
    a_poison_task_does_not_block_those_behind_it,
    what_has_to_be_looked_up_does_not_block_those_who_cannot,
    many_lanes_of_tasks_that_are_put_off_hide_nobody,
];

fn mails() -> Label {
    Label::new("mails").expect("a label")
}

fn task(name: &str) -> Request {
    Request::new("send", key(name)).input(&name)
}

async fn submit(engine: &Engine, name: &str) {
    let submitted = engine.submit(task(name), Queueing::on(mails())).await;
    assert_eq!(submitted.expect("it is taken").effect, Effect::Created);
}

/// Takes what is due now.
async fn take(engine: &Engine, max: usize) -> Vec<Taken> {
    let take = Take {
        max,
        lease: lease(10),
        ..Take::one(mails())
    };
    let taken = engine.take(&engine.namespace(), &take).await;
    taken.expect("the store works")
}

async fn one(engine: &Engine) -> Taken {
    take(engine, 1).await.pop().expect("a task is due")
}

async fn state(engine: &Engine, name: &str) -> StateKind {
    let record = engine.load(&engine.namespace(), &key(name)).await;
    let record = record.expect("the store works").expect("it is there");
    record.kind_at(engine.store().now())
}

fn with(settings: QueueSettings) -> impl FnOnce(semel::Builder) -> semel::Builder {
    move |builder| builder.queue(mails(), settings)
}

async fn engine_with(world: &World, settings: QueueSettings) -> Engine {
    let builder = Engine::builder().store(Arc::clone(&world.store));
    let builder = with(settings)(builder.sweep_every(None));
    builder.start().await.expect("the engine starts")
}

async fn a_task_is_submitted_once_and_taken_once(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let again = engine.submit(task("mail-7"), Queueing::on(mails())).await;
    let again = again.expect("it is known");
    assert_eq!(
        (again.effect, again.state),
        (Effect::Noop, StateKind::Pending)
    );
    let taken = one(&engine).await;
    assert_eq!(
        (taken.key(), taken.name().as_str()),
        (&key("mail-7"), "send")
    );
    let (permit, input) = taken.permit();
    assert_eq!(input.as_deref(), Some(&b"\"mail-7\""[..]));
    assert!(take(&engine, 9).await.is_empty());
    let other = world.another_engine().await;
    assert!(take(&other, 9).await.is_empty());
    permit
        .done(Effect::Created, &"sent")
        .await
        .expect("settled");
    let after = engine.submit(task("mail-7"), Queueing::on(mails())).await;
    let after = after.expect("it is known");
    assert_eq!(
        (after.state, after.data()),
        (StateKind::Succeeded, Some("\"sent\""))
    );
    clean(&engine).await;
}

async fn another_input_is_refused_and_a_known_task_answers_with_its_state(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let other = Request::new("send", key("mail-7")).input(&"another");
    let refused = engine.submit(other, Queueing::on(mails())).await;
    assert_eq!(refused.expect_err("refused").code(), "key_reused");
    let taken = one(&engine).await;
    assert_eq!(
        taken.input(),
        Some(&b"\"mail-7\""[..]),
        "the first input stays"
    );
    let running = engine.submit(task("mail-7"), Queueing::on(mails())).await;
    assert_eq!(running.expect("it is known").state, StateKind::Running);
}

async fn whoever_asks_what_is_due_takes_nothing(world: World) {
    let engine = world.engine().await;
    let (own, other) = (engine.namespace(), Label::new("others").expect("a label"));
    let due = async |queue: &Label, wait| {
        let due = engine.has_due(&own, queue, wait).await;
        due.expect("the store works")
    };
    assert!(!due(&mails(), Duration::ZERO).await);
    let later = engine.store().now().plus(Duration::from_secs(60));
    let put_off = Queueing::on(mails()).at(later);
    engine
        .submit(task("later"), put_off)
        .await
        .expect("it is taken");
    assert!(!due(&mails(), Duration::ZERO).await);
    // Whoever waits is woken.
    let submitted = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        submit(&engine, "now").await;
    };
    let queue = mails();
    let waited = due(&queue, Duration::from_secs(3_600));
    let (is_due, ()) = tokio::join!(waited, submitted);
    assert!(is_due);
    assert!(!due(&other, Duration::ZERO).await);
    assert_eq!(state(&engine, "now").await, StateKind::Pending);
    let (permit, _) = one(&engine).await.permit();
    assert_eq!(permit.attempt(), 1);
    assert!(!due(&mails(), Duration::ZERO).await);
    permit.done(Effect::Updated, &()).await.expect("it is kept");
}

async fn a_worker_that_waits_is_woken(world: World) {
    let engine = world.engine().await;
    let begun = Instant::now();
    let take = Take {
        wait: Duration::from_secs(60),
        ..Take::one(mails())
    };
    // At none of the moments at which whoever waits polls.
    let later = Duration::from_millis(10_107);
    let submitting = async {
        tokio::time::sleep(later).await;
        submit(&engine, "mail-7").await;
    };
    let namespace = engine.namespace();
    let (taken, ()) = tokio::join!(engine.take(&namespace, &take), submitting);
    assert_eq!(taken.expect("the store works").len(), 1);
    let waited = begun.elapsed();
    assert!(
        (later..later + Duration::from_millis(3)).contains(&waited),
        "{waited:?}"
    );
}

async fn a_taker_that_goes_away_gives_its_tasks_back(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    drop(one(&engine).await);
    until(&engine, &key("mail-7"), StateKind::Pending).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (permit, _) = one(&engine).await.permit();
    assert_eq!(permit.attempt(), 2);
    permit.done(Effect::Created, &1).await.expect("settled");
    clean(&engine).await;
}

async fn what_is_not_done_comes_back_and_is_dead_in_the_end_with_every_error(world: World) {
    let engine = world.engine().await;
    let twice = NonZeroU32::new(3).expect("three");
    let request = task("mail-7").max_attempts(twice);
    engine
        .submit(request, Queueing::on(mails()))
        .await
        .expect("taken");
    for attempt in 1..=3 {
        let (permit, _) = one(&engine).await.permit();
        assert_eq!(permit.attempt(), attempt);
        permit
            .not_done(format!("error {attempt}"))
            .await
            .expect("reported");
        assert!(take(&engine, 1).await.is_empty() || attempt == 3);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(state(&engine, "mail-7").await, StateKind::Dead);
    assert!(take(&engine, 1).await.is_empty());
    let record = engine.load(&engine.namespace(), &key("mail-7")).await;
    let record = record.expect("the store works").expect("it is there");
    let attempts = &record.operation().expect("an operation").attempts;
    let errors: Vec<_> = attempts.iter().filter_map(|it| it.error.as_ref()).collect();
    let errors: Vec<_> = errors.iter().map(|error| error.as_str()).collect();
    assert_eq!(errors, ["error 1", "error 2", "error 3"]);
    clean(&engine).await;
}

async fn a_rejected_task_is_dead_at_once_and_can_be_retried(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let (permit, _) = one(&engine).await.permit();
    permit.reject("no such address").await.expect("reported");
    assert_eq!(state(&engine, "mail-7").await, StateKind::Dead);
    let record = engine.load(&engine.namespace(), &key("mail-7")).await;
    let version = record.expect("it works").expect("it is there").version();
    let by = Label::new("ann").expect("a name");
    let operator = engine.operator(&engine.namespace(), &key("mail-7"), version, by);
    operator.retry().await.expect("retried");
    let (permit, input) = one(&engine).await.permit();
    assert_eq!(
        input.as_deref(),
        Some(&b"\"mail-7\""[..]),
        "with what it was given"
    );
    permit.done(Effect::Created, &1).await.expect("settled");
    clean(&engine).await;
}

async fn a_handler_can_say_when_it_is_to_be_tried_again(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let (permit, _) = one(&engine).await.permit();
    let later = Duration::from_secs(600);
    permit.not_done_for("busy", later).await.expect("reported");
    tokio::time::sleep(later - Duration::from_secs(2)).await;
    assert!(take(&engine, 1).await.is_empty());
    tokio::time::sleep(Duration::from_secs(3)).await;
    one(&engine)
        .await
        .permit()
        .0
        .done(Effect::Created, &1)
        .await
        .expect("settled");
}

async fn retries_keep_to_the_budget_of_their_queue(world: World) {
    let settings = QueueSettings {
        retry_budget: "2/s".parse().expect("a rate"),
        backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(1)).ok(),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    for n in 0..20 {
        submit(&engine, &format!("mail-{n}")).await;
    }
    for taken in take(&engine, 20).await {
        taken.permit().0.not_done("down").await.expect("reported");
    }
    let mut back = vec![];
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let taken = take(&engine, 20).await;
        back.push(taken.len());
        for task in taken {
            task.permit()
                .0
                .done(Effect::Created, &1)
                .await
                .expect("settled");
        }
    }
    // A second's worth at once, and then two each second.
    assert_eq!(back.iter().sum::<usize>(), 20, "{back:?}");
    assert!(back.iter().all(|count| *count <= 7), "{back:?}");
}

async fn a_worker_that_vanishes_leaves_a_doubt_that_its_late_report_settles(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let elsewhere = Take {
        is_elsewhere: true,
        lease: lease(10),
        ..Take::one(mails())
    };
    let taken = engine.take(&engine.namespace(), &elsewhere).await;
    let kept = taken.expect("it works").pop().expect("a task").keep();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(state(&engine, "mail-7").await, StateKind::Doubtful);
    engine.sweep().await.expect("swept");
    assert!(take(&engine, 1).await.is_empty(), "a doubt is held");
    let held = engine.submit(task("mail-7"), Queueing::on(mails())).await;
    assert_eq!(held.expect_err("held").code(), "in_doubt");
    let settle = Settle {
        attempt: kept.attempt_id,
        fence: kept.fence,
        verdict: Verdict::Done(Outcome {
            ok: true,
            effect: Effect::Created,
            payload: Some(Payload::of(b"1")),
        }),
    };
    let namespace = engine.namespace();
    let late = engine.report(&namespace, &kept.key, settle, Some(b"1".to_vec()));
    assert_eq!(late.await.expect("it settles").state, StateKind::Succeeded);
    clean(&engine).await;
}

async fn a_doubt_is_retried_where_the_queue_says_so(world: World) {
    let settings = QueueSettings {
        on_doubt: Some(OnDoubt::Retry),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    submit(&engine, "mail-7").await;
    let elsewhere = Take {
        is_elsewhere: true,
        lease: lease(10),
        ..Take::one(mails())
    };
    let taken = engine.take(&engine.namespace(), &elsewhere).await;
    drop(taken.expect("it works").pop().expect("a task").keep());
    tokio::time::sleep(Duration::from_secs(11)).await;
    engine.sweep().await.expect("swept");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (permit, _) = one(&engine).await.permit();
    assert_eq!((permit.attempt(), permit.fence().0), (2, 2));
    permit.done(Effect::Created, &1).await.expect("settled");
    clean(&engine).await;
}

async fn workers_of_one_process_share_the_line(world: World) {
    let engine = world.engine().await;
    let names: BTreeSet<String> = (0..40).map(|n| format!("mail-{n}")).collect();
    for name in &names {
        submit(&engine, name).await;
    }
    let done: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let worker = |done: Arc<Mutex<BTreeMap<String, u32>>>| {
        let limit = NonZeroUsize::new(3).expect("three");
        let worker = Worker::new(&engine, mails())
            .concurrency(limit)
            .until_empty();
        worker.run(move |job: Job<String>| {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_millis(7)).await;
                *done
                    .lock()
                    .expect("not poisoned")
                    .entry(job.input)
                    .or_default() += 1;
                Ok::<_, Failure>("sent")
            }
        })
    };
    let (one, two) = tokio::join!(worker(Arc::clone(&done)), worker(Arc::clone(&done)));
    let both = one.expect("it works").done + two.expect("it works").done;
    assert_eq!(both, 40);
    let done = done.lock().expect("not poisoned");
    assert!(done.values().all(|count| *count == 1), "{done:?}");
    assert_eq!(done.keys().cloned().collect::<BTreeSet<_>>(), names);
}

async fn no_more_are_taken_than_the_queue_allows(world: World) {
    let settings = QueueSettings {
        concurrency: NonZeroU32::new(3),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    for n in 0..9 {
        submit(&engine, &format!("mail-{n}")).await;
    }
    let mut taken = take(&engine, 2).await;
    taken.extend(take(&engine, 9).await);
    assert_eq!(taken.len(), 3);
    assert!(take(&engine, 9).await.is_empty());
    let (permit, _) = taken.pop().expect("a task").permit();
    permit.done(Effect::Created, &1).await.expect("settled");
    assert_eq!(take(&engine, 9).await.len(), 1);
}

async fn no_lane_has_more_than_its_share(world: World) {
    let settings = QueueSettings {
        lane_concurrency: NonZeroU32::new(2),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    for agent in ["ann", "bob"] {
        for n in 0..5 {
            submit(&engine, &format!("{agent}/{n}")).await;
        }
    }
    let taken = take(&engine, 10).await;
    let mut lanes: BTreeMap<String, u32> = BTreeMap::new();
    for task in &taken {
        let (lane, _) = task.key().as_str().split_once('/').expect("a lane");
        *lanes.entry(lane.to_owned()).or_default() += 1;
    }
    let expected = [("ann".to_owned(), 2), ("bob".to_owned(), 2)];
    assert_eq!(lanes, expected.into_iter().collect());
}

async fn tasks_are_taken_no_faster_than_the_rate(world: World) {
    let settings = QueueSettings {
        rate: "2/s".parse::<Rate>().ok(),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    for n in 0..9 {
        submit(&engine, &format!("mail-{n}")).await;
    }
    assert_eq!(take(&engine, 9).await.len(), 2, "a second's worth at once");
    assert!(take(&engine, 9).await.is_empty());
    tokio::time::sleep(Duration::from_millis(501)).await;
    assert_eq!(take(&engine, 9).await.len(), 1);
}

async fn a_full_lane_does_not_block_the_others(world: World) {
    let settings = QueueSettings {
        lane_concurrency: NonZeroU32::new(1),
        ..QueueSettings::default()
    };
    let engine = engine_with(&world, settings).await;
    for n in 0..30 {
        for agent in ["ann", "bob"] {
            submit(&engine, &format!("{agent}/{n}")).await;
        }
    }
    let lane = |task: &Taken| {
        let (lane, _) = task.key().as_str().split_once('/').expect("a lane");
        lane.to_owned()
    };
    // Whoever comes first, the other one is found behind all that may not have more.
    let (first, second) = (one(&engine).await, one(&engine).await);
    let lanes: BTreeSet<_> = [&first, &second].map(lane).into();
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    assert!(take(&engine, 1).await.is_empty());
}

async fn a_handler_that_panics_leaves_a_doubt(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let worker = Worker::new(&engine, mails()).until_empty();
    let worked = worker.run(|job: Job<String>| async move {
        assert!(job.input.is_empty(), "this handler is broken");
        Ok::<_, Failure>(())
    });
    let worked = worked.await.expect("it works");
    let expected = Worked {
        unknown: 1,
        ..Worked::default()
    };
    assert_eq!(worked, expected);
    until(&engine, &key("mail-7"), StateKind::Doubtful).await;
    clean(&engine).await;
}

async fn an_input_that_cannot_be_read_is_rejected(world: World) {
    let engine = world.engine().await;
    submit(&engine, "mail-7").await;
    let effects = Effects::default();
    let counted = effects.clone();
    let worker = Worker::new(&engine, mails()).until_empty();
    let worked = worker.run(move |_: Job<u64>| {
        counted.happen();
        async { Ok::<_, Failure>(()) }
    });
    assert_eq!(worked.await.expect("it works").not_done, 1);
    assert_eq!(
        (effects.count(), state(&engine, "mail-7").await),
        (0, StateKind::Dead)
    );
}

async fn a_poison_task_does_not_block_those_behind_it(world: World) {
    let engine = world.engine().await;
    submit(&engine, "poison").await;
    for n in 0..5 {
        submit(&engine, &format!("mail-{n}")).await;
    }
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&order);
    let worker = Worker::new(&engine, mails()).until_empty();
    let worked = worker.run(move |job: Job<String>| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().expect("not poisoned").push(job.input.clone());
            match job.input.as_str() {
                "poison" => Err(Failure::not_applied("always")),
                _ => Ok(()),
            }
        }
    });
    let worked = worked.await.expect("it works");
    assert_eq!(
        (worked.done, worked.not_done),
        (5, 10),
        "ten attempts, and then it is dead"
    );
    assert_eq!(state(&engine, "poison").await, StateKind::Dead);
    let order = order.lock().expect("not poisoned");
    let before = order
        .iter()
        .position(|name| name == "mail-4")
        .expect("done");
    let poisoned = order[..before]
        .iter()
        .filter(|name| *name == "poison")
        .count();
    assert!(poisoned <= 2, "{order:?}");
}

async fn what_has_to_be_looked_up_does_not_block_those_who_cannot(world: World) {
    let engine = world.engine().await;
    for n in 0..12 {
        let request = task(&format!("doubt-{n}")).on_doubt(OnDoubt::Probe);
        let submitted = engine.submit(request, Queueing::on(mails())).await;
        submitted.expect("it is taken");
    }
    for taken in take(&engine, 12).await {
        taken
            .permit()
            .0
            .unknown("no reply")
            .await
            .expect("reported");
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    submit(&engine, "mail-7").await;
    let (permit, _) = one(&engine).await.permit();
    assert_eq!(permit.key(), &key("mail-7"));
    assert!(take(&engine, 1).await.is_empty());
    let prober = Take {
        probes: true,
        ..Take::one(mails())
    };
    let probe = engine
        .take(&engine.namespace(), &prober)
        .await
        .expect("it works");
    assert!(probe.into_iter().all(|taken| taken.permit().0.is_probe()));
    permit.done(Effect::Created, &1).await.expect("settled");
}

async fn many_lanes_of_tasks_that_are_put_off_hide_nobody(world: World) {
    let engine = world.engine().await;
    let later = engine.store().now().plus(Duration::from_secs(86_400));
    // More than one look goes past.
    for n in 0..1_500 {
        let to = Queueing::on(mails()).at(later);
        let submitted = engine.submit(task(&format!("agent-{n}/later")), to).await;
        submitted.expect("it is taken");
    }
    // Wherever they stand among the others.
    for n in 0..8 {
        submit(&engine, &format!("due-{n}/now")).await;
    }
    let mut found = BTreeSet::new();
    let mut looks = 0;
    while found.len() < 8 {
        looks += 1;
        assert!(looks < 64, "only {found:?} after {looks} looks");
        for taken in take(&engine, 8).await {
            found.insert(taken.key().clone());
            let (permit, _) = taken.permit();
            permit.done(Effect::Created, &1).await.expect("settled");
        }
    }
}
