//! Callers who wait for their answers, and leave.

use semel::core::identity::Observation;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Service, WAITING, read, service};

/// Sends a request that waits, and another behind it: the server reads nothing more then, so that only whoever asks
/// the socket knows that its peer is gone.
async fn waiting(service: &Service) -> TcpStream {
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    ask_twice(&mut caller).await;
    service.seen.came(1).await;
    caller
}

async fn ask_twice(caller: &mut TcpStream) {
    let both = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sent = caller.write_all(both.as_bytes()).await;
    sent.expect("it is sent");
}

#[tokio::test]
async fn whoever_waits_is_not_gone() {
    let service = service(7).await;
    let _caller = waiting(&service).await;
    service.proofs.settle(WAITING).await;
    assert_eq!(service.seen.of(0), []);
}

#[tokio::test]
async fn whoever_closed_is_gone_before_the_next_call_is_judged() {
    let service = service(7).await;
    let caller = waiting(&service).await;
    drop(caller);
    service.proofs.settle(WAITING + 1).await;
    assert_eq!(service.seen.of(0), [], "it is about something else");
    service.proofs.settle(WAITING).await;
    assert_eq!(service.seen.of(0), [Observation::Closed]);
}

#[tokio::test]
async fn whoever_closed_its_side_only_is_gone() {
    let service = service(7).await;
    let mut caller = waiting(&service).await;
    caller.shutdown().await.expect("it closes");
    service.proofs.settle(WAITING).await;
    assert_eq!(service.seen.of(0), [Observation::Closed]);
}

#[tokio::test]
async fn a_connection_whose_peer_closed_its_side_is_closed_without_an_answer() {
    let service = service(7).await;
    let mut caller = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    let sent = caller
        .write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    sent.expect("it is sent");
    service.seen.came(1).await;
    caller.shutdown().await.expect("it closes");
    let mut answer = vec![];
    let read = caller.read_to_end(&mut answer).await;
    read.expect("it is closed in good order");
    assert_eq!(answer, b"");
    assert_eq!(service.seen.of(0), [Observation::Closed]);
}

#[tokio::test]
async fn a_reset_is_told_from_a_close() {
    let service = service(7).await;
    let caller = waiting(&service).await;
    caller.set_zero_linger().expect("it can be");
    drop(caller);
    service.proofs.settle(WAITING).await;
    assert_eq!(service.seen.of(0), [Observation::Reset]);
}

#[tokio::test]
async fn nobody_waits_who_was_answered() {
    let service = service(7).await;
    let mut caller = waiting(&service).await;
    service.answers.send_replace(true);
    read(&mut caller, "waited".len()).await;
    read(&mut caller, 7).await;
    service.answers.send_replace(false);
    ask_twice(&mut caller).await;
    service.seen.came(3).await;
    let before = service.seen.of(0);
    drop(caller);
    service.proofs.settle(WAITING).await;
    assert_eq!(service.seen.of(2), [Observation::Closed]);
    assert_eq!(service.seen.of(0), before);
}
