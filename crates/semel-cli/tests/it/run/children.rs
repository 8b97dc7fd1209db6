//! Children that do as they like.

use std::fs;
use std::process::Command;

use super::{Sandbox, Told, piped, told};

/// Starts a run whose wrapper is killed once the child waits at the gate.
fn orphan(sandbox: &Sandbox, gate: &super::Gate, flags: &[&str]) {
    let words = [&["run", "--key", "k"], flags, &["--", "sh", "-c", ORPHAN]].concat();
    let mut wrapper = sandbox.semel(&words).spawn().expect("semel runs");
    super::wait_until("the child waits", || gate.has_visitor());
    wrapper.kill().expect("it can be killed");
    wrapper.wait().expect("it ends");
}

const ORPHAN: &str = "cat gate; echo x >> runs; cat end";

fn again(sandbox: &Sandbox, flags: &[&str]) -> Told {
    let words = [
        &["run", "--wait", "0s", "--key", "k"],
        flags,
        &["--", "sh", "-c", ORPHAN],
    ]
    .concat();
    sandbox.say(&words)
}

#[test]
fn a_child_that_outlives_its_wrapper_is_in_flight_and_then_in_doubt() {
    let sandbox = Sandbox::new();
    let (gate, end) = (sandbox.gate("gate"), sandbox.gate("end"));
    orphan(&sandbox, &gate, &["--lease", "1s"]);
    // Also when its lease is long over.
    assert_eq!(again(&sandbox, &[]).exit, 122);
    super::wait_until("the lease is over", || {
        sandbox.record("k")["state"] == "doubtful"
    });
    assert_eq!(again(&sandbox, &[]).exit, 122, "the child is there");
    gate.open();
    super::wait_until("the effect", || sandbox.effects("runs") == 1);
    assert_eq!(again(&sandbox, &[]).exit, 122, "the child is still there");
    end.open();
    super::wait_until("the child is gone", || again(&sandbox, &[]).exit == 120);
    assert_eq!(sandbox.effects("runs"), 1);
    sandbox.verified();
}

#[test]
fn a_child_that_outlives_its_wrapper_is_not_joined_by_another_where_doubts_are_retried() {
    let sandbox = Sandbox::new();
    let (gate, end) = (sandbox.gate("gate"), sandbox.gate("end"));
    orphan(&sandbox, &gate, &["--lease", "1s", "--on-doubt", "retry"]);
    super::wait_until("the lease is over", || {
        sandbox.record("k")["state"] == "doubtful"
    });
    assert_eq!(again(&sandbox, &[]).exit, 122);
    gate.open();
    super::wait_until("the effect", || sandbox.effects("runs") == 1);
    end.open();
    // Only when it is gone does the next one run.
    let words = ["run", "--key", "k", "--", "sh", "-c", ORPHAN];
    let mut next = sandbox.semel(&words);
    let next = piped(&mut next).spawn().expect("semel runs");
    gate.open();
    end.open();
    assert_eq!(told(next).exit, 0);
    assert_eq!(sandbox.effects("runs"), 2);
}

#[test]
fn a_child_in_another_container_is_seen_by_its_lock() {
    let sandbox = Sandbox::new();
    let (gate, end) = (sandbox.gate("gate"), sandbox.gate("end"));
    orphan(&sandbox, &gate, &["--lease", "1s"]);
    super::wait_until("the lease is over", || {
        sandbox.record("k")["state"] == "doubtful"
    });
    // Another process-id namespace: no process of ours can be seen from there.
    let look = || {
        let mut unshare = sandbox.unshare();
        unshare.args(["--pid", "--fork", "--mount-proc"]);
        unshare.args([
            env!("CARGO_BIN_EXE_semel"),
            "run",
            "--wait",
            "0s",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            ORPHAN,
        ]);
        Told::from(unshare.output().expect("unshare runs"))
    };
    let told = look();
    assert_eq!(told.exit, 122, "{told:?}");
    gate.open();
    end.open();
    super::wait_until("the child is gone", || look().exit == 120);
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn after_a_reboot_the_lease_decides() {
    let sandbox = Sandbox::new();
    let (gate, end) = (sandbox.gate("gate"), sandbox.gate("end"));
    orphan(&sandbox, &gate, &["--lease", "3s"]);
    gate.open();
    end.open();
    super::wait_until("the child is gone", || sandbox.effects("runs") == 1);
    fs::write(
        sandbox.path("boot_id"),
        "00000000-0000-4000-8000-000000000001\n",
    )
    .expect("it can be written");
    let after_reboot = || {
        let mut unshare = sandbox.unshare();
        let script = "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
        unshare.args(["--mount", "sh", "-c", script, "sh"]);
        unshare.args([
            env!("CARGO_BIN_EXE_semel"),
            "run",
            "--wait",
            "0s",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            ORPHAN,
        ]);
        Told::from(unshare.output().expect("unshare runs"))
    };
    // Nobody can tell whether that process lives: first its lease, then the doubt.
    let first = after_reboot();
    assert!([120, 122].contains(&first.exit), "{first:?}");
    super::wait_until("the lease is over", || after_reboot().exit == 120);
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn a_wrapper_that_died_before_its_child_was_started_is_a_doubt_at_once() {
    let sandbox = Sandbox::new();
    let mut wrapper = sandbox.semel(&["run", "--key", "k", "--", "sh", "-c", "echo x >> runs"]);
    let died = wrapper
        .env("SEMEL_INJECT", "die-after-claim")
        .output()
        .expect("semel runs");
    assert_eq!(Told::from(died).exit, -9);
    let told = sandbox.run("k", "echo x >> runs");
    assert_eq!((told.exit, sandbox.effects("runs")), (120, 0), "{told:?}");
}

#[test]
fn a_child_that_leaves_others_behind_is_not_waited_for_longer_than_it_lives() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    // The one that stays has both streams open until the gate opens.
    let script = "echo first; (cat gate; echo late >> runs) & echo last";
    let told = sandbox.run("k", script);
    assert_eq!((told.exit, &*told.out()), (0, "first\nlast\n"));
    assert_eq!(sandbox.run("k", script), told);
    super::wait_until("the one that stays waits", || gate.has_visitor());
    gate.open();
    super::wait_until("it goes on", || sandbox.effects("runs") == 1);
}

#[test]
fn a_child_may_close_its_streams_and_change_its_directory() {
    let sandbox = Sandbox::new();
    let told = sandbox.run("k", "exec >&- 2>&-; cd /; echo x >> \"$HOME/runs\"; exit 5");
    assert_eq!((told.exit, told.stdout.len()), (5, 0));
    assert_eq!(
        sandbox.run("k", "exec >&- 2>&-; cd /; echo x >> \"$HOME/runs\"; exit 5"),
        told
    );
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn a_child_that_closes_everything_it_inherited_is_known_by_its_number() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let script = "for f in /proc/$$/fd/*; do n=${f##*/}; [ $n -gt 2 ] && eval \"exec $n>&-\"; done 2>/dev/null; read x < gate; echo x >> runs";
    let mut wrapper = sandbox
        .semel(&[
            "run", "--lease", "1s", "--key", "k", "--", "bash", "-c", script,
        ])
        .spawn()
        .expect("semel runs");
    super::wait_until("the child waits", || gate.has_visitor());
    wrapper.kill().expect("it can be killed");
    wrapper.wait().expect("it ends");
    let look = || {
        sandbox
            .say(&[
                "run", "--wait", "0s", "--key", "k", "--", "bash", "-c", script,
            ])
            .exit
    };
    assert_eq!(look(), 122);
    gate.open();
    super::wait_until("the child is gone", || look() == 120);
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn a_child_that_writes_gigabytes_needs_no_memory_for_it() {
    let sandbox = Sandbox::new();
    let size = semel_testkit::scaled(2_000_000_000, 200_000_000);
    let script = format!("head -c {size} /dev/zero; echo x >> runs");
    let mut command = Command::new("sh");
    sandbox.bare(&mut command);
    // Far less memory than the output has bytes.
    command.args(["-c", "ulimit -v 1000000; \"$@\" | wc -c", "sh"]);
    command.args([
        env!("CARGO_BIN_EXE_semel"),
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let told = Told::from(command.output().expect("sh runs"));
    assert_eq!(told.out().trim(), size.to_string(), "{told:?}");
    assert_eq!(sandbox.run("k", &script).exit, 0);
    assert_eq!(sandbox.effects("runs"), 1);
}
