//! Nothing from the store is executed: a client with the scope `write` cannot make the processes of other callers,
//! or of operators, run a command or send a request of its choice.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::core::ledger::codec::encode_command;
use semel::core::ledger::{Begin, Command, Fence, Settle, Spec};
use semel::core::{AttemptId, Digest, KeyHash, Verdict};
use semel::store::{Current, Query};
use semel::wire::{self, Apply, Brought, Call, MEDIA_TYPE, Said, Subject};
use semel::{Class, Fingerprint, Key, Label, Lease, Namespace, Note, OnDoubt, Policy};
use serde_json::json;

use crate::harness::{Ran, World};
use crate::http::{Answer, Asked};
use crate::server::{Server, wait_until};

/// A server that lets in tokens only, with one of an attacker, one of a victim and one of an operator.
struct Scene {
    world: World,
    server: Server,
    attacker: String,
    victim: String,
    operator: String,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let token = |scope: &str| {
            let made = world.semel(&["token", "create", "--json", "--scope", scope]);
            let token = made.json()[0]["token"].clone();
            token.as_str().expect("a token is shown once").to_owned()
        };
        let (attacker, victim, operator) = (token("write"), token("write"), token("operate"));
        let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
        let server = Server::spawn(command.env("SEMEL_AUTH", "required"));
        Self {
            world,
            server,
            attacker,
            victim,
            operator,
        }
    }

    /// Runs the command on the server's ledger.
    fn semel(&self, token: &str, words: &[&str]) -> Ran {
        let mut command = self.world.command(words);
        let store = format!("http://127.0.0.1:{}", self.server.port());
        command.env("SEMEL_STORE", store).env("SEMEL_TOKEN", token);
        self.world.run(&mut command)
    }

    /// Runs what is killed in the middle, with a probe.
    fn plant(&self, token: &str, key: &str, probe: &str) {
        let words = [
            &["run", "--key", key, "--lease", "1s", "--probe", probe][..],
            &EFFECT,
        ];
        let ran = self.semel(token, &words.concat());
        assert_eq!(ran.code, 137, "{ran:?}");
    }

    /// Waits until a probe could be asked about everything that was planted before.
    fn wait_for_leases(&self) {
        self.plant(&self.attacker, "canary", "true");
        wait_until("the leases are over", || {
            let words = [&["run", "--key", "canary", "--probe", "true"][..], &EFFECT];
            self.semel(&self.attacker, &words.concat()).code == 0
        });
    }

    fn ask(&self, token: &str, asked: Asked) -> Answer {
        let authorization = format!("Bearer {token}");
        self.server
            .ask(asked.header("Authorization", &authorization))
    }

    /// Returns whether a command ran that makes a file.
    fn ran(&self, mark: &str) -> bool {
        self.world.path(mark).exists()
    }
}

/// A command that is killed before it can say what it did.
const EFFECT: [&str; 4] = ["--", "sh", "-c", "kill -9 $$"];

#[test]
fn planted_probe_runs_in_no_other_process() {
    let scene = Scene::new();
    scene.plant(&scene.attacker, "order-1", "touch pwned");
    scene.wait_for_leases();
    let store = format!("sqlite:{}", scene.world.path("data/semel.db").display());
    let (missing, other) = ("brings none", "another probe");
    let run = ["run", "--key", "order-1"];
    let with_other = [&run[..], &["--probe", "touch pwned; true"]].concat();
    let victims: [(&str, Vec<&str>, i32, &str); 9] = [
        (&scene.victim, [&run[..], &EFFECT].concat(), 120, missing),
        (
            &scene.victim,
            [&run[..], &["--dry-run"], &EFFECT].concat(),
            120,
            missing,
        ),
        (
            &scene.victim,
            [&with_other[..], &EFFECT].concat(),
            120,
            other,
        ),
        (
            &scene.victim,
            [&with_other[..], &["--dry-run"], &EFFECT].concat(),
            120,
            other,
        ),
        (
            &scene.victim,
            [&run[..], &["--retry"], &EFFECT].concat(),
            120,
            missing,
        ),
        (
            &scene.operator,
            vec!["resolve", "order-1", "--probe"],
            64,
            "--probe='CMD'",
        ),
        (
            &scene.operator,
            vec!["resolve", "order-1", "--probe", "--dry-run"],
            64,
            "--probe='CMD'",
        ),
        (
            &scene.operator,
            vec!["resolve", "--state", "doubtful", "--probe", "--yes"],
            64,
            "--probe='CMD'",
        ),
        (
            &scene.operator,
            vec!["--store", &store, "resolve", "order-1", "--probe", "--yes"],
            64,
            "--probe='CMD'",
        ),
    ];
    for (token, words, code, hint) in victims {
        let ran = scene.semel(token, &words);
        assert!(!scene.ran("pwned"), "{words:?}: {ran:?}");
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(hint), "{words:?}: {ran:?}");
    }
    // Nothing was written about it, either: it is as doubtful as before.
    let shown = scene.semel(&scene.victim, &["show", "order-1", "--json"]);
    let record = shown.json().remove(0);
    assert_eq!(record["state"], "doubtful", "{record}");
    assert_eq!(record["fence"], 1, "{record}");
    let digest = Digest::of(b"touch pwned").hex();
    assert_eq!(record["probe_digest"], digest, "{record}");
    assert!(record.get("probe").is_none(), "{record}");
    let shown = scene.semel(&scene.victim, &["show", "order-1"]);
    let line = format!("probe        sha256 {digest}\n");
    assert!(shown.stdout.contains(&line), "{shown:?}");
    // With its own command an operator looks it up.
    let words = ["resolve", "order-1", "--probe=touch looked", "--yes"];
    let ran = scene.semel(&scene.operator, &words);
    assert_eq!((ran.code, scene.ran("looked")), (0, true), "{ran:?}");
    assert!(!scene.ran("pwned"));
}

#[test]
fn check_of_ensure_is_its_callers_own() {
    let scene = Scene::new();
    let ensure = |token: &str, check: &str| {
        let words = ["ensure", "--key", "user-1", "--lease", "1s", "--check"];
        scene.semel(token, &[&words[..], &[check], &EFFECT].concat())
    };
    let planted = "test -e is-so && touch pwned";
    assert_eq!(ensure(&scene.attacker, planted).code, 137);
    scene.wait_for_leases();
    // The check of the victim says that it is not so, which makes its command run: into the attacker's doubt.
    let ran = ensure(&scene.victim, "test -e other");
    assert_eq!(ran.code, 120, "{ran:?}");
    assert!(ran.stderr.contains("the --check of the first"), "{ran:?}");
    fs::write(scene.world.path("is-so"), "").expect("it is written");
    let words = ["run", "--key", "user-1"];
    let ran = scene.semel(&scene.victim, &[&words[..], &EFFECT].concat());
    assert_eq!((ran.code, scene.ran("pwned")), (120, false), "{ran:?}");
}

#[test]
fn same_probe_settles_a_doubt_on_a_remote_store() {
    for (probe, code, state) in [
        ("echo found", 0, "succeeded"),
        // What was not done runs again, and is killed again.
        ("exit 1", 137, "doubtful"),
        ("exit 3", 120, "doubtful"),
    ] {
        let scene = Scene::new();
        scene.plant(&scene.victim, "order-1", probe);
        scene.wait_for_leases();
        let words = ["run", "--key", "order-1", "--lease", "1s", "--probe", probe];
        let ran = scene.semel(&scene.victim, &[&words[..], &EFFECT].concat());
        assert_eq!(ran.code, code, "{probe}: {ran:?}");
        let shown = scene.semel(&scene.victim, &["show", "order-1", "--json"]);
        assert_eq!(shown.json()[0]["state"], state, "{probe}: {shown:?}");
    }
}

#[test]
fn api_refuses_the_text_of_a_probe() {
    let scene = Scene::new();
    let (key, text) = ("order-1", "touch pwned");
    let begin = json!({"key": key, "name": "n", "on_doubt": "probe", "probe": text});
    let task = json!({"key": key, "name": "n", "queue": "q", "on_doubt": "probe", "probe": text});
    let calls = [
        ("/v1/begin", begin.clone()),
        ("/v1/begin", json!([begin, begin])),
        ("/v1/begin", {
            let mut dry = begin.clone();
            dry["dry_run"] = json!(true);
            dry
        }),
        ("/v1/submit", task),
        ("/v1/queues/q/lease", json!({"probe": text})),
        (
            "/v1/settle",
            json!({"key": key, "attempt_id": "a", "fence": 1, "verdict": "unknown", "probe": text}),
        ),
        (
            "/v1/renew",
            json!({"key": key, "attempt_id": "a", "fence": 1, "probe": text}),
        ),
        (
            "/v1/resolve",
            json!({"key": key, "version": 1, "verdict": "done", "probe": text}),
        ),
    ];
    for (path, body) in calls {
        let told = scene.ask(&scene.operator, Asked::post(path, &body)).json();
        let items = told.as_array().cloned();
        for problem in items.unwrap_or_else(|| vec![told.clone()]) {
            assert_eq!(problem["code"], "invalid_input", "{path}: {told}");
        }
    }
    let answer = scene.ask(&scene.attacker, Asked::post("/v1/begin", &begin));
    let hint = answer.problem(400, "invalid_input")["hint"].clone();
    assert!(
        hint.as_str().is_some_and(|it| it.contains("probe_digest")),
        "{hint}"
    );
    let listed = scene.semel(&scene.victim, &["list", "--json"]);
    assert_eq!(listed.stdout, "", "nothing was begun");
}

#[test]
fn api_tells_callers_of_another_probe_that_the_doubt_stays() {
    let scene = Scene::new();
    let digest = |text: &str| Digest::of(text.as_bytes()).hex();
    let begin = |attempt: &str, digest: Option<String>| {
        let body = json!({
            "key": "order-1", "name": "n", "on_doubt": "probe", "lease_ms": 1_000,
            "attempt_id": attempt, "probe_digest": digest,
        });
        scene.ask(&scene.attacker, Asked::post("/v1/begin", &body))
    };
    begin("a", Some(digest("mine"))).expect(200);
    let unknown = json!({"key": "order-1", "attempt_id": "a", "fence": 1, "verdict": "unknown"});
    scene
        .ask(&scene.attacker, Asked::post("/v1/settle", &unknown))
        .expect(200);
    scene.wait_for_leases();
    for (given, why) in [(None, "brings none"), (Some(digest("other")), "another")] {
        let problem = begin("b", given).problem(409, "in_doubt");
        let hint = problem["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(why), "{problem}");
    }
    for wrong in ["", "abc", &"g".repeat(64), &"A".repeat(64)] {
        begin("b", Some(wrong.to_owned())).problem(400, "invalid_input");
    }
    let granted = begin("c", Some(digest("mine"))).expect(200);
    assert_eq!(granted["decision"], "probe", "{granted}");
    assert_eq!(granted["probe_digest"], digest("mine"), "{granted}");
    assert!(granted.get("probe").is_none(), "{granted}");
}

/// Makes the call of a client that begins an operation by this door.
fn begin_call(key: &str, door: &str, probe: Option<&Digest>) -> (Call, Vec<u8>) {
    let key = Key::new(key).expect("it is a key");
    let spec = Spec {
        namespace: Namespace::default(),
        key: key.clone(),
        client_key: Note::from_lossy("order-7"),
        name: Label::new("POST /orders").expect("it is a label"),
        fingerprint: Fingerprint(Digest::of(b"anything")),
        policy: Policy {
            on_doubt: OnDoubt::Probe,
            ..Policy::direct(Class::Unsafe)
        },
        door: Label::new(door).ok(),
        principal: None,
        parent: None,
        occurrence: 1,
        probe_digest: probe.copied(),
    };
    let command = Command::Begin(Begin {
        spec: Arc::new(spec),
        attempt: AttemptId::new("a").expect("it is an id"),
        lease: Lease::new(Duration::from_secs(1)).expect("it is a lease"),
        holder: None,
        worker: false,
        sighting: None,
    });
    let bytes = encode_command(&command);
    let subject = Subject {
        hash: KeyHash::of(&Namespace::default(), &key),
        key: Some(key),
    };
    let call = Call::Apply(Box::new(Apply {
        subject,
        command,
        brought: Brought::default(),
    }));
    (call, bytes)
}

/// Writes the call as clients did that sent the text of a probe.
fn with_text(key: &str, door: &str, text: &str) -> Vec<u8> {
    let mark = Digest([0x55; 32]);
    let (call, command) = begin_call(key, door, Some(&mark));
    let length = u8::try_from(text.len()).expect("it is short");
    assert!(length < 0x80, "its length is one byte");
    let mut old = replaced(&command, &mark.0, &[&[length], text.as_bytes()].concat());
    old[0] = 1;
    let counted = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    replaced(&call.encode(), &counted(&command), &counted(&old))
}

/// Replaces the only place where some bytes are.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut found = bytes.windows(from.len()).enumerate();
    let found = found.find(|(_, window)| *window == from);
    let (at, _) = found.expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

fn engine_call(scene: &Scene, call: &[u8]) -> Answer {
    let asked = Asked::new("POST", "/v1/engine").header("Content-Type", MEDIA_TYPE);
    scene.ask(&scene.attacker, asked.body(call))
}

#[test]
fn engine_refuses_the_text_of_a_probe() {
    let scene = Scene::new();
    let answer = engine_call(&scene, &with_text("order-1", "run", "touch pwned"));
    let problem = answer.problem(400, "invalid_input");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|it| it.contains("probe")),
        "{problem}"
    );
    assert!(problem["hint"].is_string(), "{problem}");
    let listed = scene.semel(&scene.victim, &["list", "--json"]);
    assert_eq!(listed.stdout, "", "nothing was begun");
}

#[test]
fn attempt_of_another_caller_is_settled_by_no_writer() {
    let scene = Scene::new();
    let ran = scene.semel(
        &scene.victim,
        &[&["run", "--key", "order-1"][..], &EFFECT].concat(),
    );
    assert_eq!(ran.code, 137, "{ran:?}");
    let key = Key::new("order-1").expect("it is a key");
    let hash = KeyHash::of(&Namespace::default(), &key);
    let said = |call: &Call| {
        let answer = engine_call(&scene, &call.encode());
        wire::Answer::decode(&answer.body)
            .expect("it is an answer")
            .said
    };
    let place = match said(&Call::Load(hash)) {
        Said::Found(Current::Stored(stored)) => stored.place,
        other => panic!("{other:?}"),
    };
    // Every way to read the record or what happened to it.
    let list = Call::List(Box::new(Query {
        limit: 10,
        ..Query::default()
    }));
    let log = Call::Log {
        after: 0,
        limit: 10,
    };
    let begin = begin_call("order-1", "run", None).0;
    let mut ids = BTreeSet::new();
    for call in [Call::Load(hash), Call::LoadAt(place), list, log, begin] {
        let records: Vec<_> = match said(&call) {
            Said::Found(Current::Stored(stored)) => vec![stored.record],
            Said::Lies(stored) => stored.into_iter().map(|it| it.record).collect(),
            Said::Page(page) => page.items.into_iter().map(|it| it.record).collect(),
            Said::Refused { record, .. } => record.into_iter().collect(),
            Said::Log { entries, .. } => {
                ids.extend(entries.into_iter().filter_map(|it| match it.entry.command {
                    Command::Begin(begin) => Some(begin.attempt),
                    Command::Settle(settle) => Some(settle.attempt),
                    _ => None,
                }));
                vec![]
            }
            other => panic!("{other:?}"),
        };
        for record in records {
            let operation = record.operation().expect("it is one");
            ids.extend(operation.attempts.iter().map(|it| it.id.clone()));
        }
    }
    assert!(!ids.is_empty());
    for attempt in ids {
        let verdict = Verdict::NotDone {
            reject: false,
            error: None,
            retry_after: None,
        };
        let settle = Call::Apply(Box::new(Apply {
            subject: Subject {
                hash,
                key: Some(key.clone()),
            },
            command: Command::Settle(Settle {
                attempt,
                fence: Fence(1),
                verdict,
            }),
            brought: Brought::default(),
        }));
        drop(said(&settle));
        let shown = scene.semel(&scene.victim, &["show", "order-1", "--json"]);
        assert_eq!(shown.json()[0]["state"], "doubtful", "{shown:?}");
    }
}

/// Counts the connections to a port of its own.
struct Target {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Target {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it has an address").port();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self { port, count }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

#[test]
fn forged_request_sends_no_header_of_an_operator_anywhere() {
    let scene = Scene::new();
    let (evil, own) = (Target::start(), Target::start());
    let route = format!(
        "[[proxy.route]]\nupstream = \"http://127.0.0.1:{}\"\nprobe = {{ path = \"/orders/{{key}}\" }}\n",
        own.port
    );
    let (evil_port, own_port) = (evil.port, own.port);
    let lines = [
        format!("GET http://127.0.0.1:{evil_port}/orders/order-7"),
        format!("GET http://127.0.0.1:{own_port}@127.0.0.1:{evil_port}/orders/order-7"),
        format!("GET http://127.0.0.1:{own_port}/admin"),
        format!("GET http://127.0.0.1:{own_port}/orders/order-8"),
        format!("GET http://127.0.0.1:{own_port}/orders/order-7/../../admin"),
        format!("GET http://127.0.0.1:{own_port}/orders/order-7 found /x"),
    ];
    let mut refusals = vec![];
    for (number, line) in lines.iter().enumerate() {
        // As an earlier client, and as one that forges the digest.
        let key = format!("proxy/0123456789abcdef/text-{number}");
        refusals.push(engine_call(&scene, &with_text(&key, "proxy", line)));
        let key = format!("proxy/0123456789abcdef/digest-{number}");
        let digest = Digest::of(line.as_bytes());
        engine_call(&scene, &begin_call(&key, "proxy", Some(&digest)).0.encode());
    }
    scene.wait_for_leases();
    let store = format!("sqlite:{}", scene.world.path("data/semel.db").display());
    for settings in ["", &route] {
        fs::write(scene.world.path("semel.toml"), settings).expect("it is written");
        for number in 0..lines.len() {
            for kind in ["text", "digest"] {
                let key = format!("proxy/0123456789abcdef/{kind}-{number}");
                let asked = [
                    "resolve",
                    &key,
                    "--probe",
                    "--header",
                    "Authorization: Bearer s3cr3t",
                    "--yes",
                ];
                // Every second one on the store itself.
                let near = [&["--store", &store][..], &asked].concat();
                let ran = if number % 2 == 0 {
                    scene.semel(&scene.operator, &asked)
                } else {
                    scene.semel(&scene.operator, &near)
                };
                assert_eq!((evil.count(), own.count()), (0, 0), "{key}: {ran:?}");
                // The digest is there, and leads nowhere; the text was never taken.
                let code = if kind == "text" { 1 } else { 64 };
                assert_eq!(ran.code, code, "{key}: {ran:?}");
            }
        }
    }
    for refusal in refusals {
        refusal.problem(400, "invalid_input");
    }
    // The place of the operator's own route is asked.
    let line = format!("GET http://127.0.0.1:{own_port}/orders/order-7");
    let digest = Digest::of(line.as_bytes());
    let key = "proxy/0123456789abcdef/right";
    engine_call(&scene, &begin_call(key, "proxy", Some(&digest)).0.encode());
    let asked = ["resolve", key, "--probe", "--yes"];
    wait_until("its lease is over", || {
        // The target closes the connection, which says nothing.
        scene.semel(&scene.operator, &asked).code == 120
    });
    assert_eq!((own.count() > 0, evil.count()), (true, 0));
}

/// Returns the files below a directory that hold some bytes.
fn holding(directory: PathBuf, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut waiting = vec![directory];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("it is listed");
            waiting.extend(entries.map(|entry| entry.expect("it is listed").path()));
        } else if let Ok(read) = fs::read(&path)
            && read.windows(bytes.len()).any(|window| window == bytes)
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_byte_of_a_probe_is_stored() {
    const TEXT: &str = "test -e no-such-file-3fd81c";
    let cluster = semel_testkit::postgres::Cluster::start();
    let sqlite = World::new();
    let database = format!("sqlite:{}", sqlite.path("data/semel.db").display());
    let postgres = cluster.database();
    let places = [
        (&database, sqlite.path("data")),
        (&postgres, cluster.directory().to_owned()),
    ];
    let mut with_text = vec![];
    for (store, directory) in places {
        let semel = |words: &[&str]| sqlite.semel(&[&["--store", store], words].concat());
        let run = ["run", "--key", "order-3fd81c", "--lease", "1s"];
        let ran = semel(&[&run[..], &["--probe", TEXT], &EFFECT].concat());
        assert_eq!(ran.code, 137, "{ran:?}");
        let ran = semel(&[&run[..], &["--probe", TEXT], &EFFECT].concat());
        assert_eq!(ran.code, 120, "{ran:?}");
        let ensure = ["ensure", "--key", "ensured-3fd81c", "--check", TEXT];
        assert_eq!(semel(&[&ensure[..], &EFFECT].concat()).code, 137);
        let asked = format!("--probe={TEXT}");
        let ran = semel(&["resolve", "order-3fd81c", &asked, "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        if store == &postgres {
            cluster.sql("postgres", "CHECKPOINT");
        }
        let with_key = holding(directory.clone(), b"order-3fd81c");
        assert!(!with_key.is_empty(), "the key is stored");
        with_text.extend(holding(directory, TEXT.as_bytes()));
        for words in [
            &["show", "order-3fd81c", "--json"][..],
            &["list", "--json"],
            &["log", "--json"],
            &["show", "order-3fd81c"],
        ] {
            if semel(words).stdout.contains(TEXT) {
                with_text.push(words.join(" ").into());
            }
        }
    }
    assert!(with_text.is_empty(), "{with_text:?}");
}
