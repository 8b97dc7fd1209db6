//! Requests through the proxy are counted and logged, by what became of them and nothing else.

use serde_json::Value;

use crate::harness::World;
use crate::http::{Address, Answer, Asked, Connection};
use crate::server::Server;
use crate::setup::{fresh, keyed, refused};
use crate::upstream::{Deed, Upstream};

/// A server with a proxy, in one process.
struct Both {
    server: Server,
    proxy: Address,
    upstream: Upstream,
    /// Keeps the files.
    _world: World,
}

impl Both {
    fn new() -> Self {
        let world = World::new();
        let upstream = Upstream::start(world.path("effects"));
        let url = upstream.url();
        let toml = format!(
            "[serve]\nlog = \"debug\"\n[proxy]\nlisten = \"127.0.0.1:0\"\n\
             [[proxy.route]]\nupstream = \"{url}\"\npath = \"/charges\"\n"
        );
        std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
        let server = Server::start_with(&world, &["--proxy"]);
        let proxy = server.wait_for_line(|line| {
            let address = line["address"].as_str()?.strip_prefix("http://")?;
            (line["message"] == "the proxy listens").then(|| address.to_owned())
        });
        let proxy = proxy.expect("the proxy listens").parse();
        Self {
            proxy: Address::Tcp(proxy.expect("it is an address")),
            server,
            upstream,
            _world: world,
        }
    }

    #[track_caller]
    fn ask(&self, asked: &Asked) -> Answer {
        let mut connection = Connection::open(&self.proxy).expect("it is there");
        connection.send(&asked.bytes()).expect("it is sent");
        connection.answer().expect("it is answered")
    }

    /// Returns the samples of a metric, without its name.
    fn samples(&self, metric: &str) -> Vec<String> {
        let text = self.server.get("/metrics");
        let text = String::from_utf8(text.body).expect("it is text");
        let lines = text.lines().filter_map(|line| line.strip_prefix(metric));
        lines.map(str::to_owned).collect()
    }
}

#[test]
fn requests_are_counted_by_what_became_of_them() {
    let both = Both::new();
    fresh(&both.ask(&keyed("s3cret-key")), 201);
    for _ in 0..2 {
        both.ask(&keyed("s3cret-key"));
    }
    both.ask(&Asked::get("/charges?token=s3cret"));
    both.upstream.next(Deed::CloseAfterEffect);
    refused(&both.ask(&keyed("lost")), 502, "in_doubt");
    refused(&both.ask(&keyed("lost")), 409, "in_doubt");
    refused(&both.ask(&Asked::get("/elsewhere")), 404, "not_found");
    assert_eq!(
        both.samples("semel_proxy_requests_total"),
        [
            r#"{route="*/charges",became="passed"} 1"#,
            r#"{route="*/charges",became="executed"} 1"#,
            r#"{route="*/charges",became="replayed"} 2"#,
            r#"{route="*/charges",became="in_doubt"} 2"#,
            r#"{route="none",became="not_found"} 1"#,
        ]
    );
    let counted = both.samples("semel_proxy_request_seconds_count");
    assert_eq!(counted, [r#"{route="*/charges"} 6"#, r#"{route="none"} 1"#]);
    assert_eq!(both.upstream.effects().len(), 2);
}

#[test]
fn each_request_has_a_line_in_the_log_without_what_was_said() {
    let both = Both::new();
    let asked = keyed("s3cret-key").header("Authorization", "Bearer s3cret-token");
    fresh(&both.ask(&asked), 201);
    both.ask(&Asked::get("/charges?token=s3cret-query"));
    let passed = both.server.wait_for_line(|line| {
        let is_it = line["message"] == "answered" && line["became"] == "passed";
        is_it.then(|| line.clone())
    });
    let passed: Value = passed.expect("it is logged");
    let said = ["method", "route", "status"].map(|field| passed[field].clone());
    assert_eq!(said, ["GET".into(), "*/charges".into(), Value::from(201)]);
    assert!(passed["took_ms"].is_u64(), "{passed}");
    let log = both.server.said();
    assert!(log.contains(r#""became":"executed""#), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}
