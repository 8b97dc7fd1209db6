//! Namespaces keep callers apart at every entry point: whatever the holder of a token of another namespace asks, nothing of
//! this one is in the answers, and nothing of it changes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use crate::harness::World;
use crate::http::{Answer, Asked, segment};
use crate::server::Server;

/// Stands in everything that the walked namespace holds, and in nothing that the others ask.
const HUSH: &str = "hush";

/// How many routes show or change something when they are asked with a token of the right namespace: a walk that asks
/// nothing real would find nothing.
const TELLING_MIN: usize = 12;

#[track_caller]
fn token(world: &World, namespace: &str, scope: &str) -> String {
    let words = [
        "token",
        "create",
        "--namespace",
        namespace,
        "--scope",
        scope,
    ];
    let made = world.semel(&words);
    assert_eq!(made.code, 0, "{made:?}");
    made.stdout.trim().to_owned()
}

fn with(token: &str, asked: Asked) -> Asked {
    asked.header("Authorization", &format!("Bearer {token}"))
}

fn serve(world: &World, auth: &str, words: &[&str]) -> Server {
    let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
    args.extend(words);
    Server::spawn(world.command(&args).env("SEMEL_AUTH", auth))
}

/// An operation of the walked namespace, as requests name it.
#[derive(Clone, Debug)]
struct Target {
    key: &'static str,
    version: u64,
    fence: u64,
}

impl Target {
    /// Returns what a member of a request is, where it names the operation.
    fn member(&self, name: &str) -> Option<Value> {
        Some(match name {
            "key" => json!(self.key),
            "version" => json!(self.version),
            "fence" => json!(self.fence),
            "attempt_id" => json!("a-1"),
            "name" => json!("other"),
            "max" => json!(10),
            _ => return None,
        })
    }
}

/// Fills a namespace with one operation of each kind, a task, and a breaker.
fn furnish(server: &Server, token: &str) -> Vec<Target> {
    let post = |path: &str, body: Value| {
        server
            .ask(with(token, Asked::post(path, &body)))
            .expect(200)
    };
    for key in ["done", "doubt", "running"] {
        let begin = json!({
            "key": key, "name": "hush-name", "input": "hush-input", "attempt_id": "a-1", "lease_ms": 86_400_000,
        });
        post("/v1/begin", begin);
    }
    post(
        "/v1/settle",
        json!({"key": "done", "attempt_id": "a-1", "fence": 1, "verdict": "done", "effect": "created", "data": "hush-data"}),
    );
    post(
        "/v1/settle",
        json!({"key": "doubt", "attempt_id": "a-1", "fence": 1, "verdict": "unknown", "error": "hush-error"}),
    );
    post(
        "/v1/queues/line/tasks",
        json!({"key": "task", "name": "hush-name", "input": "hush-input"}),
    );
    post("/v1/breakers/fuse/open", json!({"note": "hush-note"}));
    let target = |(key, version, fence)| Target {
        key,
        version,
        fence,
    };
    [
        ("done", 2, 1),
        ("doubt", 2, 1),
        ("running", 1, 1),
        ("task", 1, 0),
    ]
    .map(target)
    .to_vec()
}

/// Follows a reference in the server's own description.
fn resolved<'a>(api: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.trim_start_matches('#');
            resolved(api, api.pointer(pointer).expect("it is described"))
        }
        None => schema,
    }
}

/// Makes a value that fits a schema.
fn sample(api: &Value, schema: &Value, target: &Target) -> Value {
    let schema = resolved(api, schema);
    if let Some(words) = schema["enum"].as_array() {
        return words[0].clone();
    }
    if let Some(properties) = schema["properties"].as_object() {
        let required = schema["required"].as_array();
        let is_required = |name: &str| required.is_some_and(|all| all.contains(&json!(name)));
        let mut object = Map::new();
        for (name, property) in properties {
            let has_words = resolved(api, property)["enum"].is_array();
            let known = target.member(name).filter(|_| !has_words);
            if let Some(value) = known {
                object.insert(name.clone(), value);
            } else if is_required(name) {
                object.insert(name.clone(), sample(api, property, target));
            }
        }
        return Value::Object(object);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("integer" | "number") => json!(schema["minimum"].as_u64().unwrap_or(1)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        _ => json!("x"),
    }
}

/// Makes every kind of body that a schema describes.
fn samples(api: &Value, schema: &Value, target: &Target) -> Vec<Value> {
    let schema = resolved(api, schema);
    match schema["oneOf"].as_array() {
        Some(kinds) => {
            let kinds = kinds.iter().filter(|kind| kind["type"] != "array");
            kinds.flat_map(|kind| samples(api, kind, target)).collect()
        }
        None => vec![sample(api, schema, target)],
    }
}

/// Makes the requests of every route that the server describes, about one operation.
fn requests(api: &Value, target: &Target) -> Vec<(String, Asked)> {
    let mut all = vec![];
    for (path, methods) in api["paths"].as_object().expect("there are paths") {
        let mut filled = path.replace("{key}", &segment(target.key));
        for (name, value) in [("queue", "line"), ("name", "fuse"), ("source", "nothing")] {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        assert!(
            !filled.contains('{'),
            "{path} has a part that is not known here"
        );
        for (method, call) in methods.as_object().expect("there are methods") {
            let name = format!("{method} {path}");
            match method.as_str() {
                "get" => all.push((name, Asked::get(&filled))),
                "post" => {
                    let schema = &call["requestBody"]["content"]["application/json"]["schema"];
                    for body in samples(api, schema, target) {
                        if body.is_object() {
                            let many = Value::Array(vec![body.clone()]);
                            all.push((name.clone(), Asked::post(&filled, &many)));
                        }
                        all.push((name.clone(), Asked::post(&filled, &body)));
                    }
                }
                other => panic!("{other} {path}: this walk knows GET and POST only"),
            }
        }
    }
    all
}

/// Returns all that is known of a namespace to the command on its store.
fn snapshot(world: &World, namespace: &str, targets: &[Target]) -> Vec<String> {
    let mut all = vec![];
    let mut look = |words: &[&str]| {
        let mut args = vec!["--namespace", namespace];
        args.extend(words);
        all.push(world.semel(&args).stdout);
    };
    look(&["list", "--json", "--limit", "1000"]);
    look(&["breaker", "list", "--json"]);
    for target in targets {
        look(&["show", target.key, "--json"]);
        look(&["log", target.key, "--json"]);
    }
    all
}

#[track_caller]
fn tells_nothing(of: &str, answer: &Answer) {
    let text = format!("{answer:?}").replace(of, "");
    assert!(!text.contains(HUSH), "{of}: {answer:?}");
    assert!(answer.status < 500, "{of}: {answer:?}");
}

#[test]
fn no_route_shows_or_changes_anything_of_another_namespace() {
    let world = World::new();
    let ours = token(&world, "ours", "admin");
    let theirs = ["read", "write", "operate", "admin"].map(|scope| token(&world, "theirs", scope));
    let server = serve(&world, "required", &[]);
    let targets = furnish(&server, &ours);
    let api = server.get("/openapi.json").expect(200);
    let before = snapshot(&world, "ours", &targets);
    assert!(before.iter().all(|text| !text.is_empty()), "{before:?}");
    for target in &targets {
        for (name, asked) in requests(&api, target) {
            for token in &theirs {
                tells_nothing(&name, &server.ask(with(token, asked.clone())));
            }
        }
    }
    assert_eq!(snapshot(&world, "ours", &targets), before);
    // The numbers of one namespace are none of another's.
    let metrics = |token: &str| {
        let answer = server.ask(with(token, Asked::get("/metrics")));
        String::from_utf8(answer.body).expect("it is text")
    };
    for (token, doubts) in [(&theirs[0], 0), (&ours, 1)] {
        let text = metrics(token);
        let line = format!("\nsemel_doubts_open {doubts}\n");
        assert!(text.contains(&line), "{text}");
    }
    // The same requests of the right caller do show and change something.
    let mut telling = std::collections::BTreeSet::new();
    for target in &targets {
        for (name, asked) in requests(&api, target) {
            let before = snapshot(&world, "ours", &targets);
            let answer = server.ask(with(&ours, asked));
            let is_shown = format!("{answer:?}").contains(HUSH);
            if is_shown || snapshot(&world, "ours", &targets) != before {
                telling.insert(name);
            }
        }
    }
    assert!(telling.len() >= TELLING_MIN, "{telling:?}");
}

#[test]
fn streams_show_nothing_of_another_namespace() {
    let world = World::new();
    let ours = token(&world, "ours", "admin");
    let theirs = token(&world, "theirs", "admin");
    let server = serve(&world, "required", &[]);
    furnish(&server, &ours);
    let mut stream = server.connect();
    let follow = Asked::get("/v1/events")
        .header("Accept", "text/event-stream")
        .header("Last-Event-ID", "0");
    stream
        .send(&with(&theirs, follow).bytes())
        .expect("it is sent");
    stream.head().expect("it begins");
    let begin = |key: &str| Asked::post("/v1/begin", &json!({"key": key, "name": "n"}));
    server.ask(with(&ours, begin("hush-late"))).expect(200);
    server.ask(with(&theirs, begin("last"))).expect(200);
    let mut seen = String::new();
    while !seen.contains("\"last\"") {
        let chunk = stream
            .chunk()
            .expect("it goes on")
            .expect("it does not end");
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(!seen.contains("ours") && !seen.contains(HUSH), "{seen}");
}

#[test]
fn commands_through_a_server_show_and_change_nothing_of_another_namespace() {
    let world = World::new();
    let ours = token(&world, "ours", "admin");
    let theirs = token(&world, "theirs", "admin");
    let server = serve(&world, "required", &[]);
    let targets = furnish(&server, &ours);
    let before = snapshot(&world, "ours", &targets);
    let store = format!("http://127.0.0.1:{}", server.port());
    let run = |token: &str, words: &[&str]| {
        let mut args = vec!["--store", store.as_str()];
        args.extend(words);
        world.run(world.command(&args).env("SEMEL_TOKEN", token))
    };
    let verbs: [&[&str]; 12] = [
        &["list", "--json"],
        &["log", "--json"],
        &["stats", "--json"],
        &["doctor"],
        &["breaker", "list"],
        &["dead", "list"],
        &["show", "done"],
        &["show", "doubt"],
        &["resolve", "doubt", "--done", "--yes"],
        &["retry", "doubt"],
        &["cancel", "task"],
        &["forget", "done"],
    ];
    for words in verbs {
        let ran = run(&theirs, words);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!text.contains(HUSH), "{words:?}: {text}");
    }
    for namespace in ["ours", "default"] {
        let ran = run(&theirs, &["--namespace", namespace, "list"]);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("namespace"), "{ran:?}");
    }
    assert_eq!(snapshot(&world, "ours", &targets), before);
    let listed = run(&ours, &["list", "--json"]);
    assert!(listed.stdout.contains(HUSH), "{listed:?}");
}

#[test]
fn server_for_one_namespace_refuses_tokens_of_others() {
    let world = World::new();
    let ours = token(&world, "ours", "admin");
    let theirs = token(&world, "theirs", "admin");
    for auth in ["required", "loopback"] {
        let server = serve(&world, auth, &["--namespace", "ours"]);
        let targets = match auth {
            "required" => furnish(&server, &ours),
            _ => vec![Target {
                key: "done",
                version: 2,
                fence: 1,
            }],
        };
        let api = server.get("/openapi.json").expect(200);
        for (name, asked) in requests(&api, &targets[0]) {
            let answer = server.ask(with(&theirs, asked.clone()));
            if name == "post /in/{source}" {
                answer.problem(404, "not_found");
                continue;
            }
            let problem = answer.problem(403, "forbidden");
            assert!(!problem.to_string().contains("ours"), "{name}: {problem}");
            let answer = server.ask(with(&ours, asked));
            assert!(!matches!(answer.status, 401 | 403), "{name}: {answer:?}");
        }
        let store = format!("http://127.0.0.1:{}", server.port());
        let mut command = world.command(&["--store", &store, "list"]);
        let ran = world.run(command.env("SEMEL_TOKEN", &theirs));
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(!ran.stdout.contains(HUSH), "{ran:?}");
    }
    // Where no token is needed, callers are in the namespace of the server.
    let server = serve(&world, "loopback", &["--namespace", "ours"]);
    let begin = Asked::post("/v1/begin", &json!({"key": "anonymous", "name": "n"}));
    assert_eq!(server.ask(begin).expect(200)["namespace"], "ours");
    let listed = world.semel(&["--namespace", "ours", "list", "--json"]);
    assert!(listed.stdout.contains("anonymous"), "{listed:?}");
    assert_eq!(world.semel(&["list", "--json"]).stdout, "");
}

/// An upstream that counts what it does: any request, and calls of MCP.
fn upstream() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it has an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            // How a connection ends is its client's business.
            std::thread::spawn(move || drop(answer_all(stream, &counted)));
        }
    });
    (format!("http://{address}"), count)
}

fn answer_all(stream: TcpStream, counted: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = format!("hush-answer {number}");
        let answer = json!({
            "jsonrpc": "2.0", "id": message["id"],
            "result": {"content": [{"type": "text", "text": text}], "isError": false},
        });
        let answer = answer.to_string();
        write!(
            reader.get_mut(),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
    }
}

/// Every server that carries calls out, asked with the same call by callers of two namespaces.
#[test]
fn no_entry_point_gives_an_answer_of_another_namespace() {
    let (url, count) = upstream();
    let charge = json!({"amount": 5});
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "charge", "arguments": charge},
    });
    let doors: [(&[&str], Asked, &str); 2] = [
        (
            &["proxy", "--upstream", &url],
            Asked::post("/charges", &charge)
                .header("Idempotency-Key", "k")
                .header("Authorization", "Bearer upstream"),
            "Semel-Token",
        ),
        (
            &["mcp", "--upstream", &url],
            Asked::post("/mcp", &call).header("Accept", "application/json, text/event-stream"),
            "Authorization",
        ),
    ];
    for (words, asked, header) in doors {
        for only in [None, Some("ours")] {
            let world = World::new();
            let [ours, theirs] = ["ours", "theirs"].map(|it| token(&world, it, "write"));
            let mut args = words.to_vec();
            args.extend(["--listen", "127.0.0.1:0"]);
            args.extend(only.iter().flat_map(|only| ["--namespace", *only]));
            let mut command = world.command(&args);
            let server = Server::spawn(command.env("SEMEL_AUTH", "required"));
            let shown = |token: &str| match header {
                "Authorization" => with(token, asked.clone()),
                _ => asked.clone().header(header, token),
            };
            let first = server.ask(shown(&ours));
            assert_eq!(first.status, 200, "{words:?}: {first:?}");
            let before = count.load(Ordering::SeqCst);
            let other = server.ask(shown(&theirs));
            let text = String::from_utf8_lossy(&other.body).into_owned();
            match only {
                Some(_) => {
                    assert_eq!(other.status, 403, "{words:?}: {other:?}");
                    assert!(!text.contains(HUSH), "{words:?}: {other:?}");
                    assert_eq!(count.load(Ordering::SeqCst), before, "{words:?}");
                }
                None => {
                    let own = format!("hush-answer {}", before + 1);
                    assert!(text.contains(&own), "{words:?}: {other:?}");
                }
            }
            let door = words[0];
            let listed = |namespace: &str| {
                let words = ["--namespace", namespace, "list", "--door", door, "--json"];
                world.semel(&words).json().len()
            };
            let expected = (1, usize::from(only.is_none()), 0);
            let found = (listed("ours"), listed("theirs"), listed("default"));
            assert_eq!(found, expected, "{words:?} {only:?}");
        }
    }
}

/// Workers get the tasks of their own namespace.
#[test]
fn workers_get_the_tasks_of_their_namespace() {
    let world = World::new();
    for namespace in ["ours", "theirs"] {
        let words = ["--namespace", namespace, "submit", "line", "--key", "task"];
        let left = world.semel(&words);
        assert_eq!(left.code, 0, "{left:?}");
    }
    let words = [
        "--namespace",
        "ours",
        "work",
        "line",
        "--until-empty",
        "--",
        "true",
    ];
    let worked = world.semel(&words);
    assert_eq!(worked.code, 0, "{worked:?}");
    let state = |namespace: &str| {
        let shown = world.semel(&["--namespace", namespace, "show", "task", "--json"]);
        shown.json()[0]["state"].clone()
    };
    assert_eq!(
        (state("ours"), state("theirs")),
        (json!("succeeded"), json!("pending"))
    );
}
