//! A server that does what a test says, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use semel_testkit::certificates::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::soon;
use crate::dial;

pub(super) struct Server {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl Server {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        Self { listener, address }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) async fn tcp(&self) -> TcpStream {
        soon(self.listener.accept()).await.expect("it comes").0
    }

    pub(super) async fn accept(&self) -> Peer {
        Peer(self.tcp().await)
    }

    /// Says whether somebody has connected who was not accepted yet.
    pub(super) fn has_another(&self) -> bool {
        let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut waiting, Some(&at_once)).expect("it can be asked") > 0
    }
}

/// A connection, seen from its server.
pub(super) struct Peer(TcpStream);

impl Peer {
    /// Reads one request: its head as it came, and its body where it says how long that is.
    pub(super) async fn request(&mut self) -> (String, String) {
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.0.read_u8()).await.expect("it goes on"));
        }
        let head = String::from_utf8(head).expect("a head is plain");
        let length = head.lines().find_map(|line| {
            let value = line.strip_prefix("content-length: ")?;
            Some(value.parse().expect("it is a number"))
        });
        let mut body = vec![0; length.unwrap_or(0)];
        soon(self.0.read_exact(&mut body))
            .await
            .expect("it goes on");
        let body = String::from_utf8(body).expect("it is text");
        (head, body)
    }

    /// Reads so many bytes.
    pub(super) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        soon(self.0.read_exact(&mut bytes))
            .await
            .expect("it goes on");
        bytes
    }

    pub(super) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.0.write_all(bytes.as_ref()))
            .await
            .expect("it is open");
    }

    /// Waits until the client has closed; it must say nothing before.
    pub(super) async fn closed(mut self) {
        match soon(self.0.read(&mut [0])).await {
            Ok(0) | Err(_) => {}
            Ok(_) => panic!("it went on instead"),
        }
    }
}

/// An answer with this text, on a connection that stays.
pub(super) fn answer(text: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// A certificate for 127.0.0.1, and whom to trust for it.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    authority: Authority,
}

impl Tls {
    /// Offers these protocols.
    pub(super) fn new(protocols: &[&str]) -> Self {
        let authority = Authority::new("authority");
        let vouched = authority.vouch("server", "IP:127.0.0.1");
        let pem = std::fs::read(&vouched.certificate).expect("it is there");
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let pem = std::fs::read(&vouched.key).expect("it is there");
        let key = PrivateKeyDer::from_pem_slice(&pem).expect("it is a key");
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_no_client_auth()
            .with_single_cert(certificates.expect("they are certificates"), key)
            .expect("they belong together");
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            authority,
        }
    }

    pub(super) async fn accept(
        &self,
        server: &Server,
    ) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        soon(self.acceptor.accept(server.tcp().await)).await
    }

    /// What a client needs who trusts it.
    pub(super) fn trusted(&self) -> ClientConfig {
        let pem = std::fs::read(self.authority.certificate()).expect("it is there");
        let certificate = CertificateDer::from_pem_slice(&pem).expect("it is one");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("it can be trusted");
        dial::trusting(roots).expect("it can be used")
    }
}
