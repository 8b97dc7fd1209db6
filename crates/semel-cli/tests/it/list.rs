//! `semel list`

use serde_json::json;

use crate::harness::World;
use crate::samples::world;

const TABLE: &str = "\
STATE      KEY      NAME          EFFECT   TRY  AGE     NOTE
running    order-8  create-order  -        1    10 min  lease ends in 23 h
doubtful   order-7  create-order  unknown  1    10 min  in doubt for 9 min
pending    mail-6   send-mail     -        0    10 min
dead       order-5  create-order  noop     1    10 min  out of attempts: no such item
pending    order-4  create-order  -        1    10 min  tried before: shop is closed
doubtful   order-3  create-order  unknown  1    10 min  in doubt for 10 min: connection reset
failed     order-2  create-order  noop     1    10 min
succeeded  order-1  create-order  created  1    10 min
";

#[test]
fn people_get_a_table_with_the_newest_first() {
    world().semel(&["list"]).expect(0, TABLE, "");
}

#[test]
fn programs_get_a_record_per_line_without_attempts_and_data() {
    let lines = world().semel(&["list", "--json"]).json();
    assert_eq!(lines.len(), 8);
    let mut oldest = lines[7].clone();
    let fingerprint = oldest["fingerprint"].take();
    assert_eq!(fingerprint.as_str().map(str::len), Some(67));
    assert_eq!(
        oldest,
        json!({
            "namespace": "default", "key": "order-1", "client_key": null, "name": "create-order",
            "state": "succeeded", "ok": true, "effect": "created", "class": "unsafe",
            "on_doubt": "hold", "probe_digest": null, "door": "run", "principal": null, "queue": null, "parent": null,
            "attempt": 1, "fence": 1, "version": 2, "max_attempts": null, "fingerprint": null,
            "created_at": "TIME", "started_at": "TIME", "settled_at": "TIME",
            "lease_until": null, "run_at": null, "delivery": "unknown",
            "holder": {"host": "mill", "pid": 4242}, "resolved": null,
        })
    );
}

#[test]
fn filters_choose_and_states_are_judged() {
    let world = world();
    for (filter, keys) in [
        (&["--state", "doubtful"][..], &["order-7", "order-3"][..]),
        (&["--state", "running"], &["order-8"]),
        (&["--state", "dead,failed"], &["order-5", "order-2"]),
        (
            &["--state", "dead", "--state", "pending"],
            &["mail-6", "order-5", "order-4"],
        ),
        (&["--name", "send-mail"], &["mail-6"]),
        (&["--queue", "mail"], &["mail-6"]),
        (&["--door", "run", "--state", "succeeded"], &["order-1"]),
        (&["--prefix", "mail-"], &["mail-6"]),
        (&["--since", "5m"], &[]),
        (&["--since", "2h", "--prefix", "order-1"], &["order-1"]),
        (&["--until", "2h"], &[]),
        (&["--until", "2000-01-01T00:00:00Z"], &[]),
        (
            &[
                "--since",
                "2000-01-01T00:00:00+01:00",
                "--name",
                "send-mail",
            ],
            &["mail-6"],
        ),
        (&["--name", "nobody"], &[]),
        (&["--namespace", "other"], &[]),
    ] {
        let mut args = vec!["list", "--json"];
        args.extend(filter);
        let ran = world.semel(&args);
        let found: Vec<_> = ran.json().iter().map(|it| it["key"].clone()).collect();
        assert_eq!(
            (found, ran.code),
            (keys.iter().map(|it| json!(it)).collect(), 0),
            "{filter:?}"
        );
        assert_eq!(ran.stderr, "", "{filter:?}");
    }
}

#[test]
fn pages_follow_each_other_by_their_cursor() {
    let world = world();
    let mut args = vec!["list".to_owned(), "--limit".to_owned(), "3".to_owned()];
    let mut keys = vec![];
    loop {
        let words: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
        let ran = world.semel(&words);
        keys.extend(
            ran.json()
                .iter()
                .map(|it| it["key"].as_str().expect("text").to_owned()),
        );
        args.truncate(3);
        match ran.stderr.strip_prefix("hint: more with --after ") {
            Some(cursor) => args.extend(["--after".to_owned(), cursor.trim().to_owned()]),
            None => break,
        }
    }
    let all = [
        "order-8", "order-7", "mail-6", "order-5", "order-4", "order-3", "order-2", "order-1",
    ];
    assert_eq!(keys, all);
}

#[test]
fn looking_makes_no_store_and_says_that_there_is_none() {
    let world = World::new();
    let ran = world.semel(&["list"]);
    ran.expect(
        125,
        "",
        "semel: the store is not available: there is no store at DIR/data/semel.db\n\
         hint: try again; if it lasts, check the store's disk (there, writable, not full) or its server (up, within reach)\n",
    );
    assert!(!world.path("data").exists());
}

#[test]
fn what_cannot_be_understood_is_wrong_usage() {
    let world = World::new();
    for args in [
        &["list", "--limit", "0"][..],
        &["list", "--limit", "1001"],
        &["list", "--state", "lost"],
        &["list", "--since", "yesterday"],
        &["list", "--after", "x"],
        &["list", "order-7"],
        &["list", "--namespace", "a/b"],
    ] {
        let ran = world.semel(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (64, ""), "{args:?}");
        let mut args = args.to_vec();
        args.push("--json");
        let ran = world.semel(&args);
        assert_eq!(
            (ran.code, &ran.json()[0]["error"]["code"]),
            (64, &json!("invalid_input"))
        );
    }
}

#[test]
fn states_have_colours_where_a_terminal_wants_them() {
    let world = world();
    let mut command = world.command(&["list", "--state", "doubtful", "--limit", "1", "--quiet"]);
    let ran = world.run(command.env("CLICOLOR_FORCE", "1"));
    let row = ran.stdout.lines().nth(1).expect("there is a row");
    assert!(
        row.starts_with("\u{1b}[1m\u{1b}[33mdoubtful\u{1b}[0m  order-7"),
        "{row:?}"
    );
}
