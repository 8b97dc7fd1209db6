//! A probe: what can be looked up afterwards need not wait for a person.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex};

use semel::{Admission, Engine, Found, Key, Lease, OnDoubt, Request};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let key = Key::new("ticket-7")?;
    let tracker = Arc::new(Mutex::new(Vec::<String>::new()));

    // An attempt opens the ticket and is lost before it can say so.
    let request = Request::new("open-ticket", key.clone())
        .on_doubt(OnDoubt::Probe)
        .lease(Lease::new(std::time::Duration::from_secs(1))?);
    let Admission::Execute(permit) = engine.begin(request).await? else {
        panic!("it is new")
    };
    tracker.lock().unwrap().push(permit.key().to_string());
    permit.unknown("the tracker did not answer").await?;

    // A retry looks first, once the lost attempt can no longer act.
    loop {
        let seen = Arc::clone(&tracker);
        let retried = engine
            .effect("open-ticket", key.clone())
            .probe(move |attempt| async move {
                let key = attempt.key().to_string();
                if seen.lock().unwrap().contains(&key) {
                    Found::Done("T-1".into())
                } else {
                    Found::NotDone
                }
            })
            .run(|_| async { Ok("T-2".to_owned()) })
            .await;
        match retried {
            Ok(ticket) => {
                println!("ticket {} (replayed: {})", ticket.value, ticket.replayed);
                assert_eq!(ticket.value, "T-1");
                assert_eq!(tracker.lock().unwrap().len(), 1);
                return Ok(());
            }
            Err(error) if error.code() == "in_doubt" => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
