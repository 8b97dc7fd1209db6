//! A queue in which very many tasks wait, beside one that is busy: each is taken in its order, at once.

use std::ops::Range;
use std::sync::Arc;

use semel::store::sqlite::SqliteStore;
use semel::{Effect, Engine, Failure, Job, Key, Label, Lease, Queueing, Request, Take, Worker};
use semel_testkit::conformance::scratch;
use semel_testkit::scaled;
use tokio::task::JoinSet;

/// How many are submitted at once: a group of the store, and another one in the making.
const TOGETHER: usize = 1_000;

/// Three for each of the fifty agents, of which two at least are not put off.
const OLDEST: u64 = 150;

fn label(text: &str) -> Label {
    Label::new(text).expect("a label")
}

fn task(queue: &str, n: u64) -> (Request, Queueing) {
    let key = Key::new(&format!("agent-{}/{queue}-{n}", n % 50)).expect("a key");
    let request = Request::new("send", key).input(&n);
    let mut to = Queueing::on(label(queue));
    // Every third one is for another year.
    if n % 3 == 2 {
        to = to.at(semel::Timestamp(4_102_444_800_000_000));
    }
    (request, to)
}

async fn fill(engine: &Engine, queue: &'static str, numbers: Range<u64>) {
    let mut under_way = JoinSet::new();
    for n in numbers {
        let engine = engine.clone();
        under_way.spawn(async move {
            let (request, to) = task(queue, n);
            engine.submit(request, to).await.map(drop)
        });
        if under_way.len() >= TOGETHER {
            let ended = under_way.join_next().await.expect("one is under way");
            ended.expect("it ends").expect("it is taken");
        }
    }
    for ended in under_way.join_all().await {
        ended.expect("it is taken");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_line_holds_nobody_up() {
    let directory = scratch();
    let store = SqliteStore::open(directory.path().join("semel.db")).expect("it opens");
    let builder = Engine::builder().store(Arc::new(store));
    let engine = builder.sweep_every(None).start().await.expect("it starts");
    let many = scaled(5_000_000, 30_000);
    // What is under way together comes in any order: the oldest are in before the others come.
    fill(&engine, "cold", 0..OLDEST).await;
    fill(&engine, "cold", OLDEST..many).await;
    fill(&engine, "hot", 0..900).await;
    // The lanes take turns: ten tasks are of ten agents, and of each the oldest.
    let take = Take {
        max: 10,
        lease: Lease::DEFAULT,
        ..Take::one(label("cold"))
    };
    let mut agents = std::collections::BTreeSet::new();
    for taken in engine
        .take(&engine.namespace(), &take)
        .await
        .expect("it is looked for")
    {
        let (agent, name) = taken.key().as_str().split_once('/').expect("a lane");
        let n: u64 = name
            .strip_prefix("cold-")
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert!(n < OLDEST, "{name} is not the oldest of {agent}");
        agents.insert(agent.to_owned());
        let (permit, _) = taken.permit();
        permit.done(Effect::Created, &n).await.expect("settled");
    }
    assert_eq!(agents.len(), 10);
    // The busy one is worked off to its end, and nothing of the other one is touched.
    let worker = Worker::new(&engine, label("hot"));
    let worker = worker.concurrency(std::num::NonZeroUsize::new(64).expect("some"));
    let worked = worker
        .until_empty()
        .run(|job: Job<u64>| async move { Ok::<_, Failure>(job.input) });
    assert_eq!(
        worked.await.expect("it works").done,
        600,
        "the rest is put off"
    );
}
