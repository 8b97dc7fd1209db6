//! `semel token`

use std::time::Duration;

use semel::core::token::Refusal;
use semel::{Error, Namespace, NewToken, Scope, Timestamp, Token};
use semel_testkit::postgres::Cluster;
use serde_json::{Value, json};

use crate::harness::{World, label};

/// Makes a token and returns the answer.
fn make(world: &World, words: &[&str]) -> Value {
    let all = [&["token", "create", "--json"], words].concat();
    let ran = world.semel(&all);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut lines = ran.json();
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

fn text(answer: &Value, field: &str) -> String {
    answer[field].as_str().expect("it is text").to_owned()
}

/// Says why the library does not accept a token; `None` when it does.
fn refusal(world: &World, token: &str) -> Option<Refusal> {
    let told = world.now(|engine| async move { engine.authenticate(token).await });
    match told {
        Ok(_) => None,
        Err(Error::Unauthorized(refusal)) => Some(refusal),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_token_is_made_for_a_namespace_and_works_at_once() {
    let world = World::new();
    let words = [
        "--namespace",
        "team-a",
        "--scope",
        "write",
        "--expires",
        "90d",
    ];
    let mut answer = make(&world, &[&words[..], &["--label", "the build"]].concat());
    let (id, token) = (text(&answer, "id"), text(&answer, "token"));
    let parsed: Token = token.parse().expect("it is a token");
    assert_eq!(parsed.id.to_string(), id);
    let granted = world.now(|engine| async move {
        let granted = engine.authenticate(&token).await;
        granted.expect("it is accepted")
    });
    assert_eq!(granted.namespace.as_str(), "team-a");
    assert_eq!(granted.scope.as_str(), "write");
    for field in ["id", "token"] {
        answer[field] = json!(field);
    }
    assert_eq!(
        answer,
        json!({
            "ok": true, "effect": "created", "reason": null, "id": "id", "token": "token",
            "namespace": "team-a", "scope": "write", "label": "the build", "state": "active",
            "created_at": "TIME", "expires_at": "TIME", "revoked_at": null, "last_used_at": null,
        })
    );
}

#[test]
fn how_long_a_token_lasts_is_what_was_asked_for() {
    let world = World::new();
    let made = make(&world, &["--scope", "read", "--expires", "90d"]);
    let forever = make(&world, &["--scope", "read"]);
    assert_eq!(forever["expires_at"], Value::Null);
    let id = text(&made, "id").parse().expect("an id");
    let kept = world.now(|engine| async move { engine.token(id).await });
    let kept = kept.expect("it is looked up").expect("it is there");
    let lasts = kept
        .expires_at
        .map(|end: Timestamp| end.since(kept.created_at));
    assert_eq!(lasts, Some(Duration::from_secs(90 * 86_400)));
}

#[test]
fn people_get_the_token_and_nothing_else_on_standard_output() {
    let world = World::new();
    let ran = world.semel(&["token", "create", "--scope", "admin"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let token = ran.stdout.strip_suffix('\n').expect("it is a line");
    assert!(token.parse::<Token>().is_ok(), "{token}");
    assert_eq!(refusal(&world, token), None);
}

#[test]
fn two_calls_make_two_tokens_and_a_dry_run_makes_none() {
    let world = World::new();
    let ran = world.semel(&["token", "create", "--scope", "read", "--dry-run", "--json"]);
    assert_eq!(
        ran.json(),
        [json!({
            "ok": true, "effect": "would_create",
            "changes": ["would make a token for default, scope read, until it is revoked"],
        })]
    );
    assert!(!world.path("data").exists(), "a dry run makes no store");
    let first = make(&world, &["--scope", "read"]);
    let second = make(&world, &["--scope", "read"]);
    assert_ne!(first["id"], second["id"]);
    world
        .semel(&[
            "token",
            "create",
            "--scope",
            "admin",
            "--expires",
            "7d",
            "--dry-run",
        ])
        .expect(
            0,
            "would make a token for default, scope admin, for 7 d\n",
            "",
        );
    assert_eq!(world.semel(&["token", "list", "--json"]).json().len(), 2);
}

#[test]
fn no_answer_but_the_first_shows_a_secret_and_the_store_has_none() {
    let world = World::new();
    let made = make(&world, &["--scope", "read"]);
    let (id, token) = (text(&made, "id"), text(&made, "token"));
    let secret = token.split('_').nth(2).expect("a secret");
    for words in [
        &["token", "list"][..],
        &["token", "list", "--json"],
        &["token", "revoke", &id],
        &["token", "revoke", &id, "--json"],
        &["token", "revoke", &token],
        &["token", "revoke", &token[6..], "--json"],
        &["log", "--json"],
    ] {
        let ran = world.semel(words);
        assert!(!format!("{ran:?}").contains(&secret[..8]), "{ran:?}");
    }
    for entry in std::fs::read_dir(world.path("data")).expect("it is listed") {
        let path = entry.expect("it is listed").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("it is read");
            let found = bytes.windows(8).any(|part| part == &secret.as_bytes()[..8]);
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn tokens_are_listed_for_people_and_programs() {
    let world = World::new();
    let read = NewToken {
        namespace: Namespace::default(),
        scope: Scope::Read,
        label: Some(label("looks")),
        expires_in: None,
    };
    let operate = NewToken {
        namespace: Namespace::new("team-a").expect("a namespace"),
        scope: Scope::Operate,
        label: None,
        expires_in: Some(Duration::from_secs(2 * 86_400)),
    };
    let [read, operate] = world.past(|engine| async move {
        let first = engine.create_token(read).await.expect("it is made").0;
        let second = engine.create_token(operate).await.expect("it is made").0;
        [first.id.to_string(), second.id.to_string()]
    });
    assert_eq!(world.semel(&["token", "revoke", &read]).code, 0);
    let listed = world.semel(&["token", "list"]);
    listed.expect(
        0,
        &format!(
            "\
ID            STATE    SCOPE    NAMESPACE  AGE     EXPIRES  LAST USED  LABEL
{operate}  active   operate  team-a     10 min  in 1 d   never
{read}  revoked  read     default    10 min  never    never      looks
"
        ),
        "",
    );
    let lines = world.semel(&["token", "list", "--json"]).json();
    assert_eq!(
        lines,
        [
            json!({
                "id": operate, "namespace": "team-a", "scope": "operate", "label": null,
                "state": "active", "created_at": "TIME", "expires_at": "TIME", "revoked_at": null,
                "last_used_at": null,
            }),
            json!({
                "id": read, "namespace": "default", "scope": "read", "label": "looks",
                "state": "revoked", "created_at": "TIME", "expires_at": null, "revoked_at": "TIME",
                "last_used_at": null,
            }),
        ]
    );
    // Behind a wall that was named there are only its own.
    for (wall, ids) in [
        ("team-a", vec![&operate]),
        ("default", vec![&read]),
        ("b", vec![]),
    ] {
        let flag = world.semel(&["token", "list", "--json", "--namespace", wall]);
        let mut command = world.command(&["token", "list", "--json"]);
        let env = world.run(command.env("SEMEL_NAMESPACE", wall));
        for ran in [flag, env] {
            let found: Vec<_> = ran.json().iter().map(|line| text(line, "id")).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), ids, "{wall}");
        }
    }
}

#[test]
fn a_token_is_revoked_once_and_for_ever() {
    let world = World::new();
    let made = make(&world, &["--namespace", "team-a", "--scope", "write"]);
    let (id, token) = (text(&made, "id"), text(&made, "token"));
    let would = world.semel(&["token", "revoke", &id, "--dry-run", "--json"]);
    assert_eq!(would.json()[0]["effect"], "would_delete");
    assert_eq!(
        would.json()[0]["changes"],
        json!(["would revoke it (namespace team-a, scope write)"])
    );
    assert_eq!(refusal(&world, &token), None);
    world
        .semel(&["token", "revoke", &id])
        .expect(0, &format!("{id}: revoked\n"), "");
    assert_eq!(refusal(&world, &token), Some(Refusal::Revoked));
    let again = world.semel(&["token", "revoke", &id, "--json"]);
    assert_eq!(again.code, 0);
    let answer = &again.json()[0];
    let told = (&answer["ok"], &answer["effect"], &answer["state"]);
    assert_eq!(told, (&json!(true), &json!("noop"), &json!("revoked")));
    let reason = text(answer, "reason");
    assert!(reason.starts_with("revoked already, "), "{reason}");
    let would = world.semel(&["token", "revoke", &id, "--dry-run", "--json"]);
    let would = &would.json()[0];
    assert_eq!(
        (&would["effect"], &would["changes"]),
        (&json!("noop"), &json!([]))
    );
}

#[test]
fn what_is_no_token_is_not_found() {
    let world = World::new();
    let made = make(&world, &["--namespace", "team-a", "--scope", "write"]);
    let id = text(&made, "id");
    for words in [
        &["000000000000"][..],
        &["000000000000", "--dry-run"],
        &["nobody"],
        // Behind another wall there is no such token.
        &[&id, "--namespace", "team-b"],
        &[&id, "--namespace", "team-b", "--dry-run"],
    ] {
        let ran = world.semel(&[&["--json", "token", "revoke"], words].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(ran.json()[0]["error"]["code"], "not_found");
        assert!(ran.stderr.contains("\nhint: `semel token list`"), "{ran:?}");
    }
    assert_eq!(refusal(&world, &text(&made, "token")), None);
}

#[test]
fn wrong_usage_is_said_before_anything_is_made() {
    let world = World::new();
    for words in [
        &["create"][..],
        &["create", "--scope", "root"],
        &["create", "--scope", "read", "--expires", "0s"],
        &["create", "--scope", "read", "--expires", "soon"],
        &["create", "--scope", "read", "--label", ""],
        &["create", "--scope", "read", "--namespace", "a/b"],
        &["revoke"],
    ] {
        let ran = world.semel(&[&["token"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (64, ""), "{ran:?}");
    }
    assert!(!world.path("data").exists());
    // Looking makes no store.
    for words in [&["list"][..], &["revoke", "000000000000"]] {
        let ran = world.semel(&[&["token"], words].concat());
        assert_eq!(ran.code, 125, "{ran:?}");
    }
    assert!(!world.path("data").exists());
}

#[test]
fn credentials_in_the_url_of_a_server_are_refused_and_not_shown() {
    let world = World::new();
    for words in [
        &["token", "create", "--scope", "read"][..],
        &["token", "list"],
        &["token", "revoke", "000000000000"],
        &["list"],
    ] {
        for store in [
            "https://ann:s3cret@semel.example",
            "http://s3cret@h:1/p?x=s3cret",
        ] {
            let ran = world.semel(&[&["--json", "--store", store], words].concat());
            assert_ne!(ran.code, 0, "{ran:?}");
            let message = text(&ran.json()[0]["error"], "message");
            assert!(message.contains("SEMEL_TOKEN"), "{message}");
            assert!(!format!("{ran:?}").contains("s3cret"), "{ran:?}");
        }
    }
}

#[test]
fn tokens_of_a_database_are_made_listed_and_revoked_alike() {
    let world = World::new();
    let url = Cluster::shared().database();
    let semel = |words: &[&str]| {
        let ran = world.semel(&[&["--json", "--store", &url, "token"], words].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()
    };
    let made = semel(&["create", "--scope", "read", "--label", "looks"]);
    let id = text(&made[0], "id");
    assert!(text(&made[0], "token").parse::<Token>().is_ok());
    assert_eq!(semel(&["revoke", &id])[0]["effect"], "deleted");
    assert_eq!(semel(&["revoke", &id])[0]["effect"], "noop");
    let listed = semel(&["list"]);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["id"], &listed[0]["state"], &listed[0]["label"]),
        (&json!(id), &json!("revoked"), &json!("looks"))
    );
}
