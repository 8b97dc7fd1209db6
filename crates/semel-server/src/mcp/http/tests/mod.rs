//! HTTP on both sides, over real sockets.

mod fake;
mod front;
mod newer;
mod peer;
mod sessions;
mod upstream;

use std::time::Duration;

use super::super::message::Message;

/// Longer than anything here takes: what does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);

fn message(text: &str) -> Message {
    Message::read(text.to_owned()).expect("it is a message")
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it comes before patience ends")
}
