//! Steps: a child begins only while its parent's attempt still holds its fence.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use semel::{Admission, Effect, Engine, Key, Request};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let trip = Key::new("trip-7")?;
    let Admission::Execute(parent) = engine
        .begin(Request::new("book-trip", trip.clone()))
        .await?
    else {
        panic!("it is new")
    };
    let fence = parent.fence();

    for step in ["flight", "hotel"] {
        let key = Key::new(&format!("{trip}/{step}"))?;
        let booked = engine
            .effect(step, key)
            .parent(trip.clone(), fence)
            .run(|attempt| async move { Ok(format!("{} is booked", attempt.key())) })
            .await?;
        println!("{}", booked.value);
    }
    parent.done(Effect::Created, "booked").await?;

    // The parent has ended, so a straggler of that attempt starts nothing.
    let late = engine
        .effect("car", Key::new(&format!("{trip}/car"))?)
        .parent(trip, fence)
        .run(|_| async { Ok(()) })
        .await
        .unwrap_err();
    println!("{late} [{}]", late.code());
    assert_eq!(late.code(), "fenced");
    Ok(())
}
