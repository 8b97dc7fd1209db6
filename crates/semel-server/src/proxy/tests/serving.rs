//! Connections to the door: both versions, their ends, and the end of the proxy.

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use h2::client::SendRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::fake::{Fake, PATIENCE, Proxy, asked, proxy};

async fn connect(proxy: &Proxy) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(proxy.address).await.expect("it listens");
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks it");
    let driven = tokio::spawn(connection);
    (client.ready().await.expect("there is room"), driven)
}

fn request(proxy: &Proxy) -> Request<()> {
    let uri = format!("http://localhost:{}/a?b", proxy.address.port());
    Request::post(uri)
        .header("idempotency-key", "k")
        .body(())
        .expect("it is one")
}

async fn body(mut body: h2::RecvStream) -> Vec<u8> {
    let mut all = vec![];
    while let Some(piece) = body.data().await {
        let piece = piece.expect("it is whole");
        let freed = body.flow_control().release_capacity(piece.len());
        freed.expect("it is counted");
        all.extend(piece);
    }
    all
}

#[tokio::test]
async fn a_request_is_the_same_in_both_versions() {
    let fake = Fake::named("up").saying("connection", "x-theirs");
    let proxy = proxy(&fake).await;
    let (mut client, _driven) = connect(&proxy).await;
    let (response, mut sending) = client
        .send_request(request(&proxy), false)
        .expect("there is room");
    let sent = sending.send_data(Bytes::from_static(b"hello"), true);
    sent.expect("there is room");
    let response = response.await.expect("it is answered");
    assert_eq!(response.status(), StatusCode::CREATED);
    assert!(!response.headers().contains_key("connection"));
    assert!(response.headers().contains_key("date"));
    assert_eq!(response.headers()["content-length"], "2");
    assert_eq!(body(response.into_body()).await, b"up");
    let lines = format!(
        "POST /a?b HTTP/1.1\r\nHost: localhost:{}\r\nIdempotency-Key: k\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        proxy.address.port()
    );
    super::fake::said(proxy.address, &lines).await;
    let [new, old] = &fake.all()[..] else {
        panic!("{:?}", fake.all());
    };
    assert_eq!(new.method, old.method);
    assert_eq!(new.target, old.target);
    assert_eq!(new.body, old.body);
    let sorted = |came: &super::fake::Came| {
        let mut all: Vec<_> = came
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(sorted(new), sorted(old));
}

#[tokio::test]
async fn whoever_leaves_is_known_to_have_left() {
    let fake = Fake::named("up").silent();
    let proxy = proxy(&fake).await;
    let mut old = TcpStream::connect(proxy.address).await.expect("it listens");
    let sent = old
        .write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .await;
    sent.expect("it is sent");
    fake.until(1, 0).await;
    drop(old);
    fake.until(1, 1).await;
    let (mut client, _driven) = connect(&proxy).await;
    let (response, mut sending) = client
        .send_request(request(&proxy), false)
        .expect("there is room");
    sending
        .send_data(Bytes::new(), true)
        .expect("there is room");
    fake.until(2, 1).await;
    sending.send_reset(h2::Reason::CANCEL);
    drop(response);
    fake.until(2, 2).await;
}

#[tokio::test]
async fn c055_a_stop_lets_what_is_under_way_be_answered_and_nobody_else_in() {
    let fake = Fake::named("up").silent();
    let proxy = proxy(&fake).await;
    let address = proxy.address;
    let old = tokio::spawn(async move { asked(address, "POST /", &["Content-Length: 0"]).await });
    let (mut client, driven) = connect(&proxy).await;
    let (new, _) = client
        .send_request(request(&proxy), true)
        .expect("there is room");
    fake.until(2, 0).await;
    proxy.stop.stop();
    let late = async {
        // The door is closed in its own time.
        while let Ok(mut stream) = TcpStream::connect(address).await {
            let sent = stream
                .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .await;
            let mut answer = vec![];
            if sent.is_ok() && stream.read_to_end(&mut answer).await.is_ok() {
                assert_eq!(answer, b"");
            }
        }
    };
    tokio::time::timeout(PATIENCE, late)
        .await
        .expect("it closes");
    fake.answers.send_replace(true);
    let answer = old.await.expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let response = new.await.expect("it is answered");
    assert_eq!(body(response.into_body()).await, b"up");
    let is_done = tokio::time::timeout(PATIENCE, proxy.running).await;
    assert!(is_done.expect("it ends").expect("it runs"));
    driven
        .await
        .expect("it ends")
        .expect("it ends in good order");
    assert_eq!(fake.all().len(), 2);
}
