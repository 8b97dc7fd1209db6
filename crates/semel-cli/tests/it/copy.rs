//! `semel copy`, as real processes: between files and databases, under load, killed and started again.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use semel_testkit::postgres::Cluster;
use semel_testkit::{fixture, scaled};
use serde_json::Value;

use crate::run::{Sandbox, Told, wait_until};

/// What begun operations do: a line in a file that no ledger knows of.
const SEND: &str = "echo $SEMEL_KEY >> sent; echo sent $SEMEL_KEY; echo warned >&2; exit 3";

fn file(sandbox: &Sandbox, name: &str) -> String {
    format!("sqlite:{}", sandbox.path(name).display())
}

fn copy(sandbox: &Sandbox, from: &str, to: &str, more: &[&str]) -> Told {
    let mut words = vec!["--json", "copy", "--from", from, "--to", to];
    words.extend(more);
    sandbox.say(&words)
}

fn on(sandbox: &Sandbox, store: &str, words: &[&str]) -> Told {
    let mut all = vec!["--store", store];
    all.extend(words);
    sandbox.say(&all)
}

fn send(sandbox: &Sandbox, store: &str, key: &str) -> Told {
    let words = ["run", "--key", key, "--wait", "5s", "--", "sh", "-c", SEND];
    on(sandbox, store, &words)
}

/// Everything that the command shows of a ledger: each operation with its data, and its log entries
/// in their order, without their numbers.
fn shown(sandbox: &Sandbox, store: &str) -> BTreeMap<String, (Value, Vec<Value>)> {
    let mut all = BTreeMap::new();
    for namespace in ["default", "other"] {
        let words = [
            "--namespace",
            namespace,
            "list",
            "--limit",
            "1000",
            "--json",
        ];
        let listed = on(sandbox, store, &words);
        assert_eq!(listed.exit, 0, "{listed:?}");
        for line in listed.out().lines() {
            let record: Value = serde_json::from_str(line).expect("a record");
            let key = record["key"].as_str().expect("it has a key");
            let show = ["--namespace", namespace, "show", key, "--json"];
            let show = on(sandbox, store, &show);
            assert_eq!(show.exit, 0, "{show:?}");
            all.insert(format!("{namespace} {key}"), (show.json(), vec![]));
        }
    }
    let logged = on(sandbox, store, &["log", "--json", "--limit", "1000"]);
    assert_eq!(logged.exit, 0, "{logged:?}");
    for line in logged.out().lines() {
        let mut entry: Value = serde_json::from_str(line).expect("an entry");
        entry["seq"] = Value::Null;
        let of = format!(
            "{} {}",
            entry["namespace"].as_str().unwrap_or("-"),
            entry["key"].as_str().unwrap_or("-")
        );
        all.entry(of).or_default().1.push(entry);
    }
    all
}

/// Every operation of a ledger, however many there are.
fn listed(sandbox: &Sandbox, store: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let mut words = vec!["list", "--limit", "1000", "--json"];
        words.extend(after.iter().flat_map(|cursor| ["--after", cursor]));
        let page = on(sandbox, store, &words);
        assert_eq!(page.exit, 0, "{page:?}");
        for line in page.out().lines() {
            let record: Value = serde_json::from_str(line).expect("a record");
            let key = record["key"].as_str().expect("it has a key");
            all.insert(key.to_owned(), record);
        }
        let said = page.err();
        let next = said.split_once("--after ");
        let next = next.and_then(|(_, rest)| rest.split_whitespace().next());
        match next {
            Some(cursor) => after = Some(cursor.to_owned()),
            None => return all,
        }
    }
}

#[test]
fn a_round_trip_keeps_everything_and_raises_the_fences() {
    let sandbox = Sandbox::new();
    let database = Cluster::shared().database();
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    let made = runtime.block_on(fixture::make(&sandbox.path("a.db")));
    made.expect("the fixture is made");
    let (first, last) = (file(&sandbox, "a.db"), file(&sandbox, "c.db"));
    let mut before = vec![];
    for key in ["order-1", "order-2"] {
        assert_eq!(send(&sandbox, &first, key).exit, 3);
        before.push(send(&sandbox, &first, key));
    }
    let there = copy(&sandbox, &first, &database, &["--snapshot"]);
    assert_eq!(there.exit, 0, "{there:?}");
    let json = there.json();
    assert_eq!(
        (&json["ok"], &json["snapshot"]),
        (&true.into(), &true.into())
    );
    assert_eq!(shown(&sandbox, &first), shown(&sandbox, &database));
    // A snapshot may only be read, and its source goes on.
    let refused = send(&sandbox, &database, "order-3");
    assert_eq!(refused.exit, 119, "{refused:?}");
    assert!(refused.err().contains("semel restore"), "{refused:?}");
    assert_eq!(send(&sandbox, &first, "order-3").exit, 3);

    // What came since is brought, and the ledger moves.
    let there = copy(&sandbox, &first, &database, &["--drain", "0s"]);
    assert_eq!(there.exit, 0, "{there:?}");
    let back = copy(&sandbox, &database, &last, &["--drain", "0s"]);
    assert_eq!(back.exit, 0, "{back:?}");
    let phases = &back.json()["phases"];
    let phases = phases.as_array().expect("there are phases").iter();
    let phases: Vec<_> = phases.map(|phase| phase["phase"].as_str()).collect();
    let words = [
        "copying",
        "verifying",
        "closing",
        "draining",
        "comparing",
        "adopting",
    ];
    assert_eq!(phases, words.map(Some));
    for word in words {
        assert!(back.err().contains(&format!("semel: {word}: ")), "{back:?}");
    }
    let (old, new) = (shown(&sandbox, &first), shown(&sandbox, &last));
    assert_eq!(
        old.keys().collect::<Vec<_>>(),
        new.keys().collect::<Vec<_>>()
    );
    for (key, (record, log)) in &old {
        let (now, logged) = &new[key];
        assert!(logged.starts_with(log), "{key}");
        let adopted: Vec<_> = logged[log.len()..].iter().collect();
        assert!(
            adopted.iter().all(|entry| entry["command"] == "adopt"),
            "{adopted:?}"
        );
        if record.is_null() {
            continue;
        }
        assert_eq!(record["data"], now["data"], "{key}");
        assert_eq!(record["fingerprint"], now["fingerprint"], "{key}");
        assert!(now["fence"].as_u64() >= Some(2 << 32), "{now}");
        if record["state"] == "running" {
            assert_eq!(now["state"], "doubtful", "{key}");
        } else {
            assert_eq!(record["state"], now["state"], "{key}");
        }
    }
    // Answers are the same, byte for byte, and nothing runs again.
    for (key, before) in ["order-1", "order-2"].iter().zip(before) {
        assert_eq!(send(&sandbox, &last, key), before);
    }
    assert_eq!(sandbox.effects("sent"), 3);
    for store in [&first, &database] {
        let refused = send(&sandbox, store, "order-4");
        assert_eq!(refused.exit, 119, "{refused:?}");
        assert!(refused.err().contains("has moved to"), "{refused:?}");
        let doctor = on(&sandbox, store, &["doctor"]);
        assert_eq!(doctor.exit, 1, "{doctor:?}");
        assert!(doctor.out().contains("has moved to"), "{doctor:?}");
    }
    assert_eq!(send(&sandbox, &last, "order-4").exit, 3);
    assert_eq!(on(&sandbox, &last, &["verify"]).exit, 0);
    let again = copy(&sandbox, &database, &last, &[]);
    assert_eq!((again.exit, &again.json()["effect"]), (0, &"noop".into()));
}

/// Runs the command on the source until it is told to stop, or is refused; returns what was done.
fn load(sandbox: &Sandbox, store: &str, who: usize, stop: &AtomicBool) -> Vec<String> {
    let mut done = vec![];
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Some keys are everybody's.
        let key = match n % 4 {
            0 => format!("shared-{n}"),
            _ => format!("own-{who}-{n}"),
        };
        let told = send(sandbox, store, &key);
        match told.exit {
            3 => done.push(key),
            119 => {
                assert!(told.err().contains("has moved to"), "{told:?}");
                break;
            }
            122 => {}
            _ => panic!("{key}: {told:?}"),
        }
    }
    done
}

/// Checks that nothing was lost and nothing ran twice: every key that was answered is replayed by the
/// target, and every key that ran is known to it.
fn complete(sandbox: &Sandbox, target: &str, done: &[String]) {
    let sent = std::fs::read_to_string(sandbox.path("sent")).expect("something ran");
    let mut ran: BTreeMap<&str, usize> = BTreeMap::new();
    for key in sent.lines() {
        *ran.entry(key).or_default() += 1;
    }
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    let known = listed(sandbox, target);
    for key in ran.keys() {
        assert!(known.contains_key(*key), "{key} is lost");
    }
    for key in done {
        assert_eq!(known[key]["state"], "failed", "{}", known[key]);
    }
    // One that ran is replayed, and does not run again.
    let again = send(sandbox, target, &done[0]);
    assert_eq!(
        (again.exit, again.out()),
        (3, format!("sent {}\n", done[0]))
    );
    assert_eq!(sandbox.effects("sent"), sent.lines().count());
    assert_eq!(send(sandbox, target, "after").exit, 3);
    assert_eq!(on(sandbox, target, &["verify"]).exit, 0);
}

/// Copies while several processes use the source, with the given way to start the copy.
fn under_load(from: &str, to: &str, sandbox: &Sandbox, copying: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let done: Vec<String> = thread::scope(|scope| {
        let load = |who| {
            let stop = &stop;
            scope.spawn(move || load(sandbox, from, who, stop))
        };
        let crowd: Vec<_> = (0..3).map(load).collect();
        wait_until("something ran", || sandbox.effects("sent") >= 6);
        copying();
        // Whoever did not end by itself was not refused.
        wait_until("everybody was refused", || {
            crowd.iter().all(thread::ScopedJoinHandle::is_finished)
        });
        stop.store(true, Ordering::Relaxed);
        let ended = crowd.into_iter().map(|one| one.join().expect("it ends"));
        ended.flatten().collect()
    });
    complete(sandbox, to, &done);
}

#[test]
fn a_file_in_use_moves_to_a_database() {
    let sandbox = Sandbox::new();
    let (from, to) = (file(&sandbox, "a.db"), Cluster::shared().database());
    under_load(&from, &to, &sandbox, || {
        let copied = copy(&sandbox, &from, &to, &[]);
        assert_eq!(copied.exit, 0, "{copied:?}");
        assert_eq!(copied.json()["doubtful"], 0, "{copied:?}");
    });
}

#[test]
fn a_database_in_use_moves_to_a_file() {
    let sandbox = Sandbox::new();
    let (from, to) = (Cluster::shared().database(), file(&sandbox, "b.db"));
    under_load(&from, &to, &sandbox, || {
        let copied = copy(&sandbox, &from, &to, &[]);
        assert_eq!(copied.exit, 0, "{copied:?}");
        assert_eq!(copied.json()["doubtful"], 0, "{copied:?}");
    });
}

fn start(sandbox: &Sandbox, from: &str, to: &str) -> Child {
    let mut command = sandbox.semel(&["copy", "--from", from, "--to", to]);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

/// Kills the copy again and again, each time a quarter later, until it ends by itself: so the kills meet
/// every phase, however long it takes.
fn killed_until_it_ends(sandbox: &Sandbox, from: &str, to: &str) -> usize {
    let mut kills = 0;
    let mut lives = Duration::from_millis(5);
    loop {
        let mut copying = start(sandbox, from, to);
        thread::sleep(lives);
        if copying.try_wait().expect("it can be looked at").is_some() {
            break;
        }
        copying.kill().expect("it can be killed");
        copying.wait().expect("it is gone");
        kills += 1;
        lives += lives / 4;
    }
    let ended = copy(sandbox, from, to, &[]);
    assert_eq!(ended.exit, 0, "{ended:?}");
    kills
}

#[test]
fn a_copy_that_is_killed_again_and_again_ends_when_it_is_started_again() {
    for round in 0..scaled(10, 1) {
        let sandbox = Sandbox::new();
        let (from, database, to) = (
            file(&sandbox, "a.db"),
            Cluster::shared().database(),
            file(&sandbox, "b.db"),
        );
        under_load(&from, &database, &sandbox, || {
            let kills = killed_until_it_ends(&sandbox, &from, &database);
            assert!(kills > 0, "round {round}: nothing was interrupted");
        });
        let kills = killed_until_it_ends(&sandbox, &database, &to);
        assert!(kills > 0, "round {round}: nothing was interrupted");
        assert_eq!(on(&sandbox, &to, &["verify"]).exit, 0);
        assert_eq!(send(&sandbox, &to, "at last").exit, 3);
    }
}

#[test]
fn a_target_that_holds_something_is_refused_and_nothing_changes() {
    let sandbox = Sandbox::new();
    let (from, full) = (file(&sandbox, "a.db"), file(&sandbox, "b.db"));
    let database = Cluster::shared().database();
    for store in [&from, &full, &database] {
        assert_eq!(send(&sandbox, store, "order-7").exit, 3);
    }
    for to in [&full, &database, &from] {
        for more in [vec![], vec!["--snapshot"]] {
            let refused = copy(&sandbox, &from, to, &more);
            assert_eq!(refused.exit, 64, "{refused:?}");
            let code = &refused.json()["error"]["code"];
            assert_eq!(code, "invalid_input", "{refused:?}");
        }
        assert_eq!(on(&sandbox, to, &["doctor"]).exit, 0);
    }
    let nowhere = copy(&sandbox, "sqlite:nowhere.db", "sqlite:new.db", &[]);
    assert_eq!(nowhere.exit, 64, "{nowhere:?}");
    assert!(!sandbox.path("nowhere.db").exists() && !sandbox.path("new.db").exists());
    let would = copy(&sandbox, &from, "sqlite:new.db", &["--dry-run"]);
    assert_eq!(
        (would.exit, sandbox.path("new.db").exists()),
        (0, false),
        "{would:?}"
    );
    assert_eq!(send(&sandbox, &from, "still open").exit, 3);
}

#[test]
fn an_unfinished_copy_is_not_adopted_by_hand_and_a_snapshot_is() {
    let sandbox = Sandbox::new();
    let (from, to) = (file(&sandbox, "a.db"), file(&sandbox, "b.db"));
    assert_eq!(send(&sandbox, &from, "order-7").exit, 3);
    assert_eq!(copy(&sandbox, &from, &to, &["--snapshot"]).exit, 0);
    let doctor = on(&sandbox, &to, &["doctor"]);
    assert!(doctor.out().contains("can only be read"), "{doctor:?}");
    let restored = on(&sandbox, &to, &["restore"]);
    assert_eq!(restored.exit, 0, "{restored:?}");
    assert_eq!(send(&sandbox, &to, "order-8").exit, 3);
    // It goes its own way now.
    assert_eq!(copy(&sandbox, &from, &to, &[]).exit, 64);
    assert_eq!(send(&sandbox, &from, "order-8").exit, 3);
}

#[test]
fn a_database_from_a_dump_or_a_template_can_only_be_read_until_it_is_adopted() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::start();
    let (original, clone) = (
        cluster.url("semel", "original"),
        cluster.url("semel", "clone"),
    );
    cluster.sql("postgres", "CREATE DATABASE original");
    assert_eq!(send(&sandbox, &original, "order-7").exit, 3);
    cluster.sql("postgres", "CREATE DATABASE clone TEMPLATE original");
    let refused = send(&sandbox, &clone, "order-8");
    assert_eq!(
        (refused.exit, sandbox.effects("sent")),
        (119, 1),
        "{refused:?}"
    );
    assert!(refused.err().contains("semel restore"), "{refused:?}");
    let replayed = send(&sandbox, &clone, "order-7");
    assert_eq!(
        (replayed.exit, sandbox.effects("sent")),
        (3, 1),
        "{replayed:?}"
    );
    let would = on(&sandbox, &clone, &["restore", "--dry-run"]);
    assert_eq!(would.exit, 0, "{would:?}");
    assert_eq!(send(&sandbox, &clone, "order-8").exit, 119);
    let restored = on(&sandbox, &clone, &["restore"]);
    assert_eq!(restored.exit, 0, "{restored:?}");
    assert_eq!(send(&sandbox, &clone, "order-8").exit, 3);
    assert_eq!(send(&sandbox, &original, "order-8").exit, 3);
    assert_eq!(on(&sandbox, &original, &["restore"]).exit, 64);
}

#[test]
fn no_password_is_shown() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::shared();
    let database = cluster.database().replace("semel@", "semel:s3cret@");
    let from = file(&sandbox, "a.db");
    assert_eq!(send(&sandbox, &from, "order-7").exit, 3);
    let told = [
        copy(&sandbox, &from, &database, &["--dry-run"]),
        copy(&sandbox, &from, &database, &[]),
        copy(&sandbox, &from, &database, &[]),
        send(&sandbox, &from, "order-8"),
        on(&sandbox, &from, &["doctor"]),
    ];
    for told in told {
        assert!(
            told.out().contains("postgres://") || told.err().contains("postgres://"),
            "{told:?}"
        );
        assert!(
            !format!("{} {}", told.out(), told.err()).contains("s3cret"),
            "{told:?}"
        );
    }
}

#[test]
fn a_closed_ledger_comes_back_only_as_a_copy() {
    let sandbox = Sandbox::new();
    let (from, to, back) = (
        file(&sandbox, "a.db"),
        file(&sandbox, "b.db"),
        file(&sandbox, "c.db"),
    );
    assert_eq!(send(&sandbox, &from, "order-7").exit, 3);
    assert_eq!(copy(&sandbox, &from, &to, &[]).exit, 0);
    assert_eq!(on(&sandbox, &from, &["restore"]).exit, 64);
    assert_eq!(on(&sandbox, &from, &["backup", "copy.db"]).exit, 0);
    let restored = on(&sandbox, &back, &["restore", "copy.db"]);
    assert_eq!(restored.exit, 0, "{restored:?}");
    assert_eq!(send(&sandbox, &back, "order-8").exit, 3);
    assert_eq!(send(&sandbox, &back, "order-7").exit, 3);
    assert_eq!(sandbox.effects("sent"), 2);
    assert_eq!(send(&sandbox, &from, "order-8").exit, 119);
}
