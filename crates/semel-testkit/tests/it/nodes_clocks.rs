//! A node whose clock is off by an hour: leases end neither early nor late, and all times are the
//! database's.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use semel::core::ledger::StateKind;
use semel::{Admission, Effect, Engine, Lease, OnDoubt, Request, Timestamp};
use semel_testkit::faketime;
use semel_testkit::postgres::Cluster;
use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{
    Agent, CrashPoint, Keys, NAME, Orders, Program, Scene, Word, key, wall,
};
use semel_testkit::sim::Bug;

use crate::agent;

/// How long anybody waits for the end of a lease: far longer than it lasts, and far shorter than a
/// clock is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(5);

/// How far two looks at the right clock may be apart, in seconds.
const APART: u64 = 600;

type Told = Result<(), String>;

/// One node with a right clock, in this process, and others with a wrong one.
struct Nodes {
    scene: Scene,
    right: Engine,
    offset: &'static str,
    bug: Option<Bug>,
}

impl Nodes {
    async fn new(offset: &'static str, bug: Option<Bug>) -> Self {
        let scene = Scene::on_server(Cluster::shared().database());
        let right = scene.open().await;
        Self {
            scene,
            right,
            offset,
            bug,
        }
    }

    fn orders(&self, key: &str) -> Orders {
        Orders {
            lease: Lease::MIN,
            say_time: true,
            ..Orders::new(&self.scene, Keys::These(vec![key.to_owned()]))
        }
    }

    fn start(&self, right: bool, orders: &Orders) -> Agent {
        let state = format!("XDG_STATE_HOME={}", self.scene.path().display());
        let mut words = vec!["env".to_owned(), state];
        if !right {
            let environment = faketime::environment(self.offset);
            words.extend(environment.map(|(name, value)| format!("{name}={value}")));
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let program: Program = agent().through(&words);
        program.start(&Orders {
            bug: self.bug.filter(|_| !right),
            ..orders.clone()
        })
    }

    /// Lets a node with a wrong clock carry a key out; returns what it was told.
    fn carry_out(&self, key: &str) -> String {
        let ended = self.start(false, &self.orders(key)).wait();
        assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
        let words = self.scene.told().words();
        let last = words.into_iter().rfind(|(of, _)| of == key);
        last.map_or_else(String::new, |(_, word)| word.to_string())
    }

    /// Starts a node that stops itself with a lease, and waits for that.
    fn stop_with_lease(&self, right: bool, key: &str) -> Agent {
        let mut agent = self.start(
            right,
            &Orders {
                stop: Some((CrashPoint::AfterClaim, 1)),
                ..self.orders(key)
            },
        );
        agent.wait_until_stopped();
        agent
    }

    /// Waits until the right node sees that a lease is over.
    async fn wait_for_the_end(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let record = self.right.load(&wall(), &key(text)).await;
            let record = record.expect("it loads").expect("it is there");
            let operation = record.operation().expect("it is an operation");
            if operation.kind_at(self.right.store().now()) == StateKind::Doubtful {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("the lease of {text} never ends");
    }

    /// Returns the database's time.
    fn database_time(&self) -> Timestamp {
        let url = self.scene.server().expect("there is a server");
        let name = url.rsplit('/').next().expect("a database");
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let micros = Cluster::shared().sql(name, sql);
        Timestamp(micros.parse().expect("microseconds"))
    }

    /// Returns when the newest attempt began, and its lease's end.
    async fn lease_of(&self, text: &str) -> (Timestamp, Timestamp) {
        let record = self.right.load(&wall(), &key(text)).await;
        let record = record.expect("it loads").expect("it is there");
        let operation = record.operation().expect("it is an operation");
        let attempt = operation.latest().expect("there is an attempt");
        (attempt.started_at, attempt.lease_until)
    }
}

fn request(text: &str) -> Request {
    let request = Request::new(NAME, key(text)).input(text);
    request.on_doubt(OnDoubt::Retry).wait(PATIENCE)
}

fn between(from: Timestamp, time: Timestamp, to: Timestamp, what: &str) -> Told {
    if from <= time && time <= to {
        return Ok(());
    }
    Err(format!("{what}: {time} is not between {from} and {to}"))
}

/// A wrong clock neither takes a lease that another node holds,
async fn a_live_lease_is_left(nodes: &Nodes) -> Told {
    let begun = nodes.right.begin(request("retry-live")).await;
    let Ok(Admission::Execute(permit)) = begun else {
        panic!("a new key is granted: {begun:?}");
    };
    let told = nodes.carry_out("retry-live");
    if !told.starts_with("wait") {
        return Err(format!("a live lease: {told}"));
    }
    let line = nodes
        .scene
        .sink()
        .cause("retry-live", permit.fence(), || {});
    let settled = permit.done(Effect::Created, &line.answer()).await;
    let receipt = settled.map_err(|error| error.to_string())?;
    let told = nodes.carry_out("retry-live");
    let same = !receipt.replayed && told == format!("replayed {}", line.answer());
    same.then_some(()).ok_or(told)
}

/// nor respects one that is over,
async fn a_dead_lease_is_taken(nodes: &Nodes) -> Told {
    let _stopped = nodes.stop_with_lease(true, "retry-dead");
    nodes.wait_for_the_end("retry-dead").await;
    let told = nodes.carry_out("retry-dead");
    let taken = told.starts_with("done");
    taken
        .then_some(())
        .ok_or_else(|| format!("a dead lease: {told}"))
}

/// and a lease that it was granted lasts as long as any.
async fn its_own_lease_is_like_any(nodes: &Nodes) -> Told {
    let from = nodes.database_time();
    let stopped = nodes.stop_with_lease(false, "retry-own");
    let told = lasts_as_long_as_any(nodes, from).await;
    stopped.signal(Signal::CONT);
    let ended = stopped.wait();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
    told
}

async fn lasts_as_long_as_any(nodes: &Nodes, from: Timestamp) -> Told {
    let to = nodes.database_time();
    let (started, until) = nodes.lease_of("retry-own").await;
    between(from, started, to, "the start of a lease")?;
    between(from.plus(Lease::MIN), until, to.plus(Lease::MIN), "its end")?;
    match nodes.right.begin(request("retry-own")).await {
        Ok(Admission::Execute(permit)) => {
            let line = nodes.scene.sink().cause("retry-own", permit.fence(), || {});
            let settled = permit.done(Effect::Created, &line.answer()).await;
            settled.map(drop).map_err(|error| error.to_string())
        }
        other => Err(format!("the lease does not end: {other:?}")),
    }
}

/// What it settles has the database's time.
async fn receipts_have_the_database_s_time(nodes: &Nodes) -> Told {
    let from = nodes.database_time();
    let told = nodes.carry_out("retry-receipt");
    let to = nodes.database_time();
    let Ok(Admission::Replay(receipt)) = nodes.right.begin(request("retry-receipt")).await else {
        return Err(format!("it is not settled: {told}"));
    };
    let started = receipt.started_at.ok_or("no start")?;
    between(from, started, to, "the receipt's start")?;
    let settled = receipt.settled_at.ok_or("no end")?;
    between(started, settled, to, "the receipt's end")
}

/// The node takes it to be an hour earlier or later, or what is seen here means nothing.
fn the_clock_is_wrong(nodes: &Nodes) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let here = since.expect("it is after 1970").as_secs();
    nodes.carry_out("retry-time");
    let words = nodes.scene.told().words();
    let there = words.iter().rev().find_map(|(_, word)| match word {
        Word::Time(seconds) => Some(*seconds),
        _ => None,
    });
    let there = there.expect("it says what time it is");
    let right = if nodes.offset.starts_with('+') {
        there > here
    } else {
        there < here
    };
    assert!(
        right && there.abs_diff(here) > 3_600 - APART && there.abs_diff(here) < 3_600 + APART,
        "{}: it is {here}, and the node says {there}",
        nodes.offset
    );
}

async fn an_hour_off(offset: &'static str) {
    let nodes = Nodes::new(offset, None).await;
    the_clock_is_wrong(&nodes);
    let told = a_live_lease_is_left(&nodes).await;
    told.expect("a live lease is left to its holder");
    let told = a_dead_lease_is_taken(&nodes).await;
    told.expect("a dead lease is taken");
    let told = its_own_lease_is_like_any(&nodes).await;
    told.expect("its own lease is like any");
    let told = receipts_have_the_database_s_time(&nodes).await;
    told.expect("receipts have the database's time");
    let audited = audit(&nodes.right, &nodes.scene, &mut Seen::default()).await;
    audited.expect("world, ledger and callers agree");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_an_hour_ahead_changes_nothing() {
    an_hour_off("+1h").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_an_hour_behind_changes_nothing() {
    an_hour_off("-1h").await;
}

/// What is wrong was noticed, and said with these words.
fn caught(told: Told, words: &str) {
    let text = told.expect_err("a broken rule is noticed");
    assert!(text.contains(words), "{text}");
}

/// A little less than an hour: beyond it even an embedded store would not believe its clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_believes_its_own_clock_is_caught() {
    let believes = Some(Bug::WallClockBelieved);
    for offset in ["+55m", "-55m"] {
        let nodes = Nodes::new(offset, believes).await;
        the_clock_is_wrong(&nodes);
        let wrong = its_own_lease_is_like_any(&nodes).await;
        caught(wrong, "the start of a lease");
        let wrong = receipts_have_the_database_s_time(&nodes).await;
        caught(wrong, "the receipt's start");
    }
    let ahead = Nodes::new("+55m", believes).await;
    let wrong = a_live_lease_is_left(&ahead).await;
    caught(wrong, "a live lease: done");
    let behind = Nodes::new("-55m", believes).await;
    let wrong = a_dead_lease_is_taken(&behind).await;
    caught(wrong, "a dead lease: wait");
}
