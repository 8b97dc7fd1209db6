//! A crowd of clients before a flaky upstream, while the proxy is killed and started again: every effect happens
//! once, and everybody who asks until there is an answer gets the same one.
//!
//! The upstream refuses, closes, resets, breaks off, fails, is silent and answers twice. What is in doubt then is
//! looked up in its file, and said by `semel resolve`.

mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use semel_testkit::process::Dice;
use semel_testkit::scaled;
use serde_json::{Value, json};

use crate::http::Address;
use crate::server::wait_until;
use crate::setup::Setup;

use self::client::Client;

/// How often the proxy is killed.
const KILLS: u64 = 5;

/// What a client was told in the end: the status and the body.
type Told = (u16, String);

/// What everybody in a crowd shares.
#[derive(Debug)]
struct Crowd {
    keys: usize,
    address: Address,
    /// What clients were told in the end, by key.
    answers: Mutex<BTreeMap<String, Vec<Told>>>,
    /// How many final answers there are.
    answered: AtomicU64,
    /// What was told on the way to them: how often each code or status.
    met: Mutex<BTreeMap<String, u64>>,
    /// Somebody failed, so that nobody needs to go on.
    failed: AtomicBool,
}

impl Crowd {
    fn answer(&self, key: &str, told: Told) {
        let mut answers = self.answers.lock().expect("nobody panics with it");
        answers.entry(key.to_owned()).or_default().push(told);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn meets(&self, what: &str) {
        let mut met = self.met.lock().expect("nobody panics with it");
        *met.entry(what.to_owned()).or_default() += 1;
    }

    fn is_over(&self, wanted: u64) -> bool {
        self.failed.load(Ordering::Relaxed) || self.answered.load(Ordering::Relaxed) >= wanted
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

/// How many doubts were resolved, and how.
#[derive(Debug, Default)]
struct Resolved {
    done: u64,
    not_done: u64,
}

/// Looks up what became of the requests in doubt, and says it.
fn resolve(setup: &Setup, resolved: &mut Resolved) {
    let mut doubts = setup.records();
    // One that was killed does not say so; its requests are in doubt for whoever comes next.
    let lives = Value::from(setup.proxy().pid());
    doubts.retain(|record| match record["state"].as_str() {
        Some("doubtful") => true,
        Some("running") => record["holder"]["pid"] != lives,
        _ => false,
    });
    if doubts.is_empty() {
        return;
    }
    // What was sent before may still be on its way; until it has arrived the file proves nothing.
    setup.upstream.settle();
    for doubt in doubts {
        let text = |member: &str| doubt[member].as_str().unwrap_or_default().to_owned();
        let (key, name) = (text("key"), text("client_key"));
        let happened = setup.upstream.effects_of(&name);
        assert!(happened <= 1, "{name}: {happened} effects");
        let data = json!({"looked_up": name}).to_string();
        let how: &[&str] = match happened {
            1 => &["--done", "--effect", "created", "--data", &data],
            _ => &["--not-done"],
        };
        let words = [&["resolve", &key, "--yes"], how].concat();
        // A request that settled it meanwhile makes this one too late.
        if setup.world.semel(&words).code == 0 {
            match happened {
                1 => resolved.done += 1,
                _ => resolved.not_done += 1,
            }
        }
    }
}

#[test]
fn a_storm_lets_every_effect_happen_once_and_tells_everybody_the_same() {
    let clients = scaled(200, 24);
    let keys = usize::try_from(scaled(200, 40)).expect("it is small");
    let (seed, mut dice) = Dice::fresh();
    let mut setup = Setup::routed("timeout = \"2s\"\nwait = \"500ms\"");
    setup.upstream.set_mood(Some(Dice::seeded(dice.next())));
    setup.upstream.refuse();
    let crowd = Crowd {
        keys,
        address: setup.proxy().address().clone(),
        answers: Mutex::default(),
        answered: AtomicU64::new(0),
        met: Mutex::default(),
        failed: AtomicBool::new(false),
    };
    let wanted = clients * keys as u64;
    let mut resolved = Resolved::default();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            let client = Client::new(&crowd, Dice::seeded(dice.next()));
            scope.spawn(|| {
                let _alarm = Alarm(&crowd);
                client.ask_for_everything();
            });
        }
        let _alarm = Alarm(&crowd);
        wait_until("somebody is refused", || {
            let met = crowd.met.lock().expect("nobody panics with it");
            met.contains_key("not_sent")
        });
        setup.upstream.accept_again();
        let mut moments: Vec<_> = (0..KILLS).map(|_| dice.below(wanted)).collect();
        moments.sort_unstable();
        let mut moments = moments.into_iter().peekable();
        while !crowd.is_over(wanted) {
            let answered = crowd.answered.load(Ordering::Relaxed);
            if moments.next_if(|moment| answered >= *moment).is_some() {
                // It is away for a while, and so is the upstream when it comes back.
                setup.upstream.refuse();
                setup.crash();
                setup.upstream.accept_again();
            }
            resolve(&setup, &mut resolved);
        }
    });

    let effects = setup.upstream.effects();
    let names: BTreeSet<_> = effects.iter().collect();
    assert_eq!(
        effects.len(),
        names.len(),
        "seed {seed}: {:?}",
        twice(&effects)
    );
    assert_eq!(names.len(), keys, "seed {seed}: every effect happened");
    let answers = crowd.answers.into_inner().expect("nobody panicked with it");
    assert_eq!(answers.len(), keys, "seed {seed}");
    for (key, told) in &answers {
        assert_eq!(told.len() as u64, clients, "seed {seed}: {key}");
        let other = told.iter().find(|answer| *answer != &told[0]);
        assert_eq!(other, None, "seed {seed}: {key} is {:?}", told[0]);
    }
    let states: BTreeSet<_> = setup.states().into_iter().collect();
    assert_eq!(states, ["succeeded".to_owned()].into(), "seed {seed}");
    // The test has met what it is for.
    let met = crowd.met.into_inner().expect("nobody panicked with it");
    for what in ["in_doubt", "not_sent", "429", "500", "cut"] {
        assert!(met.contains_key(what), "seed {seed}: no {what}: {met:?}");
    }
    assert!(resolved.done > 0 && resolved.not_done > 0, "{resolved:?}");
    setup.proxy_mut().kill();
    let verified = setup.world.semel(&["verify"]);
    assert_eq!(verified.code, 0, "seed {seed}: {verified:?}");
}

/// Names the effects that happened more than once.
fn twice(effects: &[String]) -> BTreeSet<&String> {
    let is_twice = |name: &&String| effects.iter().filter(|it| it == name).count() > 1;
    effects.iter().filter(is_twice).collect()
}
