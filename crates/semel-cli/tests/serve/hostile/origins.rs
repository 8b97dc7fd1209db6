//! Pages in a browser that reach for a server on its user's machine.

use serde_json::json;

use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;

use super::nothing_happened;

fn begin() -> Asked {
    Asked::post("/v1/begin", &json!({"key": "evil", "name": "n"}))
}

/// A name that anybody may point at 127.0.0.1 is no name of this server's.
#[test]
fn a_request_for_another_host_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    let port = server.port();
    for host in [
        "evil.example",
        "evil.example:80",
        &format!("evil.example:{port}"),
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@localhost",
        "192.0.2.1",
        "0.0.0.0",
        "[2001:db8::1]",
        "localhost, evil.example",
        "",
        "local host",
    ] {
        for asked in [
            begin(),
            Asked::get("/v1/operations"),
            Asked::get("/v1/events"),
        ] {
            let answer = server.ask(asked.header("Host", host));
            // What is no host at all may be refused by whoever reads the request.
            assert!(
                matches!(answer.status, 400 | 403 | 421),
                "{host:?}: {answer:?}"
            );
            if host == "evil.example" {
                answer.problem(403, "forbidden");
            }
        }
        nothing_happened(&server, "evil");
    }
    for host in [
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        &format!("localhost:{port}"),
        &format!("127.0.0.1:{port}"),
        &format!("[::1]:{port}"),
    ] {
        let answer = server.ask(Asked::get("/v1/operations").header("Host", host));
        assert_eq!(answer.status, 200, "{host}: {answer:?}");
    }
    for twice in ["Host: evil.example\r\n", "Host: localhost\r\n"] {
        let mut connection = server.connect();
        let bytes = format!("GET /v1/operations HTTP/1.1\r\nHost: localhost\r\n{twice}\r\n");
        connection.send(bytes.as_bytes()).expect("it is sent");
        let answer = connection.answer().expect("it is answered");
        assert!(matches!(answer.status, 400 | 403), "{twice}: {answer:?}");
    }
    let mut connection = server.connect();
    connection
        .send(b"GET /v1/operations HTTP/1.1\r\n\r\n")
        .expect("it is sent");
    let answer = connection.answer().expect("it is answered");
    assert!(matches!(answer.status, 400 | 403), "{answer:?}");
}

#[test]
fn a_page_of_another_origin_is_refused_and_allowed_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    let port = server.port();
    for origin in [
        "http://evil.example",
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        &format!("http://evil.example:{port}"),
        // Another port of the same machine is another origin.
        "http://localhost:1",
        "file://",
        "nonsense",
    ] {
        for asked in [
            begin(),
            Asked::get("/v1/operations"),
            Asked::get("/v1/events"),
        ] {
            let answer = server.ask(asked.header("Origin", origin));
            answer.problem(403, "forbidden");
            assert_eq!(
                answer.header("access-control-allow-origin"),
                None,
                "{answer:?}"
            );
        }
        nothing_happened(&server, "evil");
        let asked = Asked::new("OPTIONS", "/v1/begin")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "content-type");
        let answer = server.ask(asked);
        assert!((400..500).contains(&answer.status), "{answer:?}");
        for (name, _) in &answer.headers {
            assert!(!name.starts_with("access-control-"), "{answer:?}");
        }
    }
}
