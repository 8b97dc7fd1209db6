//! Proofs over real sockets: what is seen of an answer, whatever its caller does.

mod streams;
mod turns;
mod waiting;

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
use tokio_rustls::client::TlsStream;

use super::{Line, Proofs, Witness};
use crate::config::Tls;
use crate::connection::{Connection, Spoken, serve};
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

    /// Waits until so many calls came.
    async fn came(&self, count: usize) {
        let mut all = self.0.subscribe();
        let came = tokio::time::timeout(PATIENCE, all.wait_for(|all| all.len() >= count)).await;
        came.expect("they come").expect("the test goes on");
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
    /// Lets those be answered who wait.
    answers: watch::Sender<bool>,
    _stop: watch::Sender<bool>,
}

#[derive(Clone)]
struct Answering {
    seen: Seen,
    size: usize,
    answers: watch::Receiver<bool>,
}

async fn answer(
    State(answering): State<Answering>,
    axum::Extension(line): axum::Extension<Line>,
) -> Response {
    let body = Body::from(vec![b'x'; answering.size]);
    Response::new(line.watched(body, answering.seen.begin(), 0))
}

async fn short(
    State(answering): State<Answering>,
    axum::Extension(line): axum::Extension<Line>,
) -> Response {
    Response::new(line.watched(Body::from("short"), answering.seen.begin(), 0))
}

/// What calls are about that wait.
const WAITING: u64 = 7;

/// Answers when it is told to.
async fn wait(
    State(mut answering): State<Answering>,
    axum::Extension(line): axum::Extension<Line>,
) -> Response {
    let call = answering.seen.begin();
    let witness: Arc<dyn Witness> = Arc::<One>::clone(&call);
    line.admitted(&witness, WAITING);
    // Whoever wants to know may be there for longer than the answer is under way.
    std::mem::forget(witness);
    let told = answering.answers.wait_for(|answers| *answers).await;
    told.expect("the test goes on");
    Response::new(line.watched(Body::from("waited"), call, WAITING))
}

async fn service(size: usize) -> Service {
    encrypted(size, None).await
}

async fn encrypted(size: usize, encryption: Option<Encryption>) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    let seen = Seen(Arc::new(watch::Sender::new(vec![])));
    let (answers, answered) = watch::channel(false);
    let router = Router::new()
        .route("/", get(answer))
        .route("/short", get(short))
        .route("/wait", get(wait))
        .with_state(Answering {
            seen: seen.clone(),
            size,
            answers: answered,
        });
    let (stop, stopped) = watch::channel(false);
    let proofs = Proofs::default();
    let kept = proofs.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = Connection {
                acceptor: encryption.as_ref().map(Encryption::acceptor),
                spoken: Spoken::Both,
                answers: router.clone(),
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
        answers,
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

/// What an encrypted service and its callers trust.
struct Trusted {
    encryption: Encryption,
    connector: TlsConnector,
}

impl Trusted {
    /// Makes it for callers that speak these protocols.
    fn speaking(protocols: &[&[u8]]) -> Self {
        let authority = Authority::new("ours");
        let vouched = authority.vouch("server", "DNS:localhost");
        let files = Tls {
            cert: vouched.certificate.clone(),
            key: vouched.key.clone(),
        };
        let encryption = Encryption::new(&files, Spoken::Both).expect("the files are right");
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(authority.certificate()).expect("it can be read");
        roots.add(root).expect("it is one");
        let mut trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        trust.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self {
            encryption,
            connector: TlsConnector::from(Arc::new(trust)),
        }
    }

    async fn connect(&self, address: SocketAddr) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("it is a name");
        let connected = self.connector.connect(name, stream).await;
        connected.expect("it trusts")
    }
}
