//! The server behind every way: it answers at once and does nothing, so that what stands before it is what is measured.
//!
//! A GET gets as many bytes as a result has, a POST gets its own body back. A stream sends its first event at once and
//! its last one after a pause, so that nobody can take it for an answer that is all there.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::http::{head_end, header};
use crate::keys::RESULT_BYTES;
use crate::load;

/// The name of the hidden command that is this server.
pub(crate) const COMMAND: &str = "proxy-upstream";

/// Where answers are streams.
pub(crate) const STREAM: &str = "/stream";

/// How long a stream pauses after its first event: longer than that event takes through any way.
const PAUSE: Duration = Duration::from_millis(10);

/// Says where it listens, and serves until its input ends.
pub(crate) fn serve() -> Result<String> {
    let runtime = load::runtime()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("cannot listen")?;
        writeln!(io::stdout(), "{}", listener.local_addr()?).context("cannot say where")?;
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // Whoever started this is gone, or wants it to end.
            let _read = io::stdin().read(&mut [0]);
            end.send(())
        });
        tokio::select! {
            served = accept(&listener) => served,
            _ = ended => Ok(()),
        }
    })?;
    Ok(String::new())
}

async fn accept(listener: &TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        stream.set_nodelay(true)?;
        // Whoever breaks a connection off sees that for itself.
        tokio::spawn(converse(stream));
    }
}

/// Answers one request after the other.
async fn converse(mut stream: TcpStream) -> Result<()> {
    let mut read = Vec::with_capacity(16 * 1024);
    loop {
        let head = loop {
            if let Some(end) = head_end(&read) {
                break end;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let asked = Asked::parse(&read[..head])?;
        let end = head + asked.length;
        while read.len() < end {
            ensure!(stream.read_buf(&mut read).await? > 0, "a body broke off");
        }
        let body = &read[head..end];
        if asked.is_stream {
            let [first, last] = events(body);
            stream.write_all(&first).await?;
            tokio::time::sleep(PAUSE).await;
            stream.write_all(&last).await?;
        } else if body.is_empty() {
            stream.write_all(&answer(&[b'.'; RESULT_BYTES])).await?;
        } else {
            stream.write_all(&answer(body)).await?;
        }
        read.drain(..end);
    }
}

/// A request, as far as it is looked at.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    is_stream: bool,
    length: usize,
}

impl Asked {
    fn parse(head: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(head).context("a head is not text")?;
        let target = text.split(' ').nth(1).context("there is no target")?;
        let pieces = header(text, "transfer-encoding");
        ensure!(pieces.is_none(), "a body comes in pieces");
        let length = header(text, "content-length").unwrap_or("0");
        Ok(Self {
            is_stream: target == STREAM,
            length: length.parse().context("a body has no length")?,
        })
    }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Makes the two events of a stream, the first with the head before it and the last with the end behind it.
fn events(body: &[u8]) -> [Vec<u8>; 2] {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let first = piece(&[b"data: ", body, b"\n\n"].concat());
    let last = piece(b"data: {\"last\":true}\n\n");
    [
        [head.as_bytes(), &first].concat(),
        [&last, &b"0\r\n\r\n"[..]].concat(),
    ]
}

fn piece(bytes: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", bytes.len());
    [size.as_bytes(), bytes, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_in_whatever_case_it_comes() {
        let parsed = |head: &str| Asked::parse(head.as_bytes());
        let asked = |is_stream, length| Asked { is_stream, length };
        let get = parsed("GET /item HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(get, asked(false, 0));
        let post = parsed("POST /stream HTTP/1.1\r\nCONTENT-LENGTH: 7\r\n\r\n").unwrap();
        assert_eq!(post, asked(true, 7));
        assert!(parsed("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn a_stream_is_whole_with_its_last_event_only() {
        let [first, last] = events(b"{}");
        assert!(first.ends_with(b"\r\n\r\na\r\ndata: {}\n\n\r\n"));
        assert!(last.ends_with(b"\r\n0\r\n\r\n"));
    }
}
