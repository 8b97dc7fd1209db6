//! Faults on purpose: how to test that one's own steps survive lost replies and repeats.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::{Engine, Fault, Key, Point};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let charged = Arc::new(AtomicU32::new(0));
    let charge = |key: &str| {
        let charged = Arc::clone(&charged);
        let call = engine.effect("charge", Key::new(key).expect("a good key"));
        async move {
            call.run(|_| async move { Ok(charged.fetch_add(1, Ordering::SeqCst)) })
                .await
        }
    };

    // The reply to the report is lost: it is sent again, and answered the same.
    engine.inject_error(Point::Settle, Fault::LoseReply, 1);
    charge("a").await?;
    assert_eq!(charged.load(Ordering::SeqCst), 1);

    // Every command arrives twice.
    engine.inject_repeat(Point::Begin, 1);
    engine.inject_repeat(Point::Settle, 1);
    charge("b").await?;
    assert_eq!(charged.load(Ordering::SeqCst), 2);

    // The store is away when the claim is sent: nothing runs.
    engine.inject_error(Point::Begin, Fault::Refuse, 1);
    let away = charge("c").await.unwrap_err();
    println!("{away} [{}]", away.code());
    assert_eq!(charged.load(Ordering::SeqCst), 2);
    Ok(())
}
