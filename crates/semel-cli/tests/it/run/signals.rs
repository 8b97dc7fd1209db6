//! Signals and terminals.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Sandbox, piped, told};

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("it has a number");
    kill_process(pid, signal).expect("it is there");
}

#[test]
fn what_is_sent_to_the_wrapper_reaches_the_command() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
    ] {
        let sandbox = Sandbox::new();
        let gate = sandbox.gate("gate");
        let script = format!("trap 'echo heard; exit 3' {name}; while :; do read x < gate; done");
        let mut command = sandbox.semel(&["run", "--key", "k", "--", "sh", "-c", &script]);
        let child = piped(&mut command).spawn().expect("semel runs");
        super::wait_until("the command waits", || gate.has_visitor());
        send(&child, signal);
        let told = told(child);
        assert_eq!(
            (told.exit, &*told.out()),
            (3, "heard\n"),
            "{name}: {told:?}"
        );
    }
}

#[test]
fn a_command_that_a_signal_ends_is_a_doubt() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let mut command = sandbox.semel(&["run", "--key", "k", "--", "sh", "-c", "read x < gate"]);
    let child = piped(&mut command).spawn().expect("semel runs");
    super::wait_until("the command waits", || gate.has_visitor());
    send(&child, Signal::TERM);
    assert_eq!(told(child).exit, 128 + 15);
    assert_eq!(sandbox.run("k", "read x < gate").exit, 120);
}

#[test]
fn one_that_waits_for_another_can_be_ended_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let words = [
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "read x < gate; echo x >> runs",
    ];
    let mut first = sandbox.semel(&words);
    let first = piped(&mut first).spawn().expect("semel runs");
    super::wait_until("the first runs", || gate.has_visitor());
    let mut second = sandbox.semel(&words);
    let second = piped(&mut second).spawn().expect("semel runs");
    super::wait_until("the second waits", || {
        has_store_open(&sandbox, first.id()) == Some(second.id())
    });
    send(&second, Signal::TERM);
    assert_eq!(told(second).exit, 128 + 15);
    gate.open();
    assert_eq!(told(first).exit, 0);
    assert_eq!(
        (
            sandbox.effects("runs"),
            sandbox.record("k")["attempt"].as_u64()
        ),
        (1, Some(1))
    );
}

/// A terminal, and `semel` in its foreground.
struct Terminal {
    keyboard: File,
    child: Child,
}

impl Terminal {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        let keyboard: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).expect("it is ours");
        unlockpt(&keyboard).expect("it is ours");
        let name = ptsname(&keyboard, vec![]).expect("it has a name");
        let screen = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("it is text"))
            .expect("it can be opened");
        let mut command = Command::new("setsid");
        sandbox.bare(&mut command);
        command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_semel")])
            .args(words);
        command
            .stdin(screen.try_clone().expect("a copy"))
            .stdout(screen.try_clone().expect("a copy"))
            .stderr(screen);
        let child = command.spawn().expect("setsid runs");
        Self {
            keyboard: keyboard.into(),
            child,
        }
    }

    fn press(&mut self, key: u8) {
        self.keyboard.write_all(&[key]).expect("it takes keys");
    }

    /// Returns the exit code and all that was on the screen.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it ends");
        let mut screen = vec![];
        // The terminal is gone with its last process: that is the end of it.
        drop(self.keyboard.read_to_end(&mut screen));
        (status.code(), String::from_utf8_lossy(&screen).into_owned())
    }
}

#[test]
fn on_a_terminal_a_replay_says_that_it_is_one() {
    let sandbox = Sandbox::new();
    let words = ["run", "--key", "k", "--", "echo", "hello"];
    assert_eq!(
        Terminal::start(&sandbox, &words).end(),
        (Some(0), "hello\r\n".to_owned())
    );
    let (exit, screen) = Terminal::start(&sandbox, &words).end();
    assert_eq!(exit, Some(0));
    assert!(
        screen.starts_with("hello\r\nsemel: k: already done "),
        "{screen}"
    );
}

#[test]
fn control_c_reaches_the_command_once() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let script = "trap 'echo x >> heard' INT; read x < gate || read x < gate; exit 9";
    let mut terminal = Terminal::start(&sandbox, &["run", "--key", "k", "--", "sh", "-c", script]);
    super::wait_until("the command waits", || gate.has_visitor());
    terminal.press(3);
    super::wait_until("it was heard", || sandbox.effects("heard") >= 1);
    super::wait_until("the command waits again", || gate.has_visitor());
    gate.open();
    assert_eq!(terminal.end().0, Some(9));
    assert_eq!(sandbox.effects("heard"), 1);
}

#[test]
fn control_z_stops_us_with_a_lease_that_lasts() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let words = [
        "run",
        "--lease",
        "1s",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "read x < gate; echo x >> runs",
    ];
    let mut terminal = Terminal::start(&sandbox, &words);
    super::wait_until("the command waits", || gate.has_visitor());
    let pid = sandbox.record("k")["holder"]["pid"]
        .as_u64()
        .expect("it has a holder");
    terminal.press(0x1a);
    let number = u32::try_from(pid).expect("a number");
    super::wait_until("it is stopped", || is_stopped(number));
    let record = sandbox.record("k");
    let time = |field: &str| record[field].as_str().expect("a time").to_owned();
    // A second lease and a day's: the dates differ.
    assert_ne!(time("lease_until")[..10], time("started_at")[..10]);
    assert_eq!(
        sandbox
            .say(&[
                "run", "--wait", "0s", "--key", "k", "--", "sh", "-c", words[8]
            ])
            .exit,
        122
    );
    let pid = Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a number");
    kill_process(pid, Signal::CONT).expect("it is there");
    gate.open();
    assert_eq!(terminal.end().0, Some(0));
    assert_eq!(
        (
            sandbox.effects("runs"),
            sandbox.record("k")["state"].as_str()
        ),
        (1, Some("succeeded"))
    );
}

#[test]
fn a_command_can_read_the_terminal_and_see_its_size() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(
        &sandbox,
        &[
            "run",
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            "read x; echo got $x; stty size",
        ],
    );
    terminal.press(b'y');
    terminal.press(b'\n');
    let (exit, screen) = terminal.end();
    assert_eq!(exit, Some(0), "{screen}");
    assert!(
        screen.contains("got y") && screen.contains("0 0"),
        "{screen}"
    );
}

#[test]
fn what_was_settled_while_the_wrapper_was_stopped_is_what_it_answers() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let script = "read x < gate; echo ran";
    let words = [
        "run", "--lease", "1s", "--key", "k", "--", "sh", "-c", script,
    ];
    let mut command = sandbox.semel(&words);
    let child = piped(&mut command).spawn().expect("semel runs");
    super::wait_until("the command waits", || gate.has_visitor());
    send(&child, Signal::STOP);
    super::wait_until("the lease is over", || {
        sandbox.record("k")["state"] == "doubtful"
    });
    // The process is there and may still act: that needs a clear word.
    let resolve = ["resolve", "k", "--done", "--failed", "--data", "\"no\""];
    assert_eq!(sandbox.say(&resolve).exit, 122);
    assert_eq!(sandbox.say(&[&resolve[..], &["--yes"]].concat()).exit, 0);
    send(&child, Signal::CONT);
    gate.open();
    let told = told(child);
    assert_eq!((told.exit, &*told.out()), (1, "ran\n"), "{told:?}");
    assert!(told.err().contains("that outcome stands"), "{told:?}");
    assert_eq!(sandbox.say(&words).exit, 1);
    sandbox.verified();
}

/// Says whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.contains(") T "))
}

#[test]
fn a_wrapper_that_was_stopped_past_its_lease_starts_nothing() {
    let sandbox = Sandbox::new();
    let words = ["run", "--key", "k", "--lease", "1s", "--on-doubt", "retry"];
    let script = ["--", "sh", "-c", "echo x >> runs; echo ran"];
    let words = [&words[..], &script[..]].concat();
    let mut command = sandbox.semel(&words);
    command.env("SEMEL_INJECT", "stop-after-claim");
    let stopped = piped(&mut command).spawn().expect("semel runs");
    super::wait_until("it is stopped", || is_stopped(stopped.id()));
    super::wait_until("the lease is over", || {
        sandbox.record("k")["state"] == "doubtful"
    });
    assert_eq!(sandbox.say(&words).out(), "ran\n", "another one goes on");
    send(&stopped, Signal::CONT);
    let told = told(stopped);
    assert_eq!((told.exit, &*told.out()), (0, "ran\n"), "{told:?}");
    assert_eq!(sandbox.effects("runs"), 1);
    sandbox.verified();

    // Where nobody went on, it says that it did nothing, and that frees the key.
    let mut command = sandbox.semel(&[
        "run",
        "--key",
        "l",
        "--lease",
        "1s",
        "--",
        "sh",
        "-c",
        "echo x >> l",
    ]);
    command.env("SEMEL_INJECT", "stop-after-claim");
    let stopped = piped(&mut command).spawn().expect("semel runs");
    super::wait_until("it is stopped", || is_stopped(stopped.id()));
    super::wait_until("the lease is over", || {
        sandbox.record("l")["state"] == "doubtful"
    });
    send(&stopped, Signal::CONT);
    let told = super::told(stopped);
    assert_eq!((told.exit, sandbox.effects("l")), (125, 0), "{told:?}");
    assert!(told.err().contains("nothing was run"), "{told:?}");
    assert_eq!(sandbox.record("l")["state"], "pending");
}

#[test]
fn control_z_stops_one_that_waits_for_another() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let words = [
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "read x < gate; echo ran",
    ];
    let mut first = sandbox.semel(&words);
    let first = piped(&mut first).spawn().expect("semel runs");
    super::wait_until("the first runs", || gate.has_visitor());
    let mut terminal = Terminal::start(&sandbox, &words);
    let second = || has_store_open(&sandbox, first.id());
    super::wait_until("the second waits", || second().is_some());
    let waiting = second().expect("it has the store open");
    terminal.press(0x1a);
    super::wait_until("it is stopped", || is_stopped(waiting));
    gate.open();
    assert_eq!(told(first).out(), "ran\n");
    let pid = Pid::from_raw(waiting.cast_signed()).expect("a number");
    kill_process(pid, Signal::CONT).expect("it is there");
    let (exit, screen) = terminal.end();
    assert_eq!(exit, Some(0), "{screen}");
    assert!(screen.contains("ran\r\nsemel: k: already done"), "{screen}");
}

/// Finds another process than this one that has the store open.
fn has_store_open(sandbox: &Sandbox, other_than: u32) -> Option<u32> {
    let log = sandbox.path("s.db-wal");
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|pid| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut open = open.filter_map(Result::ok);
        *pid != other_than
            && open.any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path == log))
    })
}
