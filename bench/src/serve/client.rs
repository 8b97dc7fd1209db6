//! A caller over HTTP that costs as little as it can: one connection, requests written by hand, answers
//! read as far as they are needed.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection that is kept.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(16 * 1024),
        })
    }

    /// Sends a call and returns the body of its answer, which must be a good one.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
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
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .context("the answer does not say how long it is")?;
        let (good, length) = (text.starts_with("HTTP/1.1 200"), length.parse::<usize>()?);
        while self.read.len() < head + length {
            self.more().await?;
        }
        let body = self.read[head..head + length].to_vec();
        if !good {
            bail!("the server refused: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
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
