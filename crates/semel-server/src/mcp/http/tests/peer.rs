//! A server of HTTP that does what a test says, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use super::soon;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) method: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Heard {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("it is plain"))
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("it is text")
    }
}

/// What to do about a request.
pub(super) enum Act {
    /// Writes this and waits for the next request.
    Say(Vec<u8>),
    /// Writes this and closes.
    Last(Vec<u8>),
    /// Writes this, waits to be told to go on, writes the rest and closes.
    Halt(Vec<u8>, Arc<Notify>, Vec<u8>),
    /// Writes this, waits for the caller to close, and says so.
    Hold(Vec<u8>, mpsc::UnboundedSender<()>),
}

pub(super) struct Peer {
    pub(super) address: SocketAddr,
    heard: mpsc::UnboundedReceiver<Heard>,
}

impl Peer {
    pub(super) async fn new(play: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (sender, heard) = mpsc::unbounded_channel();
        let play = Arc::new(play);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&play), sender.clone()));
            }
        });
        Self { address, heard }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the next request.
    pub(super) async fn next(&mut self) -> Heard {
        soon(self.heard.recv()).await.expect("it goes on")
    }

    /// Returns the requests that came by now.
    pub(super) fn rest(&mut self) -> Vec<Heard> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }
}

async fn converse(
    mut stream: TcpStream,
    play: Arc<impl Fn(&Heard) -> Act>,
    heard: mpsc::UnboundedSender<Heard>,
) {
    while let Some(request) = read(&mut stream).await {
        let act = play(&request);
        drop(heard.send(request));
        match act {
            Act::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::Last(bytes) => {
                drop(stream.write_all(&bytes).await);
                drop(stream.shutdown().await);
                return;
            }
            Act::Halt(bytes, go_on, rest) => {
                drop(stream.write_all(&bytes).await);
                go_on.notified().await;
                drop(stream.write_all(&rest).await);
                drop(stream.shutdown().await);
                return;
            }
            Act::Hold(bytes, closed) => {
                drop(stream.write_all(&bytes).await);
                drop(stream.read(&mut [0]).await);
                let is_heard = closed.send(()).is_ok();
                assert!(is_heard, "the test waits for it");
                return;
            }
        }
    }
}

/// Reads one request; `None` at the end.
async fn read(stream: &mut TcpStream) -> Option<Heard> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("a head is plain");
    let mut lines = head.lines();
    let method = lines.next()?.split(' ').next()?.to_owned();
    let headers: HeaderMap = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| {
            let name = HeaderName::try_from(name).expect("it is a name");
            (name, HeaderValue::from_str(value).expect("it is a value"))
        })
        .collect();
    let length = headers.get("content-length");
    let length = length.map_or(0, |value| {
        let value = value.to_str().expect("it is plain");
        value.parse().expect("it is a number")
    });
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Heard {
        method,
        headers,
        body,
    })
}

/// An answer that is one message.
pub(super) fn json(more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// An answer that is empty.
pub(super) fn empty(status: &str, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n").into_bytes()
}

/// An answer of events, which ends with the connection.
pub(super) fn events(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}
