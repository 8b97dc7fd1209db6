//! Processes that die around the COMMIT of a transaction that holds the effect and its report: both are
//! there, or neither is.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use semel::core::ledger::StateKind;
use semel_testkit::process::{Dice, Scene, Teller, key, wall};
use semel_testkit::scaled;

/// Transfers that a process is given: more than it can do before it is killed.
const KEYS: u64 = 400;

/// The longest that a process lives after it is ready.
const LIFE_MAX: Duration = Duration::from_millis(60);

/// Starts a process and waits until it has the store open.
fn start(scene: &Scene, fate: &str, keys: &[String]) -> Child {
    let mut teller = Command::new(env!("CARGO_BIN_EXE_teller"))
        .arg(scene.store())
        .arg(fate)
        .args(keys)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = teller.stdout.take().expect("it is piped");
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    read.expect("it is text");
    assert_eq!(line, "ready\n");
    teller
}

fn was_killed(mut teller: Child) -> bool {
    let status = teller.wait().expect("a parent may wait");
    status.signal() == Some(Signal::KILL.as_raw())
}

/// Asserts that exactly what the ledger calls done was moved; returns how much that is.
async fn assert_whole(teller: &Teller, keys: &[String]) -> i64 {
    let mut done = 0;
    for name in keys {
        let record = teller.engine().load(&wall(), &key(name)).await;
        let record = record.expect("it loads");
        let state = record.map(|record| record.kind());
        let moved = teller.number(&format!("SELECT count(*) FROM moved WHERE key = '{name}'"));
        let wanted = i64::from(state == Some(StateKind::Succeeded));
        assert_eq!(moved, wanted, "{name} is {state:?}");
        done += moved;
    }
    let held = teller.number("SELECT balance FROM account WHERE id = 2");
    assert_eq!(held, done);
    let verified = teller.engine().verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_between_its_report_and_commit_leaves_neither() {
    let scene = Scene::new();
    let keys = ["order-7".to_owned()];
    for _ in 0..2 {
        assert!(was_killed(start(&scene, "die", &keys)));
        let teller = Teller::open(&scene.store()).await.expect("it opens");
        assert_eq!(assert_whole(&teller, &keys).await, 0);
    }
    let mut teller = Teller::open(&scene.store()).await.expect("it opens");
    teller.transfer("order-7").await.expect("it runs again");
    teller.transfer("order-7").await.expect("it is a replay");
    assert_eq!(assert_whole(&teller, &keys).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_die_at_any_moment_leave_nothing_half_done() {
    let (seed, mut dice) = Dice::fresh();
    let scene = Scene::new();
    let keys: Vec<String> = (0..KEYS).map(|n| format!("t-{n}")).collect();
    for _ in 0..scaled(200, 6) {
        let mut tellers = vec![];
        for _ in 0..2 {
            let mut keys = keys.clone();
            dice.shuffle(&mut keys);
            tellers.push(start(&scene, "live", &keys));
        }
        std::thread::sleep(dice.up_to(LIFE_MAX));
        for mut teller in tellers {
            teller.kill().expect("a parent may kill its child");
            was_killed(teller);
        }
        let teller = Teller::open(&scene.store()).await.expect("it opens");
        assert_whole(&teller, &keys).await;
    }
    let mut teller = Teller::open(&scene.store()).await.expect("it opens");
    for name in &keys {
        let transferred = teller.transfer(name).await;
        transferred.unwrap_or_else(|error| panic!("seed {seed}, {name}: {error}"));
    }
    let done = assert_whole(&teller, &keys).await;
    assert_eq!(done.cast_unsigned(), KEYS, "seed {seed}");
}
