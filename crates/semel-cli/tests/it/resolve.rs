//! `semel resolve`

use serde_json::json;

use crate::harness::{World, gone, permit, request};
use crate::samples::{leave, world};

fn state(world: &World, key: &str) -> serde_json::Value {
    world.semel(&["show", key, "--json"]).json()[0].clone()
}

#[test]
fn a_doubt_is_settled_as_done_with_the_answer_for_later_callers() {
    let world = world();
    let args = ["resolve", "order-3", "--done", "--effect", "created"];
    let mut args = args.to_vec();
    args.extend([
        "--data",
        "{\"id\": 7}",
        "--note",
        "seen in the shop",
        "--by",
        "eve",
    ]);
    world
        .semel(&args)
        .expect(0, "order-3: doubtful -> succeeded\n", "");
    let record = state(&world, "order-3");
    assert_eq!(record["state"], "succeeded");
    assert_eq!(record["effect"], "created");
    assert_eq!(record["data"], json!({"id": 7}));
    assert_eq!(
        record["resolved"],
        json!({"by": "eve", "at": "TIME", "note": "seen in the shop"})
    );
    let entries = world.entries();
    // The same once more is the same answer and no second decision.
    world
        .semel(&args)
        .expect(0, "order-3: succeeded already\n", "");
    assert_eq!(world.entries(), entries);
    args.extend(["--failed"]);
    let ran = world.semel(&args);
    assert_eq!(ran.code, 125, "another decision is refused");
}

#[test]
fn a_doubt_is_settled_as_failed_or_not_done() {
    let world = world();
    let ran = world.semel(&["resolve", "order-3", "--done", "--failed", "--json"]);
    let receipt = &ran.json()[0];
    assert_eq!((ran.code, &receipt["state"]), (0, &json!("failed")));
    assert_eq!(receipt["effect"], "unknown");
    let ran = world.semel(&["resolve", "order-7", "--not-done", "--json"]);
    let mut receipt = ran.json().remove(0);
    assert_eq!(receipt["started_at"].take(), "TIME");
    assert_eq!(
        receipt,
        json!({
            "ok": true, "effect": "noop", "replayed": false, "reason": null,
            "namespace": "default", "key": "order-7", "name": "create-order",
            "state": "pending", "attempt": 1, "fence": 1, "started_at": null,
            "settled_at": null, "data": null,
        })
    );
    assert_eq!(state(&world, "order-7")["resolved"]["by"], "ann");
}

#[test]
fn what_runs_cannot_be_resolved() {
    let world = world();
    let entries = world.entries();
    for yes in [&[][..], &["--yes"]] {
        let mut args = vec!["resolve", "order-8", "--not-done"];
        args.extend(yes);
        world.semel(&args).expect(
            122,
            "",
            "semel: order-8: attempt 1 is running: mill, pid 4242 (cannot be seen from here); \
             its lease ends in 23 h\n\
             hint: what runs cannot be resolved: wait for it, or end its process and wait for its \
             lease to end\n",
        );
    }
    assert_eq!(world.entries(), entries);
}

#[test]
fn a_holder_that_may_still_act_needs_a_clear_word() {
    let world = World::new();
    // Its lease is over, but the process is this one.
    world.past(|engine| async move { leave(&engine, request("order-7")).await });
    let entries = world.entries();
    let ran = world.semel(&["resolve", "order-7", "--not-done", "--json"]);
    let error = &ran.json()[0]["error"];
    assert_eq!((ran.code, &error["code"]), (122, &json!("in_flight")));
    let message = error["message"].as_str().expect("text");
    let this = format!(
        "pid {} (alive); its lease ended 9 min ago",
        std::process::id()
    );
    assert!(
        message.starts_with("order-7: the holder of attempt 1 may still act: ")
            && message.ends_with(&this),
        "{message}"
    );
    assert_eq!(
        error["hint"],
        "make sure that it does nothing any more, then add --yes"
    );
    assert_eq!(world.entries(), entries);
    let ran = world.semel(&["resolve", "order-7", "--not-done", "--yes"]);
    ran.expect(0, "order-7: doubtful -> pending\n", "");
}

#[test]
fn a_holder_that_is_gone_need_not_be_waited_for() {
    let world = World::new();
    let day = semel::Lease::new(semel::Lease::MAX).expect("the longest is valid");
    world.past_of(gone(), |engine| async move {
        leave(&engine, request("order-7").lease(day)).await;
    });
    let entries = world.entries();
    let ran = world.semel(&["resolve", "order-7", "--not-done", "--dry-run"]);
    let would = "order-7: would resolve it as not done: doubtful -> pending\n";
    ran.expect(0, would, "");
    assert_eq!(world.entries(), entries);
    let ran = world.semel(&["resolve", "order-7", "--not-done"]);
    ran.expect(0, "order-7: doubtful -> pending\n", "");
}

#[test]
fn a_probe_decides_by_its_exit() {
    let world = world();
    let probe = "echo \"$SEMEL_NAMESPACE/$SEMEL_KEY/$SEMEL_FENCE/$SEMEL_ATTEMPT\"";
    let ran = world.semel(&["resolve", "order-3", &format!("--probe={probe}")]);
    ran.expect(0, "order-3: doubtful -> succeeded\n", "");
    let record = state(&world, "order-3");
    // A later `semel run` writes what the probe wrote.
    assert_eq!(record["data"]["stdout"], "default/order-3/1/1\n");
    assert_eq!(record["data"]["exit_code"], 0);
    let digest = semel::core::Digest::of(probe.as_bytes()).hex();
    let note = format!("the probe (sha256 {digest}) exited 0");
    assert_eq!(record["resolved"]["note"], note);
    let entries = world.entries();
    for (probe, how) in [
        ("exit 3", "exit status: 3"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
        ("no-such-command 2> /dev/null", "exit status: 127"),
    ] {
        let message = format!(
            "semel: order-7: the probe does not know ({how})\n\
             hint: it stays in doubt; say --done or --not-done once you know\n"
        );
        world
            .semel(&["resolve", "order-7", &format!("--probe={probe}")])
            .expect(120, "", &message);
    }
    assert_eq!(world.entries(), entries);
    for blank in ["--probe=", "--probe= ", "--probe=\n"] {
        let ran = world.semel(&["resolve", "order-7", blank]);
        assert_eq!(ran.code, 64, "{blank:?} proves nothing: {ran:?}");
    }
    let ran = world.semel(&["resolve", "order-7", "--probe=echo no; exit 1"]);
    ran.expect(0, "order-7: doubtful -> pending\n", "");
}

#[test]
fn json_from_a_probe_stays_json() {
    let world = world();
    let probe = "echo '{\"id\": 7}'";
    let args = [
        "resolve",
        "order-3",
        &format!("--probe={probe}"),
        "--effect",
        "created",
        "--json",
    ];
    let receipt = world.semel(&args).json().remove(0);
    assert_eq!(receipt["data"]["output"], json!({"id": 7}));
    assert_eq!(receipt["effect"], "created");
}

#[test]
fn a_decision_on_what_has_changed_meanwhile_is_refused() {
    let world = world();
    // While the probe looks, somebody else decides.
    let semel = env!("CARGO_BIN_EXE_semel");
    let probe = format!("'{semel}' resolve order-3 --not-done --by eve > /dev/null; exit 0");
    let ran = world.semel(&["resolve", "order-3", &format!("--probe={probe}")]);
    ran.expect(
        125,
        "",
        "semel: order-3: another attempt or another command came first\n\
         hint: read the operation again and decide on what it says now\n",
    );
    assert_eq!(state(&world, "order-3")["resolved"]["by"], "eve");
}

#[test]
fn data_is_json_from_the_line_or_a_file_or_standard_input() {
    let world = world();
    let file = world.path("answer.json");
    std::fs::write(&file, "[1, 2]").expect("a file can be written");
    let at = format!("@{}", file.display());
    world.semel(&["resolve", "order-3", "--done", "--data", &at]);
    assert_eq!(state(&world, "order-3")["data"], json!([1, 2]));
    let input = std::fs::File::open(&file).expect("it is there");
    let mut command = world.command(&["resolve", "order-7", "--done", "--data", "@-"]);
    assert_eq!(world.run(command.stdin(input)).code, 0);
    assert_eq!(state(&world, "order-7")["data"], json!([1, 2]));
}

#[test]
fn an_answer_that_no_store_takes_is_refused() {
    let world = world();
    let entries = world.entries();
    let file = world.path("large.json");
    std::fs::write(&file, vec![b' '; semel::store::PAYLOAD_MAX + 100]).expect("it can be written");
    let at = format!("@{}", file.display());
    let ran = world.semel(&["resolve", "order-3", "--done", "--data", &at]);
    ran.expect(64, "", "semel: the answer has more than 16777216 bytes\n");
    assert_eq!(world.entries(), entries);
    // A probe that says much has still said that it was done.
    let probe = format!("cat '{}'", file.display());
    let ran = world.semel(&["resolve", "order-3", &format!("--probe={probe}"), "--json"]);
    let receipt = &ran.json()[0];
    assert_eq!((ran.code, &receipt["state"]), (0, &json!("succeeded")));
    let size = &receipt["data"]["truncated"]["stdout_bytes"];
    assert_eq!(*size, json!(semel::store::PAYLOAD_MAX + 100));
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_written() {
    let world = world();
    let entries = world.entries();
    for args in [
        &["order-3"][..],
        &["order-3", "--done", "--not-done"],
        &["order-3", "--not-done", "--failed"],
        &["order-3", "--not-done", "--data", "1"],
        &["order-3", "--not-done", "--effect", "created"],
        &["order-3", "--done", "--effect", "would_create"],
        &["order-3", "--done", "--data", "x"],
        &["order-3", "--done", "--data", "@no-such-file"],
        &["order-3", "--done", "--by", ""],
        &["order-3", "--done", "--note", "a\nb"],
        &["order-3", "--done", "--state", "doubtful"],
        &["--not-done"],
        &["--not-done", "--name", "create-order"],
        &["--not-done", "--state", "dead"],
        &["--not-done", "--state", "doubtful,dead"],
    ] {
        let mut all = vec!["resolve"];
        all.extend(args);
        let ran = world.semel(&all);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (64, ""),
            "{args:?}: {}",
            ran.stderr
        );
    }
    for (key, code) in [
        ("nope", 1),
        ("order-1", 125),
        ("order-2", 125),
        ("order-4", 125),
    ] {
        let ran = world.semel(&["resolve", key, "--done"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{key}");
    }
    assert_eq!(world.entries(), entries);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_would_be() {
    let world = world();
    let entries = world.entries();
    let ran = world.semel(&["resolve", "order-3", "--done", "--dry-run", "--json"]);
    assert_eq!(
        ran.json(),
        [json!({
            "ok": true, "effect": "would_update", "replayed": false, "reason": null,
            "namespace": "default", "key": "order-3", "name": "create-order",
            "state": "doubtful", "attempt": 1, "fence": 1, "started_at": "TIME",
            "settled_at": null, "data": null,
            "changes": ["would resolve it as done: doubtful -> succeeded"],
        })]
    );
    let asked = world.path("asked");
    let probe = format!("touch '{}'", asked.display());
    let ran = world.semel(&[
        "resolve",
        "order-3",
        &format!("--probe={probe}"),
        "--dry-run",
    ]);
    ran.expect(
        0,
        "order-3: would ask the probe and resolve by its answer\n",
        "",
    );
    assert!(!asked.exists(), "a dry run asks nobody");
    let ran = world.semel(&["resolve", "order-1", "--done", "--dry-run"]);
    assert_eq!(ran.code, 125, "what would be refused is refused");
    assert_eq!(world.entries(), entries);
}

#[test]
fn many_are_named_first_and_resolved_with_a_clear_word() {
    let world = world();
    world.past(|engine| async move { leave(&engine, request("alive-9")).await });
    let entries = world.entries();
    let this = "the holder of attempt 1 may still act";
    let many = ["resolve", "--state", "doubtful", "--not-done"];
    let with = |more: &[&str]| {
        let mut args = many.to_vec();
        args.extend(more);
        world.semel(&args)
    };
    let would = "order-7: would resolve it as not done: doubtful -> pending
order-3: would resolve it as not done: doubtful -> pending
";
    let ran = with(&["--prefix", "order-"]);
    ran.expect(
        64,
        would,
        "semel: nothing was done: 2 operations are meant (would resolve it as not done)\n\
         hint: add --yes to do it, or --dry-run to only look\n",
    );
    with(&["--prefix", "order-", "--dry-run"]).expect(0, would, "");
    with(&["--prefix", "nothing-"]).expect(0, "", "");
    assert_eq!(world.entries(), entries);
    let ran = with(&["--yes", "--json"]);
    let lines = ran.json();
    assert_eq!((ran.code, lines.len()), (122, 3));
    assert_eq!(lines[0]["key"], "alive-9");
    assert_eq!(lines[0]["error"]["code"], "in_flight");
    assert!(ran.stderr.contains(this), "{}", ran.stderr);
    let states: Vec<_> = lines[1..]
        .iter()
        .map(|it| (&it["key"], &it["state"]))
        .collect();
    let pending = json!("pending");
    assert_eq!(
        states,
        [(&json!("order-7"), &pending), (&json!("order-3"), &pending)]
    );
}

#[test]
fn a_resolved_operation_is_carried_out_again_or_answers() {
    let world = world();
    world.semel(&["resolve", "order-7", "--not-done"]);
    world.past(|engine| async move {
        assert_eq!(permit(&engine, request("order-7")).await.fence().0, 2);
    });
}
