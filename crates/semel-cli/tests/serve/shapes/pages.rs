use serde_json::{Value, json};

use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

const CODES: [&str; 16] = [
    "in_flight",
    "breaker_open",
    "in_doubt",
    "key_reused",
    "dead",
    "expired",
    "fenced",
    "invalid_key",
    "invalid_input",
    "too_large",
    "not_found",
    "unauthorized",
    "forbidden",
    "rate_limited",
    "store_unavailable",
    "internal",
];

#[test]
fn the_type_of_a_problem_is_a_page() {
    let world = World::new();
    let server = Server::start(&world);
    let problem = server
        .get("/v1/operations/nothing")
        .problem(404, "not_found");
    let page = problem["type"].as_str().expect("it has a type");
    let path = page.find("/errors/").map_or(page, |at| &page[at..]);
    for path in CODES
        .map(|code| format!("/errors/{code}"))
        .iter()
        .chain([&path.to_owned()])
    {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let code = path.rsplit('/').next().unwrap_or_default();
        assert!(text.contains(code), "{path}: {text}");
    }
    server.get("/errors/nonsense").problem(404, "not_found");
    server
        .get("/errors/..%2f..%2fREADME")
        .problem(404, "not_found");
    server.get("/nowhere").problem(404, "not_found");
    server.get("/v1/nowhere").problem(404, "not_found");
}

#[test]
fn another_method_is_refused_with_those_that_there_are() {
    let world = World::new();
    let server = Server::start(&world);
    for (method, path, allowed) in [
        ("GET", "/v1/begin", "POST"),
        ("DELETE", "/v1/operations/k", "GET"),
        ("POST", "/v1/operations", "GET"),
        ("PUT", "/v1/events", "GET"),
        ("POST", "/healthz", "GET"),
    ] {
        let answer = server.ask(Asked::new(method, path));
        answer.problem(405, "invalid_input");
        let allow = answer.header("allow").unwrap_or_default();
        assert!(
            allow.split(',').any(|word| word.trim() == allowed),
            "{answer:?}"
        );
    }
}

#[test]
fn the_description_names_every_call_and_what_it_is() {
    let world = World::new();
    let server = Server::start(&world);
    let api = server.get("/openapi.json").expect(200);
    assert!(
        api["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1")),
        "{api}"
    );
    let expected = [
        ("post", "/v1/begin", "idempotent"),
        ("post", "/v1/settle", "idempotent"),
        ("post", "/v1/renew", "idempotent"),
        ("post", "/v1/submit", "idempotent"),
        ("post", "/v1/queues/{queue}/tasks", "idempotent"),
        ("post", "/v1/queues/{queue}/lease", "unsafe"),
        ("get", "/v1/queues", "safe"),
        ("post", "/v1/resolve", "idempotent"),
        ("post", "/v1/retry", "idempotent"),
        ("post", "/v1/cancel", "idempotent"),
        ("post", "/v1/forget", "idempotent"),
        ("get", "/v1/breakers", "safe"),
        ("post", "/v1/breakers/{name}/open", "idempotent"),
        ("post", "/v1/breakers/{name}/close", "idempotent"),
        ("post", "/v1/breakers/{name}/reset", "idempotent"),
        ("get", "/v1/operations", "safe"),
        ("get", "/v1/operations/{key}", "safe"),
        ("get", "/v1/operations/{key}/events", "safe"),
        ("get", "/v1/events", "safe"),
    ];
    for (method, path, class) in expected {
        let call = &api["paths"][path][method];
        assert!(call.is_object(), "{method} {path} is not described");
        assert_eq!(call["x-semel-class"], class, "{method} {path}");
        assert!(call["x-semel-needs-key"].is_boolean(), "{method} {path}");
        for status in ["200", "400", "401", "403"] {
            assert!(
                call["responses"][status].is_object(),
                "{method} {path}: {status}"
            );
        }
    }
    let answer = server.get("/docs");
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(
        answer.status == 200 && kind.starts_with("text/html"),
        "{answer:?}"
    );
    let page = String::from_utf8_lossy(&answer.body);
    for (_, path, _) in expected {
        assert!(page.contains(path), "{path} is not on the page");
    }
}

#[test]
fn health_and_readiness_are_there() {
    let world = World::new();
    let server = Server::start(&world);
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn figures_are_there_and_name_no_keys() {
    let world = World::new();
    let server = Server::start(&world);
    server
        .post("/v1/begin", &json!({"key": "k", "name": "n"}))
        .expect(200);
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let ours = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let strange: Vec<_> = ours
        .clone()
        .filter(|line| !line.starts_with("semel_"))
        .collect();
    assert!(strange.is_empty() && ours.count() > 0, "{text}");
    // No key, however strange, is part of a figure's name.
    assert!(!text.contains("\"k\""), "{text}");
}

/// Who came with a trace gets it back, so that one trace follows an operation.
#[test]
fn a_trace_goes_through() {
    let world = World::new();
    let server = Server::start(&world);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let asked = Asked::get("/v1/operations").header("traceparent", &parent);
    let answer = server.ask(asked);
    let told = answer.header("traceparent").unwrap_or_default();
    assert!(told.contains(trace), "{answer:?}");
    for nonsense in [
        "",
        "00",
        "00-xyz-1-1",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    ] {
        let asked = Asked::get("/v1/operations").header("traceparent", nonsense);
        let answer: Value = server.ask(asked).expect(200);
        assert!(answer["items"].is_array());
    }
}
