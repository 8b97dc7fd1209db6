//! Wrappers, children and whole groups that are killed, with effects counted by a file of their own.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use semel_testkit::process::Dice;

use super::{Sandbox, Told, piped};

/// Leaves a line, so that effects can be counted without the ledger.
const EFFECT: &str = "echo $SEMEL_KEY >> effects; echo done";

fn dying(sandbox: &Sandbox, key: &str, fault: &str) -> Told {
    let mut command = sandbox.semel(&["run", "--key", key, "--", "sh", "-c", EFFECT]);
    Told::from(
        command
            .env("SEMEL_INJECT", fault)
            .output()
            .expect("semel runs"),
    )
}

fn effects_of(sandbox: &Sandbox, key: &str) -> usize {
    let text = std::fs::read_to_string(sandbox.path("effects")).unwrap_or_default();
    text.lines().filter(|line| *line == key).count()
}

/// Asks again until nothing runs any more.
fn settled(sandbox: &Sandbox, key: &str) -> Told {
    loop {
        // It waits for whatever still runs.
        let told = sandbox.run(key, EFFECT);
        assert!([0, 120, 122].contains(&told.exit), "{told:?}");
        if told.exit != 122 {
            return told;
        }
    }
}

#[test]
fn at_every_crash_point_there_is_one_effect_at_most_and_the_retry_is_honest() {
    for (fault, died, retry, effects) in [
        ("die-before-claim", -9, 0, 1),
        ("die-after-claim", -9, 120, 0),
        ("die-mid-effect", -9, 120, 1),
        ("die-after-effect", -9, 120, 1),
        ("die-after-settle", -9, 0, 1),
        ("drop-reply", 125, 0, 1),
        ("lose-claim", 0, 0, 1),
        ("repeat-claim", 0, 0, 1),
        ("lose-settle", 0, 0, 1),
        ("repeat-settle", 0, 0, 1),
        ("refuse-claim", 125, 0, 1),
    ] {
        let sandbox = Sandbox::new();
        let first = dying(&sandbox, "k", fault);
        assert_eq!(first.exit, died, "{fault}: {first:?}");
        let told = settled(&sandbox, "k");
        assert_eq!(told.exit, retry, "{fault}: {told:?}");
        assert_eq!(settled(&sandbox, "k").exit, retry, "{fault}");
        assert_eq!(effects_of(&sandbox, "k"), effects, "{fault}");
        sandbox.verified();
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Wrapper,
    Child,
    Group,
}

#[test]
fn killed_at_random_there_is_one_effect_at_most_and_the_retry_is_honest() {
    let sandbox = Sandbox::new();
    let (seed, mut dice) = Dice::fresh();
    let mut counts: BTreeMap<(i32, usize), usize> = BTreeMap::new();
    for number in 0..semel_testkit::scaled(400, 60) {
        let key = format!("k{number}");
        let victim = match dice.below(3) {
            0 => Victim::Wrapper,
            1 => Victim::Child,
            _ => Victim::Group,
        };
        let after = dice.up_to(Duration::from_millis(30));
        let mut command = sandbox.semel(&["run", "--key", &key, "--", "sh", "-c", EFFECT]);
        let mut wrapper = piped(&mut command)
            .process_group(0)
            .spawn()
            .expect("semel runs");
        std::thread::sleep(after);
        kill(wrapper.id(), victim);
        wrapper.wait().expect("it ends");
        let told = settled(&sandbox, &key);
        let effects = effects_of(&sandbox, &key);
        assert!(
            effects <= 1,
            "seed {seed}: {key} {victim:?} after {after:?}: {effects} effects"
        );
        if told.exit == 0 {
            assert_eq!(
                (effects, &*told.out()),
                (1, "done\n"),
                "seed {seed}: {key} {victim:?}"
            );
        }
        *counts.entry((told.exit, effects)).or_default() += 1;
    }
    sandbox.verified();
    // If it never hits anything, it proves nothing.
    assert!(
        counts.keys().any(|(exit, _)| *exit == 120),
        "seed {seed}: {counts:?}"
    );
    assert!(
        counts.keys().any(|(exit, _)| *exit == 0),
        "seed {seed}: {counts:?}"
    );
}

fn kill(wrapper: u32, victim: Victim) {
    let pid = Pid::from_raw(wrapper.cast_signed()).expect("it has a number");
    // Whoever has ended cannot be killed, and that is one of the cases.
    let _ = match victim {
        Victim::Wrapper => kill_process(pid, Signal::KILL),
        Victim::Group => kill_process_group(pid, Signal::KILL),
        Victim::Child => {
            let children = format!("/proc/{wrapper}/task/{wrapper}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            let child = children
                .split_whitespace()
                .next()
                .and_then(|text| text.parse().ok());
            child
                .and_then(Pid::from_raw)
                .map_or(Ok(()), |child| kill_process(child, Signal::KILL))
        }
    };
}
