//! What is known of a request that failed at any point.

use std::time::Duration;

use super::server::{Server, Tls, answer};
use super::*;
use axum::http::Method;

#[tokio::test]
async fn c030_nothing_left_where_nobody_listens() {
    let server = Server::new().await;
    let url = server.url();
    drop(server);
    let sent = soon(client(&url, Options::default()).send(post("/", "x"))).await;
    assert!(is_not_sent(&sent), "{sent:?}");
}

#[tokio::test]
async fn c030_nothing_left_where_a_name_is_not_known() {
    let client = client("http://nobody.invalid", Options::default());
    let sent = soon(client.send(post("/", "x"))).await;
    assert!(is_not_sent(&sent), "{sent:?}");
}

#[tokio::test]
async fn c030_nothing_left_where_a_certificate_is_not_trusted() {
    let (server, tls, other) = (Server::new().await, Tls::new(&[]), Tls::new(&[]));
    let url = Url::parse(&format!("https://{}", server.address)).expect("it is right");
    let client = Client::trusting(&url, Options::default(), Some(other.trusted()));
    let sending = begin(&client.expect("it can be used"), post("/", "x"));
    tls.accept(&server).await.expect_err("it is not trusted");
    let sent = end(sending).await;
    assert!(is_not_sent(&sent), "{sent:?}");
}

#[tokio::test]
async fn c030_nothing_left_where_nobody_speaks_tls() {
    let (server, tls) = (Server::new().await, Tls::new(&[]));
    let url = Url::parse(&format!("https://{}", server.address)).expect("it is right");
    let client = Client::trusting(&url, Options::default(), Some(tls.trusted()));
    let sending = begin(&client.expect("it can be used"), post("/", "x"));
    let mut peer = server.accept().await;
    peer.say("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let sent = end(sending).await;
    assert!(is_not_sent(&sent), "{sent:?}");
}

#[tokio::test]
async fn c030_nothing_left_where_nobody_lets_us_in_in_time() {
    let (server, tls) = (Server::new().await, Tls::new(&[]));
    let url = Url::parse(&format!("https://{}", server.address)).expect("it is right");
    let options = Options {
        connect_max: Duration::from_millis(50),
        ..Options::default()
    };
    let client = Client::trusting(&url, options, Some(tls.trusted())).expect("it can be used");
    // It accepts, as the system does for everybody who listens, and says nothing.
    let sent = soon(client.send(post("/", "x"))).await;
    assert!(is_not_sent(&sent), "{sent:?}");
}

/// Lets a server read a request and then do this; returns what the client makes of it.
async fn after_reading(said: &str) -> Sent {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), Options::default()), post("/", "x"));
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say(said).await;
    drop(peer);
    let sent = end(sending).await;
    assert!(!server.has_another(), "it was tried again");
    sent
}

#[tokio::test]
async fn c093_a_request_whose_connection_ends_without_an_answer_is_lost_and_not_tried_again() {
    let sent = after_reading("").await;
    assert!(is_lost(&sent), "{sent:?}");
}

#[tokio::test]
async fn c093_a_request_of_which_a_part_left_is_lost_and_not_tried_again() {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), Options::default()), post("/", "x"));
    let mut peer = server.accept().await;
    peer.bytes(4).await;
    drop(peer);
    let sent = end(sending).await;
    assert!(is_lost(&sent), "{sent:?}");
    assert!(!server.has_another(), "it was tried again");
}

#[tokio::test]
async fn c093_a_get_is_not_tried_again_either() {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), Options::default()), get("/"));
    let mut peer = server.accept().await;
    peer.request().await;
    drop(peer);
    let sent = end(sending).await;
    assert!(is_lost(&sent), "{sent:?}");
    assert!(!server.has_another(), "it was tried again");
}

#[tokio::test]
async fn an_answer_that_dies_in_its_head_is_lost() {
    let sent = after_reading("HTTP/1.1 200 OK\r\nContent-Le").await;
    assert!(is_lost(&sent), "{sent:?}");
}

#[tokio::test]
async fn an_answer_that_is_none_is_lost() {
    for said in [
        "what?\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let sent = after_reading(said).await;
        assert!(is_lost(&sent), "{said:?}: {sent:?}");
    }
}

#[tokio::test]
async fn an_answer_that_dies_in_its_body_does_not_end() {
    for said in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nwhat\r\n",
    ] {
        let answer = after_reading(said).await.expect("it has begun");
        assert_eq!(answer.status(), StatusCode::OK);
        let mut body = answer.into_body();
        assert_eq!(first_piece(&mut body).await, "abc");
        let next = soon(body.frame()).await.expect("it is not its end");
        assert!(next.is_err(), "{said:?}: {next:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_when_nobody_waits_any_more() {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), Options::default()), post("/", "x"));
    let mut peer = server.accept().await;
    peer.request().await;
    sending.abort();
    peer.closed().await;
}

#[tokio::test]
async fn an_answer_that_falls_silent_breaks_off() {
    let server = Server::new().await;
    let options = Options {
        silence_max: Duration::from_millis(50),
        ..Options::default()
    };
    let sending = begin(&client(&server.url(), options), post("/", "x"));
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
        .await;
    let mut body = end(sending).await.expect("it has begun").into_body();
    assert_eq!(first_piece(&mut body).await, "abc");
    let next = soon(body.frame()).await.expect("it is not its end");
    assert!(next.is_err(), "{next:?}");
    peer.closed().await;
}

#[tokio::test]
async fn a_request_whose_body_fails_before_a_byte_left_is_not_sent() {
    let server = Server::new().await;
    let (pieces, body) = in_pieces();
    pieces.send(Err("it is gone".into())).expect("it is read");
    let request = Request::post("/").body(body).expect("it is a request");
    let sending = begin(&client(&server.url(), Options::default()), request);
    let peer = server.accept().await;
    let sent = end(sending).await;
    assert!(is_not_sent(&sent), "{sent:?}");
    peer.closed().await;
}

#[tokio::test]
async fn a_request_whose_body_fails_after_that_is_lost() {
    let server = Server::new().await;
    let (pieces, body) = in_pieces();
    let request = Request::post("/").body(body).expect("it is a request");
    let sending = begin(&client(&server.url(), Options::default()), request);
    let mut peer = server.accept().await;
    peer.request().await;
    pieces.send(Err("it is gone".into())).expect("it is read");
    let sent = end(sending).await;
    assert!(is_lost(&sent), "{sent:?}");
    peer.closed().await;
}

#[tokio::test]
async fn c097_connect_is_not_sent() {
    let server = Server::new().await;
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("somewhere:443")
        .body(empty())
        .expect("it is a request");
    let sent = soon(client(&server.url(), Options::default()).send(request)).await;
    assert!(is_not_sent(&sent), "{sent:?}");
    assert!(!server.has_another());
}

#[tokio::test]
async fn a_request_that_finds_no_connection_free_is_not_sent() {
    let server = Server::new().await;
    let options = Options {
        connections_max: 1,
        wait_max: Duration::from_millis(50),
        ..Options::default()
    };
    let client = client(&server.url(), options);
    let first = begin(&client, post("/1", "x"));
    let mut peer = server.accept().await;
    peer.request().await;
    let sent = soon(client.send(post("/2", "x"))).await;
    assert!(is_not_sent(&sent), "{sent:?}");
    peer.say(answer("one")).await;
    assert_eq!(text(first).await, "one");
}
