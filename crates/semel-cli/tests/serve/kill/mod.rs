//! A crowd of clients while the server is killed and started again: every effect happens once, and everybody
//! who asks until there is an answer gets the same one.
//!
//! Effects are lines in a file that knows nothing of Semel, written by whoever was granted `execute`. Some
//! clients die with their grant, before or after the effect; a resolver asks the file and says over the API
//! what became of them.

mod client;
mod resolver;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use semel_testkit::process::{Dice, Sink};
use semel_testkit::scaled;
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::Address;
use crate::server::{Server, wait_until};

use self::client::Client;

/// How often the server is killed.
const KILLS: u64 = 10;

/// What everybody in a crowd shares.
#[derive(Debug)]
struct Crowd {
    keys: usize,
    sink: Sink,
    /// Where the server is now; a new one listens elsewhere.
    address: Mutex<Address>,
    /// Which attempts can no longer act, by key and fence.
    gone: Mutex<BTreeSet<(String, u64)>>,
    /// What clients were told in the end, by key.
    answers: Mutex<BTreeMap<String, Vec<Value>>>,
    /// How many final answers there are.
    answered: AtomicU64,
    /// Replies that were lost with a server.
    lost: AtomicU64,
    /// Begins and reports that were sent again without need, and answered the same.
    repeated: AtomicU64,
    /// Somebody failed, so that nobody needs to go on.
    failed: AtomicBool,
}

impl Crowd {
    fn address(&self) -> Address {
        self.address.lock().expect("nobody panics with it").clone()
    }

    fn answer(&self, key: &str, data: Value) {
        let mut answers = self.answers.lock().expect("nobody panics with it");
        answers.entry(key.to_owned()).or_default().push(data);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn is_gone(&self, key: &str, fence: u64) -> bool {
        let gone = self.gone.lock().expect("nobody panics with it");
        gone.contains(&(key.to_owned(), fence))
    }

    fn goes(&self, key: &str, fence: u64) {
        let mut gone = self.gone.lock().expect("nobody panics with it");
        gone.insert((key.to_owned(), fence));
    }
}

/// Tells the others when a client ends by a failed assertion, so that the test ends, too.
struct Alarm<'a>(&'a Crowd);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_lets_every_effect_happen_once() {
    let clients = scaled(512, 48);
    let keys = usize::try_from(scaled(1_000, 120)).expect("it is small");
    let (seed, mut dice) = Dice::fresh();
    let world = World::new();
    let mut server = Server::start(&world);
    let crowd = Crowd {
        keys,
        sink: Sink::at(world.path("sink")),
        address: Mutex::new(server.address().clone()),
        gone: Mutex::default(),
        answers: Mutex::default(),
        answered: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        repeated: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    let wanted = clients * keys as u64;
    let resolved = std::thread::scope(|scope| {
        for _ in 0..clients {
            let client = Client::new(&crowd, Dice::seeded(dice.next()));
            scope.spawn(|| {
                let _alarm = Alarm(&crowd);
                client.ask_for_everything();
            });
        }
        let resolver = scope.spawn(|| {
            let _alarm = Alarm(&crowd);
            resolver::resolve_until(&crowd, wanted)
        });
        // A kill falls anywhere between two shares of the whole, while everybody is busy.
        for kill in 0..KILLS {
            let share = wanted / KILLS;
            let moment = kill * share + dice.below(share);
            wait_until("the crowd gets on", || {
                let failed = crowd.failed.load(Ordering::Relaxed);
                failed || crowd.answered.load(Ordering::Relaxed) >= moment
            });
            server.kill();
            server = Server::start(&world);
            *crowd.address.lock().expect("nobody panics with it") = server.address().clone();
        }
        resolver.join().expect("the resolver ends")
    });

    let lines = crowd.sink.lines();
    let effects: BTreeMap<_, _> = lines.iter().map(|line| (line.key.as_str(), line)).collect();
    assert_eq!(
        lines.len(),
        effects.len(),
        "seed {seed}: {:?}",
        twice(&lines)
    );
    assert_eq!(effects.len(), keys, "seed {seed}: every effect happened");
    let answers = crowd.answers.into_inner().expect("nobody panicked with it");
    for (key, told) in &answers {
        assert_eq!(told.len() as u64, clients, "seed {seed}: {key}");
        let happened = Value::from(effects[key.as_str()].answer());
        let other = told.iter().find(|answer| **answer != happened);
        assert_eq!(other, None, "seed {seed}: {key} is {happened}");
    }
    assert_eq!(answers.len(), keys);
    let open = server.get("/v1/operations?state=doubtful&state=running&state=pending");
    assert_eq!(
        open.expect(200)["items"],
        Value::Array(vec![]),
        "seed {seed}"
    );
    // The test has met what it is for.
    let lost = crowd.lost.into_inner();
    assert!(lost >= KILLS, "seed {seed}: only {lost} replies were lost");
    assert!(crowd.repeated.into_inner() > 0, "nothing was sent again");
    assert!(resolved.done > 0 && resolved.not_done > 0, "{resolved:?}");
    server.kill();
    let verified = world.semel(&["verify"]);
    assert_eq!(verified.code, 0, "seed {seed}: {verified:?}");
}

#[test]
fn an_attempt_outlives_the_server_that_granted_it() {
    let world = World::new();
    let mut server = Server::start(&world);
    let begin = json!({"key": "k", "name": "n", "attempt_id": "a-1", "lease_ms": 60_000});
    let granted = server.post("/v1/begin", &begin).expect(200);
    server.kill();
    let server = Server::start(&world);
    // Whoever holds it is a client, which is alive for all that the new server knows.
    let other = json!({"key": "k", "name": "n", "attempt_id": "a-2"});
    server.post("/v1/begin", &other).problem(409, "in_flight");
    assert_eq!(server.post("/v1/begin", &begin).expect(200), granted);
    let renew = json!({"key": "k", "attempt_id": "a-1", "fence": granted["fence"]});
    server.post("/v1/renew", &renew).expect(200);
    let settle = json!({
        "key": "k", "attempt_id": "a-1", "fence": granted["fence"],
        "verdict": "done", "ok": true, "effect": "created", "data": 42,
    });
    let receipt = server.post("/v1/settle", &settle).expect(200);
    assert_eq!(receipt["state"], "succeeded", "{receipt}");
    let replay = server.post("/v1/begin", &other).expect(200);
    assert_eq!(replay["receipt"]["data"], 42, "{replay}");
}

/// Names the effects that happened more than once.
fn twice(lines: &[semel_testkit::process::Line]) -> Vec<&semel_testkit::process::Line> {
    let is_twice = |key: &str| lines.iter().filter(|line| line.key == key).count() > 1;
    lines.iter().filter(|line| is_twice(&line.key)).collect()
}
