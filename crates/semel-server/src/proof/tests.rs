//! Proofs over real sockets: what is seen of an answer, whatever its caller does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use semel::core::identity::{Exchange, Observation};
use semel_testkit::certificates::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::{Line, Proofs, Watched, Witness};
use crate::config::Tls;
use crate::connection::{Connection, serve};
use crate::replies::Replies;
use crate::socket::Socket;
use crate::tls::Encryption;

/// Longer than anything here takes: what does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than the buffers of both ends hold.
const LARGE: usize = 16 * 1024 * 1024;

/// What was seen of each answer, in the order of the requests.
#[derive(Clone)]
struct Seen(Arc<watch::Sender<Vec<Vec<Observation>>>>);

struct One {
    seen: Seen,
    number: usize,
}

impl Witness for One {
    fn see(&self, seen: Observation) {
        self.seen.0.send_modify(|all| all[self.number].push(seen));
    }
}

impl Seen {
    fn begin(&self) -> Arc<One> {
        let mut number = 0;
        self.0.send_modify(|all| {
            number = all.len();
            all.push(vec![]);
        });
        Arc::new(One {
            seen: self.clone(),
            number,
        })
    }

    fn of(&self, number: usize) -> Vec<Observation> {
        self.0.borrow()[number].clone()
    }

    /// Waits until an answer was seen to end in this way.
    async fn until(&self, number: usize, exchange: Exchange) -> Vec<Observation> {
        let mut all = self.0.subscribe();
        let is_so = |all: &Vec<Vec<Observation>>| {
            all.get(number)
                .is_some_and(|seen| Exchange::of(seen.iter().copied()) == exchange)
        };
        let reached = tokio::time::timeout(PATIENCE, all.wait_for(is_so)).await;
        match reached {
            Ok(Ok(all)) => all[number].clone(),
            _ => panic!("{exchange:?} was not reached: {:?}", *self.0.borrow()),
        }
    }
}

struct Service {
    address: SocketAddr,
    seen: Seen,
    proofs: Proofs,
    _stop: watch::Sender<bool>,
}

async fn answer(
    State((seen, size)): State<(Seen, usize)>,
    axum::Extension(line): axum::Extension<Line>,
) -> Response {
    let body = Body::from(vec![b'x'; size]);
    Response::new(line.watched(body, seen.begin(), 0))
}

async fn service(size: usize) -> Service {
    encrypted(size, None).await
}

async fn encrypted(size: usize, encryption: Option<Encryption>) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    let seen = Seen(Arc::new(watch::Sender::new(vec![])));
    let router = Router::new()
        .route("/", get(answer))
        .with_state((seen.clone(), size));
    let (stop, stopped) = watch::channel(false);
    let proofs = Proofs::default();
    let kept = proofs.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = Connection {
                acceptor: encryption.as_ref().map(Encryption::acceptor),
                router: router.clone(),
                replies: Replies::new(false),
                head: PATIENCE,
                proofs: Some(kept.clone()),
                stop: stopped.clone(),
            };
            tokio::spawn(serve(Socket::Tcp(stream), connection));
        }
    });
    Service {
        address,
        seen,
        proofs,
        _stop: stop,
    }
}

async fn ask(stream: &mut TcpStream, more: &str) {
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it is sent");
}

/// Reads a whole answer.
async fn read(stream: &mut TcpStream, size: usize) {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("there is more"));
    }
    let mut body = vec![0; size];
    stream.read_exact(&mut body).await.expect("it is whole");
}

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
    let authority = Authority::new("ours");
    let vouched = authority.vouch("server", "DNS:localhost");
    let files = Tls {
        cert: vouched.certificate.clone(),
        key: vouched.key.clone(),
    };
    let encryption = Encryption::new(&files).expect("the files are right");
    let service = encrypted(7, Some(encryption)).await;
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(authority.certificate()).expect("it can be read");
    roots.add(root).expect("it is one");
    let trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(trust));
    for (number, reads) in [true, false].into_iter().enumerate() {
        let stream = TcpStream::connect(service.address)
            .await
            .expect("it listens");
        let name = ServerName::try_from("localhost").expect("it is a name");
        let mut caller = connector.connect(name, stream).await.expect("it trusts");
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
fn unsaid() -> (Line, Seen) {
    let (ours, _) = std::os::unix::net::UnixStream::pair().expect("there are sockets");
    ours.set_nonblocking(true).expect("it can be");
    let ours = tokio::net::UnixStream::from_std(ours).expect("it can be");
    let gone = crate::socket::Shared::new(Socket::Unix(ours)).look();
    let seen = Seen(Arc::new(watch::Sender::new(vec![])));
    (Proofs::default().line(gone, false), seen)
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
        let (line, seen) = unsaid();
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut stream = Watched::new(ours, line.clone());
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
