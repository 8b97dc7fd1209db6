//! Hearing of what other nodes did, by LISTEN on a connection of its own.
//!
//! It only makes waiting shorter. Whoever waits polls as well, since a notification may be lost, and
//! behind a pgbouncer in transaction mode none arrives.

use std::future::poll_fn;

use semel_core::{Digest, KeyHash};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::fault::failed;
use super::pool::in_time;
use super::servers::Servers;
use crate::store::Result;

/// The keys that may wait to be heard; others are left to polling.
const HEARD_MAX: usize = 4_096;

/// Listens, and holds the lock by which `semel.apply` sees that somebody does.
const LISTEN: &str = "LISTEN semel; SELECT pg_advisory_lock_shared(1936026989, 0)";

/// Reads the keys of a notification; anybody may send one, so what is no key is left out.
fn keys(text: &str) -> impl Iterator<Item = KeyHash> {
    let (digits, _) = text.as_bytes().as_chunks::<64>();
    digits.iter().filter_map(|digits| {
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.as_chunks::<2>().0) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(KeyHash(Digest(digest)))
    })
}

/// Listens until the receiver is dropped or the connection is lost.
pub(super) async fn listen(servers: &Servers) -> Result<mpsc::Receiver<KeyHash>> {
    let doing = "listen to PostgreSQL";
    let (client, mut connection) = servers.connect().await?;
    let (sender, receiver) = mpsc::channel(HEARD_MAX);
    let hearing = async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(told) = message {
                for key in keys(told.payload()) {
                    // Who has no room for it polls.
                    let _full = sender.try_send(key);
                }
            }
        }
    };
    let driver = tokio::spawn(hearing);
    match in_time(client.batch_execute(LISTEN)).await {
        Ok(Ok(())) => Ok(keep(client, receiver)),
        Ok(Err(error)) => {
            driver.abort();
            Err(failed(doing, &error))
        }
        Err(late) => {
            driver.abort();
            Err(late)
        }
    }
}

/// Keeps the client until nobody listens any more: dropping it closes the connection.
fn keep(client: Client, mut heard: mpsc::Receiver<KeyHash>) -> mpsc::Receiver<KeyHash> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let key = tokio::select! {
                key = heard.recv() => key,
                () = sender.closed() => None,
            };
            let Some(key) = key else { break };
            if sender.send(key).await.is_err() {
                break;
            }
        }
        drop(client);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_read_as_it_was_told_and_nonsense_is_left_out() {
        let hashes: Vec<KeyHash> = (0..3).map(|n| KeyHash(Digest([n; 32]))).collect();
        let text: String = hashes.iter().map(|key| key.0.hex()).collect();
        assert_eq!(keys(&text).collect::<Vec<_>>(), hashes);
        assert_eq!(keys("nonsense").count(), 0);
        assert_eq!(keys(&"ü".repeat(64)).count(), 0);
        assert_eq!(keys(&"x".repeat(64)).count(), 0);
    }
}
