//! The explicit form: begin, act, and say what came of it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use semel::{Admission, Effect, Engine, Key, Request};

/// Stands for a mail server that may refuse the connection or lose its answer.
fn send_mail(weather: &str) -> Result<&'static str, &'static str> {
    match weather {
        "fair" => Ok("message-1"),
        "closed" => Err("connection refused"),
        _ => Err("connection reset after DATA"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    for (key, weather) in [
        ("mail-1", "fair"),
        ("mail-2", "closed"),
        ("mail-3", "storm"),
    ] {
        let request = Request::new("mail.send", Key::new(key)?).input("hello");
        match engine.begin(request).await? {
            Admission::Execute(permit) => {
                let receipt = match send_mail(weather) {
                    Ok(id) => permit.done(Effect::Created, id).await?,
                    // Never sent: it is safe to try again.
                    Err(error @ "connection refused") => permit.not_done(error).await?,
                    // May have been sent: a probe or a person resolves it.
                    Err(error) => permit.unknown(error).await?,
                };
                println!("{key}: {} ({})", receipt.state.as_str(), receipt.effect);
            }
            Admission::Replay(receipt) => println!("{key}: already {}", receipt.state.as_str()),
            Admission::Wait { retry_after } => println!("{key}: come back in {retry_after:?}"),
            Admission::InDoubt(_) => println!("{key}: nobody knows"),
            Admission::Probe(permit) => drop(permit.unknown("nothing to look it up with").await?),
        }
    }
    Ok(())
}
