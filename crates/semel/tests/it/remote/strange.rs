//! Servers that are none, or say nothing: callers hear of it, in bounded time.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use semel::remote::RemoteStore;
use semel::store::StoreError;
use semel::{Engine, Error};
use semel_testkit::remote::{Server, Trouble};
use tokio::time::Instant;

use super::{open, order, server};

/// Answers every request with these bytes, and closes.
fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let address = listener.local_addr().expect("it has an address");
    // It ends with the process of the tests.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("it accepts");
            let mut buffer = [0; 4_096];
            // Whoever went away already hears nothing.
            let _read = client.read(&mut buffer);
            let _written = client.write_all(bytes);
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_server_of_ours_is_named_as_that() {
    let mut opening = tokio::task::JoinSet::new();
    for (bytes, is_refused) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..], true),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", true),
        (b"HTTP/1.1 301 Moved\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", true),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", false),
        (b"SSH-2.0-OpenSSH_9.2\r\n", false),
        (b"", false),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.semel.engine\r\ncontent-length: 3\r\n\r\n\x01\x02\x03",
            true,
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.semel.engine\r\ncontent-length: 99999999999\r\n\r\nx",
            false,
        ),
    ] {
        let url = answering(bytes);
        // Some are asked again for a while, so all at once.
        opening.spawn(async move { (RemoteStore::open(&url, None).await, is_refused) });
    }
    for (opened, is_refused) in opening.join_all().await {
        let error = opened.expect_err("it is no server");
        let refused = matches!(error, StoreError::Refused(_));
        let unavailable = matches!(error, StoreError::Unavailable(_));
        assert!(refused || unavailable, "{error:?}");
        assert_eq!(refused, is_refused, "{error:?}");
    }
}

/// Time is the runtime's own, so that nobody waits for it.
#[tokio::test]
async fn a_server_that_says_nothing_is_left_after_a_while() {
    let server = server().await;
    let engine = open(&server, None).await;
    server.plan(&[Trouble::Silence; 8]);
    tokio::time::pause();
    let asked = Instant::now();
    let answer = engine.begin(order()).await;
    let unknown = matches!(answer, Err(Error::Store(StoreError::Unknown(_))));
    assert!(unknown, "{answer:?}");
    assert!(
        asked.elapsed() < Duration::from_secs(60),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn a_token_is_not_sent_in_plain_text_to_another_machine() {
    for url in ["http://semel.example:7363", "http://192.0.2.1"] {
        let refused = Engine::open_with_token(url, "semel_x").await;
        let text = refused.expect_err("it is refused").to_string();
        assert!(
            text.contains("https://") && !text.contains("semel_x"),
            "{text}"
        );
    }
    let local = Engine::open_with_token("memory:", "semel_x").await;
    assert_eq!(local.expect_err("it takes none").code(), "invalid_input");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_keeps_to_its_connections() {
    let server = Server::start(std::sync::Arc::new(
        semel::store::memory::MemoryStore::default(),
    ))
    .await;
    let url = format!("{}?connections=2", server.url());
    let store = RemoteStore::open(&url, None)
        .await
        .expect("the server answers");
    let engine = super::engine_on(store.with_notes(None)).await;
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..64 {
        let engine = engine.clone();
        crowd.spawn(async move {
            let effect = engine.effect("create-order", super::key(&format!("order-{n}")));
            effect.run(move |_| async move { Ok(n) }).await
        });
    }
    for done in crowd.join_all().await {
        done.expect("it is done");
    }
    assert!(
        server.connections_max() <= 2,
        "{}",
        server.connections_max()
    );
}
