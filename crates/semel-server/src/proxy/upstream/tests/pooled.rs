//! Which connections are used again.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Peer, Server, answer};
use super::*;
use crate::proxy::upstream::Way;
use crate::proxy::upstream::http1::Lease;

/// Asks once, so that a connection waits.
async fn one_waits(server: &Server, client: &Client, said: &str) -> Peer {
    let first = begin(client, get("/first"));
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say(said).await;
    let first = end(first).await.expect("there is an answer");
    read(first).await.expect("it is whole");
    peer
}

/// Waits until the connection that waits cannot be used any more, though nobody has been told.
async fn until_spoilt(client: &Client) {
    let place = client.0.place().await.expect("there is one");
    let Some(line) = client.0.pool.take(false) else {
        return;
    };
    until(|| !line.is_free());
    let lease = Lease::new(line, place, &HeaderMap::new());
    client.0.pool.put(lease);
}

async fn serve(server: &Server, sending: JoinHandle<Sent>, said: &str) -> Peer {
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say(answer(said)).await;
    assert_eq!(text(sending).await, said);
    peer
}

#[tokio::test]
async fn a_connection_whose_answer_was_read_is_used_again() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let mut peer = one_waits(&server, &client, &answer("one")).await;
    for said in ["two", "three"] {
        let sending = begin(&client, post("/", "x"));
        peer.request().await;
        peer.say(answer(said)).await;
        assert_eq!(text(sending).await, said);
    }
    assert!(!server.has_another());
}

#[tokio::test]
async fn a_connection_whose_answer_comes_in_chunks_is_used_again() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let said = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut peer = one_waits(&server, &client, said).await;
    let second = begin(&client, get("/"));
    peer.request().await;
    peer.say(answer("two")).await;
    assert_eq!(text(second).await, "two");
    assert!(!server.has_another());
}

#[tokio::test]
async fn c030_a_connection_that_was_closed_meanwhile_is_not_used() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let peer = one_waits(&server, &client, &answer("one")).await;
    drop(peer);
    until_spoilt(&client).await;
    let second = begin(&client, post("/", "x"));
    serve(&server, second, "two").await;
    assert!(!server.has_another());
}

/// Takes the connection that waits, which is closed before it is used.
async fn closed_too_late(client: &Client, peer: Peer) -> Way {
    let place = client.0.place().await.expect("there is one");
    let line = client.0.pool.take(false).expect("it waits");
    drop(peer);
    while !line.is_closed() {
        tokio::task::yield_now().await;
    }
    Way::Kept(line, place)
}

#[tokio::test]
async fn c030_what_a_closed_connection_gives_back_goes_out_on_a_new_one() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let peer = one_waits(&server, &client, &answer("one")).await;
    let way = closed_too_late(&client, peer).await;
    let mut request = post("/", "x");
    let address = client.0.target.address(&mut request).expect("it is right");
    let inner = Arc::clone(&client.0);
    let second = tokio::spawn(async move { inner.deliver(way, &address, request).await });
    serve(&server, second, "two").await;
    assert!(!server.has_another());
}

#[tokio::test]
async fn c093_what_was_given_back_goes_out_once_more_and_no_oftener() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let peer = one_waits(&server, &client, &answer("one")).await;
    let way = closed_too_late(&client, peer).await;
    let mut request = post("/", "x");
    let address = client.0.target.address(&mut request).expect("it is right");
    let inner = Arc::clone(&client.0);
    let second = tokio::spawn(async move { inner.deliver(way, &address, request).await });
    let mut peer = server.accept().await;
    peer.request().await;
    drop(peer);
    let sent = end(second).await;
    assert!(is_lost(&sent), "{sent:?}");
    assert!(!server.has_another());
}

#[tokio::test]
async fn c030_a_server_that_speaks_unasked_is_not_believed() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let mut peer = one_waits(&server, &client, &answer("one")).await;
    peer.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        .await;
    until_spoilt(&client).await;
    let second = begin(&client, post("/", "x"));
    serve(&server, second, "two").await;
    peer.closed().await;
}

#[tokio::test]
async fn a_server_that_answers_twice_is_heard_once() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let twice = answer("one") + &answer("again");
    let peer = one_waits(&server, &client, &twice).await;
    let second = begin(&client, post("/", "x"));
    serve(&server, second, "two").await;
    peer.closed().await;
}

#[tokio::test]
async fn a_connection_whose_answer_was_left_unread_is_closed() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let first = begin(&client, get("/"));
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
        .await;
    let mut body = end(first).await.expect("it has begun").into_body();
    assert_eq!(first_piece(&mut body).await, "abc");
    drop(body);
    peer.closed().await;
    assert!(client.0.pool.take(true).is_none());
}

#[tokio::test]
async fn an_old_connection_is_for_those_who_only_ask() {
    let server = Server::new().await;
    let options = Options {
        idle_max: Duration::ZERO,
        ..Options::default()
    };
    let client = client(&server.url(), options);
    let old = one_waits(&server, &client, &answer("one")).await;
    // Each of these may have an effect.
    let with_body = Request::get("/").body(full("x")).expect("it is a request");
    let delete = Request::delete("/").body(empty()).expect("it is a request");
    let mut others = vec![];
    for request in [post("/", "x"), with_body, delete] {
        others.push(serve(&server, begin(&client, request), "new").await);
    }
    let asking = begin(&client, get("/"));
    let newest = others.last_mut().expect("there are some");
    newest.request().await;
    newest.say(answer("again")).await;
    assert_eq!(text(asking).await, "again");
    assert!(!server.has_another());
    drop(client);
    old.closed().await;
}

#[tokio::test]
async fn a_server_says_how_long_it_keeps_a_connection() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let said = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n";
    let _peer = one_waits(&server, &client, said).await;
    serve(&server, begin(&client, get("/")), "two").await;
}

#[tokio::test]
async fn a_connection_that_its_server_closes_is_not_used_again() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let said = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\none";
    let peer = one_waits(&server, &client, said).await;
    serve(&server, begin(&client, get("/")), "two").await;
    peer.closed().await;
}

#[tokio::test]
async fn a_request_waits_for_a_connection_and_gets_the_one_that_is_freed() {
    let server = Server::new().await;
    let options = Options {
        connections_max: 1,
        wait_max: PATIENCE,
        ..Options::default()
    };
    let client = client(&server.url(), options);
    let first = begin(&client, post("/1", "x"));
    let mut peer = server.accept().await;
    peer.request().await;
    let second = begin(&client, post("/2", "x"));
    peer.say(answer("one")).await;
    assert_eq!(text(first).await, "one");
    let (head, _) = peer.request().await;
    assert!(head.starts_with("POST /2 "), "{head}");
    peer.say(answer("two")).await;
    assert_eq!(text(second).await, "two");
    assert!(!server.has_another());
}

#[tokio::test]
async fn a_connection_that_waits_makes_room_for_one_that_is_needed() {
    let server = Server::new().await;
    let options = Options {
        connections_max: 1,
        idle_max: Duration::ZERO,
        ..Options::default()
    };
    let client = client(&server.url(), options);
    let old = one_waits(&server, &client, &answer("one")).await;
    serve(&server, begin(&client, post("/", "x")), "two").await;
    old.closed().await;
}

#[tokio::test]
async fn a_server_that_answers_before_it_has_read_all_is_heard() {
    let server = Server::new().await;
    let client = client(&server.url(), Options::default());
    let (pieces, body) = in_pieces();
    let request = Request::post("/").body(body).expect("it is a request");
    let sending = begin(&client, request);
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say(answer("enough")).await;
    assert_eq!(text(sending).await, "enough");
    // The rest of the request is still to come: nothing else goes out in the midst of it.
    assert!(client.0.pool.take(true).is_none());
    serve(&server, begin(&client, get("/")), "two").await;
    drop(pieces);
}
