//! Clients over HTTP: one session, and a connection for each call in flight.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use super::wire::{self, Calls, PROTOCOL};
use crate::engines::Cycles;
use crate::http::{Answer, Connection, Connections};
use crate::keys::Key;

/// One session with a server.
#[derive(Debug)]
pub(crate) struct Session {
    connections: Connections,
    id: Option<String>,
    calls: Calls,
    next: AtomicU64,
}

impl Session {
    /// Makes the handshake.
    pub(crate) async fn open(address: String, calls: Calls) -> Result<Self> {
        let connections = Connections::new(address);
        let mut connection = connections.take().await?;
        let answer = post(&mut connection, None, &wire::initialize()).await?;
        let id = answer.header("mcp-session-id").map(str::to_owned);
        post(&mut connection, id.as_deref(), wire::INITIALIZED).await?;
        connections.put(connection);
        Ok(Self {
            connections,
            id,
            calls,
            next: AtomicU64::new(0),
        })
    }
}

impl Cycles for Session {
    async fn cycle(&self, key: Key, _: Vec<u8>) -> Result<()> {
        let order = std::str::from_utf8(&key).context("keys are hexadecimal digits")?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connections.take().await?;
        let call = self.calls.write(number, order);
        let answer = post(&mut connection, self.id.as_deref(), &call).await?;
        let message = message(&answer).context("a call had no answer")?;
        let answered = wire::answered(message)?;
        ensure!(answered == number, "another call was answered");
        wire::check(number, order, message)?;
        self.connections.put(connection);
        Ok(())
    }
}

async fn post(connection: &mut Connection, session: Option<&str>, body: &str) -> Result<Answer> {
    let mut headers = "accept: application/json, text/event-stream\r\n".to_owned();
    if let Some(id) = session {
        headers.push_str(&format!(
            "mcp-session-id: {id}\r\nmcp-protocol-version: {PROTOCOL}\r\n"
        ));
    }
    connection.post("/mcp", &headers, body).await
}

/// Returns the message in an answer: the whole body, or the last event of a stream.
fn message(answer: &Answer) -> Option<&[u8]> {
    let kind = answer.header("content-type")?;
    if kind.starts_with("application/json") {
        return Some(&answer.body);
    }
    let lines = answer.body.split(|byte| *byte == b'\n');
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.map(<[u8]>::trim_ascii).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: &str, body: &str) -> Answer {
        Answer {
            head: format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"),
            body: body.as_bytes().to_vec(),
            first: std::time::Instant::now(),
        }
    }

    #[test]
    fn a_message_is_found_in_a_body_and_in_a_stream() {
        let json = answer("application/json", "{}");
        assert_eq!(message(&json), Some(&b"{}"[..]));
        let stream = "event: message\nid: 1\ndata: {\"first\":1}\n\ndata: {\"last\":1}\r\n\r\n";
        let stream = answer("text/event-stream", stream);
        assert_eq!(message(&stream), Some(&br#"{"last":1}"#[..]));
        assert_eq!(message(&answer("text/event-stream", ": ping\n")), None);
    }
}
