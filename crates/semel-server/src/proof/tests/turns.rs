//! Answers that are given in turn.

use std::sync::Arc;

use axum::body::Body;
use semel::core::identity::{Exchange, Observation};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::super::{Proofs, Turns, Watched};
use super::{LARGE, Seen, Trusted, ask, encrypted, read, service};
use crate::socket::{Shared, Socket};

#[tokio::test]
async fn what_the_peer_took_is_delivered() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    read(&mut caller, 7).await;
    let seen = service.seen.until(0, Exchange::Delivered).await;
    assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
}

#[tokio::test]
async fn another_request_on_the_connection_proves_the_answer_before_it() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    for number in 0..3 {
        ask(&mut caller, "").await;
        read(&mut caller, 7).await;
        if number > 0 {
            let before = service.seen.of(number - 1);
            assert_eq!(
                Exchange::of(before.iter().copied()),
                Exchange::Delivered,
                "{before:?}"
            );
        }
    }
}

#[tokio::test]
async fn whoever_looks_knows_what_was_taken_without_waiting_for_the_task() {
    let service = service(7).await;
    for number in 0..20 {
        let mut caller = TcpStream::connect(service.address)
            .await
            .expect("it listens");
        ask(&mut caller, "").await;
        read(&mut caller, 7).await;
        // Its acknowledgement leaves no later than its close.
        drop(caller);
        service.proofs.look();
        service.seen.until(number, Exchange::Delivered).await;
    }
}

#[tokio::test]
async fn a_close_after_the_answer_was_read_does_not_undo_it() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    read(&mut caller, 7).await;
    caller.shutdown().await.expect("it closes");
    drop(caller);
    let seen = service.seen.until(0, Exchange::Delivered).await;
    assert_eq!(seen[..2], [Observation::Written, Observation::Acknowledged]);
}

#[tokio::test]
async fn an_answer_that_ends_its_connection_is_proved_too() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "Connection: close\r\n").await;
    read(&mut caller, 7).await;
    service.seen.until(0, Exchange::Delivered).await;
}

#[tokio::test]
async fn what_nobody_reads_is_not_written() {
    let service = service(LARGE).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    // Some of it came: it is under way.
    caller.read_u8().await.expect("it began");
    assert_eq!(service.seen.of(0), []);
    drop(caller);
    let seen = service.seen.until(0, Exchange::Lost).await;
    assert_eq!(seen, [Observation::NotWritten]);
}

#[tokio::test]
async fn a_slow_reader_gets_it_in_the_end() {
    let service = service(LARGE).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    caller.read_u8().await.expect("it began");
    assert_eq!(service.seen.of(0), []);
    let mut rest = vec![];
    let mut taken = caller.take(LARGE as u64);
    taken.read_to_end(&mut rest).await.expect("it is whole");
    let mut caller = taken.into_inner();
    ask(&mut caller, "").await;
    service.seen.until(0, Exchange::Delivered).await;
}

#[tokio::test]
async fn a_reset_after_the_answer_takes_it_back() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    service.seen.until(0, Exchange::Delivered).await;
    // Closed with the answer unread: the peer's system says so.
    drop(caller);
    let seen = service.seen.until(0, Exchange::Lost).await;
    assert_eq!(seen.last(), Some(&Observation::Reset));
}

#[tokio::test]
async fn what_was_sent_ahead_proves_nothing() {
    let service = service(LARGE).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask(&mut caller, "").await;
    ask(&mut caller, "").await;
    caller.read_u8().await.expect("it began");
    drop(caller);
    let seen = service.seen.until(0, Exchange::Lost).await;
    assert_eq!(seen, [Observation::NotWritten]);
}

#[tokio::test]
async fn an_encrypted_answer_is_proved_and_taken_back_the_same_way() {
    let trusted = Trusted::speaking(&[]);
    let service = encrypted(7, Some(trusted.encryption.clone())).await;
    for (number, reads) in [true, false].into_iter().enumerate() {
        let mut caller = trusted.connect(service.address).await;
        let sent = caller.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        sent.expect("it is sent");
        caller.flush().await.expect("it is sent");
        if reads {
            let mut text = vec![];
            while !text.ends_with(b"xxxxxxx") {
                text.push(caller.read_u8().await.expect("there is more"));
            }
        }
        let seen = service.seen.until(number, Exchange::Delivered).await;
        assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
        drop(caller);
        if !reads {
            let seen = service.seen.until(number, Exchange::Lost).await;
            assert_eq!(seen.last(), Some(&Observation::Reset));
        }
    }
}

/// A line of a connection whose system does not say what the peer took.
fn unsaid() -> (Arc<Turns>, Seen) {
    let (ours, _) = std::os::unix::net::UnixStream::pair().expect("there are sockets");
    ours.set_nonblocking(true).expect("it can be");
    let ours = tokio::net::UnixStream::from_std(ours).expect("it can be");
    let gone = Shared::new(Socket::Unix(ours)).look();
    let seen = Seen(Arc::new(watch::Sender::new(vec![])));
    (Proofs::default().turns(gone, false), seen)
}

#[tokio::test]
async fn where_nobody_says_what_was_taken_going_on_proves_it_and_closing_does_not() {
    for (goes_on, last, exchange) in [
        (true, Observation::WentOn, Exchange::Delivered),
        (
            false,
            Observation::Closed,
            Exchange::Written { closed: true },
        ),
    ] {
        let (turns, seen) = unsaid();
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut stream = Watched::turns(ours, Arc::clone(&turns));
        let line = turns.arrived();
        let body = line.watched(Body::from("answer"), seen.begin(), 0);
        let bytes = axum::body::to_bytes(body, 64).await.expect("it is whole");
        assert_eq!(seen.of(0), []);
        stream.write_all(&bytes).await.expect("there is room");
        stream.flush().await.expect("it is written");
        assert_eq!(seen.of(0), [Observation::Written]);
        if goes_on {
            theirs.write_all(b"more").await.expect("there is room");
        } else {
            drop(theirs);
        }
        let count = stream.read(&mut [0; 8]).await.expect("it can be read");
        assert_eq!(count > 0, goes_on);
        assert_eq!(seen.of(0), [Observation::Written, last]);
        assert_eq!(Exchange::of(seen.of(0)), exchange);
    }
}
