//! Clients of the newer protocol, which share a child.

use axum::http::Method;
use semel::core::identity::Exchange;

use super::fake::{Client, FakeDesk, FakeStart, Gate, Got, Told, told};
use crate::mcp::edit;
use crate::mcp::http::children::{Children, Visits};
use crate::mcp::http::front::Behind;

const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;

async fn gate() -> (Gate, Told) {
    let told = Told::default();
    let children = Children::<FakeDesk>::new(FakeStart::new(&told), Visits::default());
    (Gate::open(Behind::Children(children)).await, told)
}

fn request(method: &str, params: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{{{meta}{VERSION}}}}}}}"#
    )
}

async fn post(client: &Client, method: &str, more: &[(&str, &str)], body: &str) -> Got {
    let mut with = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    with.extend_from_slice(more);
    client.post(&with, body).await
}

#[tokio::test]
async fn clients_with_the_same_ids_get_their_own_answers() {
    let (gate, told) = gate().await;
    let answers = (0..20).map(|number| {
        let client = gate.client();
        async move {
            let params = format!(r#""name":"a","arguments":{{"n":{number}}},"#);
            let body = request("tools/call", &params, r#""progressToken":"p","#);
            let got = post(&client, "tools/call", &[("mcp-name", "a")], &body).await;
            let text = got.text().await;
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let data: Vec<_> = data.collect();
            assert_eq!(data.len(), 3, "{text}");
            for aside in &data[..2] {
                assert_eq!(
                    edit::get(aside, &["params", "progressToken"]),
                    Some("\"p\"")
                );
            }
            assert_eq!(edit::get(data[2], &["id"]), Some("1"));
            let echoed = edit::get(data[2], &["result", "arguments", "n"]);
            assert_eq!(echoed, Some(number.to_string().as_str()));
        }
    });
    futures_util::future::join_all(answers).await;
    gate.desk.ended(0, Exchange::Delivered).await;
    let said = told.borrow().clone();
    assert!(said.iter().all(|(child, _)| *child == 0), "{said:?}");
}

#[tokio::test]
async fn what_passes_is_as_it_was_but_for_its_name() {
    let (gate, told) = gate().await;
    let body = request("x/y", r#""é":1e999, "#, "");
    let got = post(&gate.client(), "x/y", &[], &body).await;
    assert_eq!(got.status, 200);
    let expected =
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"é":1e999, "_meta":{{{VERSION}}}}}}}"#);
    assert_eq!(got.text().await, expected);
    let (_, said) = self::told(&told, "x/y").await;
    assert_eq!(said, body.replace("\"id\":1", "\"id\":\"semel-c0\""));
}

#[tokio::test]
async fn headers_and_body_must_agree() {
    let (gate, _told) = gate().await;
    let client = gate.client();
    let list = request("tools/list", "", "");
    assert_eq!(post(&client, "tools/list", &[], &list).await.status, 200);
    let call = request(
        "tools/call",
        r#""name":"t","arguments":{"region":"us"},"#,
        "",
    );
    for (with, status) in [
        (vec![("mcp-name", "t"), ("mcp-param-region", "us")], 200),
        (vec![("mcp-name", "t"), ("mcp-param-region", "eu")], 400),
        (vec![("mcp-name", "t")], 400),
        (vec![("mcp-name", "u"), ("mcp-param-region", "us")], 400),
        (vec![("mcp-param-region", "us")], 400),
        (
            vec![
                ("mcp-name", "t"),
                ("mcp-param-region", "us"),
                ("mcp-method", "tools/list"),
            ],
            400,
        ),
        (
            vec![
                ("mcp-name", "t"),
                ("mcp-param-region", "us"),
                ("mcp-protocol-version", "2027-01-01"),
            ],
            400,
        ),
        (
            vec![
                ("mcp-name", "t"),
                ("mcp-param-region", "us"),
                ("mcp-protocol-version", ""),
            ],
            400,
        ),
    ] {
        let got = post(&client, "tools/call", &with, &call).await;
        assert_eq!(got.status, status, "{with:?}");
        let text = got.text().await;
        assert_eq!(text.contains("-32020"), status == 400, "{text}");
    }
    // One that says only in its headers that it is of the newer kind.
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(post(&client, "ping", &[], bare).await.status, 400);
}

#[tokio::test]
async fn there_are_no_sessions_and_an_unknown_method_is_not_found() {
    let (gate, _told) = gate().await;
    let client = gate.client();
    let got = post(&client, "unknown", &[], &request("unknown", "", "")).await;
    assert_eq!((got.status, got.header("mcp-session-id")), (404, None));
    assert!(got.text().await.contains("-32601"));
    for method in [Method::GET, Method::DELETE] {
        let with = [("mcp-protocol-version", "2026-07-28")];
        assert_eq!(client.send(method, &with, "").await.status, 405);
    }
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(post(&client, "", &[], answer).await.status, 400);
}

#[tokio::test]
async fn a_subscription_is_its_clients_and_ends_with_its_stream() {
    let (gate, told) = gate().await;
    let client = gate.client();
    let listen = request("subscriptions/listen", "", "");
    let mut got = post(&client, "subscriptions/listen", &[], &listen).await;
    let news = got.until("notifications/news").await;
    let data = news.lines().find_map(|line| line.strip_prefix("data: "));
    let data = data.expect("it is there");
    let path = ["params", "_meta", "io.modelcontextprotocol/subscriptionId"];
    assert_eq!(edit::get(data, &path), Some("1"));
    // Nobody cancels what is another one's.
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let cancelled = post(&gate.client(), "", &[], cancel).await;
    assert_eq!(cancelled.status, 202);
    assert!(
        !told
            .borrow()
            .iter()
            .any(|(_, text)| text.contains("cancelled"))
    );
    drop(got);
    let (_, said) = self::told(&told, "notifications/cancelled").await;
    assert!(said.contains(r#""requestId":"semel-c0""#), "{said}");
}
