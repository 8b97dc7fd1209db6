//! Verify: the log, replayed through the rules, gives the stored state.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use semel::{Engine, Key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let engine = Engine::open(&format!(
        "sqlite:{}",
        directory.path().join("ledger.db").display()
    ))
    .await?;
    for n in 0..100 {
        let key = Key::new(&format!("order-{n}"))?;
        engine
            .effect("create-order", key)
            .run(|_| async move { Ok(n) })
            .await?;
    }
    let verified = engine.verify().await?;
    println!(
        "{} entries, {} records, {} payloads",
        verified.entries, verified.records, verified.payloads
    );
    assert!(verified.is_clean());
    assert_eq!(
        (verified.entries, verified.records, verified.payloads),
        (200, 100, 100)
    );
    Ok(())
}
