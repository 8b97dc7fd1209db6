//! Clients of the older protocol, each with a child of its own.

use std::time::Duration;

use axum::http::Method;
use semel::core::identity::{Exchange, Observation};

use super::fake::{Client, FakeDesk, FakeStart, Gate, Got, Told, told};
use crate::mcp::http::children::{Children, Visits};
use crate::mcp::http::front::Behind;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":1e999}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"p"}}}"#;

async fn gate(limits: Visits) -> (Gate, Told) {
    let told = Told::default();
    let children = Children::<FakeDesk>::new(FakeStart::new(&told), limits);
    (Gate::open(Behind::Children(children)).await, told)
}

async fn session(client: &Client) -> String {
    let got = client.post(&[], HELLO).await;
    assert_eq!(got.status, 200);
    let name = got.header("mcp-session-id").expect("it has one").to_owned();
    assert!(got.text().await.contains("2025-06-18"));
    name
}

async fn status(got: Got) -> u16 {
    let status = got.status;
    got.text().await;
    status
}

#[tokio::test]
async fn a_session_has_a_child_until_it_is_ended() {
    let (gate, told) = gate(Visits::default()).await;
    let client = gate.client();
    let (one, two) = (session(&client).await, session(&client).await);
    assert_ne!(one, two);
    for name in [&one, &two] {
        let with = [("mcp-session-id", name.as_str())];
        let got = client.post(&with, PING).await;
        assert_eq!(got.header("content-type"), Some("text/event-stream"));
        let text = got.text().await;
        let data = text.lines().find_map(|line| line.strip_prefix("data: "));
        let expected = r#"{"jsonrpc":"2.0","id":1,"result":{"n":1e999}}"#;
        assert_eq!(data, Some(expected));
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(status(client.post(&with, ready).await).await, 202);
    }
    let said = told.borrow().clone();
    let pings: Vec<_> = said.iter().filter(|(_, text)| text == PING).collect();
    assert_eq!(
        pings.iter().map(|(child, _)| *child).collect::<Vec<_>>(),
        [0, 1]
    );
    let with = [("mcp-session-id", one.as_str())];
    assert_eq!(
        status(client.send(Method::DELETE, &with, "").await).await,
        204
    );
    assert_eq!(super::fake::told(&told, "end").await.0, 0);
    assert_eq!(status(client.post(&with, PING).await).await, 404);
    let with = [("mcp-session-id", two.as_str())];
    assert_eq!(status(client.post(&with, PING).await).await, 200);
}

#[tokio::test]
async fn what_does_not_belong_to_a_session_is_refused() {
    let (gate, _told) = gate(Visits::default()).await;
    let client = gate.client();
    let name = session(&client).await;
    let name = name.as_str();
    for (with, expected) in [
        (vec![], 400),
        (vec![("mcp-session-id", "other")], 404),
        (
            vec![("mcp-session-id", name), ("authorization", "Basic x")],
            404,
        ),
        (
            vec![
                ("mcp-session-id", name),
                ("mcp-protocol-version", "2025-11-25"),
            ],
            400,
        ),
        (
            vec![
                ("mcp-session-id", name),
                ("mcp-protocol-version", "2025-06-18"),
            ],
            200,
        ),
        (
            vec![("mcp-session-id", name), ("accept", "application/json")],
            406,
        ),
        (vec![("mcp-session-id", name), ("accept", "*/*")], 200),
    ] {
        assert_eq!(
            status(client.post(&with, PING).await).await,
            expected,
            "{with:?}"
        );
    }
    for (with, expected) in [
        (vec![], 405),
        (vec![("mcp-session-id", "other")], 404),
        (
            vec![("mcp-session-id", name), ("accept", "application/json")],
            406,
        ),
    ] {
        let got = client.send(Method::GET, &with, "").await;
        assert_eq!(status(got).await, expected, "{with:?}");
    }
    let got = client.send(Method::DELETE, &[], "").await;
    assert_eq!(status(got).await, 405);
}

#[tokio::test]
async fn progress_goes_before_the_answer_that_it_leads_to() {
    let (gate, _told) = gate(Visits::default()).await;
    let client = gate.client();
    let name = session(&client).await;
    for _ in 0..20 {
        let got = client.post(&[("mcp-session-id", &name)], CALL).await;
        assert_eq!(got.header("content-type"), Some("text/event-stream"));
        let text = got.text().await;
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let data: Vec<_> = data.collect();
        assert_eq!(data.len(), 3, "{text}");
        assert!(data[0].contains("\"progress\":1"), "{text}");
        assert!(data[1].contains("\"progress\":2"), "{text}");
        assert!(data[2].contains("\"result\""), "{text}");
    }
    gate.desk.ended(19, Exchange::Delivered).await;
}

#[tokio::test]
async fn what_nobody_asked_for_waits_for_whoever_listens() {
    let (gate, told) = gate(Visits::default()).await;
    let client = gate.client();
    let name = session(&client).await;
    let with = [("mcp-session-id", name.as_str())];
    let mut listening = client.send(Method::GET, &with, "").await;
    assert_eq!(listening.status, 200);
    // It was said before the handshake was answered.
    listening.until("notifications/early").await;
    // A question of the server's goes to the request that it is about, and its answer back.
    let ask = r#"{"jsonrpc":"2.0","id":3,"method":"ask"}"#;
    let mut asking = client.post(&with, ask).await;
    asking.until("elicitation/create").await;
    let reply = r#"{"jsonrpc":"2.0","id":"q","result":{}}"#;
    assert_eq!(status(client.post(&with, reply).await).await, 202);
    super::fake::told(&told, reply).await;
    // An answer to the gateway's own question is not the server's.
    let own = r#"{"jsonrpc":"2.0","id":"semel-question","result":{}}"#;
    assert_eq!(status(client.post(&with, own).await).await, 202);
    assert!(!told.borrow().iter().any(|(_, text)| text == own));
    // Whoever listens again takes the place of who listened before.
    let again = client.send(Method::GET, &with, "").await;
    assert_eq!(again.status, 200);
    assert_eq!(listening.text().await, "");
}

#[tokio::test]
async fn a_cancel_is_seen_by_the_call_and_not_by_the_child() {
    let (gate, told) = gate(Visits::default()).await;
    let client = gate.client();
    let name = session(&client).await;
    let with = [("mcp-session-id", name.as_str())];
    let got = client.post(&with, CALL).await;
    got.text().await;
    gate.desk.ended(0, Exchange::Delivered).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    // The answer was there already: it is taken back as long as anybody can know.
    let other = gate.client();
    assert_eq!(status(other.post(&with, cancel).await).await, 202);
    let call = gate.desk.ended(0, Exchange::Lost).await;
    assert_eq!(call.seen.last(), Some(&Observation::Cancelled));
    assert!(!told.borrow().iter().any(|(_, text)| text == cancel));
}

#[tokio::test]
async fn there_are_no_more_sessions_than_there_may_be() {
    let limits = Visits {
        most: 2,
        ..Visits::default()
    };
    let (gate, _told) = gate(limits).await;
    let client = gate.client();
    let name = session(&client).await;
    session(&client).await;
    assert_eq!(status(client.post(&[], HELLO).await).await, 503);
    let with = [("mcp-session-id", name.as_str())];
    assert_eq!(
        status(client.send(Method::DELETE, &with, "").await).await,
        204
    );
    session(&client).await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    let limits = Visits {
        idle: Duration::from_millis(50),
        ..Visits::default()
    };
    let (gate, told) = gate(limits).await;
    let client = gate.client();
    let name = session(&client).await;
    super::fake::told(&told, "end").await;
    let with = [("mcp-session-id", name.as_str())];
    assert_eq!(status(client.post(&with, PING).await).await, 404);
}

#[tokio::test]
async fn two_requests_of_one_id_are_not_mixed_up() {
    let (gate, _told) = gate(Visits::default()).await;
    let client = gate.client();
    let name = session(&client).await;
    let with = [("mcp-session-id", name.as_str())];
    let ask = r#"{"jsonrpc":"2.0","id":3,"method":"ask"}"#;
    let mut asking = client.post(&with, ask).await;
    asking.until("elicitation/create").await;
    assert_eq!(status(client.post(&with, ask).await).await, 400);
    drop(asking);
}

#[tokio::test]
async fn children_end_with_the_gateway() {
    let (gate, told) = gate(Visits::default()).await;
    session(&gate.client()).await;
    drop(gate);
    self::told(&told, "end").await;
}
