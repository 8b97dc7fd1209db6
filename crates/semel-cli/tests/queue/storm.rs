//! Many tasks, submitted three times each by racing submitters, while workers and servers are killed at random.
//!
//! Effects are lines in a file that knows nothing of Semel, written by the workers' commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use semel_testkit::postgres::Cluster;
use semel_testkit::process::{Dice, Sink};
use semel_testkit::scaled;
use serde_json::Value;

use crate::harness::World;
use crate::workers::{Node, Process, wait_until};

/// How many worker processes there are.
const WORKERS: usize = 8;

/// How many submitters race.
const SUBMITTERS: usize = 3;

/// A server on a store, at a socket.
fn node(world: &Arc<World>, store: &str, n: usize) -> Node {
    let socket = world.path(&format!("node-{n}"));
    let listen = format!("unix:{}", socket.display());
    let (world, store) = (Arc::clone(world), store.to_owned());
    Node::start(socket, move || {
        let mut command = world.command(&["--store", &store, "serve", "--listen", &listen]);
        command.env("SEMEL_SERVE_LOG", "error");
        command
    })
}

/// A store, servers in front of it, and the tasks that are submitted through them.
struct Storm {
    world: Arc<World>,
    store: String,
    nodes: Vec<Node>,
    tasks: usize,
    sink: Sink,
    seed: u64,
    dice: Dice,
    on_doubt: &'static str,
}

impl Storm {
    fn new(store: impl FnOnce(&World) -> String, nodes: usize, on_doubt: &'static str) -> Self {
        let world = Arc::new(World::new());
        let store = store(&world);
        let (seed, dice) = Dice::fresh();
        let nodes = (0..nodes).map(|n| node(&world, &store, n)).collect();
        Self {
            nodes,
            tasks: usize::try_from(scaled(20_000, 600)).expect("it is small"),
            sink: Sink::at(world.path("sink")),
            seed,
            dice,
            on_doubt,
            store,
            world,
        }
    }

    fn key(n: usize) -> String {
        // Several agents, so that lanes take turns.
        format!("agent-{}/task-{n}", n % 7)
    }

    /// Submits everything; what a killed server left open is submitted again.
    fn submitter(&self, node: usize, batch: &Path) -> Process {
        let url = self.nodes[node % self.nodes.len()].url();
        let script = format!(
            "until \"$SEMEL\" submit work --batch \"$BATCH\" --on-doubt {}; do sleep 0.1; done",
            self.on_doubt
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("SEMEL_STORE", url);
        command.env("HOME", self.world.path("."));
        command
            .env("BATCH", batch)
            .env("SEMEL", env!("CARGO_BIN_EXE_semel"));
        Process::start(&mut command)
    }

    fn worker(&self, n: usize) -> Process {
        let url = self.nodes[n % self.nodes.len()].url();
        let mut command = self.world.command(&["--store", &url, "work", "work"]);
        command.args(["--concurrency", "2", "--lease", "2s", "--", "sh", "-c"]);
        // A few ask to be tried again at first.
        let script = r#"
            case "$SEMEL_KEY$SEMEL_ATTEMPT" in *51) exit 75;; esac
            echo "$SEMEL_KEY $SEMEL_FENCE $$" >> "$SINK""#;
        command.arg(script).env("SINK", self.world.path("sink"));
        Process::start(&mut command)
    }

    /// How many operations of the queue are in these states.
    fn count(&self, states: &str) -> usize {
        let mut count = 0;
        let mut after = None::<String>;
        loop {
            let mut page = self
                .world
                .command(&["--store", &self.store, "list", "--json"]);
            page.args(["--queue", "work", "--state", states, "--limit", "1000"]);
            if let Some(after) = &after {
                page.args(["--after", after]);
            }
            let ran = self.world.run(&mut page);
            assert_eq!(ran.code, 0, "{ran:?}");
            count += ran.stdout.lines().count();
            let next = ran.stderr.rsplit("--after ").next();
            match next.filter(|_| ran.stderr.contains("--after")) {
                Some(next) => after = Some(next.trim().to_owned()),
                None => return count,
            }
        }
    }

    /// Runs it: submits, works and kills until nothing is left to be done; returns the effects by key.
    fn run(&mut self) -> BTreeMap<String, usize> {
        let batch = self.world.path("batch.jsonl");
        let mut lines = String::new();
        for n in 0..self.tasks {
            let key = Self::key(n);
            writeln!(lines, r#"{{"key": "{key}", "input": {n}}}"#).expect("it is a string");
        }
        std::fs::write(&batch, lines).expect("it can be written");
        let mut submitters: Vec<_> = (0..SUBMITTERS).map(|n| self.submitter(n, &batch)).collect();
        let mut workers: Vec<_> = (0..WORKERS).map(|n| self.worker(n)).collect();
        let kills = scaled(60, 12);
        let share = self.tasks as u64 / kills;
        for kill in 0..kills {
            // A kill falls anywhere between two shares of the whole, while everybody is busy.
            let moment = kill * share + self.dice.below(share.max(1));
            wait_until("the workers get on", || {
                self.effects() as u64 >= moment * 8 / 10
            });
            if self.dice.below(4) == 0 {
                let node = usize::try_from(self.dice.below(self.nodes.len() as u64));
                self.nodes[node.expect("it is small")].crash();
            } else {
                let n = usize::try_from(self.dice.below(WORKERS as u64)).expect("it is small");
                workers[n].kill();
                workers[n] = self.worker(n);
            }
        }
        wait_until("all is submitted", || {
            submitters.iter_mut().all(Process::has_ended)
        });
        let open = match self.on_doubt {
            "retry" => "pending,running,doubtful",
            _ => "pending,running",
        };
        wait_until("nothing is left to be done", || {
            std::thread::sleep(Duration::from_millis(200));
            self.count(open) == 0
        });
        drop(workers);
        let mut effects = BTreeMap::new();
        for line in self.sink.lines() {
            *effects.entry(line.key).or_default() += 1;
        }
        effects
    }

    fn effects(&self) -> usize {
        std::fs::read(self.world.path("sink"))
            .map_or(0, |sink| sink.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Nothing is lost: what became of each task adds up to what was submitted.
    fn adds_up(&self) -> [usize; 4] {
        let counts = ["succeeded", "dead", "doubtful", "pending,running,failed"];
        let counts = counts.map(|states| self.count(states));
        let seed = self.seed;
        assert_eq!(
            counts.iter().sum::<usize>(),
            self.tasks,
            "seed {seed}: {counts:?}"
        );
        counts
    }

    fn verify(&self) {
        let verified = self.world.semel(&["--store", &self.store, "verify"]);
        assert_eq!(verified.code, 0, "seed {}: {verified:?}", self.seed);
    }
}

/// Under `hold` no effect happens twice, and each that nobody is sure about is held.
fn each_effect_happens_at_most_once(mut storm: Storm) {
    let effects = storm.run();
    let seed = storm.seed;
    let twice: Vec<_> = effects.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "seed {seed}: {twice:?}");
    let [succeeded, dead, held, other] = storm.adds_up();
    assert_eq!((dead, other), (0, 0), "seed {seed}");
    assert!(held > 0, "seed {seed}: nobody was killed at work");
    assert!(effects.len() >= succeeded, "seed {seed}");
    assert!(effects.len() <= succeeded + held, "seed {seed}");
    resolve_all(&storm, &effects);
    storm.verify();
}

/// Whoever knows the sink can say what became of those in doubt; the rest is done then.
fn resolve_all(storm: &Storm, effects: &BTreeMap<String, usize>) {
    let mut listed = storm.world.command(&["--store", &storm.store]);
    let args = [
        "dead", "list", "--queue", "work", "--limit", "1000", "--json",
    ];
    let listed = storm.world.run(listed.args(args));
    let mut not_done = BTreeSet::new();
    for record in listed.json() {
        let Some(key) = record["key"].as_str() else {
            panic!("seed {}: {record}", storm.seed);
        };
        let verdict = if effects.contains_key(key) {
            "--done"
        } else {
            "--not-done"
        };
        let words = ["--store", &storm.store, "resolve", key, verdict, "--yes"];
        let resolved = storm.world.semel(&words);
        assert_eq!(resolved.code, 0, "seed {}: {resolved:?}", storm.seed);
        if verdict == "--not-done" {
            not_done.insert(key.to_owned());
        }
    }
    let mut worker = storm
        .world
        .command(&["--store", &storm.store, "work", "work"]);
    worker.args(["--until-empty", "--json", "--", "true"]);
    let worked = storm.world.run(&mut worker);
    let done = worked.json();
    let done = done
        .iter()
        .filter(|receipt| receipt["state"] == "succeeded");
    let done: BTreeSet<_> = done
        .filter_map(|it| it["key"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(done, not_done, "seed {}", storm.seed);
}

/// Under `retry` every effect happens, under its own key, and all is done in the end.
fn each_effect_happens_at_least_once(mut storm: Storm) {
    let effects = storm.run();
    let seed = storm.seed;
    let [succeeded, dead, held, other] = storm.adds_up();
    assert_eq!(
        (succeeded, dead, held, other),
        (storm.tasks, 0, 0, 0),
        "seed {seed}"
    );
    let expected: BTreeSet<_> = (0..storm.tasks).map(Storm::key).collect();
    let happened: BTreeSet<_> = effects.into_keys().collect();
    assert_eq!(happened, expected, "seed {seed}");
    storm.verify();
}

fn sqlite(world: &World) -> String {
    format!("sqlite:{}", world.path("storm.db").display())
}

fn postgres(_: &World) -> String {
    Cluster::shared().database()
}

#[test]
fn on_sqlite_each_effect_happens_at_most_once_under_hold() {
    each_effect_happens_at_most_once(Storm::new(sqlite, 1, "hold"));
}

#[test]
fn on_sqlite_each_effect_happens_at_least_once_under_retry() {
    each_effect_happens_at_least_once(Storm::new(sqlite, 1, "retry"));
}

#[test]
fn on_three_nodes_each_effect_happens_at_most_once_under_hold() {
    each_effect_happens_at_most_once(Storm::new(postgres, 3, "hold"));
}

#[test]
fn on_three_nodes_each_effect_happens_at_least_once_under_retry() {
    each_effect_happens_at_least_once(Storm::new(postgres, 3, "retry"));
}

/// A receipt is one line of JSON for each task.
#[test]
fn a_batch_answers_for_each_of_its_tasks() {
    let world = World::new();
    let batch = world.path("batch.jsonl");
    std::fs::write(
        &batch,
        "{\"key\": \"a\"}\n\n{\"key\": \"b\", \"input\": [1]}\n",
    )
    .expect("written");
    let path = batch.to_str().expect("a path");
    for effect in ["created", "noop"] {
        let ran = world.semel(&["submit", "q", "--batch", path, "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let receipts = ran.json();
        let effects: Vec<_> = receipts.iter().map(|it| it["effect"].as_str()).collect();
        assert_eq!(effects, [Some(effect); 2]);
        let keys: BTreeSet<_> = receipts.iter().map(|it| it["key"].as_str()).collect();
        assert_eq!(keys, [Some("a"), Some("b")].into());
        assert!(receipts.iter().all(|it| it["error"] == Value::Null));
    }
}
