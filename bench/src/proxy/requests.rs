//! What callers ask for, whatever stands between them and the upstream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::upstream::STREAM;
use crate::engines::Cycles;
use crate::http::{Answer, Connections};
use crate::keys::{Key, Keys, RESULT_BYTES, mix};

/// Says that an answer was given before.
const REPLAYED: &str = "idempotent-replayed";

/// Which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One that only asks.
    Get,
    /// One that acts. Its body is like no other's.
    Post,
    /// One that acts, with a key of its own.
    Keyed,
    /// One with a key of its own that is answered by a stream.
    Stream,
}

/// Callers that make requests of one kind.
#[derive(Debug)]
pub(crate) struct Requests {
    connections: Connections,
    kind: Kind,
}

impl Requests {
    pub(crate) const fn new(address: String, kind: Kind) -> Self {
        Self {
            connections: Connections::new(address),
            kind,
        }
    }

    async fn ask(&self, key: Key, body: &[u8]) -> Result<Answer> {
        let mut connection = self.connections.take().await?;
        let text = std::str::from_utf8(body).context("bodies are JSON")?;
        let answer = match self.kind {
            Kind::Get => connection.get("/item").await?,
            Kind::Post => connection.post("/items", "", text).await?,
            Kind::Keyed => connection.post("/items", &keyed(&key)?, text).await?,
            Kind::Stream => connection.post(STREAM, &keyed(&key)?, text).await?,
        };
        self.connections.put(connection);
        ensure!(
            answer.header(REPLAYED).is_none(),
            "a fresh one is no replay"
        );
        let is_right = match self.kind {
            Kind::Get => answer.body.len() == RESULT_BYTES,
            Kind::Post | Kind::Keyed => answer.body == body,
            Kind::Stream => answer
                .body
                .get(b"data: ".len()..)
                .is_some_and(|rest| rest.starts_with(body)),
        };
        ensure!(is_right, "a request got another one's answer");
        Ok(answer)
    }
}

/// Makes the line of a request that names its key.
fn keyed(key: &Key) -> Result<String> {
    let key = std::str::from_utf8(key).context("keys are hexadecimal digits")?;
    Ok(format!("idempotency-key: {key}\r\n"))
}

impl Cycles for Requests {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        self.ask(key, &result).await.map(drop)
    }

    /// Of a stream, only the time to its first event counts.
    async fn timed(&self, key: Key, result: Vec<u8>) -> Result<Duration> {
        let began = Instant::now();
        let answer = self.ask(key, &result).await?;
        Ok(match self.kind {
            Kind::Get | Kind::Post | Kind::Keyed => began.elapsed(),
            Kind::Stream => answer.first - began,
        })
    }
}

/// Callers that make requests again that were answered already.
#[derive(Debug)]
pub(crate) struct Replays {
    connections: Connections,
    settled: Keys,
    next: AtomicU64,
}

impl Replays {
    pub(crate) const fn new(address: String, settled: Keys) -> Self {
        Self {
            connections: Connections::new(address),
            settled,
            next: AtomicU64::new(0),
        }
    }
}

impl Cycles for Replays {
    async fn cycle(&self, _: Key, _: Vec<u8>) -> Result<()> {
        let number = mix(self.next.fetch_add(1, Ordering::Relaxed)) % self.settled.taken();
        let (key, body) = (self.settled.key(number), self.settled.result(number));
        let text = std::str::from_utf8(&body).context("bodies are JSON")?;
        let mut connection = self.connections.take().await?;
        let answer = connection.post("/items", &keyed(&key)?, text).await?;
        self.connections.put(connection);
        ensure!(answer.header(REPLAYED) == Some("true"), "it was sent again");
        ensure!(answer.body == body, "a replay gave another answer");
        Ok(())
    }
}
