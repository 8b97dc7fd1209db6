//! `semel retry`, `semel cancel`, `semel forget`

use serde_json::json;

use crate::harness::{permit, request};
use crate::samples::world;

#[test]
fn a_failed_operation_gets_fresh_attempts_once() {
    let world = world();
    let ran = world.semel(&["retry", "order-2", "--note", "stock came", "--json"]);
    let receipt = &ran.json()[0];
    assert_eq!((ran.code, &receipt["state"]), (0, &json!("pending")));
    assert_eq!(receipt["previous_effect"], "noop");
    let entries = world.entries();
    let again = world.semel(&["retry", "order-2", "--note", "stock came"]);
    again.expect(0, "order-2: pending already\n", "");
    assert_eq!(world.entries(), entries);
    world.past(|engine| async move {
        assert_eq!(permit(&engine, request("order-2")).await.fence().0, 2);
    });
}

#[test]
fn what_has_succeeded_is_not_retried_and_what_is_in_doubt_is_refused() {
    let world = world();
    let entries = world.entries();
    world
        .semel(&["retry", "order-1"])
        .expect(0, "order-1: succeeded already\n", "");
    for (key, code, exit) in [
        ("order-3", "in_doubt", 120),
        ("order-7", "in_doubt", 120),
        ("order-8", "in_flight", 122),
        ("nope", "not_found", 1),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let mut args = vec!["retry", key, "--json"];
            args.extend(dry);
            let ran = world.semel(&args);
            assert_eq!(
                (ran.code, &ran.json()[0]["error"]["code"]),
                (exit, &json!(code))
            );
        }
    }
    assert_eq!(world.entries(), entries);
}

#[test]
fn many_are_retried_with_a_clear_word() {
    let world = world();
    let entries = world.entries();
    let many = ["retry", "--state", "failed,dead"];
    let would = "order-5: would give it fresh attempts: dead -> pending
order-2: would give it fresh attempts: failed -> pending
";
    world.semel(&many).expect(
        64,
        would,
        "semel: nothing was done: 2 operations are meant (would give it fresh attempts)\n\
         hint: add --yes to do it, or --dry-run to only look\n",
    );
    let mut args = many.to_vec();
    args.push("--dry-run");
    world.semel(&args).expect(0, would, "");
    assert_eq!(world.entries(), entries);
    let mut args = many.to_vec();
    args.push("--yes");
    let done = "order-5: dead -> pending\norder-2: failed -> pending\n";
    world.semel(&args).expect(0, done, "");
    world.semel(&args).expect(0, "", "");
    for bad in [
        &["retry"][..],
        &["retry", "--state", "doubtful", "--yes"],
        &["retry", "order-2", "--state", "failed"],
    ] {
        assert_eq!(world.semel(bad).code, 64, "{bad:?}");
    }
}

#[test]
fn what_was_not_applied_is_cancelled_and_stays_so() {
    let world = world();
    let entries = world.entries();
    let would = "mail-6: would cancel it: pending -> failed\n";
    world
        .semel(&["cancel", "mail-6", "--dry-run"])
        .expect(0, would, "");
    for (key, exit) in [
        ("order-1", 125),
        ("order-2", 125),
        ("order-3", 120),
        ("order-8", 122),
        ("nope", 1),
    ] {
        assert_eq!(world.semel(&["cancel", key]).code, exit, "{key}");
    }
    assert_eq!(world.entries(), entries);
    let ran = world.semel(&["cancel", "mail-6", "--json"]);
    let receipt = &ran.json()[0];
    assert_eq!(
        (ran.code, &receipt["state"], &receipt["effect"]),
        (0, &json!("failed"), &json!("noop"))
    );
    let again = world.semel(&["cancel", "mail-6"]);
    again.expect(0, "mail-6: failed already\n", "");
    world
        .semel(&["cancel", "order-5"])
        .expect(0, "order-5: dead -> failed\n", "");
}

#[test]
fn what_is_settled_is_forgotten_and_its_key_is_free() {
    let world = world();
    let entries = world.entries();
    let would = "order-1: would forget it: succeeded -> forgotten\n";
    world
        .semel(&["forget", "order-1", "--dry-run"])
        .expect(0, would, "");
    for (key, exit) in [
        ("order-3", 125),
        ("order-5", 125),
        ("order-8", 125),
        ("nope", 1),
    ] {
        assert_eq!(world.semel(&["forget", key]).code, exit, "{key}");
    }
    assert_eq!(world.entries(), entries);
    let ran = world.semel(&["forget", "order-1", "--json"]);
    let receipt = &ran.json()[0];
    assert_eq!(
        (&receipt["ok"], &receipt["effect"]),
        (&json!(true), &json!("deleted"))
    );
    assert_eq!(
        (&receipt["key"], &receipt["state"]),
        (&json!("order-1"), &json!("stub"))
    );
    assert_eq!(world.semel(&["show", "order-1"]).code, 1);
    let entries = world.entries();
    world
        .semel(&["forget", "order-1"])
        .expect(0, "order-1: forgotten already\n", "");
    let dry = world.semel(&["forget", "order-1", "--dry-run"]);
    dry.expect(0, "order-1: forgotten already; nothing would change\n", "");
    assert_eq!(world.entries(), entries);
    let ran = world.semel(&["log", "order-1", "--limit", "1", "--quiet"]);
    ran.expect(
        0,
        "    14  TIME  forget   stub       (forgotten)  fence 1  by ann\n",
        "",
    );
    world.past(|engine| async move {
        assert_eq!(permit(&engine, request("order-1")).await.fence().0, 2);
    });
}

#[test]
fn whoever_decides_is_named_by_the_system_unless_told() {
    let world = world();
    let by = |world: &crate::harness::World| {
        let line = world
            .semel(&["log", "--json", "--limit", "1"])
            .json()
            .remove(0);
        line["by"].as_str().map(str::to_owned)
    };
    let mut command = world.command(&["retry", "order-2"]);
    world.run(command.env_remove("USER").env("LOGNAME", "eve"));
    assert_eq!(by(&world).as_deref(), Some("eve"));
    let mut command = world.command(&["retry", "order-5"]);
    world.run(command.env_remove("USER"));
    let named = by(&world).expect("somebody is named");
    assert!(named.starts_with("uid "), "{named}");
}
