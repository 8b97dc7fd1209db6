//! HTTP/2: what is known of a request that failed.

use std::sync::Arc;

use h2::Reason;
use tokio::net::TcpStream;

use super::driven::{Driven, http2};
use super::server::{Peer, Server};
use super::*;
use crate::proxy::upstream::failure::Failure;
use crate::proxy::upstream::http2::Trunks;
use crate::proxy::upstream::wire::Wire;

#[tokio::test]
async fn c030_a_stream_that_was_refused_was_not_sent() {
    for (reason, is_unsent) in [
        (Reason::REFUSED_STREAM, true),
        (Reason::CANCEL, false),
        (Reason::INTERNAL_ERROR, false),
        (Reason::HTTP_1_1_REQUIRED, false),
    ] {
        let server = Server::new().await;
        let sending = begin(&client(&server.url(), http2()), post("/", "x"));
        let mut driven = Driven::new(server.tcp().await, 10).await;
        let (_, mut respond) = driven.next().await;
        respond.send_reset(reason);
        let sent = end(sending).await;
        assert_eq!(is_not_sent(&sent), is_unsent, "{reason:?}: {sent:?}");
        assert_eq!(is_lost(&sent), !is_unsent, "{reason:?}: {sent:?}");
        assert!(!server.has_another(), "it was tried again");
    }
}

/// Reads frames until a request has come, and says what server it is.
async fn until_a_request(peer: &mut Peer) {
    // What it says about itself: nothing.
    peer.say([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let preface = peer.bytes(24).await;
    assert_eq!(preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const HEADERS: u8 = 1;
    loop {
        let head = peer.bytes(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        peer.bytes(length as usize).await;
        if head[3] == HEADERS {
            return;
        }
    }
}

/// A frame that says goodbye.
fn go_away(last_stream: u32, reason: Reason) -> Vec<u8> {
    let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
    frame.extend(last_stream.to_be_bytes());
    frame.extend(u32::from(reason).to_be_bytes());
    frame
}

#[tokio::test]
async fn c030_a_server_that_goes_away_says_what_it_has_not_looked_at() {
    const GRACEFUL: u32 = (1 << 31) - 1;
    for (last_stream, reason, is_unsent) in [
        (0, Reason::NO_ERROR, true),
        (0, Reason::ENHANCE_YOUR_CALM, true),
        (1, Reason::NO_ERROR, false),
        (1, Reason::INTERNAL_ERROR, false),
        (GRACEFUL, Reason::NO_ERROR, false),
    ] {
        let server = Server::new().await;
        let sending = begin(&client(&server.url(), http2()), get("/"));
        let mut peer = server.accept().await;
        until_a_request(&mut peer).await;
        peer.say(go_away(last_stream, reason)).await;
        drop(peer);
        let sent = end(sending).await;
        let case = format!("{last_stream} {reason:?}: {sent:?}");
        assert_eq!(is_not_sent(&sent), is_unsent, "{case}");
        assert_eq!(is_lost(&sent), !is_unsent, "{case}");
        assert!(!server.has_another(), "it was tried again");
    }
}

#[tokio::test]
async fn a_request_whose_server_breaks_the_rules_is_lost() {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), http2()), get("/"));
    let mut peer = server.accept().await;
    until_a_request(&mut peer).await;
    // Data that belongs to no request: this side goes away.
    peer.say([0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    let sent = end(sending).await;
    assert!(is_lost(&sent), "{sent:?}");
    assert!(!server.has_another(), "it was tried again");
}

#[tokio::test]
async fn c093_a_request_whose_connection_breaks_is_lost_and_not_tried_again() {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), http2()), post("/", "x"));
    let mut driven = Driven::new(server.tcp().await, 10).await;
    let come = driven.next().await;
    driven.task.abort();
    drop(come);
    let sent = end(sending).await;
    assert!(is_lost(&sent), "{sent:?}");
    assert!(!server.has_another(), "it was tried again");
}

#[tokio::test]
async fn c030_a_connection_that_is_found_closed_before_a_byte_left_takes_nothing_along() {
    let server = Server::new().await;
    let tcp = TcpStream::connect(server.address)
        .await
        .expect("it listens");
    // Nothing passes this gate, since the connection has another way, of which the end is seen at once.
    let (_wire, gate) = Wire::new(tcp);
    let (stream, other) = tokio::io::duplex(1024);
    let trunks = Arc::new(Trunks::default());
    let track = trunks.add(Box::new(stream), gate).await;
    let track = track.expect("it can be used");
    drop(other);
    let failure = soon(track.send(get("http://there/"))).await;
    let failure = failure.expect_err("there is no answer");
    assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");
}

#[tokio::test]
async fn an_answer_that_is_reset_in_its_body_does_not_end() {
    let server = Server::new().await;
    let client = client(&server.url(), http2());
    let sending = begin(&client, get("/"));
    let mut driven = Driven::new(server.tcp().await, 10).await;
    let (_, mut respond) = driven.next().await;
    let mut stream = respond
        .send_response(Response::new(()), false)
        .expect("it is open");
    stream
        .send_data(Bytes::from_static(b"abc"), false)
        .expect("it is open");
    let mut body = end(sending).await.expect("it has begun").into_body();
    assert_eq!(first_piece(&mut body).await, "abc");
    // Even for this reason: it has begun.
    stream.send_reset(Reason::REFUSED_STREAM);
    let next = soon(body.frame()).await.expect("it is not its end");
    assert!(next.is_err(), "{next:?}");
}
