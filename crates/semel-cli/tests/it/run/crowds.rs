use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Sandbox, piped, told};

#[test]
fn of_many_that_start_the_same_key_at_once_one_runs_it_and_all_are_told_the_same() {
    let sandbox = Sandbox::new();
    let crowd = 64;
    let script = "echo x >> runs; sleep 0.2; printf 'answer\\000\\377'";
    let gate = sandbox.gate("gate");
    let children: Vec<_> = (0..crowd)
        .map(|_| {
            let semel = env!("CARGO_BIN_EXE_semel");
            let mut shell = std::process::Command::new("sh");
            sandbox.bare(&mut shell);
            // All wait at the gate, and start when it opens.
            shell.args([
                "-c",
                "cat gate; exec \"$@\"",
                "sh",
                semel,
                "run",
                "--wait",
                "60s",
                "--key",
                "k",
                "--",
                "sh",
                "-c",
                script,
            ]);
            piped(&mut shell).spawn().expect("it starts")
        })
        .collect();
    super::wait_until("all wait at the gate", || gate.visitors() >= crowd);
    gate.open();
    for child in children {
        let told = told(child);
        assert_eq!(
            (told.exit, &*told.stdout),
            (0, &b"answer\0\xff"[..]),
            "{told:?}"
        );
    }
    assert_eq!(sandbox.effects("runs"), 1);
    sandbox.verified();
}

#[test]
fn one_that_waits_too_short_is_told_that_it_still_runs() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let mut first = sandbox.semel(&[
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "cat gate; echo x >> runs",
    ]);
    let first = piped(&mut first).spawn().expect("semel runs");
    super::wait_until("the first runs", || gate.has_visitor());
    let second = sandbox.say(&[
        "run",
        "--wait",
        "0s",
        "--json",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "cat gate; echo x >> runs",
    ]);
    let json = second.json();
    assert_eq!(
        (second.exit, &json["error"]["code"]),
        (122, &"in_flight".into()),
        "{second:?}"
    );
    assert_eq!(json["error"]["retryable"], true);
    gate.open();
    assert_eq!(told(first).exit, 0);
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn many_on_distinct_keys_share_one_store_without_an_error() {
    let sandbox = Sandbox::new();
    let lasts = Duration::from_secs(semel_testkit::scaled(30, 3));
    let end = Instant::now() + lasts;
    let counts: Vec<BTreeMap<i32, usize>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..32)
            .map(|worker| {
                let sandbox = &sandbox;
                scope.spawn(move || {
                    let mut exits = BTreeMap::new();
                    let mut number = 0;
                    while Instant::now() < end || number == 0 {
                        let key = format!("w{worker}-{number}");
                        let told = sandbox.run(&key, &format!("echo {key} >> runs"));
                        *exits.entry(told.exit).or_insert(0) += 1;
                        number += 1;
                    }
                    exits
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("it ends"))
            .collect()
    });
    let total: usize = counts
        .iter()
        .map(|exits| exits.get(&0).copied().unwrap_or(0))
        .sum();
    assert!(
        counts
            .iter()
            .all(|exits| exits.len() == 1 && exits.contains_key(&0)),
        "{counts:?}"
    );
    assert_eq!(sandbox.effects("runs"), total);
    sandbox.verified();
}
