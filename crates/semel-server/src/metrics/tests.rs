use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use semel::Engine;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::known::{ALL, Kind};
use crate::config::{Config, Listen};

/// A metric as a reader of the format sees it.
#[derive(Debug)]
struct Family {
    name: String,
    kind: String,
    samples: BTreeMap<String, f64>,
}

/// Reads the format by its rules; whatever breaks one is a panic.
fn read(text: &str) -> Vec<Family> {
    assert!(text.ends_with('\n'), "the last line ends too");
    let mut families: Vec<Family> = vec![];
    let mut helped = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has a text");
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a word");
            assert_eq!(helped.take().as_deref(), Some(name), "help comes first");
            assert!(
                families.iter().all(|family| family.name != name),
                "{name} comes once"
            );
            families.push(Family {
                name: name.to_owned(),
                kind: kind.to_owned(),
                samples: BTreeMap::new(),
            });
        } else {
            let family = families.last_mut().expect("a sample has a type");
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let name = series.split('{').next().expect("it has a name");
            let allowed: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                "counter" | "gauge" => &[""],
                kind => panic!("{kind} is no type"),
            };
            let suffix = name.strip_prefix(&*family.name);
            assert!(suffix.is_some_and(|it| allowed.contains(&it)), "{line}");
            labels(series);
            let value = value.parse().expect("a value is a number");
            let twice = family.samples.insert(series.to_owned(), value);
            assert_eq!(twice, None, "{series} comes once");
        }
    }
    families
}

/// Checks the labels of a series.
fn labels(series: &str) {
    let Some((_, rest)) = series.split_once('{') else {
        return;
    };
    let inside = rest.strip_suffix('}').expect("braces are closed");
    for label in inside.split(',') {
        let (name, value) = label.split_once('=').expect("a label has a value");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase()), "{series}");
        let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let value = value.expect("a value is quoted");
        assert!(!value.contains(['"', '\\', '\n', ',']), "{series}");
    }
}

struct World {
    router: Router,
    _stop: watch::Sender<bool>,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let url = format!("sqlite:{}", directory.path().join("s.db").display());
        let engine = Engine::open(&url).await.expect("it opens");
        let config = Config::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))));
        let (stop, stopped) = watch::channel(false);
        let (_, router) = crate::http::service(engine, config, stopped);
        Self {
            router,
            _stop: stop,
            _directory: directory,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "localhost").body(body);
        let router = self.router.clone();
        let answer = router.oneshot(request.expect("it is a request")).await;
        let answer = answer.expect("it is answered");
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("it is whole");
        let text = String::from_utf8(bytes.to_bytes().to_vec()).expect("it is text");
        (status, text)
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, text) = self.ask("POST", path, &body).await;
        (status, serde_json::from_str(&text).expect("it is JSON"))
    }

    async fn begin(&self, key: &str) -> Value {
        let body = json!({"key": key, "name": "n", "attempt_id": format!("a-{key}")});
        let (status, grant) = self.post("/v1/begin", body).await;
        assert_eq!(status, 200, "{grant}");
        grant
    }

    async fn settle(&self, grant: &Value, rest: Value) -> u16 {
        let mut body = rest;
        for member in ["key", "attempt_id", "fence"] {
            body[member] = grant[member].clone();
        }
        self.post("/v1/settle", body).await.0
    }

    async fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, text) = self.ask("GET", "/metrics", &Value::Null).await;
        assert_eq!(status, 200, "{text}");
        let families = read(&text);
        families
            .into_iter()
            .flat_map(|family| family.samples)
            .collect()
    }
}

#[tokio::test]
async fn the_text_keeps_the_rules_and_has_every_metric() {
    let world = World::new().await;
    world.begin("k").await;
    let (_, text) = world.ask("GET", "/metrics", &Value::Null).await;
    let families = read(&text);
    let found: Vec<_> = families
        .iter()
        .map(|family| (family.name.as_str(), family.kind.as_str()))
        .collect();
    let known: Vec<_> = ALL
        .iter()
        .map(|metric| (metric.name, metric.kind.as_str()))
        .collect();
    assert_eq!(found, known);
    for family in families.iter().filter(|it| it.kind == "histogram") {
        // Where there is no proxy, nothing of one is counted.
        if family.name == "semel_proxy_request_seconds" {
            assert_eq!(family.samples.len(), 0);
            continue;
        }
        let of = |suffix: &str| {
            let prefix = format!("{}{suffix}", family.name);
            let samples = family.samples.iter();
            samples.filter(move |(series, _)| series.starts_with(&prefix))
        };
        let all = of("_bucket").filter(|(series, _)| series.contains("le=\"+Inf\""));
        let all: f64 = all.map(|(_, value)| value).sum();
        let counted: f64 = of("_count").map(|(_, value)| value).sum();
        assert!(all > 0.0 && (all - counted).abs() < 0.5, "{}", family.name);
        assert!(of("_bucket").all(|(_, value)| *value <= all));
    }
    for metric in ALL {
        let is_total = metric.name.ends_with("_total");
        assert_eq!(is_total, metric.kind == Kind::Counter, "{}", metric.name);
        assert!(metric.name.starts_with("semel_"), "{}", metric.name);
    }
}

#[tokio::test]
async fn every_metric_moves_with_what_it_counts() {
    let world = World::new().await;
    let grant = world.begin("done").await;
    let done = json!({"verdict": "done", "data": 1});
    assert_eq!(world.settle(&grant, done).await, 200);
    // A replay, another input, a contradiction, and somebody else's fence.
    world.begin("done").await;
    let other = json!({"key": "done", "name": "n", "input": 2});
    assert_eq!(world.post("/v1/begin", other).await.0, 422);
    let against = json!({"verdict": "done", "ok": false});
    assert_eq!(world.settle(&grant, against).await, 200);
    let mut stale = world.begin("doubt").await;
    assert_eq!(
        world.settle(&stale, json!({"verdict": "unknown"})).await,
        200
    );
    stale["fence"] = json!(9);
    assert_eq!(
        world.settle(&stale, json!({"verdict": "not_done"})).await,
        409
    );
    let dead = world.begin("dead").await;
    let reject = json!({"verdict": "not_done", "reject": true});
    assert_eq!(world.settle(&dead, reject).await, 200);
    let queued = json!({"key": "queued", "name": "n", "queue": "q"});
    assert_eq!(world.post("/v1/submit", queued.clone()).await.0, 200);
    assert_eq!(world.post("/v1/submit", queued).await.0, 200);
    for (name, order) in [("a", "open"), ("b", "open"), ("c", "open"), ("c", "close")] {
        let path = format!("/v1/breakers/{name}/{order}");
        assert_eq!(world.post(&path, json!({})).await.0, 200);
    }
    assert_eq!(world.ask("GET", "/nowhere", &Value::Null).await.0, 404);
    let seen = world.metrics().await;
    for (series, value) in [
        ("semel_begins_total{answer=\"execute\"}", 3.0),
        ("semel_begins_total{answer=\"replay\"}", 1.0),
        ("semel_begins_total{answer=\"key_reused\"}", 1.0),
        ("semel_replays_total{call=\"begin\"}", 1.0),
        ("semel_replays_total{call=\"settle\"}", 1.0),
        ("semel_replays_total{call=\"submit\"}", 1.0),
        ("semel_settlements_total{state=\"succeeded\"}", 2.0),
        ("semel_settlements_total{state=\"doubtful\"}", 1.0),
        ("semel_settlements_total{state=\"dead\"}", 1.0),
        ("semel_conflicts_total", 1.0),
        ("semel_fenced_total", 1.0),
        ("semel_refusals_total{code=\"key_reused\"}", 1.0),
        ("semel_events_total{event=\"doubted\"}", 1.0),
        ("semel_events_total{event=\"died\"}", 1.0),
        (
            "semel_requests_total{route=\"/v1/begin\",status=\"2xx\"}",
            4.0,
        ),
        (
            "semel_requests_total{route=\"/v1/begin\",status=\"4xx\"}",
            1.0,
        ),
        ("semel_requests_total{route=\"none\",status=\"4xx\"}", 1.0),
        ("semel_request_seconds_count{route=\"/v1/settle\"}", 5.0),
        ("semel_store_failures_total", 0.0),
        ("semel_store_up", 1.0),
        ("semel_doubts_open", 1.0),
        ("semel_dead_operations", 1.0),
        ("semel_queue_depth", 1.0),
        ("semel_breakers{state=\"closed\"}", 1.0),
        ("semel_breakers{state=\"open\"}", 2.0),
        ("semel_breakers{state=\"half_open\"}", 0.0),
        ("semel_connections_open", 0.0),
        ("semel_streams_open", 0.0),
    ] {
        assert_eq!(seen.get(series), Some(&value), "{series}");
    }
    for series in [
        "semel_doubt_age_seconds",
        "semel_queue_lag_seconds",
        "semel_store_seconds_count",
        "semel_store_group_size_sum",
    ] {
        assert!(seen[series] > 0.0, "{series}");
    }
}

#[tokio::test]
async fn nothing_that_a_caller_writes_becomes_a_label() {
    let world = World::new().await;
    world.begin("secret-key").await;
    let opened = world.post("/v1/breakers/secret-target/open", json!({}));
    assert_eq!(opened.await.0, 200);
    for path in [
        "/v1/operations/secret-key",
        "/secret-path",
        "/errors/secret",
    ] {
        world.ask("GET", path, &Value::Null).await;
    }
    let (_, text) = world.ask("GET", "/metrics", &Value::Null).await;
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn an_open_stream_is_counted_until_it_is_closed() {
    let world = World::new().await;
    let request = Request::builder().uri("/v1/events");
    let request = request
        .header("host", "localhost")
        .header("accept", "text/event-stream");
    let request = request.body(Body::empty()).expect("it is a request");
    let stream = world.router.clone().oneshot(request).await;
    assert_eq!(world.metrics().await["semel_streams_open"], 1.0);
    drop(stream);
    assert_eq!(world.metrics().await["semel_streams_open"], 0.0);
}

fn file(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_page_lists_all_metrics() {
    let page = file("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `semel_"));
    let rows: Vec<_> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (
                cells[1].trim_matches('`').to_owned(),
                cells[2].to_owned(),
                cells[4].to_owned(),
            )
        })
        .collect();
    let known: Vec<_> = ALL
        .iter()
        .map(|metric| {
            let kind = metric.kind.as_str().to_owned();
            (metric.name.to_owned(), kind, metric.help.to_owned())
        })
        .collect();
    assert_eq!(rows, known);
}

/// Collects the values of all members of this name.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            for (member, value) in object {
                if member == name {
                    found.push(value);
                }
                members(value, name, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, name, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let board: Value = serde_json::from_str(&file("deploy/grafana/semel.json")).expect("JSON");
    let mut queries = vec![];
    members(&board, "expr", &mut queries);
    let mut asked = BTreeSet::new();
    for query in &queries {
        let query = query.as_str().expect("a query is text");
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with("semel_")).collect();
        assert!(!names.is_empty(), "{query}");
        asked.extend(names);
    }
    for name in &asked {
        let exists = ALL.iter().any(|metric| match metric.kind {
            Kind::Counter | Kind::Gauge => metric.name == *name,
            Kind::Histogram => {
                let suffix = name.strip_prefix(metric.name);
                suffix.is_some_and(|it| ["_bucket", "_sum", "_count"].contains(&it))
            }
        });
        assert!(exists, "{name}");
    }
    let mut titles = vec![];
    members(&board, "title", &mut titles);
    for row in ["Begins", "Doubts", "Latency", "Store", "Notifications"] {
        assert!(titles.iter().any(|title| **title == *row), "{row}");
    }
    assert!(asked.len() > 10, "{asked:?}");
}
