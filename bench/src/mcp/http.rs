//! Clients over HTTP: one session, and a connection for each call in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::wire::{self, Calls, PROTOCOL};
use crate::engines::Cycles;
use crate::keys::Key;

/// One session with a server.
#[derive(Debug)]
pub(crate) struct Session {
    address: String,
    id: Option<String>,
    calls: Calls,
    next: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

impl Session {
    /// Makes the handshake.
    pub(crate) async fn open(address: String, calls: Calls) -> Result<Self> {
        let mut connection = Connection::open(&address).await?;
        let answer = connection.post(None, &wire::initialize()).await?;
        let id = answer.header("mcp-session-id").map(str::to_owned);
        connection.post(id.as_deref(), wire::INITIALIZED).await?;
        Ok(Self {
            address,
            id,
            calls,
            next: AtomicU64::new(0),
            idle: Mutex::new(vec![connection]),
        })
    }

    async fn connection(&self) -> Result<Connection> {
        let idle = self.lock().pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.address).await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cycles for Session {
    async fn cycle(&self, key: Key, _: Vec<u8>) -> Result<()> {
        let order = std::str::from_utf8(&key).context("keys are hexadecimal digits")?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connection().await?;
        let call = self.calls.write(number, order);
        let answer = connection.post(self.id.as_deref(), &call).await?;
        let message = answer.message().context("a call had no answer")?;
        let answered = wire::answered(message)?;
        ensure!(answered == number, "another call was answered");
        wire::check(number, order, message)?;
        self.lock().push(connection);
        Ok(())
    }
}

/// One connection that is kept.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer of HTTP that was a good one.
#[derive(Debug)]
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns the message in it: the whole body, or the last event of a stream.
    fn message(&self) -> Option<&[u8]> {
        let kind = self.header("content-type")?;
        if kind.starts_with("application/json") {
            return Some(&self.body);
        }
        let lines = self.body.split(|byte| *byte == b'\n');
        let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
        data.map(<[u8]>::trim_ascii).next_back()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
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

    async fn post(&mut self, session: Option<&str>, body: &str) -> Result<Answer> {
        let session = session.map_or_else(String::new, |id| {
            format!("mcp-session-id: {id}\r\nmcp-protocol-version: {PROTOCOL}\r\n")
        });
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{session}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        let head = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let text = std::str::from_utf8(&self.read[..head]).context("the head is not text")?;
        let text = text.to_owned();
        let chunked = header(&text, "transfer-encoding").is_some_and(|value| value == "chunked");
        let body = if chunked {
            self.chunks(head).await?
        } else {
            let length = header(&text, "content-length").unwrap_or("0");
            let end = head + length.parse::<usize>()?;
            while self.read.len() < end {
                self.more().await?;
            }
            self.read[head..end].to_vec()
        };
        let good = text.starts_with("HTTP/1.1 2");
        ensure!(good, "refused: {text}{}", String::from_utf8_lossy(&body));
        Ok(Answer { head: text, body })
    }

    /// Reads a body that comes in pieces.
    async fn chunks(&mut self, mut at: usize) -> Result<Vec<u8>> {
        let mut body = vec![];
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
            if size == 0 {
                return Ok(body);
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

    fn answer(kind: &str, body: &str) -> Answer {
        Answer {
            head: format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_message_is_found_in_a_body_and_in_a_stream() {
        let json = answer("application/json", "{}");
        assert_eq!(json.message(), Some(&b"{}"[..]));
        let stream = "event: message\nid: 1\ndata: {\"first\":1}\n\ndata: {\"last\":1}\r\n\r\n";
        let stream = answer("text/event-stream", stream);
        assert_eq!(stream.message(), Some(&br#"{"last":1}"#[..]));
        assert_eq!(answer("text/event-stream", ": ping\n").message(), None);
    }

    #[test]
    fn headers_have_their_names_in_any_case() {
        let head = "HTTP/1.1 200 OK\r\nMcp-Session-Id: 7\r\n\r\n";
        assert_eq!(header(head, "mcp-session-id"), Some("7"));
        assert_eq!(header(head, "content-length"), None);
    }
}
