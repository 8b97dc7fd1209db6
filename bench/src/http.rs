//! Callers over HTTP that cost as little as they can: a connection each, requests written by hand, answers read as far
//! as they are needed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The connections to one server: as many as there are callers at once.
#[derive(Debug)]
pub(crate) struct Connections {
    address: String,
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(crate) const fn new(address: String) -> Self {
        Self {
            address,
            idle: Mutex::new(vec![]),
        }
    }

    /// Returns a connection that nobody uses.
    pub(crate) async fn take(&self) -> Result<Connection> {
        let idle = self.lock().pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.address).await,
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(&self, connection: Connection) {
        self.lock().push(connection);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection that is kept.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer that was a good one.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// When the first of its body was here.
    pub(crate) first: Instant,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Finds a header in the text of a head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

/// Finds the end of a head.
pub(crate) fn head_end(read: &[u8]) -> Option<usize> {
    find(read, b"\r\n\r\n").map(|at| at + 4)
}

impl Connection {
    async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(16 * 1024),
        })
    }

    /// Asks for what is at a path.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"))
            .await
    }

    /// Sends JSON, with these lines of headers besides.
    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &str) -> Result<Answer> {
        self.ask(&format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             {headers}content-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await
    }

    async fn ask(&mut self, request: &str) -> Result<Answer> {
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        let head = loop {
            if let Some(end) = head_end(&self.read) {
                break end;
            }
            self.more().await?;
        };
        let text = std::str::from_utf8(&self.read[..head]).context("the head is not text")?;
        let text = text.to_owned();
        let chunked = header(&text, "transfer-encoding").is_some_and(|value| value == "chunked");
        let (body, first) = if chunked {
            self.chunks(head).await?
        } else {
            let length = header(&text, "content-length").unwrap_or("0");
            let end = head + length.parse::<usize>()?;
            while self.read.len() < end.min(head + 1) {
                self.more().await?;
            }
            let first = Instant::now();
            while self.read.len() < end {
                self.more().await?;
            }
            (self.read[head..end].to_vec(), first)
        };
        let good = text.starts_with("HTTP/1.1 2");
        ensure!(good, "refused: {text}{}", String::from_utf8_lossy(&body));
        Ok(Answer {
            head: text,
            body,
            first,
        })
    }

    /// Reads a body that comes in pieces; says when the first one came.
    async fn chunks(&mut self, mut at: usize) -> Result<(Vec<u8>, Instant)> {
        let (mut body, mut first) = (vec![], None);
        loop {
            let line = loop {
                if let Some(end) = find(&self.read[at..], b"\r\n") {
                    break at + end;
                }
                self.more().await?;
            };
            let size = std::str::from_utf8(&self.read[at..line])?;
            let size = usize::from_str_radix(size.trim(), 16).context("a piece has no size")?;
            let (start, end) = (line + 2, line + 2 + size);
            while self.read.len() < end + 2 {
                self.more().await?;
            }
            let came = *first.get_or_insert_with(Instant::now);
            if size == 0 {
                return Ok((body, came));
            }
            body.extend_from_slice(&self.read[start..end]);
            at = end + 2;
        }
    }

    async fn more(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.read).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_their_names_in_any_case() {
        let head = "HTTP/1.1 200 OK\r\nMcp-Session-Id: 7\r\n\r\n";
        assert_eq!(header(head, "mcp-session-id"), Some("7"));
        assert_eq!(header(head, "content-length"), None);
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        assert_eq!(head_end(b"GET / HTTP/1.1\r\nhost: a\r\n"), None);
        assert_eq!(head_end(b"GET / HTTP/1.1\r\n\r\nrest"), Some(18));
    }
}
