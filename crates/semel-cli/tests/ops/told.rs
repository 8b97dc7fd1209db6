//! Each thing is told once, whatever happens to those who tell it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::server::{Server, World, eventually};
use crate::sink::{Got, Reply, Sink};

/// What the sink got, by id.
#[derive(Debug, Default)]
struct Heard(BTreeMap<String, Vec<Got>>);

impl Heard {
    fn add(&mut self, got: Got) {
        self.0.entry(got.id()).or_default().push(got);
    }

    /// Waits until something was heard of an operation, or was taken.
    fn wait(&mut self, sink: &Sink, key: &str, taken: bool) {
        let is_it = |got: &Got| key_of(got) == key && (got.reply != Reply::Never || !taken);
        while !self.0.values().flatten().any(is_it) {
            self.add(sink.wait());
        }
    }

    fn keys(&self) -> BTreeSet<String> {
        self.0.values().flatten().map(key_of).collect()
    }
}

fn key_of(got: &Got) -> String {
    got.json()["key"].as_str().unwrap_or_default().to_owned()
}

/// Two servers on one store.
struct Pair<'a> {
    world: &'a World,
    url: String,
    servers: [Option<Server>; 2],
}

impl Pair<'_> {
    fn kill(&mut self, index: usize) {
        self.servers[index].take().expect("it runs").kill();
    }

    fn start(&mut self, index: usize) {
        let server = self.world.serve(&[("SEMEL_NOTIFY_WEBHOOK", &self.url)]);
        self.servers[index] = Some(server);
    }

    fn doubt(&self, index: usize, key: &str) {
        let server = self.servers[index].as_ref();
        server.expect("it runs").doubt(key);
    }

    fn notifications(&self, states: &str) -> Vec<Value> {
        let list = [
            "--namespace",
            "semel",
            "list",
            "--json",
            "--limit",
            "100",
            "--state",
        ];
        let found = self.world.semel(&[&list[..], &[states]].concat());
        let read = |line| serde_json::from_str(line).expect("it is JSON");
        found.lines().map(read).collect()
    }

    /// Waits until all that was told is written down: a server that is killed before has to tell it again.
    fn rest(&self) {
        eventually("all is written down", || {
            self.notifications("pending,running,doubtful").is_empty()
        });
    }

    /// Finds out which of the two is telling something.
    fn teller(&self) -> usize {
        let running = self.notifications("running");
        let pid = running[0]["holder"]["pid"].as_u64();
        let pids = self
            .servers
            .each_ref()
            .map(|it| it.as_ref().map(Server::pid));
        let found = pids.iter().position(|it| *it == pid);
        found.expect("one of them is")
    }
}

#[test]
fn a_doubt_is_told_once_though_servers_are_killed_and_share_a_store() {
    let (world, sink) = (World::new(), Sink::new());
    let mut pair = Pair {
        world: &world,
        url: sink.url("/"),
        servers: [None, None],
    };
    let mut heard = Heard::default();
    let mut expected = BTreeSet::new();
    (0..2).for_each(|index| pair.start(index));
    for round in 0..3 {
        let (first, second) = (round % 2, 1 - round % 2);
        // One that two servers find at the same time.
        let plain = format!("plain-{round}");
        pair.doubt(first, &plain);
        heard.wait(&sink, &plain, true);
        pair.rest();
        // One whose teller is killed before it gets an answer: the other one tells it again.
        let cut = format!("cut-{round}");
        sink.always(Reply::Never);
        pair.doubt(first, &cut);
        heard.wait(&sink, &cut, false);
        let teller = pair.teller();
        sink.always(Reply::Status(200));
        pair.kill(teller);
        heard.wait(&sink, &cut, true);
        pair.start(teller);
        pair.rest();
        // One that is made right before its server is killed, whether that got to tell it or not.
        let late = format!("late-{round}");
        sink.always(Reply::Never);
        pair.doubt(second, &late);
        (0..2).for_each(|index| pair.kill(index));
        sink.always(Reply::Status(200));
        (0..2).for_each(|index| pair.start(index));
        heard.wait(&sink, &late, true);
        pair.rest();
        expected.extend([plain, cut, late]);
    }
    // Whoever starts now has nothing left to tell but this.
    for index in 0..2 {
        pair.kill(index);
        pair.start(index);
    }
    pair.doubt(0, "last");
    expected.insert("last".to_owned());
    heard.wait(&sink, "last", true);
    pair.rest();
    let servers = pair.servers.iter_mut();
    servers.for_each(|server| server.take().expect("it runs").stop());
    sink.rest().into_iter().for_each(|got| heard.add(got));
    assert_eq!(heard.keys(), expected);
    // Each was taken once, under one id; only what was never answered was sent again.
    assert_eq!(heard.0.len(), expected.len());
    for (id, all) in &heard.0 {
        let taken = all.iter().filter(|got| got.reply != Reply::Never);
        assert_eq!(taken.count(), 1, "{id}: {all:?}");
        let about = all.iter().map(|got| got.json()["namespace"].clone());
        assert!(about.into_iter().all(|it| it == "default"), "{all:?}");
    }
    assert_eq!(pair.notifications("succeeded").len(), expected.len());
}

#[test]
fn what_was_in_doubt_before_the_server_came_is_told_too() {
    let (world, sink) = (World::new(), Sink::new());
    let silent = world.serve(&[]);
    (0..3).for_each(|index| silent.doubt(&format!("o-{index}")));
    silent.kill();
    let server = world.serve(&[("SEMEL_NOTIFY_WEBHOOK", &sink.url("/"))]);
    let mut heard = Heard::default();
    (0..3).for_each(|index| heard.wait(&sink, &format!("o-{index}"), true));
    server.stop();
    // Somebody else to be told is told all of it, through the other channel.
    let command = "echo \"$SEMEL_NOTIFY_KEY\" >> told";
    let both = [
        ("SEMEL_NOTIFY_WEBHOOK", sink.url("/")),
        ("SEMEL_NOTIFY_COMMAND", command.to_owned()),
    ];
    let both = both.each_ref().map(|(name, value)| (*name, value.as_str()));
    let server = world.serve(&both);
    eventually("it is counted", || {
        server.metric("semel_notify_deliveries_total{channel=\"command\"}") >= 3.0
    });
    server.stop();
    let told = std::fs::read_to_string(world.path("told")).expect("it was told");
    let mut told: Vec<_> = told.lines().collect();
    told.sort_unstable();
    assert_eq!(told, ["o-0", "o-1", "o-2"]);
    assert!(sink.rest().is_empty());
}
