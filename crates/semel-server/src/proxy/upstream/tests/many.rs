//! HTTP/2: many requests on one connection.

use std::time::Duration;

use axum::http::header;
use h2::Reason;

use super::driven::{Driven, answer, http2};
use super::server::{Server, Tls};
use super::*;

#[tokio::test]
async fn c078_http2_is_spoken_where_both_sides_agree() {
    let (server, tls) = (Server::new().await, Tls::new(&["h2", "http/1.1"]));
    let url = Url::parse(&format!("https://{}/base", server.address)).expect("it is right");
    let client = Client::trusting(&url, Options::default(), Some(tls.trusted()));
    let client = client.expect("it can be used");
    let request = Request::post("/a?b")
        .header(header::HOST, "asked.example")
        .header(header::TE, "trailers")
        .header(header::CONNECTION, "te, x-hop")
        .header("x-hop", "1")
        .header("x-own", "1")
        .body(full("abc"))
        .expect("it is a request");
    let sending = begin(&client, request);
    let stream = tls.accept(&server).await.expect("it is trusted");
    let mut driven = Driven::new(stream, 10).await;
    let (request, mut respond) = driven.next().await;
    let (head, mut body) = request.into_parts();
    let uri = format!("https://{}/base/a?b", server.address);
    assert_eq!(head.uri.to_string(), uri);
    let mut names: Vec<_> = head.headers.iter().collect();
    names.sort_by_key(|(name, _)| name.as_str());
    let names: Vec<_> = names
        .iter()
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    assert_eq!(
        names,
        ["content-length: \"3\"", "te: \"trailers\"", "x-own: \"1\""]
    );
    assert_eq!(
        soon(body.data()).await.expect("it comes").expect("it came"),
        "abc"
    );
    let early = Response::builder()
        .status(103)
        .body(())
        .expect("it is right");
    respond.send_informational(early).expect("it is open");
    let mut stream = respond
        .send_response(Response::new(()), false)
        .expect("it is open");
    stream
        .send_data(Bytes::from_static(b"two"), false)
        .expect("it is open");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", 7.into());
    stream.send_trailers(trailers).expect("it is open");
    let answer = end(sending).await.expect("there is an answer");
    let read = read(answer).await.expect("it is whole");
    assert_eq!((read.status, read.text.as_str()), (StatusCode::OK, "two"));
    assert_eq!(read.trailers.expect("there are some")["x-sum"], "7");
}

#[tokio::test]
async fn http1_is_spoken_where_the_server_knows_no_other() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (server, tls) = (Server::new().await, Tls::new(protocols));
        let url = Url::parse(&format!("https://{}", server.address)).expect("it is right");
        let client = Client::trusting(&url, Options::default(), Some(tls.trusted()));
        let client = client.expect("it can be used");
        let sending = begin(&client, post("/", "x"));
        let stream = tls.accept(&server).await.expect("it is trusted");
        let served = hyper::server::conn::http1::Builder::new().serve_connection(
            hyper_util::rt::TokioIo::new(stream),
            hyper::service::service_fn(|_| async {
                Ok::<_, BodyError>(Response::new(full("one")))
            }),
        );
        let served = tokio::spawn(served);
        assert_eq!(text(sending).await, "one");
        assert_eq!(text(begin(&client, post("/", "x"))).await, "one");
        served.abort();
    }
}

#[tokio::test]
async fn requests_that_come_together_share_a_connection() {
    let server = Server::new().await;
    let client = client(&server.url(), http2());
    let sending: Vec<_> = (0..20).map(|_| begin(&client, post("/", "x"))).collect();
    let mut driven = Driven::new(server.tcp().await, 100).await;
    let mut come = vec![];
    for _ in 0..20 {
        come.push(driven.next().await);
    }
    for (_, respond) in &mut come {
        answer(respond, "one");
    }
    for sending in sending {
        assert_eq!(text(sending).await, "one");
    }
    assert!(!server.has_another());
}

#[tokio::test]
async fn a_server_gets_no_more_streams_than_it_allows() {
    let server = Server::new().await;
    let client = client(&server.url(), http2());
    let first = begin(&client, get("/"));
    let mut one = Driven::new(server.tcp().await, 1).await;
    one.answer("first").await;
    // With the answer came what it allows.
    assert_eq!(text(first).await, "first");
    let second = begin(&client, get("/"));
    let (_, mut respond) = one.next().await;
    let third = begin(&client, get("/"));
    let mut other = Driven::new(server.tcp().await, 1).await;
    other.answer("third").await;
    assert_eq!(text(third).await, "third");
    answer(&mut respond, "second");
    assert_eq!(text(second).await, "second");
    assert!(!server.has_another());
}

#[tokio::test]
async fn a_request_waits_for_a_place_and_no_longer_than_it_may() {
    let server = Server::new().await;
    let options = Options {
        connections_max: 1,
        wait_max: Duration::from_millis(50),
        ..http2()
    };
    let client = client(&server.url(), options);
    let first = begin(&client, get("/"));
    let mut driven = Driven::new(server.tcp().await, 1).await;
    driven.answer("first").await;
    assert_eq!(text(first).await, "first");
    let second = begin(&client, get("/"));
    let (_, mut respond) = driven.next().await;
    let sent = end(begin(&client, get("/"))).await;
    assert!(is_not_sent(&sent), "{sent:?}");
    answer(&mut respond, "second");
    assert_eq!(text(second).await, "second");
    let fourth = begin(&client, get("/"));
    driven.answer("fourth").await;
    assert_eq!(text(fourth).await, "fourth");
    assert!(!server.has_another());
}

#[tokio::test]
async fn c030_a_connection_that_was_closed_meanwhile_is_not_used() {
    let server = Server::new().await;
    let client = client(&server.url(), http2());
    let first = begin(&client, post("/", "x"));
    let mut driven = Driven::new(server.tcp().await, 10).await;
    driven.answer("one").await;
    assert_eq!(text(first).await, "one");
    driven.task.abort();
    drop(soon(driven.task).await);
    until(|| client.0.trunks.place().is_none());
    let second = begin(&client, post("/", "x"));
    let mut driven = Driven::new(server.tcp().await, 10).await;
    driven.answer("two").await;
    assert_eq!(text(second).await, "two");
}

#[tokio::test]
async fn a_stream_that_nobody_waits_for_is_reset_and_the_others_go_on() {
    let server = Server::new().await;
    let client = client(&server.url(), http2());
    let (_pieces, body) = in_pieces();
    let request = Request::post("/").body(body).expect("it is a request");
    let first = begin(&client, request);
    let mut driven = Driven::new(server.tcp().await, 10).await;
    let (_unread, mut respond) = driven.next().await;
    let second = begin(&client, get("/"));
    first.abort();
    let reason = soon(std::future::poll_fn(|context| respond.poll_reset(context))).await;
    assert_eq!(reason.expect("it is reset"), Reason::CANCEL);
    driven.answer("two").await;
    assert_eq!(text(second).await, "two");
    assert!(!server.has_another());
}

#[tokio::test]
async fn an_answer_that_is_left_unread_is_reset() {
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
    drop(body);
    let reason = soon(std::future::poll_fn(|context| stream.poll_reset(context))).await;
    assert_eq!(reason.expect("it is reset"), Reason::CANCEL);
}

#[tokio::test]
async fn a_long_body_goes_in_pieces() {
    let server = Server::new().await;
    let (pieces, body) = in_pieces();
    let request = Request::post("/").body(body).expect("it is a request");
    let sending = begin(&client(&server.url(), http2()), request);
    let mut driven = Driven::new(server.tcp().await, 10).await;
    let (request, mut respond) = driven.next().await;
    for _ in 0..40 {
        // More than a window takes at once.
        let piece = Frame::data(Bytes::from_static(&[b'x'; 10_000]));
        pieces.send(Ok(piece)).expect("it is read");
    }
    drop(pieces);
    let mut body = request.into_body();
    let mut heard = 0;
    while let Some(piece) = soon(body.data()).await {
        let piece = piece.expect("it came");
        heard += piece.len();
        let mut flow = body.flow_control().clone();
        flow.release_capacity(piece.len()).expect("it was taken");
    }
    assert_eq!(heard, 400_000);
    answer(&mut respond, "ok");
    assert_eq!(text(sending).await, "ok");
}
