use super::Sandbox;

fn with(sandbox: &Sandbox, flags: &[&str], script: &str) -> super::Told {
    sandbox.say(&[&["run", "--key", "k"], flags, &["--", "sh", "-c", script]].concat())
}

#[test]
fn an_end_that_tells_nothing_is_a_doubt_that_stays() {
    for (script, first) in [
        ("echo x >> runs; kill -9 $$", 137),
        ("echo x >> runs; kill -SEGV $$", 139),
        ("echo x >> runs; exit 255", 255),
        ("echo x >> runs; exit 143", 143),
    ] {
        let sandbox = Sandbox::new();
        let told = sandbox.run("k", script);
        assert_eq!(told.exit, first, "{told:?}");
        assert!(told.err().starts_with("semel: k is in doubt: "), "{told:?}");
        for _ in 0..2 {
            let told = sandbox.run("k", script);
            assert_eq!(told.exit, 120, "{told:?}");
            assert!(
                told.err()
                    .contains("hint: find out, then `semel resolve k --done`"),
                "{told:?}"
            );
        }
        assert_eq!(sandbox.effects("runs"), 1);
        assert_eq!(sandbox.record("k")["state"], "doubtful");
    }
}

#[test]
fn a_doubt_is_told_with_what_the_command_said_before_it() {
    let sandbox = Sandbox::new();
    let words = [
        "run",
        "--json",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo half; kill -9 $$",
    ];
    let json = sandbox.say(&words).json();
    assert_eq!(
        (&json["ok"], &json["state"]),
        (&false.into(), &"doubtful".into())
    );
    assert_eq!(
        (&json["effect"], &json["error"]["code"]),
        (&"unknown".into(), &"in_doubt".into())
    );
    assert_eq!(
        (&json["data"]["signal"], &json["data"]["stdout"]),
        (&9.into(), &"half\n".into())
    );
    assert_eq!(json["unstored"], true);
    assert_eq!(sandbox.record("k")["partial"]["stdout"], "half\n");
    let again = sandbox.say(&words).json();
    assert_eq!(
        (&again["ok"], &again["error"]["retryable"]),
        (&false.into(), &false.into())
    );
}

#[test]
fn a_timeout_is_a_doubt_even_when_the_command_ignores_it() {
    for script in [
        "echo x >> runs; exec sleep 600",
        "trap '' TERM; echo x >> runs; sleep 20 & wait; wait",
    ] {
        let sandbox = Sandbox::new();
        let told = with(&sandbox, &["--timeout", "300ms"], script);
        assert_eq!(told.exit, 124, "{told:?}");
        assert_eq!(with(&sandbox, &["--timeout", "300ms"], script).exit, 120);
        assert_eq!(sandbox.effects("runs"), 1);
    }
}

#[test]
fn a_person_resolves_a_doubt() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; [ $(wc -l < runs) -gt 1 ] || kill -9 $$; echo fine";
    assert_eq!(sandbox.run("k", script).exit, 137);
    let resolved = sandbox.say(&["resolve", "k", "--not-done", "--note", "looked"]);
    assert_eq!(resolved.exit, 0, "{resolved:?}");
    assert_eq!(sandbox.run("k", script).out(), "fine\n");
    assert_eq!(sandbox.effects("runs"), 2);

    assert_eq!(sandbox.run("l", "kill -9 $$").exit, 137);
    let resolved = sandbox.say(&[
        "resolve",
        "l",
        "--done",
        "--effect",
        "created",
        "--data",
        r#"{"id":7}"#,
    ]);
    assert_eq!(resolved.exit, 0, "{resolved:?}");
    let replay = sandbox.run("l", "kill -9 $$");
    assert_eq!((replay.exit, &*replay.out()), (0, "{\"id\":7}\n"));
    sandbox.verified();
}

#[test]
fn who_chose_retry_gets_at_least_once_and_the_log_says_why() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; [ $(wc -l < runs) -gt 1 ] || kill -9 $$; echo fine";
    assert_eq!(with(&sandbox, &["--on-doubt", "retry"], script).exit, 137);
    assert_eq!(
        with(&sandbox, &[], script).out(),
        "fine\n",
        "the policy is that of the first call"
    );
    assert_eq!(sandbox.effects("runs"), 2);
    assert_eq!(sandbox.record("k")["attempt"], 2);
}

#[test]
fn a_probe_finds_out_before_anything_runs_again() {
    let sandbox = Sandbox::new();
    let script = "echo x >> runs; [ -e die ] && kill -9 $$; echo ran";
    let flags = [
        "--probe",
        "echo looked >> probes; cat answer; exit $(cat code)",
        "--lease",
        "1s",
    ];
    std::fs::write(sandbox.path("die"), "").expect("it can be written");
    std::fs::write(sandbox.path("answer"), "found it").expect("it can be written");
    assert_eq!(with(&sandbox, &flags, script).exit, 137);
    std::fs::remove_file(sandbox.path("die")).expect("it is there");

    // It does not know: the doubt stays.
    std::fs::write(sandbox.path("code"), "3").expect("it can be written");
    wait_for_probe(&sandbox, &flags, script);
    assert_eq!(sandbox.effects("runs"), 1);

    // It was not done: now it runs.
    std::fs::write(sandbox.path("code"), "1").expect("it can be written");
    assert_eq!(with(&sandbox, &flags, script).out(), "ran\n");
    assert_eq!(sandbox.effects("runs"), 2);
    assert_eq!(sandbox.effects("probes"), 2);

    // It was done: what the probe says is the answer.
    std::fs::write(sandbox.path("die"), "").expect("it can be written");
    std::fs::write(sandbox.path("code"), "0").expect("it can be written");
    let other = |words: &[&str]| {
        sandbox.say(
            &[
                &["run", "--key", "other"],
                &flags[..],
                words,
                &["--", "sh", "-c", script],
            ]
            .concat(),
        )
    };
    assert_eq!(other(&[]).exit, 137);
    super::wait_until("the lease is over", || {
        let json = sandbox.record("other");
        json["attempts"][0]["ended_at"].is_string() && other(&[]).exit == 0
    });
    let replay = other(&[]);
    assert_eq!((replay.exit, &*replay.out()), (0, "found it"));
    assert_eq!((sandbox.effects("runs"), sandbox.effects("probes")), (3, 3));
    sandbox.verified();
}

/// A probe is asked once the doubted lease is over.
fn wait_for_probe(sandbox: &Sandbox, flags: &[&str], script: &str) {
    super::wait_until("the probe is asked", || {
        let told = with(sandbox, flags, script);
        assert_eq!(told.exit, 120, "{told:?}");
        sandbox.effects("probes") == 1
    });
}

#[test]
fn an_outcome_that_cannot_be_stored_is_told_and_delivered_by_the_next_call() {
    let sandbox = Sandbox::new();
    let words = [
        "run",
        "--json",
        "--lease",
        "1s",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo x | tee -a runs",
    ];
    let mut command = sandbox.semel(&words);
    let told = command
        .env("SEMEL_INJECT", "refuse-settle")
        .output()
        .expect("semel runs");
    let told = super::Told::from(told);
    let json = told.json();
    assert_eq!(
        (told.exit, &json["unstored"]),
        (120, &true.into()),
        "{told:?}"
    );
    assert_eq!(
        (&json["data"]["stdout"], &json["error"]["code"]),
        (&"x\n".into(), &"in_doubt".into())
    );
    let replay = sandbox.say(&words).json();
    assert_eq!(
        (&replay["replayed"], &replay["data"]),
        (&true.into(), &json["data"])
    );
    assert_eq!(sandbox.effects("runs"), 1);
}

#[test]
fn digest_of_the_first_probe_is_kept_and_later_calls_cannot_loosen_anything() {
    let sandbox = Sandbox::new();
    let script = "kill -9 $$";
    let probe = ["--probe", "echo found by $SEMEL_KEY", "--lease", "1s"];
    assert_eq!(with(&sandbox, &probe, script).exit, 137);
    let digest = semel::core::Digest::of(b"echo found by $SEMEL_KEY").hex();
    assert_eq!(sandbox.record("k")["probe_digest"], digest);
    super::wait_until("the probe is asked", || {
        with(&sandbox, &probe, script).exit == 0
    });
    // A later call that would run it again is held to what the first one said.
    let replay = with(&sandbox, &["--json", "--on-doubt", "retry"], script).json();
    assert_eq!(replay["data"]["stdout"], "found by k\n");
    let kept = "class unsafe, on_doubt probe: as the first call said";
    assert_eq!(replay["policy_kept"], kept);

    // A person brings the probe, too.
    let words = [
        &["run", "--key", "l"],
        &probe[..],
        &["--", "sh", "-c", script],
    ]
    .concat();
    assert_eq!(sandbox.say(&words).exit, 137);
    let refused = sandbox.say(&["resolve", "l", "--probe"]);
    assert_eq!(refused.exit, 64, "{refused:?}");
    let resolved = sandbox.say(&["resolve", "l", "--probe=echo found by $SEMEL_KEY"]);
    assert_eq!(resolved.out(), "l: doubtful -> succeeded\n", "{resolved:?}");
    assert_eq!(sandbox.say(&words).out(), "found by l\n");
    let none = sandbox.run("m", script);
    assert_eq!(none.exit, 137);
    let refused = sandbox.say(&["resolve", "m", "--probe"]);
    assert_eq!(refused.exit, 64, "{refused:?}");
}

#[test]
fn what_was_said_before_the_end_came_is_shown_to_whoever_must_find_out() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let script = "echo half done; echo hm >&2; cat gate";
    let mut wrapper = sandbox.semel(&["run", "--key", "k", "--", "sh", "-c", script]);
    let mut wrapper = super::piped(&mut wrapper).spawn().expect("semel runs");
    super::wait_until("it is stored", || {
        sandbox.record("k")["partial"]["stdout"] == "half done\n"
    });
    wrapper.kill().expect("it can be killed");
    wrapper.wait().expect("it ends");
    gate.open();
    super::wait_until("it is in doubt", || sandbox.run("k", script).exit == 120);
    let shown = sandbox.say(&["show", "k"]).out();
    assert!(shown.contains("stdout so far\n  half done"), "{shown}");
    assert!(shown.contains("stderr so far\n  hm"), "{shown}");
}

#[test]
fn what_was_stored_on_the_way_goes_when_the_answer_has_all_of_it() {
    let sandbox = Sandbox::new();
    let gate = sandbox.gate("gate");
    let mut wrapper = sandbox.semel(&[
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo half; cat gate; echo all",
    ]);
    let wrapper = super::piped(&mut wrapper).spawn().expect("semel runs");
    super::wait_until("it is stored", || {
        sandbox.record("k")["partial"]["stdout"] == "half\n"
    });
    gate.open();
    assert_eq!(super::told(wrapper).out(), "half\nall\n");
    let record = sandbox.record("k");
    assert_eq!(
        (&record["data"]["stdout"], &record["partial"]),
        (&"half\nall\n".into(), &serde_json::Value::Null)
    );
    sandbox.verified();
}
