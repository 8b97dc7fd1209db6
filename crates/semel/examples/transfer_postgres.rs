//! A bank transfer, exactly once: the accounts and the ledger are in one PostgreSQL database, and the
//! money and the report that it was moved are one transaction.
//!
//! Needs a database in `DATABASE_URL`, in which it makes a schema `semel` and a table of its own.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use semel::tokio_postgres::{Client, NoTls, connect};
use semel::{Admission, Effect, Engine, Key, Receipt, Request};

/// Carries a transfer out once, however often it is asked for.
async fn transfer(
    engine: &Engine,
    client: &mut Client,
    key: &str,
    amount: i64,
) -> Result<Receipt, Box<dyn Error>> {
    let request = Request::new("transfer", Key::new(key)?).input(&amount);
    let permit = match engine.begin(request.transactional()).await? {
        Admission::Execute(permit) => permit,
        Admission::Replay(receipt) => return Ok(receipt),
        other => return Err(format!("another one is at it: {other:?}").into()),
    };
    let transaction = client.transaction().await?;
    let take = "UPDATE semel_example SET balance = balance - $1 WHERE id = 'ann' AND balance >= $1";
    if transaction.execute(take, &[&amount]).await? == 0 {
        transaction.rollback().await?;
        // A retry gets the same answer.
        return Ok(permit.failed(Effect::Noop, "not enough money").await?);
    }
    let give = "UPDATE semel_example SET balance = balance + $1 WHERE id = 'bob'";
    transaction.execute(give, &[&amount]).await?;
    Ok(permit.commit(transaction, Effect::Updated, &amount).await?)
}

async fn balances(client: &Client) -> Result<(i64, i64), Box<dyn Error>> {
    let rows = client
        .query("SELECT balance FROM semel_example ORDER BY id", &[])
        .await?;
    Ok((rows[0].try_get(0)?, rows[1].try_get(0)?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        println!("set DATABASE_URL=postgres://USER:PASSWORD@HOST/DATABASE and run this again");
        return Ok(());
    };
    let engine = Engine::open(&url).await?;
    let (mut client, connection) = connect(&url, NoTls).await?;
    // Its end is told to whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    client
        .batch_execute(
            "DROP TABLE IF EXISTS semel_example;
             CREATE TABLE semel_example (id text PRIMARY KEY, balance bigint NOT NULL);
             INSERT INTO semel_example VALUES ('ann', 100), ('bob', 0)",
        )
        .await?;
    // Keys of their own for each run, as the ledger remembers the last one.
    let run = std::process::id();

    let first = transfer(&engine, &mut client, &format!("t-1-{run}"), 30).await?;
    println!("t-1: {}, {:?}", first.effect, balances(&client).await?);
    let again = transfer(&engine, &mut client, &format!("t-1-{run}"), 30).await?;
    println!(
        "t-1 again: {}, {:?}",
        again.effect,
        balances(&client).await?
    );
    assert!(!first.replayed && again.replayed);
    assert_eq!(balances(&client).await?, (70, 30));

    let refused = transfer(&engine, &mut client, &format!("t-2-{run}"), 1_000).await?;
    println!(
        "t-2: {}, {:?}",
        refused.state.as_str(),
        balances(&client).await?
    );
    assert!(!refused.ok);
    assert_eq!(balances(&client).await?, (70, 30));
    Ok(())
}
