//! Requests that others could read differently, and connections that would become something else.

use super::fake::{Fake, asked, proxy, said};

#[tokio::test]
async fn c066_a_request_of_two_lengths_is_refused() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let text =
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab";
    let answer = said(proxy.address, text).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(fake.all().is_empty(), "{:?}", fake.all());
}

#[tokio::test]
async fn c066_a_folded_line_is_refused() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let text = "POST / HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c\r\nContent-Length: 0\r\n\r\n";
    let answer = said(proxy.address, text).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(fake.all().is_empty(), "{:?}", fake.all());
}

#[tokio::test]
async fn c066_an_unknown_coding_is_refused() {
    for coding in ["gzip, chunked", "chunked, chunked", "xchunked"] {
        let fake = Fake::named("up");
        let proxy = proxy(&fake).await;
        let text = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"
        );
        let answer = said(proxy.address, &text).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{coding}: {answer}");
        assert!(fake.all().is_empty(), "{coding}: {:?}", fake.all());
    }
}

#[tokio::test]
async fn c066_a_length_beside_chunks_hides_no_second_request() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let text = "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
                0\r\n\r\nPOST /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    // The connection is closed after the first one, so that nothing behind it is read.
    let answer = said(proxy.address, text).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let came = fake.all();
    assert!(came.len() <= 1, "{came:?}");
    for came in came {
        assert_eq!(came.target, "/a");
        assert!(!came.headers.contains_key("content-length"), "{came:?}");
        assert!(!came.headers.contains_key("transfer-encoding"), "{came:?}");
    }
}

#[tokio::test]
async fn c066_two_hosts_are_refused() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let answer = asked(proxy.address, "GET /", &["Host: localhost", "Host: other"]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = asked(proxy.address, "GET http://127.0.0.1/", &["Host: localhost"]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("semel-error: invalid_input"), "{answer}");
    assert!(fake.all().is_empty(), "{:?}", fake.all());
}

#[tokio::test]
async fn c097_connect_is_refused() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let answer = asked(
        proxy.address,
        "CONNECT localhost:443",
        &["Host: localhost:443"],
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    assert!(fake.all().is_empty(), "{:?}", fake.all());
}

#[tokio::test]
async fn c097_an_upgrade_is_refused_with_a_key_and_passed_without_it_where_it_can_be() {
    let (key, h2c) = ("iDeMpoTency-KEY: k", "Upgrade: h2c, foo");
    for (lines, status) in [
        (vec!["Upgrade: websocket", "Connection: upgrade"], "501"),
        (vec!["Upgrade: foo, WebSocket", key], "501"),
        (vec![h2c, "Connection: upgrade, http2-settings", key], "501"),
        (
            vec![
                h2c,
                "Connection: upgrade, http2-settings",
                "HTTP2-Settings: AA",
            ],
            "201",
        ),
    ] {
        let fake = Fake::named("up");
        let proxy = proxy(&fake).await;
        let answer = asked(proxy.address, "GET /", &lines).await;
        let first = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&first), "{lines:?}: {answer}");
        let came = fake.all();
        assert_eq!(came.len(), usize::from(status == "201"), "{lines:?}");
        for came in came {
            let names: Vec<_> = came.headers.keys().collect();
            assert_eq!(names, ["host"], "{lines:?}");
        }
        if status == "501" {
            assert!(answer.contains("semel-error: invalid_input"), "{answer}");
            assert!(answer.contains("x-should-retry: false"), "{answer}");
        }
    }
}
