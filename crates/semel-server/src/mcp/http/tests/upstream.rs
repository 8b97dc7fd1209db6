//! A server behind HTTP: what it is sent, and what is made of its answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::mpsc;

use super::peer::{Act, Peer, empty, events, json};
use super::{message, soon};
use crate::mcp::http::upstream::HttpUpstream;
use crate::mcp::message::{MESSAGE_MAX, Message};
use crate::mcp::upstream::{Headers, Replies, Reply, Upstream as _};
use crate::outbound::Url;
use crate::pool::Pool;

const CALL: &str = r#"{"jsonrpc":"2.0", "id":7,"method":"tools/call","params":{"name":"a","arguments":{"n":1e400}}}"#;
const ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":7,"result":{"n":0.10000000000000000000001,"é":"\u00e9"}}"#;
const NEWER: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ü","arguments":{"region":"us"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;

fn pool(url: &str) -> Pool {
    Pool::new(Url::parse(url).expect("it is right")).expect("it can be made")
}

fn speaking(peer: &Peer) -> (HttpUpstream, mpsc::Receiver<Message>) {
    let (sender, unasked) = mpsc::channel(64);
    let upstream = HttpUpstream::speaking(pool(&peer.url()), HeaderMap::new(), sender);
    (upstream, unasked)
}

async fn all(mut replies: Replies) -> Vec<Reply> {
    let mut all = vec![];
    while let Some(reply) = soon(replies.0.recv()).await {
        all.push(reply);
    }
    all
}

async fn asked(upstream: &HttpUpstream, text: &str) -> Vec<Reply> {
    let replies = upstream.request(&message(text), &Headers::default()).await;
    all(replies.expect("it was sent")).await
}

async fn tell(upstream: &HttpUpstream, text: &str) {
    let told = upstream.tell(&message(text), &Headers::default()).await;
    told.expect("it is told");
}

fn answer(reply: &Reply) -> &str {
    match reply {
        Reply::Answer(message, _) | Reply::Aside(message) => {
            std::str::from_utf8(message.bytes()).expect("it is text")
        }
        Reply::Http(_) | Reply::Lost(_) => panic!("{reply:?}"),
    }
}

fn is_lost(replies: &[Reply]) -> bool {
    matches!(replies, [.., Reply::Lost(_)])
}

#[tokio::test]
async fn bytes_go_out_and_come_back_as_they_were_written() {
    let mut peer = Peer::new(|_| Act::Say(json("X-More: 1\r\n", ANSWER))).await;
    let (upstream, _unasked) = speaking(&peer);
    for _ in 0..3 {
        let replies = asked(&upstream, CALL).await;
        assert_eq!(replies.len(), 1);
        assert_eq!(answer(&replies[0]), ANSWER);
        let Reply::Answer(_, headers) = &replies[0] else {
            panic!("{replies:?}");
        };
        assert_eq!(headers.0["x-more"], "1");
        let heard = peer.next().await;
        assert_eq!((heard.method.as_str(), heard.text()), ("POST", CALL));
        assert_eq!(heard.header("content-type"), Some("application/json"));
        let accept = "application/json, text/event-stream";
        assert_eq!(heard.header("accept"), Some(accept));
        assert_eq!(heard.header("accept-encoding"), None);
    }
}

#[tokio::test]
async fn what_comes_on_the_way_comes_in_order() {
    let aside = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;
    let question = r#"{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{}}"#;
    let other = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
    let body = format!(
        ": hello\n\ndata: {aside}\n\nevent: message\ndata: {question}\n\nevent: other\ndata: {{}}\n\ndata: {other}\n\ndata: {ANSWER}\n\ndata: {aside}\n\n"
    );
    let peer = Peer::new(move |_| Act::Last(events(&body))).await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = asked(&upstream, CALL).await;
    let texts: Vec<_> = replies.iter().map(answer).collect();
    assert_eq!(texts, [aside, question, ANSWER]);
}

#[tokio::test]
async fn a_newer_request_has_the_headers_that_repeat_it() {
    let list = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"ü","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}"#;
    let mut peer = Peer::new(move |heard| {
        let is_list = heard.text().contains("tools/list");
        Act::Say(json("", if is_list { list } else { ANSWER }))
    })
    .await;
    let (upstream, _unasked) = speaking(&peer);
    let lists = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    asked(&upstream, lists).await;
    let heard = peer.next().await;
    assert_eq!(heard.header("mcp-method"), Some("tools/list"));
    assert_eq!(heard.header("mcp-name"), None);
    asked(&upstream, NEWER).await;
    let heard = peer.next().await;
    assert_eq!(heard.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(heard.header("mcp-method"), Some("tools/call"));
    assert_eq!(heard.header("mcp-name"), Some("=?base64?w7w=?="));
    assert_eq!(heard.header("mcp-param-region"), Some("us"));
}

#[tokio::test]
async fn a_session_is_kept_listened_to_and_ended() {
    let hello = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#;
    let news = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let mut peer = Peer::new(move |heard| match heard.method.as_str() {
        "GET" => Act::Hold(events(&format!("id: 1\ndata: {news}\n\n")), closed.clone()),
        "DELETE" => Act::Say(empty("200 OK", "")),
        _ if heard.text().contains("\"initialize\"") => {
            Act::Say(json("Mcp-Session-Id: s-1\r\n", hello))
        }
        _ if heard.text().contains("\"id\"") => Act::Say(json("", ANSWER)),
        _ => Act::Say(empty("202 Accepted", "")),
    })
    .await;
    let (upstream, mut unasked) = speaking(&peer);
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    tell(&upstream, initialize).await;
    let said = soon(unasked.recv()).await.expect("it is answered");
    assert_eq!(said.bytes(), hello);
    let heard = peer.next().await;
    assert_eq!(heard.header("mcp-session-id"), None);
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    tell(&upstream, ready).await;
    assert_eq!(peer.next().await.header("mcp-session-id"), Some("s-1"));
    let heard = peer.next().await;
    assert_eq!(heard.method, "GET");
    assert_eq!(heard.header("mcp-session-id"), Some("s-1"));
    assert_eq!(heard.header("accept"), Some("text/event-stream"));
    let said = soon(unasked.recv()).await.expect("it is said");
    assert_eq!(said.bytes(), news);
    asked(&upstream, CALL).await;
    let heard = peer.next().await;
    assert_eq!(heard.header("mcp-session-id"), Some("s-1"));
    assert_eq!(heard.header("mcp-protocol-version"), Some("2025-06-18"));
    upstream.end().await;
    soon(is_closed.recv()).await.expect("the stream was closed");
    let heard = peer.next().await;
    assert_eq!(heard.method, "DELETE");
    assert_eq!(heard.header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_taken_up_where_it_stopped() {
    let count = AtomicUsize::new(0);
    let mut peer = Peer::new(move |heard| {
        Act::Last(match heard.method.as_str() {
            "POST" => events("retry: 1\nid: e-1\ndata: \n\n"),
            // It may take more than one time.
            _ if count.fetch_add(1, Ordering::Relaxed) == 0 => {
                events("retry: 1\nid: e-2\ndata: \n\n")
            }
            _ => events(&format!("id: e-3\ndata: {ANSWER}\n\n")),
        })
    })
    .await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = asked(&upstream, CALL).await;
    assert_eq!(answer(replies.last().expect("there is one")), ANSWER);
    let heard = peer.rest();
    let methods: Vec<_> = heard.iter().map(|heard| heard.method.as_str()).collect();
    assert_eq!(methods, ["POST", "GET", "GET"]);
    assert_eq!(heard[1].header("last-event-id"), Some("e-1"));
    assert_eq!(heard[2].header("last-event-id"), Some("e-2"));
}

#[tokio::test]
async fn what_cannot_be_taken_up_is_lost_and_not_sent_again() {
    for (text, body) in [
        (CALL, "retry: 1\ndata: \n\n"),
        // The newer protocol has no way to do it.
        (NEWER, "retry: 1\nid: e-1\ndata: \n\n"),
    ] {
        let mut peer = Peer::new(move |_| Act::Last(events(body))).await;
        let (upstream, _unasked) = speaking(&peer);
        let replies = asked(&upstream, text).await;
        assert!(is_lost(&replies), "{replies:?}");
        assert_eq!(peer.rest().len(), 1);
    }
    let mut peer = Peer::new(|heard| match heard.method.as_str() {
        "POST" => Act::Last(events("retry: 1\nid: e-1\ndata: \n\n")),
        _ => Act::Say(empty("405 Method Not Allowed", "")),
    })
    .await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = asked(&upstream, CALL).await;
    assert!(is_lost(&replies), "{replies:?}");
    assert_eq!(peer.rest().len(), 2);
}

#[tokio::test]
async fn only_what_no_byte_left_of_is_not_sent() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", nobody.local_addr().expect("it has one"));
    drop(nobody);
    let upstream = HttpUpstream::passing(pool(&url), HeaderMap::new());
    let refused = upstream.request(&message(CALL), &Headers::default()).await;
    assert!(refused.is_err());

    let mut peer = Peer::new(|_| Act::Last(vec![])).await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = asked(&upstream, CALL).await;
    assert!(is_lost(&replies), "{replies:?}");
    assert_eq!(peer.rest().len(), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced_before_anything_is_sent() {
    let mut peer = Peer::new(|_| Act::Last(json("", ANSWER))).await;
    let (upstream, _unasked) = speaking(&peer);
    for _ in 0..20 {
        let replies = asked(&upstream, CALL).await;
        // A close that crosses the next request leaves a doubt, and never a second request.
        assert!(matches!(replies[..], [Reply::Answer(..) | Reply::Lost(_)]));
        peer.next().await;
        assert_eq!(peer.rest().len(), 0);
    }
}

#[tokio::test]
async fn a_refusal_is_handed_on_and_no_redirect_is_followed() {
    for (status, header) in [
        ("401 Unauthorized", "WWW-Authenticate: Bearer x\r\n"),
        ("307 Temporary Redirect", "Location: /elsewhere\r\n"),
        ("500 Internal Server Error", ""),
    ] {
        let mut peer = Peer::new(move |_| Act::Say(empty(status, header))).await;
        let (upstream, _unasked) = speaking(&peer);
        let replies = asked(&upstream, CALL).await;
        let [Reply::Http(refusal)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert!(status.starts_with(refusal.status.as_str()));
        let shown = refusal.headers.0.get("www-authenticate");
        assert_eq!(shown.is_some(), refusal.status == StatusCode::UNAUTHORIZED);
        assert_eq!(peer.rest().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_lost() {
    let large = format!("data: {}\n\n", "x".repeat(MESSAGE_MAX));
    let other = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
    for said in [
        json("", "{"),
        json("", other),
        json("", r#"{"jsonrpc":"2.0","method":"a"}"#),
        empty("202 Accepted", ""),
        events(&large),
        events(""),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            .to_vec(),
    ] {
        let mut peer = Peer::new(move |_| Act::Last(said.clone())).await;
        let (upstream, _unasked) = speaking(&peer);
        let replies = asked(&upstream, CALL).await;
        assert!(is_lost(&replies) && replies.len() == 1, "{replies:?}");
        assert_eq!(peer.rest().len(), 1);
    }
}

#[tokio::test]
async fn a_cancel_of_a_newer_request_closes_its_stream() {
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let mut peer = Peer::new(move |_| Act::Hold(events(": hello\n\n"), closed.clone())).await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = upstream.request(&message(NEWER), &Headers::default()).await;
    let replies = replies.expect("it was sent");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    tell(&upstream, cancel).await;
    soon(is_closed.recv()).await.expect("it was closed");
    assert!(is_lost(&all(replies).await));
    assert_eq!(peer.rest().len(), 1);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_closed() {
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    let peer = Peer::new(move |_| Act::Hold(events(": hello\n\n"), closed.clone())).await;
    let (upstream, _unasked) = speaking(&peer);
    let replies = upstream.request(&message(CALL), &Headers::default()).await;
    drop(replies.expect("it was sent"));
    soon(is_closed.recv()).await.expect("it was closed");
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_opened_again_for_what_comes_next() {
    let hello = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#;
    let again =
        r#"{"jsonrpc":"2.0","id":"semel-handshake","result":{"protocolVersion":"2025-06-18"}}"#;
    let mut peer = Peer::new(move |heard| {
        let text = heard.text();
        Act::Say(if text.contains("semel-handshake") {
            json("Mcp-Session-Id: s-2\r\n", again)
        } else if text.contains("\"initialize\"") {
            json("Mcp-Session-Id: s-1\r\n", hello)
        } else if heard.header("mcp-session-id") == Some("s-1") {
            empty("404 Not Found", "")
        } else {
            json("", ANSWER)
        })
    })
    .await;
    let (upstream, _unasked) = speaking(&peer);
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    asked(&upstream, initialize).await;
    let refused = asked(&upstream, CALL).await;
    assert!(matches!(refused[..], [Reply::Http(_)]), "{refused:?}");
    let calls = |heard: Vec<super::peer::Heard>| {
        let calls = heard.iter().filter(|heard| heard.text() == CALL);
        calls.count()
    };
    assert_eq!(calls(peer.rest()), 1);
    let replies = asked(&upstream, CALL).await;
    assert_eq!(answer(&replies[0]), ANSWER);
    assert_eq!(calls(peer.rest()), 1);
}

#[tokio::test]
async fn what_a_client_sent_with_it_is_passed_on_and_what_is_fixed_goes_before_it() {
    let mut peer = Peer::new(|_| Act::Say(json("", ANSWER))).await;
    let mut fixed = HeaderMap::new();
    fixed.insert("x-key", HeaderValue::from_static("ours"));
    let upstream = HttpUpstream::passing(pool(&peer.url()), fixed);
    let mut with = HeaderMap::new();
    with.insert("authorization", HeaderValue::from_static("Bearer a"));
    with.insert("mcp-session-id", HeaderValue::from_static("theirs"));
    with.insert("x-key", HeaderValue::from_static("theirs"));
    let replies = upstream.request(&message(CALL), &Headers(with)).await;
    all(replies.expect("it was sent")).await;
    let heard = peer.next().await;
    assert_eq!(heard.header("authorization"), Some("Bearer a"));
    assert_eq!(heard.header("mcp-session-id"), Some("theirs"));
    assert_eq!(heard.header("x-key"), Some("ours"));
}
