use super::{Sandbox, Told};

const CHECK: &str = "grep -qx on state";

fn ensure(sandbox: &Sandbox, words: &[&str]) -> Told {
    sandbox.say(&[&["ensure", "--key", "k", "--check", CHECK], words].concat())
}

const SWITCH: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "echo x >> runs; echo on > state; echo switched",
];

#[test]
fn what_is_so_already_is_left_alone() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("state"), "on\n").expect("it can be written");
    let json = ensure(&sandbox, &[&["--json"], &SWITCH[..]].concat()).json();
    assert_eq!(
        (&json["ok"], &json["effect"]),
        (&true.into(), &"noop".into())
    );
    assert!(json["reason"].is_string());
    assert_eq!(sandbox.effects("runs"), 0);
}

#[test]
fn it_is_brought_about_each_time_that_it_is_not_so() {
    let sandbox = Sandbox::new();
    for number in 1..=5 {
        std::fs::write(sandbox.path("state"), "off\n").expect("it can be written");
        assert_eq!(ensure(&sandbox, &SWITCH).out(), "switched\n");
        assert_eq!(sandbox.effects("runs"), number);
        assert_eq!(ensure(&sandbox, &SWITCH).out(), "");
        assert_eq!(sandbox.effects("runs"), number);
    }
    assert_eq!(sandbox.record("k")["state"], "succeeded");
    assert_eq!(sandbox.record("k#5")["state"], "succeeded");
    assert_eq!(sandbox.say(&["show", "k#6"]).exit, 1);
}

#[test]
fn a_command_that_does_not_bring_it_about_has_failed() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("state"), "off\n").expect("it can be written");
    let told = ensure(&sandbox, &["--", "sh", "-c", "echo x >> runs; echo tried"]);
    assert_eq!((told.exit, &*told.out()), (1, "tried\n"), "{told:?}");
    assert!(told.err().contains("the check is still false"), "{told:?}");
    assert_eq!(sandbox.record("k")["state"], "failed");
}

#[test]
fn the_check_finds_out_what_came_of_an_interrupted_call() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("state"), "off\n").expect("it can be written");
    let words = [
        "--lease",
        "1s",
        "--",
        "sh",
        "-c",
        "echo x >> runs; [ $(wc -l < runs) -gt 1 ] || kill -9 $$; echo on > state",
    ];
    assert_eq!(ensure(&sandbox, &words).exit, 137);
    super::wait_until("the check may be asked", || {
        ensure(&sandbox, &words).exit == 0
    });
    assert_eq!(sandbox.effects("runs"), 2);
    let record = sandbox.record("k");
    assert_eq!(
        (&record["state"], &record["attempt"]),
        (&"succeeded".into(), &2.into())
    );
}

#[test]
fn a_check_that_does_not_know_leads_to_nothing() {
    let sandbox = Sandbox::new();
    for check in ["exit 2", "no-such-check", "kill -9 $$"] {
        let told = sandbox.say(&[&["ensure", "--check", check], &SWITCH[..]].concat());
        assert_eq!((told.exit, sandbox.effects("runs")), (64, 0), "{told:?}");
        assert!(
            told.err().contains("hint: a check exits with 0"),
            "{told:?}"
        );
    }
    assert!(!sandbox.path("s.db").exists());
}

#[test]
fn a_dry_run_asks_the_check_and_does_nothing() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("state"), "off\n").expect("it can be written");
    let json = ensure(&sandbox, &[&["--json", "--dry-run"], &SWITCH[..]].concat()).json();
    assert_eq!(json["effect"], "would_update");
    assert_eq!(sandbox.effects("runs"), 0);
    assert!(!sandbox.path("s.db").exists());
}
