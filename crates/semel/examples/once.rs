//! The builder form: the action runs once, and a retry gets the recorded answer back.
//!
//! Run it with `cargo run --release -p semel --example once`; run it again, and nothing is sent.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use semel::{Effect, Engine, Key};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("sqlite:target/example-once.db").await?;

    let order = engine
        .effect("create-order", Key::new("order-7")?)
        .input(&json!({"amount": 100})) // the same key with another input is refused
        .effect(Effect::Created)
        .run(|attempt| async move {
            println!(
                "sending order {} (attempt {})",
                attempt.key(),
                attempt.number()
            );
            Ok(json!({"id": 42}))
        })
        .await?;

    println!("{}", serde_json::to_string_pretty(&order.receipt)?);
    assert_eq!(order.value, json!({"id": 42}));
    Ok(())
}
