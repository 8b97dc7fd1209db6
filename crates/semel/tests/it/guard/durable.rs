//! What is stored before anything is told or sent, and what a loss of power leaves of it.

use semel::core::ledger::Command;
use semel::store::Change;
use semel::store::memory::MemoryStore;
use semel::store::sqlite::SqliteStore;
use semel_testkit::conformance::{ManualClock, scratch};

use super::*;
use crate::engine::store::{Twist, Twisted};

/// How often others are let run before it is believed that nothing comes.
const TURNS: usize = 1_000;

/// A store that does not commit some commands before it is told to.
struct Held {
    store: Arc<Twisted>,
    reached: Arc<Notify>,
    go: Arc<Notify>,
}

impl Held {
    fn new(holds: fn(&Command) -> bool) -> Self {
        let (reached, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (reaches, goes) = (Arc::clone(&reached), Arc::clone(&go));
        let memory = MemoryStore::new(Arc::new(ManualClock::default()));
        let plan = move |change: &Change| {
            if !holds(&change.entry.command) {
                return Twist::Pass;
            }
            let (reached, go) = (Arc::clone(&reaches), Arc::clone(&goes));
            Twist::After(Box::pin(async move {
                reached.notify_one();
                go.notified().await;
            }))
        };
        Self {
            store: Twisted::new(Arc::new(memory), plan),
            reached,
            go,
        }
    }

    async fn guard(&self, shop: &Shop) -> Guard {
        let engine = engine_on(Arc::clone(&self.store) as _).await;
        guard(&engine, shop, rules())
    }
}

/// Lets everything run that can.
async fn settle_down() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn c038_an_answer_is_told_when_it_is_stored() {
    let held = Held::new(|command| matches!(command, Command::Settle(_)));
    let shop = Shop::default().then(Step::Answer(201, "order 1"));
    let guard = held.guard(&shop).await;
    let asking = tokio::spawn(async move { ask(&guard, post(Some("k"), "{}")).await });
    held.reached.notified().await;
    settle_down().await;
    assert_eq!(shop.sent(), 1);
    assert!(!asking.is_finished(), "nobody is told before the commit");
    held.go.notify_one();
    let read = asking.await.expect("nobody panics");
    assert_eq!((read.status, read.body.as_str()), (201, "order 1"));
    assert_eq!(read.header("idempotency-stored"), None);
}

#[tokio::test]
async fn c038_the_end_of_a_stream_is_told_when_it_is_stored() {
    let held = Held::new(|command| matches!(command, Command::Settle(_)));
    let (say, pieces) = mpsc::channel(16);
    let shop = Shop::default().then(Step::Stream(pieces));
    let guard = held.guard(&shop).await;
    // Its head comes before anything of its body does, so it streams.
    let begun = guard.handle(post(Some("k"), "{}"), Caller::default()).await;
    let asking = tokio::spawn(read(begun.response));
    say.send(Ok("one")).await.expect("it is listened to");
    drop(say);
    held.reached.notified().await;
    settle_down().await;
    assert!(!asking.is_finished(), "there is no end before the commit");
    held.go.notify_one();
    assert_eq!(asking.await.expect("nobody panics").body, "one");
}

#[tokio::test]
async fn c040_nothing_is_sent_before_its_claim_is_stored() {
    let held = Held::new(|command| matches!(command, Command::Begin(_)));
    let shop = Shop::default().then(Step::Answer(201, "order 1"));
    let guard = held.guard(&shop).await;
    let asking = tokio::spawn(async move { ask(&guard, post(Some("k"), "{}")).await });
    held.reached.notified().await;
    settle_down().await;
    assert_eq!(shop.sent(), 0, "the claim is not stored");
    held.go.notify_one();
    assert_eq!(asking.await.expect("nobody panics").status, 201);
    assert_eq!(shop.sent(), 1);
}

/// The bytes before the first frame of a log of SQLite, and of each frame with a page of 4 KiB.
const WAL_HEADER: usize = 32;
const WAL_FRAME: usize = 24 + 4_096;

/// What was synced when an answer was told is what a loss of power leaves at least: all of the log up to there, and any
/// part of what was written after it.
#[tokio::test]
async fn c039_what_was_told_outlives_a_loss_of_power() {
    let directory = scratch();
    let place = directory.path().join("semel.db");
    let store = SqliteStore::open(&place).expect("the store opens");
    let engine = engine_on(Arc::new(store)).await;
    let shop = Shop::default()
        .then(Step::Answer(201, "order 1"))
        .then(Step::Answer(201, "order 2"));
    let guarded = guard(&engine, &shop, rules());
    let file = |suffix: &str| {
        let path = directory.path().join(format!("semel.db{suffix}"));
        std::fs::read(path).expect("it is there")
    };
    assert_eq!(
        ask(&guarded, post(Some("told"), "{}")).await.body,
        "order 1"
    );
    let synced = file("-wal").len();
    assert_eq!(
        ask(&guarded, post(Some("later"), "{}")).await.body,
        "order 2"
    );
    let (database, log) = (file(""), file("-wal"));
    assert!(log.len() > synced, "more was written");
    assert_eq!((synced - WAL_HEADER) % WAL_FRAME, 0, "whole frames were");
    // Before, within and after each of the frames that may be lost.
    let frames = (log.len() - synced) / WAL_FRAME;
    let cuts = (0..frames).flat_map(|frame| {
        let start = synced + frame * WAL_FRAME;
        [
            start,
            start + 1,
            start + WAL_FRAME / 2,
            start + WAL_FRAME - 1,
        ]
    });
    for cut in cuts.chain([log.len()]) {
        let after = scratch();
        let place = after.path().join("semel.db");
        std::fs::write(&place, &database).expect("it can be written");
        let left = after.path().join("semel.db-wal");
        std::fs::write(left, &log[..cut]).expect("it can be written");
        let store = SqliteStore::open(&place).expect("the store opens");
        let engine = engine_on(Arc::new(store)).await;
        // It has no step for anything that would be sent.
        let guarded = guard(&engine, &Shop::default(), rules());
        let again = ask(&guarded, post(Some("told"), "{}")).await;
        assert_eq!(
            (again.status, again.body.as_str()),
            (201, "order 1"),
            "{cut}"
        );
        assert!(again.is_replay(), "{cut} of {}: {again:?}", log.len());
    }
}
