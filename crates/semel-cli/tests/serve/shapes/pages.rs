use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
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

/// Pages load nothing, run nothing, and are in no frame; their one style is named by its hash.
#[test]
fn every_page_has_a_strict_policy() {
    let world = World::new();
    let server = Server::start(&world);
    let errors = CODES.map(|code| format!("/errors/{code}"));
    let pages = ["/".to_owned(), "/docs".to_owned()];
    for path in pages.iter().chain(&errors) {
        let answer = server.ask(Asked::get(path).header("Accept", "text/html,*/*;q=0.8"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/html"), "{path}: {kind}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let style = text
            .split_once("<style>")
            .and_then(|(_, rest)| Some(rest.split_once("</style>")?.0));
        let digest = semel::core::Digest::of(style.expect("it has one").as_bytes());
        let policy = answer.header("content-security-policy").unwrap_or_default();
        let hash = BASE64_STANDARD.encode(digest.0);
        for part in [
            "default-src 'none'",
            &format!("style-src 'sha256-{hash}'"),
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(
                policy.split("; ").any(|it| it == part),
                "{path}: {part}: {policy}"
            );
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(
            answer.header("referrer-policy"),
            Some("no-referrer"),
            "{path}"
        );
        // Nothing on a page needs more than that.
        for wrong in ["<script", " style=", " src=", " onclick=", "javascript:"] {
            assert!(!text.contains(wrong), "{path}: {wrong}");
        }
    }
}

#[test]
fn root_is_a_page_for_people_and_not_found_for_programs() {
    let world = World::new();
    let server = Server::start(&world);
    let page = server.ask(Asked::get("/").header("Accept", "text/html"));
    let text = String::from_utf8_lossy(&page.body).into_owned();
    for link in ["/docs", "/openapi.json", "/readyz", "/metrics"] {
        assert!(text.contains(&format!("href=\"{link}\"")), "{link}: {text}");
        assert_eq!(server.get(link).status, 200, "{link}");
    }
    server.get("/").problem(404, "not_found");
    let json = server.ask(Asked::get("/").header("Accept", "application/json"));
    json.problem(404, "not_found");
}

#[test]
fn lease_outside_its_limits_is_told_with_the_limits() {
    let world = World::new();
    let server = Server::start(&world);
    for millis in [0_u64, 999, 86_400_001, 1 << 62] {
        for (path, body) in [
            (
                "/v1/begin",
                json!({"key": "k", "name": "n", "attempt_id": "a", "lease_ms": millis}),
            ),
            (
                "/v1/renew",
                json!({"key": "k", "attempt_id": "a", "fence": 1, "lease_ms": millis}),
            ),
            ("/v1/queues/q/lease", json!({"lease_ms": millis})),
        ] {
            let problem = server.post(path, &body).problem(400, "invalid_input");
            let detail = problem["detail"].as_str().unwrap_or_default();
            let said = [&millis.to_string(), "1 second", "24 hours"];
            assert!(
                said.iter().all(|it| detail.contains(*it)),
                "{path}: {detail}"
            );
        }
    }
    for millis in [1_000, 86_400_000] {
        let key = format!("k-{millis}");
        let body = json!({"key": key, "name": "n", "attempt_id": "a", "lease_ms": millis});
        server.post("/v1/begin", &body).expect(200);
    }
}
