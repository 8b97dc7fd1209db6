//! Many callers, one action: the others wait and get the same answer.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::{Engine, Key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let sent = Arc::new(AtomicU32::new(0));
    let key = Key::new("newsletter-2026-11")?;
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let (engine, sent, key) = (engine.clone(), Arc::clone(&sent), key.clone());
            tokio::spawn(async move {
                let call = engine
                    .effect("send-newsletter", key)
                    .wait(Duration::from_secs(10));
                call.run(|_| async move { Ok(sent.fetch_add(1, Ordering::SeqCst) + 1) })
                    .await
            })
        })
        .collect();
    let mut replayed = 0;
    for caller in callers {
        let done = caller.await??;
        assert_eq!(done.value, 1);
        replayed += u32::from(done.replayed);
    }
    println!(
        "sent {} time, replayed {replayed} times",
        sent.load(Ordering::SeqCst)
    );
    assert_eq!((sent.load(Ordering::SeqCst), replayed), (1, 49));
    Ok(())
}
