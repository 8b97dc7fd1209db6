//! A doubt: the answer was lost, so nobody may try again until somebody has looked.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use semel::{Effect, Engine, Error, Failure, Key, Label, Namespace, Note};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let key = Key::new("payment-7")?;

    // The bank was called, and the connection broke before it answered.
    let first: Result<_, Error> = engine
        .effect("pay", key.clone())
        .run(|_| async { Err::<u32, _>(Failure::unknown("connection reset")) })
        .await;
    println!("first try: {}", first.unwrap_err());

    // A retry does not pay a second time.
    let retry = engine
        .effect("pay", key.clone())
        .run(|_| async { Ok(1u32) })
        .await
        .unwrap_err();
    println!("retry: {retry} [{}]", retry.code());
    assert_eq!(retry.code(), "in_doubt");

    // A person looks at the bank's statement and says what happened, on the version they read.
    let record = engine
        .load(&Namespace::default(), &key)
        .await?
        .expect("it is known");
    let receipt = engine
        .operator(
            &Namespace::default(),
            &key,
            record.version(),
            Label::new("ada")?,
        )
        .note(Note::new("on the statement of 15 November")?)
        .resolve_done(true, Effect::Created, Some(b"4711".to_vec()))
        .await?;
    println!("resolved: {}", receipt.state.as_str());

    // From now on every caller gets that answer.
    let again = engine
        .effect("pay", key)
        .run(|_| async { Ok(1u32) })
        .await?;
    assert_eq!((again.value, again.replayed), (4711, true));
    Ok(())
}
