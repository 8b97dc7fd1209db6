//! What a wire knows of the bytes that left.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::server::Server;
use super::soon;
use crate::proxy::upstream::wire::{Gate, Look, Wire};

async fn pair() -> (Wire, Gate, TcpStream) {
    let server = Server::new().await;
    let stream = TcpStream::connect(server.address)
        .await
        .expect("it listens");
    let (wire, gate) = Wire::new(stream);
    (wire, gate, server.tcp().await)
}

/// Waits until a gate sees this.
async fn seen(gate: &Gate, look: Look) {
    soon(async {
        while gate.look() != look {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_leaves_once_it_was_said_that_nothing_left() {
    let (mut wire, gate, mut peer) = pair().await;
    wire.write_all(b"before").await.expect("it is open");
    let left = gate.left();
    assert_eq!(left, 6);
    assert!(gate.held_back_since(left));
    wire.write_all(b"after").await.expect_err("it is shut");
    drop(wire);
    let mut heard = String::new();
    soon(peer.read_to_string(&mut heard))
        .await
        .expect("it ends");
    assert_eq!(heard, "before");
}

#[tokio::test]
async fn what_left_is_known_and_does_not_shut_the_gate() {
    let (mut wire, gate, _peer) = pair().await;
    let left = gate.left();
    wire.write_all(b"a").await.expect("it is open");
    assert!(!gate.held_back_since(left));
    wire.write_all(b"b").await.expect("it is open");
    assert_eq!(gate.left(), 2);
}

#[tokio::test]
async fn a_wire_is_looked_at_without_reading_it() {
    let (mut wire, gate, mut peer) = pair().await;
    assert_eq!(gate.look(), Look::Quiet);
    peer.write_all(b"x").await.expect("it is open");
    seen(&gate, Look::Unread).await;
    assert_eq!(soon(wire.read_u8()).await.expect("it came"), b'x');
    assert_eq!(gate.look(), Look::Quiet);
    drop(peer);
    seen(&gate, Look::Closed).await;
}

#[tokio::test]
async fn a_wire_that_was_dropped_is_closed_though_somebody_looks_at_it() {
    let (wire, gate, mut peer) = pair().await;
    drop(wire);
    assert_eq!(soon(peer.read(&mut [0])).await.expect("it ends"), 0);
    assert_eq!(gate.look(), Look::Closed);
}
