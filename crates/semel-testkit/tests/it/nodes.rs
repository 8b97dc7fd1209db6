//! Many nodes on one PostgreSQL: they are killed, their connections are cut, and the server crashes.
//! Nothing happens twice, nothing that was told is lost, nobody hangs, and whatever was heard can
//! have been heard from one ledger.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use semel::core::ledger::Command;
use semel::store::Logged;
use semel_testkit::postgres::Cluster;
use semel_testkit::process::audit::{Audited, Seen, attempts, audit, whole_log};
use semel_testkit::process::linear::{self, Checked};
use semel_testkit::process::{
    Agent, Dice, Keys, Orders, Program, Scene, Word, crowd_key, resolve_truthfully, unsettled,
};
use semel_testkit::scaled;
use semel_testkit::sim::Bug;

use crate::agent;

const NODES: usize = 4;

/// For how long an attempt may be silent: longer than the server takes to come back, so that most
/// reports are stored, and short enough that a claim nobody heard of ends during the test.
const LEASE: Duration = Duration::from_secs(5);

/// How long an effect takes at most, so that whatever happens finds some of them half done.
const LINGER: Duration = Duration::from_millis(50);

/// How long a caller waits for another one's attempt.
const WAIT: Duration = Duration::from_millis(50);

/// How long a caller asks again while the server is gone: far longer than it is.
const INSIST: Duration = Duration::from_secs(120);

/// How often the conductor looks how far they are.
const LOOK: Duration = Duration::from_millis(2);

/// How many answers the others get while a node is stopped.
const STOPPED_ANSWERS: u64 = 200;

/// Of all answers, so many parts in ten are given while trouble may come.
const TROUBLED_TENTHS: u64 = 7;

/// What the conductor does to the nodes.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    KillNode,
    StopNode,
    CutConnections,
    CrashServer,
}

/// Nodes, their server, and whoever makes trouble.
struct Play {
    cluster: Cluster,
    scene: Scene,
    dice: Dice,
    seed: u64,
    deadline: Instant,
    keys: usize,
    orders: Orders,
    nodes: Vec<Agent>,
    killed: usize,
    told: Progress,
}

/// Counts lines of a file that grows.
struct Progress {
    path: std::path::PathBuf,
    file: Option<File>,
    lines: u64,
}

impl Progress {
    fn lines(&mut self) -> u64 {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return 0,
                opened => Some(opened.expect("the file of answers can be read")),
            };
        }
        let mut more = vec![];
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut more).expect("it can be read");
        }
        self.lines += more.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.lines
    }
}

impl Play {
    /// Prepares nodes with so many callers in all, each taking one of `share` keys.
    fn new(callers: u64, keys: u64, share: u64, deadline: Duration) -> Self {
        let (seed, dice) = Dice::fresh();
        let cluster = Cluster::start();
        let scene = Scene::on_server(cluster.database());
        let keys = usize::try_from(keys).expect("it fits");
        let orders = Orders {
            tasks: usize::try_from(callers).expect("it fits") / NODES,
            threads: 2,
            lease: LEASE,
            wait: WAIT,
            linger: LINGER,
            insist: INSIST,
            history: Some(scene.path().join("history")),
            ..Orders::new(&scene, Keys::Crowd(keys, share))
        };
        let told = Progress {
            path: orders.told.clone(),
            file: None,
            lines: 0,
        };
        Self {
            cluster,
            scene,
            dice,
            seed,
            deadline: Instant::now() + deadline,
            keys,
            orders,
            nodes: vec![],
            killed: 0,
            told,
        }
    }

    /// What is left on this machine by nodes goes away with the scene.
    fn program(&self) -> Program {
        let state = format!("XDG_STATE_HOME={}", self.scene.path().display());
        agent().through(&["env", &state])
    }

    fn start_node(&mut self) -> Agent {
        let orders = Orders {
            seed: self.dice.next(),
            ..self.orders.clone()
        };
        self.program().start(&orders)
    }

    /// Draws what happens, each at so many answers.
    fn draw(&mut self, troubles: &[(Trouble, u64)], answers: u64) -> Vec<(u64, Trouble)> {
        let mut drawn = vec![];
        for (trouble, times) in troubles {
            for _ in 0..*times {
                let at = self.dice.below(answers * TROUBLED_TENTHS / 10);
                drawn.push((at, *trouble));
            }
        }
        drawn.sort_by_key(|(at, _)| *at);
        drawn
    }

    /// Lets the nodes work, and makes trouble meanwhile.
    fn perform(&mut self, troubles: &[(Trouble, u64)]) {
        let Keys::Crowd(_, share) = self.orders.keys else {
            panic!("a play has a crowd");
        };
        let callers = (self.orders.tasks * NODES) as u64;
        let troubles = self.draw(troubles, callers * self.keys as u64 / share);
        for _ in 0..NODES {
            let node = self.start_node();
            self.nodes.push(node);
        }
        for (at, trouble) in troubles {
            while self.told.lines() < at {
                self.look();
            }
            self.make(trouble);
        }
        while !self.nodes.iter_mut().all(Agent::has_ended) {
            self.look();
        }
        for node in std::mem::take(&mut self.nodes) {
            let ended = node.wait();
            assert!(
                ended.status.success(),
                "a node ends with {}: {} (seed {})",
                ended.status,
                ended.said,
                self.seed
            );
        }
    }

    fn make(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::KillNode => {
                let number = self.dice.below(NODES as u64);
                let number = usize::try_from(number).unwrap_or(0);
                let another = self.start_node();
                let mut node = std::mem::replace(&mut self.nodes[number], another);
                if !node.has_ended() {
                    node.kill();
                }
                self.killed += usize::from(node.wait().was_killed());
            }
            Trouble::StopNode => self.stop_node(),
            Trouble::CutConnections => {
                self.cluster.sql(
                    "postgres",
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE application_name = 'semel'",
                );
            }
            Trouble::CrashServer => {
                self.cluster.crash();
                self.cluster.start_again();
            }
        }
    }

    /// Stops a node, whatever it holds, until the others have gone on for a while or have ended.
    fn stop_node(&mut self) {
        let number = self.dice.below(NODES as u64);
        let number = usize::try_from(number).unwrap_or(0);
        if self.nodes[number].has_ended() {
            return;
        }
        self.nodes[number].signal(Signal::STOP);
        let enough = self.told.lines() + STOPPED_ANSWERS;
        while self.told.lines() < enough {
            let mut others = self.nodes.iter_mut().enumerate();
            if others.all(|(other, node)| other == number || node.has_ended()) {
                break;
            }
            self.look();
        }
        self.nodes[number].signal(Signal::CONT);
    }

    /// Waits a moment, but not for ever.
    fn look(&mut self) {
        if Instant::now() > self.deadline {
            panic!("{}", self.who_hangs());
        }
        std::thread::sleep(LOOK);
    }

    fn who_hangs(&mut self) -> String {
        let (seed, lines) = (self.seed, self.told.lines());
        let mut text = format!("somebody hangs after {lines} answers (seed {seed}):");
        let exchanges = self.scene.history().exchanges();
        for node in &mut self.nodes {
            let pid = node.pid().as_raw_nonzero();
            if node.has_ended() {
                continue;
            }
            let open = exchanges.iter().flat_map(|(key, of)| {
                let own = of.iter().filter(|one| one.pid == pid.get().cast_unsigned());
                let last = own.max_by_key(|one| one.called);
                last.filter(|last| last.back.is_none())
                    .map(|last| (key, &last.ask))
            });
            let open: Vec<_> = open.collect();
            let written = write!(text, "\n  node {pid} waits for {open:?}");
            written.expect("text can be written");
        }
        text
    }

    /// Settles what was left in doubt by the truth, and carries out what nobody has.
    async fn finish(&mut self) -> Result<(), String> {
        let keys: Vec<_> = (0..self.keys).map(crowd_key).collect();
        loop {
            let engine = self.scene.open().await;
            resolve_truthfully(&engine, &self.scene, &keys).await;
            let left = unsettled(&engine, &keys).await;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > self.deadline {
                return Err(format!("some keys are never settled: {left:?}"));
            }
            let orders = Orders {
                tasks: 1,
                keys: Keys::These(left),
                ..self.orders.clone()
            };
            let ended = self.program().start(&orders).wait();
            assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
        }
    }

    /// Holds world, ledger and callers against each other.
    async fn judge(&mut self) -> Result<Audited, String> {
        self.finish().await?;
        let engine = self.scene.open().await;
        let audited = audit(&engine, &self.scene, &mut Seen::default()).await?;
        for (key, word) in self.scene.told().words() {
            if let Word::Error(text) = word
                && !text.starts_with("fenced")
            {
                return Err(format!("{key}: {text}"));
            }
        }
        let lines = self.scene.sink().lines();
        for key in (0..self.keys).map(crowd_key) {
            let effects = lines.iter().filter(|line| line.key == key).count();
            // That the log says why a doubt was retried, the audit has seen.
            if effects != 1 && !(effects > 1 && key.starts_with("retry-")) {
                return Err(format!("{key} took effect {effects} times"));
            }
        }
        Ok(audited)
    }

    /// Looks for an order of all calls that explains what was heard.
    async fn check(&self) -> Result<Checked, String> {
        let log = whole_log(&self.scene.open().await).await;
        let checked = linear::check(&self.scene.history().exchanges(), &attempts(&log));
        checked.map_err(|wrong| {
            let (key, calls) = wrong.split_once(": ").unwrap_or((&wrong, ""));
            format!("{key}: {calls}\n{}", story_of(&log, key))
        })
    }
}

/// What the log says of a key, for whoever must find out why.
fn story_of(log: &[Logged], key: &str) -> String {
    let begins = |logged: &&Logged| match &logged.entry.command {
        Command::Begin(begin) => begin.spec.key.as_str() == key,
        _ => false,
    };
    let place = log.iter().find(begins).and_then(|logged| logged.place);
    let mut text = "the log says:".to_owned();
    for Logged { seq, entry, .. } in log.iter().filter(|logged| logged.place == place) {
        let (at, fence) = (entry.at, entry.fence.0);
        let written = write!(
            text,
            "\n  {seq} {at} fence {fence}: {:?}, then {:?}",
            entry.events, entry.state
        );
        written.expect("text can be written");
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_killed_cut_off_and_lose_their_server_neither_repeat_nor_lose_an_effect() {
    let deadline = Duration::from_secs(scaled(30 * 60, 120));
    let mut play = Play::new(scaled(200, 40), scaled(5_000, 400), scaled(8, 2), deadline);
    let seed = play.seed;
    play.perform(&[
        (Trouble::KillNode, scaled(16, 8)),
        (Trouble::StopNode, scaled(8, 1)),
        (Trouble::CutConnections, scaled(12, 4)),
        (Trouble::CrashServer, scaled(4, 2)),
    ]);
    let checked = play.check().await;
    let checked = checked.unwrap_or_else(|wrong| panic!("{wrong} (seed {seed})"));
    let audited = play.judge().await;
    let audited = audited.unwrap_or_else(|wrong| panic!("{wrong} (seed {seed})"));
    assert!(play.killed > 0, "no node was killed at work (seed {seed})");
    assert_eq!(checked.keys, play.keys, "seed {seed}");
    assert!(
        checked.calls > checked.left_out * 2,
        "too little was checked: {checked:?} (seed {seed})"
    );
    assert!(audited.effects >= play.keys, "seed {seed}");
    let again = play.check().await;
    again.unwrap_or_else(|wrong| panic!("{wrong} (seed {seed})"));
}

/// One of the nodes breaks a rule; returns what the checks say, first of the calls, then of the rest.
async fn with_a_broken_node(bug: Bug) -> (Result<Checked, String>, Result<Audited, String>) {
    let mut play = Play::new(16, 40, 1, Duration::from_secs(60));
    play.orders.bug = Some(bug);
    play.perform(&[]);
    play.orders.bug = None;
    let checked = play.check().await;
    (checked, play.judge().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_grant_what_runs_are_caught() {
    let (checked, judged) = with_a_broken_node(Bug::GrantWhileRunning).await;
    let wrong = checked.expect_err("two leases at once have no order");
    assert!(wrong.contains("no order of these calls"), "{wrong}");
    judged.expect_err("an effect happened twice");
}
