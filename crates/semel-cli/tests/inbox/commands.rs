//! `semel inbox add`, `list` and `test`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Stdio;

use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use crate::server::wait_until;
use crate::setup::{Sender, knowing, start, stored, tasks, world};

const ADD: [&str; 9] = [
    "inbox",
    "add",
    "bank",
    "--scheme",
    "stripe",
    "--queue",
    "work",
    "--secret-env",
    "STRIPE",
];

#[test]
fn a_source_is_added_once_and_nothing_else_is_touched() {
    let world = crate::harness::World::new();
    let file = world.path("semel.toml");
    let old = "# ours\nnamespace = 'shop' # the shop's\n[run]\nlease = '5s'";
    std::fs::write(&file, old).expect("it can be written");
    let section =
        "[inbox.bank]\nscheme = \"stripe\"\nqueue = \"work\"\nsecrets = [\"env:STRIPE\"]\n";
    let rehearsed = world.semel(&[&ADD[..], &["--dry-run", "--json"]].concat());
    assert_eq!(rehearsed.json()[0]["effect"], "would_create");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), old);
    let added = world.semel(&[&ADD[..], &["--json"]].concat());
    let answer = &added.json()[0];
    assert_eq!((added.code, &answer["effect"]), (0, &json!("created")));
    assert_eq!(answer["section"], section);
    assert_eq!(answer["url"], "http://127.0.0.1:7363/in/bank");
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(text, format!("{old}\n\n{section}"));
    let again = world.semel(&[&ADD[..], &["--json"]].concat());
    assert_eq!(
        (again.code, &again.json()[0]["effect"]),
        (0, &json!("noop"))
    );
    let other = world.semel(&[&ADD[..], &["--tolerance", "1m"]].concat());
    assert_eq!(other.code, 64);
    assert!(
        other.stderr.contains("inbox.bank is there already"),
        "{other:?}"
    );
    // What is refused leaves nothing behind.
    let empty = crate::harness::World::new();
    let refused = empty.semel(&["inbox", "add", "a", "--scheme", "stripe", "--queue", "q"]);
    assert_eq!(
        (refused.code, empty.path("semel.toml").exists()),
        (64, false)
    );
    for (words, said) in [
        (
            &["inbox", "add", "a/b", "--scheme", "stripe", "--queue", "q"][..],
            "the name of a source",
        ),
        (
            &["inbox", "add", "a", "--scheme", "stripe", "--queue", "q"],
            "no secret",
        ),
        (
            &["inbox", "add", "a", "--scheme", "none", "--queue", "q"],
            "`id` is missing",
        ),
        (
            &[
                "inbox",
                "add",
                "a",
                "--scheme",
                "hmac",
                "--queue",
                "q",
                "--secret-env",
                "S",
            ],
            "`header` is missing",
        ),
    ] {
        let refused = world.semel(words);
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
    let listed = world.semel(&["inbox", "list", "--json"]);
    let listed = &listed.json()[0];
    assert_eq!(listed["secrets"], json!(["env:STRIPE"]));
    assert_eq!(
        (&listed["path"], &listed["namespace"], &listed["id"]),
        (&json!("/in/bank"), &json!("shop"), &json!("/id"))
    );
}

/// Whoever adds waits for another one who does, and then sees what that one wrote.
#[test]
fn of_two_who_add_a_name_at_once_one_writes() {
    let world = crate::harness::World::new();
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true);
    let mut file = file.open(world.path("semel.toml")).expect("it can be made");
    flock(&file, FlockOperation::LockExclusive).expect("nobody else has it");
    let mut command = world.command(&ADD);
    let mut second = command.stderr(Stdio::null()).spawn().expect("it runs");
    let waits = format!(" {} ", second.id());
    wait_until("the second waits", || {
        let locks = std::fs::read_to_string("/proc/locks").expect("they can be read");
        let has_ended = second.try_wait().expect("it can be looked at").is_some();
        let mut lines = locks.lines();
        has_ended || lines.any(|line| line.contains("-> FLOCK") && line.contains(&waits))
    });
    let first = "[inbox.bank]\nscheme = 'none'\nid = 'body'\nqueue = 'first'\n";
    file.write_all(first.as_bytes()).expect("it can be written");
    drop(file);
    let status = second.wait().expect("it ends");
    assert_eq!(status.code(), Some(64), "the name is taken");
    let listed = world.semel(&["inbox", "list", "--json"]);
    assert_eq!(listed.json()[0]["queue"], "first", "{listed:?}");
}

#[test]
fn a_running_server_sees_what_is_added_and_a_test_shows_it() {
    let world = world();
    let server = start(&world);
    let url = format!("http://127.0.0.1:{}", server.port());
    let added = world.semel(&ADD);
    assert_eq!(added.code, 0, "{added:?}");
    let test = |words: &[&str]| {
        let words = [&["inbox", "test"], words, &["--url", &url, "--json"]].concat();
        world.run(&mut knowing(&world, &words))
    };
    wait_until("the server has seen it", || test(&["bank"]).code == 0);
    let known = stored(&world);
    for source in ["standard", "stripe", "github", "slack", "shop", "events"] {
        let tested = test(&[source, "--id", "t-1"]);
        let answer = &tested.json()[0];
        assert_eq!(tested.code, 0, "{tested:?}");
        assert_eq!(
            (&answer["first"]["status"], &answer["second"]["status"]),
            (&json!(202), &json!(200)),
            "{answer}"
        );
        // An id of one's own may have come before.
        assert_eq!(test(&[source, "--id", "t-1"]).code, 0);
    }
    assert_eq!(stored(&world).1, known.1 + 6);
    let mut wrong = world.command(&["inbox", "test", "bank", "--url", &url]);
    let wrong = world.run(wrong.env("STRIPE", "another-secret"));
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(
        wrong.stdout.contains("first:  401 unauthorized"),
        "{wrong:?}"
    );
    assert!(wrong.stderr.contains("hint: "), "{wrong:?}");
    let nobody = test(&["nobody"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    let away = knowing(
        &world,
        &["inbox", "test", "bank", "--url", "http://127.0.0.1:1"],
    )
    .output();
    assert_eq!(away.expect("it runs").status.code(), Some(125));
}

#[test]
fn who_is_not_verified_is_said() {
    let world = crate::harness::World::new();
    let added = world.semel(&[
        "inbox", "add", "open", "--scheme", "none", "--queue", "work", "--id", "/id",
    ]);
    assert!(added.stderr.contains("nothing is verified"), "{added:?}");
    let server = crate::server::Server::start(&world);
    assert!(
        server.said().contains("nothing is verified"),
        "{}",
        server.said()
    );
    let asked = crate::http::Asked::new("POST", "/in/open").body(br#"{"id":"evt_1"}"#);
    server.ask(asked.clone()).expect(202);
    server.ask(asked).expect(200);
    let doctor = world.semel(&["doctor"]);
    assert!(
        doctor.stdout.contains("anybody can post to open"),
        "{doctor:?}"
    );
    assert_eq!(tasks(&world).len(), 1);
    let unknown = Sender::new("stripe").deliver(&server, "evt_1");
    unknown.problem(404, "not_found");
}
