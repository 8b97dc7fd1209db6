//! Who may ask: tokens, their scopes, and the walls between namespaces.

use semel::Scope;
use semel::remote::RemoteStore;
use serde_json::{Value, json};

use crate::harness::{Ran, World};
use crate::http::{Answer, Asked};
use crate::server::Server;

/// Makes a token with the command.
#[track_caller]
fn token(world: &World, namespace: &str, scope: &str) -> String {
    made(world, &["--namespace", namespace, "--scope", scope])["token"]
        .as_str()
        .expect("a token is shown once")
        .to_owned()
}

#[track_caller]
fn made(world: &World, words: &[&str]) -> Value {
    let mut args = vec!["token", "create", "--json"];
    args.extend(words);
    let ran = world.semel(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    let made = ran.json()[0].clone();
    for member in ["id", "token", "namespace", "scope", "expires_at"] {
        assert!(made.get(member).is_some(), "{member} is missing: {made}");
    }
    made
}

/// Starts a server that lets nobody in without a token.
fn guarded(world: &World) -> Server {
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    Server::spawn(command.env("SEMEL_AUTH", "required"))
}

fn with(token: &str, asked: Asked) -> Asked {
    asked.header("Authorization", &format!("Bearer {token}"))
}

fn begin(key: &str) -> Asked {
    Asked::post(
        "/v1/begin",
        &json!({"key": key, "name": "n", "attempt_id": "a"}),
    )
}

#[test]
fn a_token_that_is_not_valid_is_refused_in_the_same_words_whatever_is_wrong_with_it() {
    let world = World::new();
    let good = token(&world, "default", "admin");
    let revoked = made(&world, &["--namespace", "default", "--scope", "admin"]);
    let id = revoked["id"].as_str().expect("it has an id");
    assert_eq!(world.semel(&["token", "revoke", id]).code, 0);
    // One second is the shortest; it is over when the store's clock says so.
    let expired = made(&world, &["--scope", "admin", "--expires", "1s"]);
    let text = |made: &Value| made["token"].as_str().expect("it has a text").to_owned();
    let server = guarded(&world);
    crate::server::wait_until("the token expires", || {
        server
            .ask(with(&text(&expired), Asked::get("/v1/operations")))
            .status
            == 401
    });
    let mut mistyped = good.clone();
    let changed = if mistyped.pop() == Some('0') {
        '1'
    } else {
        '0'
    };
    mistyped.push(changed);
    let parts: Vec<_> = good.split('_').collect();
    let other = token(&world, "default", "admin");
    let others: Vec<_> = other.split('_').collect();
    let bodies: Vec<Answer> = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Bearer nonsense".to_owned()),
        Some(format!("Basic {good}")),
        Some(good.clone()),
        Some(format!("Bearer {good} {good}")),
        Some(format!("Bearer {}", text(&revoked))),
        Some(format!("Bearer {}", text(&expired))),
        Some(format!("Bearer {mistyped}")),
        Some(format!("Bearer {}", &good[..good.len() - 1])),
        Some(format!("Bearer {}", &good[..good.len() / 2])),
        Some(format!("Bearer {good}0")),
        Some(format!("Bearer {}", good.to_uppercase())),
        // Somebody else's secret behind this id.
        Some(format!(
            "Bearer {}_{}_{}_{}",
            parts[0], parts[1], others[2], parts[3]
        )),
        Some(format!("Bearer semel_0000000000_{}_{}", parts[2], parts[3])),
        Some(format!("Bearer {}", "a".repeat(4_000))),
    ]
    .into_iter()
    .map(|header| {
        let asked = begin("evil");
        let answer = match &header {
            None => server.ask(asked),
            Some(header) => server.ask(asked.header("Authorization", header)),
        };
        let problem = answer.problem(401, "unauthorized");
        assert!(answer.header("www-authenticate").is_some(), "{answer:?}");
        assert!(
            !problem.to_string().contains(&good),
            "{header:?}: {problem}"
        );
        answer
    })
    .collect();
    // Nothing tells a wrong token from an old one: neither words nor headers.
    let told: Vec<_> = bodies.iter().map(plain).collect();
    for (number, answer) in told.iter().enumerate().skip(4) {
        assert_eq!(*answer, told[4], "case {number}");
    }
    assert_eq!(server.ask(with(&good, begin("good"))).status, 200);
    server
        .ask(with(&good, Asked::get("/v1/operations/evil")))
        .problem(404, "not_found");
    // Two of them are one too many, also when one is right.
    let asked = with(&good, with("nonsense", begin("evil")));
    assert_ne!(server.ask(asked).status, 200);
    // What a server prints has no secret in it.
    let secret = parts[2];
    assert!(!server.said().contains(secret), "{}", server.said());
}

/// Leaves out what differs from answer to answer by nature.
fn plain(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    answer
        .headers
        .retain(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id" | "traceparent"));
    answer
}

#[test]
fn every_call_needs_its_scope() {
    let world = World::new();
    let tokens = ["read", "write", "operate", "admin"].map(|scope| token(&world, "default", scope));
    let server = guarded(&world);
    let operator = |call: &str| Asked::post(call, &json!({"key": "k", "version": 1}));
    let calls: [(usize, Asked); 17] = [
        (0, Asked::get("/v1/operations")),
        (0, Asked::get("/v1/operations/k")),
        (0, Asked::get("/v1/operations/k/events")),
        (0, Asked::get("/v1/events")),
        (1, begin("k")),
        (
            1,
            Asked::post(
                "/v1/begin",
                &json!([{"key": "k", "name": "n", "attempt_id": "a"}]),
            ),
        ),
        (
            1,
            Asked::post(
                "/v1/begin",
                &json!({"key": "k", "name": "n", "attempt_id": "a", "dry_run": true}),
            ),
        ),
        (
            1,
            Asked::post("/v1/submit", &json!({"key": "s", "name": "n"})),
        ),
        (0, Asked::get("/v1/queues")),
        (
            1,
            Asked::post("/v1/queues/mails/tasks", &json!({"key": "t"})),
        ),
        (1, Asked::post("/v1/queues/mails/lease", &json!({}))),
        (
            1,
            Asked::post(
                "/v1/renew",
                &json!({"key": "k", "attempt_id": "a", "fence": 1}),
            ),
        ),
        (
            1,
            Asked::post(
                "/v1/settle",
                &json!({"key": "k", "attempt_id": "a", "fence": 1, "verdict": "unknown"}),
            ),
        ),
        (
            2,
            Asked::post(
                "/v1/resolve",
                &json!({"key": "k", "version": 1, "verdict": "not_done"}),
            ),
        ),
        (2, operator("/v1/retry")),
        (2, operator("/v1/cancel")),
        (2, operator("/v1/forget")),
    ];
    for (needed, asked) in &calls {
        for (scope, token) in tokens.iter().enumerate() {
            let answer = server.ask(with(token, asked.clone()));
            if scope < *needed {
                answer.problem(403, "forbidden");
            } else {
                assert!(!matches!(answer.status, 401 | 403), "{asked:?}: {answer:?}");
                assert!(answer.status < 500, "{asked:?}: {answer:?}");
            }
        }
    }
    // A refused call wrote nothing: what was refused to `read` does not exist until `write` asks.
    let asked = Asked::post("/v1/begin", &json!({"key": "never", "name": "n"}));
    server
        .ask(with(&tokens[0], asked))
        .problem(403, "forbidden");
    let asked = Asked::get("/v1/operations/never");
    server
        .ask(with(&tokens[3], asked))
        .problem(404, "not_found");
}

/// What another namespace has cannot be told from what nobody has.
#[test]
fn namespaces_are_walls() {
    let world = World::new();
    let ours = token(&world, "team-a", "admin");
    let theirs = token(&world, "team-b", "admin");
    let server = guarded(&world);
    let granted = server.ask(with(&ours, begin("there"))).expect(200);
    let settle = json!({
        "key": "there", "attempt_id": "a", "fence": granted["fence"], "verdict": "done", "ok": true,
        "effect": "created", "data": "secret",
    });
    server
        .ask(with(&ours, Asked::post("/v1/settle", &settle)))
        .expect(200);
    // A key of the same length, so that only the key itself may differ.
    let calls = |key: &str| {
        [
            Asked::get(&format!("/v1/operations/{key}")),
            Asked::get(&format!("/v1/operations/{key}/events")),
            Asked::get(&format!("/v1/operations?prefix={key}")),
            Asked::post(
                "/v1/settle",
                &json!({"key": key, "attempt_id": "a", "fence": 1, "verdict": "done", "ok": true, "effect": "created"}),
            ),
            Asked::post(
                "/v1/settle",
                &json!({"key": key, "attempt_id": "a", "fence": 1, "verdict": "unknown", "dry_run": true}),
            ),
            Asked::post(
                "/v1/renew",
                &json!({"key": key, "attempt_id": "a", "fence": 1}),
            ),
            Asked::post(
                "/v1/resolve",
                &json!({"key": key, "version": 2, "verdict": "not_done"}),
            ),
            Asked::post("/v1/retry", &json!({"key": key, "version": 2})),
            Asked::post("/v1/cancel", &json!({"key": key, "version": 2})),
            Asked::post("/v1/forget", &json!({"key": key, "version": 2})),
            Asked::post(
                "/v1/forget",
                &json!({"key": key, "version": 2, "dry_run": true}),
            ),
            Asked::post(
                "/v1/begin",
                &json!({"key": key, "name": "other", "dry_run": true}),
            ),
        ]
    };
    for (there, absent) in calls("there").into_iter().zip(calls("never")) {
        let there = plain(&server.ask(with(&theirs, there)));
        let absent = plain(&server.ask(with(&theirs, absent)));
        let body = String::from_utf8_lossy(&absent.body).replace("never", "there");
        assert_eq!(
            there,
            Answer {
                body: body.into_bytes(),
                ..absent
            }
        );
        assert!(!format!("{there:?}").contains("secret"), "{there:?}");
    }
    // The same key is another operation behind the other wall, whatever its name and input.
    let other = json!({"key": "there", "name": "other", "input": 1, "attempt_id": "b"});
    let other = server
        .ask(with(&theirs, Asked::post("/v1/begin", &other)))
        .expect(200);
    assert_eq!(
        (&other["decision"], &other["fence"]),
        (&json!("execute"), &json!(1)),
        "{other}"
    );
    let record = server
        .ask(with(&ours, Asked::get("/v1/operations/there")))
        .expect(200);
    assert_eq!(
        (&record["namespace"], &record["data"]),
        (&json!("team-a"), &json!("secret"))
    );
    for (token, namespace) in [(&ours, "team-a"), (&theirs, "team-b")] {
        for list in ["/v1/operations", "/v1/events"] {
            let listed = server.ask(with(token, Asked::get(list))).expect(200);
            let items = listed["items"].as_array().expect("a list");
            assert!(!items.is_empty(), "{listed}");
            assert!(
                items.iter().all(|item| item["namespace"] == namespace),
                "{listed}"
            );
        }
    }
}

#[test]
fn a_token_works_at_once_and_stops_at_once() {
    let world = World::new();
    let server = guarded(&world);
    server.get("/v1/operations").problem(401, "unauthorized");
    let made = made(&world, &["--scope", "read"]);
    let text = made["token"].as_str().expect("it has a text").to_owned();
    let ask = || server.ask(with(&text, Asked::get("/v1/operations"))).status;
    assert_eq!(ask(), 200);
    let id = made["id"].as_str().expect("it has an id");
    let listed = world.semel(&["token", "list", "--json"]);
    assert!(
        listed.stdout.contains(id) && !listed.stdout.contains(&text),
        "{listed:?}"
    );
    let secret = text.split('_').nth(2).expect("it has a secret");
    assert!(!listed.stdout.contains(secret), "{listed:?}");
    let revoked = world.semel(&["token", "revoke", id]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert_eq!(ask(), 401);
    // Only what proves a token is stored, not the token.
    for file in std::fs::read_dir(world.path("data")).expect("the store is there") {
        let bytes = std::fs::read(file.expect("it can be read").path()).expect("it can be read");
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "the secret is stored");
    }
}

/// Health and what is the same for everybody need no token; all else does.
#[test]
fn only_what_is_everybodys_needs_no_token() {
    let world = World::new();
    let server = guarded(&world);
    for open in ["/healthz", "/readyz", "/errors/in_doubt"] {
        assert_eq!(server.get(open).status, 200, "{open}");
    }
    for closed in [
        "/v1/operations",
        "/v1/operations/k",
        "/v1/events",
        "/v1/nothing",
    ] {
        let answer = server.get(closed);
        assert!(matches!(answer.status, 401 | 404), "{closed}: {answer:?}");
        if closed != "/v1/nothing" {
            answer.problem(401, "unauthorized");
        }
    }
    for call in [
        "begin", "settle", "renew", "submit", "resolve", "retry", "cancel", "forget",
    ] {
        // Nobody learns what a body should look like.
        server
            .post(&format!("/v1/{call}"), &json!({"x": 1}))
            .problem(401, "unauthorized");
    }
}

/// Without a token a caller on this machine operates in the server's namespace, and administers nothing.
#[test]
fn anonymous_callers_on_loopback_operate_and_do_not_administer() {
    let world = World::new();
    let admin = token(&world, "default", "admin");
    let socket = world.path("semel.sock").display().to_string();
    let mut command = world.command(&["serve", "--listen", &format!("unix:{socket}")]);
    let servers = [
        (Server::start(&world), None),
        (
            Server::spawn(&mut command),
            Some(format!("http+unix:{socket}")),
        ),
    ];
    for (number, (server, store)) in servers.iter().enumerate() {
        let key = format!("k-{number}");
        let granted = server.ask(begin(&key)).expect(200);
        assert_eq!(granted["namespace"], "default", "{granted}");
        let ours = token(&world, "team-a", "read");
        let asked = Asked::get(&format!("/v1/operations/{key}"));
        server.ask(with(&ours, asked)).problem(404, "not_found");
        server
            .ask(with("nonsense", begin(&key)))
            .problem(401, "unauthorized");
        let unknown = json!({"key": key, "attempt_id": "a", "fence": 1, "verdict": "unknown"});
        server.post("/v1/settle", &unknown).expect(200);
        let resolve = json!({"key": key, "version": 2, "verdict": "not_done"});
        server.post("/v1/resolve", &resolve).expect(200);
        let store = store.clone();
        let store = store.unwrap_or_else(|| format!("http://127.0.0.1:{}", server.port()));
        assert_eq!(scope(&store, None), Scope::Operate, "{store}");
        assert_eq!(scope(&store, Some(&admin)), Scope::Admin, "{store}");
        // Nobody becomes an administrator for being on this machine.
        administers_nothing(&world, &store, None);
    }
}

/// Runs `semel token` through a server.
fn through(world: &World, store: &str, token: Option<&str>, words: &[&str]) -> Ran {
    let mut args = vec!["--store", store, "token"];
    args.extend(words);
    let mut command = world.command(&args);
    if let Some(token) = token {
        command.env("SEMEL_TOKEN", token);
    }
    world.run(&mut command)
}

/// Expects that a caller neither sees nor changes tokens.
#[track_caller]
fn administers_nothing(world: &World, store: &str, token: Option<&str>) {
    let listed = || world.semel(&["token", "list", "--json"]).json();
    let states = |all: &[Value]| -> Vec<_> {
        all.iter()
            .map(|it| (it["id"].clone(), it["state"].clone()))
            .collect()
    };
    let before = listed();
    let id = before[0]["id"].as_str().expect("it has an id");
    for words in [
        &["create", "--scope", "read"][..],
        &["create", "--scope", "admin"],
        &["create", "--scope", "read", "--dry-run"],
        &["list"],
        &["revoke", id],
        &["revoke", id, "--dry-run"],
    ] {
        let ran = through(world, store, token, words);
        assert_ne!(ran.code, 0, "{words:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{words:?}: {ran:?}");
        assert!(ran.stderr.contains("admin"), "{words:?}: {ran:?}");
    }
    assert_eq!(states(&listed()), states(&before));
}

#[test]
fn only_administrators_administer_tokens_and_those_of_their_namespace() {
    let world = World::new();
    let admin = token(&world, "team-a", "admin");
    let other = made(&world, &["--namespace", "team-b", "--scope", "write"]);
    let other = other["id"].as_str().expect("it has an id").to_owned();
    let server = guarded(&world);
    let store = format!("http://127.0.0.1:{}", server.port());
    for scope in ["read", "write", "operate"] {
        let weaker = token(&world, "team-a", scope);
        administers_nothing(&world, &store, Some(&weaker));
    }
    let run = |words: &[&str]| through(&world, &store, Some(&admin), words);
    let created = run(&["create", "--scope", "write", "--label", "far", "--json"]);
    let created = created.json().remove(0);
    assert_eq!(created["namespace"], "team-a", "{created}");
    let text = created["token"].as_str().expect("it is shown once");
    assert_eq!(server.ask(with(text, begin("k"))).status, 200);
    let listed = run(&["list", "--json"]);
    let all = listed.json();
    assert_eq!(all.len(), 5, "{listed:?}");
    assert!(
        all.iter().all(|it| it["namespace"] == "team-a"),
        "{listed:?}"
    );
    // Those of others are not there.
    for words in [
        &["revoke", &other][..],
        &["revoke", &other, "--dry-run"],
        &["--namespace", "team-b", "create", "--scope", "read"],
    ] {
        let ran = run(words);
        assert_ne!(ran.code, 0, "{words:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{words:?}: {ran:?}");
    }
    let id = created["id"].as_str().expect("it has an id");
    assert_eq!(run(&["revoke", id]).code, 0);
    assert_eq!(server.ask(with(text, begin("k"))).status, 401);
    let again = run(&["revoke", id]);
    assert!(again.stdout.contains("revoked already"), "{again:?}");
    let all = world.semel(&["token", "list", "--json"]).json();
    let found = all.iter().find(|it| it["id"] == other.as_str());
    assert_eq!(found.expect("it is there")["state"], "active");
}

/// Asks a server what it takes a caller for.
fn scope(store: &str, token: Option<&str>) -> Scope {
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    let opened = runtime.block_on(RemoteStore::open(store, token));
    opened.expect("the server answers").scope()
}

#[test]
fn a_server_without_tokens_does_not_listen_beyond_loopback() {
    let world = World::new();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let mut command = world.command(&["serve", "--listen", listen]);
        let ended = Server::try_spawn(&mut command);
        let (status, said) = ended.map(|_| "it listens").expect_err(listen);
        assert!(!status.success(), "{said}");
        assert!(said.contains("semel token create"), "{said}");
    }
}
