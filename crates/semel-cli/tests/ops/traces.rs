//! One trace, from door to door.

use crate::server::World;
use crate::sink::{Reply, Sink};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn the_server_answers_in_the_trace_of_its_caller() {
    let world = World::new();
    let server = world.serve(&[]);
    let body = r#"{"key": "o-1", "name": "pay"}"#;
    let headers = format!("traceparent: {CALLER}\r\n");
    let (head, _) = server.ask("POST", "/v1/begin", &headers, body);
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix("traceparent: "));
    let line = line.expect("it has one");
    assert!(line.starts_with(&format!("00-{TRACE}-")), "{line}");
    assert!(line.ends_with("-01") && line != CALLER, "{line}");
}

#[test]
fn a_command_is_part_of_the_trace_of_whoever_runs_it() {
    let world = World::new();
    let run = |key: &str, trace: Option<&str>| {
        let mut command = world.command(&[
            "run",
            "--quiet",
            "--key",
            key,
            "--",
            "printenv",
            "TRACEPARENT",
        ]);
        command.envs(trace.map(|trace| ("TRACEPARENT", trace)));
        let output = command.output().expect("it runs");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let line = run("a", Some(CALLER));
    assert!(line.starts_with(&format!("00-{TRACE}-")), "{line}");
    assert!(
        line.trim_end().ends_with("-01") && line.trim_end() != CALLER,
        "{line}"
    );
    // Where there is no trace, none is made up.
    assert_eq!(run("b", None), "");
}

#[test]
fn calls_of_a_remote_engine_are_part_of_it_too() {
    let (world, sink) = (World::new(), Sink::new());
    sink.always(Reply::Status(500));
    let mut command = world.command(&["list"]);
    command
        .env("SEMEL_STORE", sink.url(""))
        .env("TRACEPARENT", CALLER);
    let output = command.output().expect("it runs");
    assert!(!output.status.success(), "nobody answers as a server does");
    let line = sink.wait().headers["traceparent"].clone();
    assert!(line.starts_with(&format!("00-{TRACE}-")), "{line}");
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_without_the_feature_says_so() {
    let world = World::new();
    let mut command = world.command(&["serve"]);
    let output = command
        .env("SEMEL_SERVE_OTLP", "http://127.0.0.1:1/v1/traces")
        .output();
    let output = output.expect("it runs");
    let text = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(text.contains("--features otlp"), "{text}");
}

#[cfg(feature = "otlp")]
mod collected {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{CALLER, TRACE};
    use crate::server::{World, eventually};
    use crate::sink::{Reply, Sink};

    /// Returns the spans of what a collector got.
    fn spans(got: &Value) -> Vec<Value> {
        let resource = &got["resourceSpans"][0];
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(service["value"]["stringValue"], "semel", "{got}");
        let spans = resource["scopeSpans"][0]["spans"].as_array();
        spans.expect("there are some").clone()
    }

    fn attributes(span: &Value) -> BTreeMap<String, String> {
        let all = span["attributes"].as_array().expect("it has some");
        let pair = |it: &Value| {
            let value = &it["value"];
            let text = value["stringValue"]
                .as_str()
                .or_else(|| value["intValue"].as_str());
            let name = it["key"].as_str().expect("it has a name");
            (name.to_owned(), text.expect("it has a value").to_owned())
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn each_request_is_a_span_in_its_caller_s_trace() {
        let (world, collector) = (World::new(), Sink::new());
        let server = world.serve(&[("SEMEL_SERVE_OTLP", &collector.url("/v1/traces"))]);
        let body = json!({"key": "secret-key", "name": "pay"}).to_string();
        let headers = format!("traceparent: {CALLER}\r\n");
        server.ask("POST", "/v1/begin", &headers, &body);
        let unrecorded = headers.replace("-01\r\n", "-00\r\n");
        server.ask("GET", "/healthz", &unrecorded, "");
        // What waits is sent before the server ends.
        server.stop();
        let got = collector.wait();
        assert_eq!(got.path, "/v1/traces");
        assert!(!got.text.contains("secret-key"), "{}", got.text);
        let spans = spans(&got.json());
        assert_eq!(spans.len(), 1, "{spans:?}");
        let span = &spans[0];
        assert_eq!(
            (&span["traceId"], &span["kind"]),
            (&json!(TRACE), &json!(2))
        );
        assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(span["name"], "POST /v1/begin");
        let nanos = |name: &str| span[name].as_str().and_then(|it| it.parse::<u64>().ok());
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
        let said = attributes(span);
        for (name, value) in [
            ("http.request.method", "POST"),
            ("http.route", "/v1/begin"),
            ("http.response.status_code", "200"),
            ("semel.decision", "execute"),
        ] {
            assert_eq!(said[name], value, "{said:?}");
        }
        assert_eq!(said["semel.key_hash"].len(), 64);
    }

    #[test]
    fn what_a_collector_does_not_take_is_dropped_and_counted() {
        let (world, collector) = (World::new(), Sink::new());
        let server = world.serve(&[("SEMEL_SERVE_OTLP", &collector.url("/v1/traces"))]);
        collector.next(&[Reply::Status(500)]);
        server.ask("GET", "/healthz", "", "");
        collector.wait();
        eventually("it is counted", || {
            server.metric("semel_trace_spans_total{outcome=\"dropped\"}") >= 1.0
        });
        eventually("it is counted", || {
            server.metric("semel_trace_spans_total{outcome=\"exported\"}") >= 1.0
        });
    }
}
