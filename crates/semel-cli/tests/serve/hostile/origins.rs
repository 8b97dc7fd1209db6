//! Pages in a browser that reach for a server on its user's machine.

use serde_json::json;

use crate::harness::World;
use crate::http::Asked;
use crate::pages;
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

/// Starts a server whose settings trust one origin.
fn trusting() -> (World, Server) {
    let world = World::new();
    std::fs::write(world.path("semel.toml"), pages::SETTINGS).expect("it can be written");
    let server = Server::start(&world);
    (world, server)
}

#[test]
fn only_pages_of_the_own_and_of_trusted_origins_call_the_api() {
    let (_world, server) = trusting();
    for (number, said) in pages::said(server.port()).iter().enumerate() {
        let key = format!("page-{number}");
        let begin = Asked::post("/v1/begin", &json!({"key": key, "name": "n"}));
        let list = Asked::get("/v1/operations");
        for asked in [begin, list] {
            let answer = server.ask(said.in_request(asked));
            if said.passes {
                answer.expect(200);
            } else {
                answer.problem(403, "forbidden");
            }
            let shared = answer.header("access-control-allow-origin");
            let expected = said.is_trusted.then_some(pages::TRUSTED);
            assert_eq!(shared, expected, "{said:?}: {answer:?}");
        }
        if !said.passes {
            nothing_happened(&server, &key);
        }
    }
    let preflight = Asked::new("OPTIONS", "/v1/begin")
        .header("Origin", pages::TRUSTED)
        .header("Sec-Fetch-Site", "cross-site")
        .header("Access-Control-Request-Method", "POST");
    let answer = server.ask(preflight);
    assert_eq!(answer.status, 204, "{answer:?}");
    let allowed = answer.header("access-control-allow-methods");
    assert!(allowed.is_some_and(|it| it.contains("POST")), "{answer:?}");
}

/// A header that is there twice says nothing that can be believed.
#[test]
fn twofold_headers_about_the_page_are_refused() {
    let (_world, server) = trusting();
    for twice in [
        ["Origin", pages::TRUSTED, pages::TRUSTED],
        ["Origin", "http://localhost", "http://localhost"],
        ["Sec-Fetch-Site", "same-origin", "cross-site"],
        ["Sec-Fetch-Site", "none", "none"],
    ] {
        let [name, one, other] = twice;
        let asked = begin().header(name, one).header(name, other);
        server.ask(asked).problem(403, "forbidden");
        nothing_happened(&server, "evil");
    }
}

#[test]
fn links_lead_to_pages_for_people_and_to_nothing_else() {
    let world = World::new();
    let server = Server::start(&world);
    let from_elsewhere = |asked: Asked, mode: &str, destination: &str| {
        let asked = asked.header("Sec-Fetch-Site", "cross-site");
        let asked = asked.header("Sec-Fetch-Mode", mode);
        asked.header("Sec-Fetch-Dest", destination)
    };
    for page in ["/docs", "/errors/in_doubt"] {
        let link = from_elsewhere(Asked::get(page), "navigate", "document");
        assert_eq!(server.ask(link).status, 200, "{page}");
        for (mode, destination) in [
            ("navigate", "iframe"),
            ("navigate", "object"),
            ("no-cors", "image"),
            ("no-cors", "script"),
            ("cors", "empty"),
        ] {
            let asked = from_elsewhere(Asked::get(page), mode, destination);
            server.ask(asked).problem(403, "forbidden");
        }
        let form = from_elsewhere(Asked::new("POST", page), "navigate", "document");
        server.ask(form).problem(403, "forbidden");
    }
    for call in ["/v1/operations", "/v1/events", "/metrics", "/openapi.json"] {
        let link = from_elsewhere(Asked::get(call), "navigate", "document");
        server.ask(link).problem(403, "forbidden");
        let typed = Asked::get(call).header("Sec-Fetch-Site", "none");
        assert_eq!(server.ask(typed).status, 200, "{call}");
    }
}

#[test]
fn hosts_are_read_strictly_at_the_api() {
    let world = World::new();
    let server = Server::start(&world);
    for host in pages::NO_HOSTS {
        let answer = server.ask(begin().header("Host", host));
        assert!(matches!(answer.status, 400 | 403), "{host:?}: {answer:?}");
        nothing_happened(&server, "evil");
    }
    for host in ["localhost.", "localhost:65535", "127.9.9.9", "[::1]"] {
        let answer = server.ask(Asked::get("/v1/operations").header("Host", host));
        assert_eq!(answer.status, 200, "{host}: {answer:?}");
    }
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let ended = Server::try_spawn(command.env("SEMEL_SERVE_HOSTS", "localhost:99999"));
    let (_, said) = ended.map(|_| "it listens").expect_err("it is no host");
    assert!(said.contains("serve.hosts: `localhost:99999`"), "{said}");
}
