//! Answers that are given at once, to a client that says every frame itself.

use semel::core::identity::{Exchange, Observation};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::PREFACE;
use super::{LARGE, Service, Trusted, WAITING, encrypted, service};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const INITIAL_WINDOW_SIZE: u16 = 4;
const CANCEL: u32 = 8;

struct Caller<S>(S);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    rest: Vec<u8>,
}

impl Caller<TcpStream> {
    async fn connect(service: &Service) -> Self {
        Self::with_window(service, 65_535).await
    }

    async fn with_window(service: &Service, window: u32) -> Self {
        let stream = TcpStream::connect(service.address)
            .await
            .expect("it listens");
        Self::greet(stream, window).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Caller<S> {
    async fn greet(mut stream: S, window: u32) -> Self {
        stream.write_all(PREFACE).await.expect("it is sent");
        let mut caller = Self(stream);
        let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        setting.extend(window.to_be_bytes());
        caller.send(SETTINGS, 0, 0, &setting).await;
        caller
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, rest: &[u8]) {
        let length = u32::try_from(rest.len())
            .expect("it is short")
            .to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(rest);
        self.0.write_all(&bytes).await.expect("it is sent");
        self.0.flush().await.expect("it is sent");
    }

    async fn ask(&mut self, stream: u32, path: &str) {
        // GET and http are in the static table; the path is spelled out (RFC 7541, section 6.2.2).
        let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).expect("short")];
        block.extend(path.as_bytes());
        block.extend([0x01, 1, b'a']);
        let flags = END_STREAM | END_HEADERS;
        self.send(HEADERS, flags, stream, &block).await;
    }

    async fn next(&mut self) -> Frame {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.expect("there is more");
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut rest = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut rest).await.expect("it is whole");
        Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            rest,
        }
    }

    /// Reads up to the end of an answer, and returns its body.
    async fn read(&mut self, stream: u32) -> Vec<u8> {
        let mut body = vec![];
        loop {
            let frame = self.next().await;
            if frame.stream != stream {
                continue;
            }
            assert_ne!(frame.kind, RST_STREAM, "{:?}", frame.rest);
            if frame.kind == DATA {
                body.extend(frame.rest);
            }
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return body;
            }
        }
    }

    async fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Waits until the server has read everything up to here.
    async fn is_heard(&mut self) {
        self.send(PING, 0, 0, &[7; 8]).await;
        loop {
            let frame = self.next().await;
            if frame.kind == PING && frame.rest == [7; 8] {
                return;
            }
        }
    }
}

#[tokio::test]
async fn what_the_peer_took_is_delivered() {
    let service = service(7).await;
    let mut caller = Caller::connect(&service).await;
    for (number, stream) in [1, 3, 5].into_iter().enumerate() {
        caller.ask(stream, "/").await;
        assert_eq!(caller.read(stream).await, b"xxxxxxx");
        let seen = service.seen.until(number, Exchange::Delivered).await;
        assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
    }
}

#[tokio::test]
async fn what_the_peer_has_no_room_for_is_not_written_however_much_else_is() {
    let service = service(5_000).await;
    let mut caller = Caller::with_window(&service, 1_000).await;
    caller.ask(1, "/").await;
    service.seen.came(1).await;
    caller.ask(3, "/short").await;
    assert_eq!(caller.read(3).await, b"short");
    service.seen.until(1, Exchange::Delivered).await;
    caller.is_heard().await;
    assert_eq!(service.seen.of(0), []);
    caller
        .send(WINDOW_UPDATE, 0, 1, &4_000_u32.to_be_bytes())
        .await;
    let seen = service.seen.until(0, Exchange::Delivered).await;
    assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
}

#[tokio::test]
async fn what_nobody_reads_is_not_written() {
    let service = service(LARGE).await;
    let mut caller = Caller::with_window(&service, 0x7FFF_FFFF).await;
    caller
        .send(WINDOW_UPDATE, 0, 0, &0x7FFF_0000_u32.to_be_bytes())
        .await;
    caller.ask(1, "/").await;
    caller.0.read_u8().await.expect("it began");
    service.seen.came(1).await;
    assert_eq!(service.seen.of(0), []);
    drop(caller);
    let seen = service.seen.until(0, Exchange::Lost).await;
    assert_eq!(seen, [Observation::NotWritten]);
}

#[tokio::test]
async fn a_reset_of_a_stream_gives_its_call_up_and_no_other() {
    let service = service(7).await;
    let mut caller = Caller::connect(&service).await;
    caller.ask(1, "/wait").await;
    service.seen.came(1).await;
    caller.ask(3, "/wait").await;
    service.seen.came(2).await;
    caller.reset(1, CANCEL).await;
    caller.is_heard().await;
    assert_eq!(service.seen.of(0), [Observation::Cancelled]);
    assert_eq!(service.seen.of(1), []);
    service.answers.send_replace(true);
    assert_eq!(caller.read(3).await, b"waited");
    service.seen.until(1, Exchange::Delivered).await;
    assert_eq!(service.seen.of(0), [Observation::Cancelled]);
}

#[tokio::test]
async fn a_reset_amid_an_answer_gives_it_up() {
    let service = service(5_000).await;
    let mut caller = Caller::with_window(&service, 1_000).await;
    caller.ask(1, "/").await;
    while caller.next().await.kind != DATA {}
    caller.reset(1, CANCEL).await;
    caller.is_heard().await;
    assert_eq!(service.seen.of(0), [Observation::Cancelled]);
}

#[tokio::test]
async fn a_reset_that_crosses_the_answer_takes_it_back_unless_it_says_that_nothing_is_wrong() {
    for (code, exchange) in [(CANCEL, Exchange::Lost), (0, Exchange::Delivered)] {
        let service = service(7).await;
        let mut caller = Caller::connect(&service).await;
        caller.ask(1, "/").await;
        service.seen.until(0, Exchange::Delivered).await;
        caller.reset(1, code).await;
        caller.is_heard().await;
        let seen = service.seen.of(0);
        assert_eq!(Exchange::of(seen.iter().copied()), exchange, "{seen:?}");
    }
}

#[tokio::test]
async fn a_close_after_the_answer_was_read_does_not_undo_it() {
    let service = service(7).await;
    let mut caller = Caller::connect(&service).await;
    caller.ask(1, "/").await;
    caller.read(1).await;
    service.seen.until(0, Exchange::Delivered).await;
    caller.ask(3, "/wait").await;
    service.seen.came(2).await;
    drop(caller);
    let seen = service.seen.until(1, Exchange::Lost).await;
    assert_eq!(seen, [Observation::Closed]);
    let seen = service.seen.of(0);
    assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
}

#[tokio::test]
async fn a_reset_of_the_connection_takes_back_what_was_last_acknowledged_and_perhaps_never_read() {
    let service = service(7).await;
    let mut caller = Caller::connect(&service).await;
    caller.ask(1, "/").await;
    caller.read(1).await;
    service.seen.until(0, Exchange::Delivered).await;
    caller.ask(3, "/").await;
    service.seen.until(1, Exchange::Delivered).await;
    // Closed with the answer unread: the peer's system says so.
    drop(caller);
    let seen = service.seen.until(1, Exchange::Lost).await;
    assert_eq!(seen.last(), Some(&Observation::Reset));
    let seen = service.seen.of(0);
    assert_eq!(Exchange::of(seen), Exchange::Delivered);
}

#[tokio::test]
async fn whoever_waits_on_a_connection_that_is_gone_is_gone() {
    let service = service(7).await;
    let mut caller = Caller::connect(&service).await;
    caller.ask(1, "/wait").await;
    service.seen.came(1).await;
    drop(caller);
    service.proofs.settle(WAITING).await;
    let seen = service.seen.until(0, Exchange::Lost).await;
    assert!(
        matches!(seen[0], Observation::Closed | Observation::Reset),
        "{seen:?}"
    );
}

#[tokio::test]
async fn an_encrypted_answer_is_proved_and_taken_back_the_same_way() {
    let trusted = Trusted::speaking(&[b"h2"]);
    let service = encrypted(7, Some(trusted.encryption.clone())).await;
    let stream = trusted.connect(service.address).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut caller = Caller::greet(stream, 1_000).await;
    caller.ask(1, "/").await;
    assert_eq!(caller.read(1).await, b"xxxxxxx");
    let seen = service.seen.until(0, Exchange::Delivered).await;
    assert_eq!(seen, [Observation::Written, Observation::Acknowledged]);
    caller.ask(3, "/").await;
    service.seen.until(1, Exchange::Delivered).await;
    caller.reset(3, CANCEL).await;
    service.seen.until(1, Exchange::Lost).await;
}
