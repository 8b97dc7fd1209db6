//! `semel log`

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use semel::Effect;
use serde_json::json;

use crate::harness::{World, permit, request};
use crate::samples::world;

#[test]
fn people_get_a_line_per_entry_in_order() {
    let ran = world().semel(&["log", "--limit", "3"]);
    ran.expect(
        0,
        "    11  TIME  submit   pending    mail-6  fence 0
    12  TIME  begin    running    order-7  fence 1
    13  TIME  begin    running    order-8  fence 1
",
        "hint: earlier entries with --after 0\n",
    );
}

#[test]
fn programs_get_an_event_per_line() {
    let ran = world().semel(&["log", "--json", "--after", "0", "--limit", "1"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "hint: more with --after 1\n")
    );
    assert_eq!(
        ran.json(),
        [json!({
            "seq": 1, "at": "TIME", "namespace": "default", "key": "order-1",
            "command": "begin", "state": "running", "fence": 1, "by": null, "note": null,
            "events": ["begun"],
        })]
    );
}

#[test]
fn a_key_leaves_only_its_own_entries() {
    let world = world();
    let both = "     5  TIME  begin    running    order-3  fence 1
     6  TIME  settle   doubtful   order-3  fence 1
";
    world.semel(&["log", "order-3"]).expect(0, both, "");
    let newest = "     6  TIME  settle   doubtful   order-3  fence 1\n";
    let hint = "hint: earlier entries with --after 0\n";
    world
        .semel(&["log", "order-3", "--limit", "1"])
        .expect(0, newest, hint);
    world
        .semel(&["log", "order-3", "--after", "5"])
        .expect(0, newest, "");
    world
        .semel(&["log", "order-3", "--after", "6"])
        .expect(0, "", "");
    let ran = world.semel(&["log", "nope", "--json"]);
    assert_eq!(
        (ran.code, &ran.json()[0]["error"]["code"]),
        (1, &json!("not_found"))
    );
}

#[test]
fn an_entry_of_another_namespace_names_it() {
    let world = world();
    let ran = world.semel(&["log", "--namespace", "other", "--limit", "1", "--quiet"]);
    ran.expect(
        0,
        "    13  TIME  begin    running    default/order-8  fence 1\n",
        "",
    );
}

#[test]
fn a_follower_gets_what_comes_and_ends_with_its_reader() {
    let world = World::new();
    world.past(|engine| async move {
        let first = permit(&engine, request("order-1")).await;
        first.done(Effect::Created, &1).await.expect("taken");
    });
    let mut follower = world
        .command(&["log", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("it is piped")).lines();
    let mut next = || {
        let line = lines.next().expect("there is a line").expect("it reads");
        let event: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        (event["seq"].clone(), event["key"].clone())
    };
    assert_eq!(next(), (json!(1), json!("order-1")));
    assert_eq!(next(), (json!(2), json!("order-1")));
    world.past(|engine| async move {
        let second = permit(&engine, request("order-2")).await;
        second.done(Effect::Created, &1).await.expect("taken");
    });
    assert_eq!(next(), (json!(3), json!("order-2")));
    assert_eq!(next(), (json!(4), json!("order-2")));
    // Nothing more is written to the log: the follower has to see by itself that nobody reads.
    drop(lines);
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_follower_that_begins_at_a_number_gets_all_that_follows() {
    let world = world();
    let mut follower = world
        .command(&["log", "--follow", "--after", "1", "--limit", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(follower.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.take(12).count(), 12);
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
}
