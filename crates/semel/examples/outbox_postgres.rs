//! An outbox in PostgreSQL: an order and the mail about it are written in one transaction, exactly once;
//! then a relay sends each mail under a key of its own, so that it is not sent twice either.
//!
//! Needs a database in `DATABASE_URL`, in which it makes a schema `semel` and tables of its own.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::effects::postgres::{transition, upsert};
use semel::tokio_postgres::{Client, NoTls, connect};
use semel::{Admission, Effect, Engine, Key, Request};

/// Stands for a mail server: mails leave the database's world here.
static SENT: AtomicU32 = AtomicU32::new(0);

/// Takes an order: its row, the mail that is to be sent, and the report are one transaction.
async fn take_order(
    engine: &Engine,
    client: &mut Client,
    order: i32,
) -> Result<Effect, Box<dyn Error>> {
    let request = Request::new("take-order", Key::new(&format!("order-{order}"))?);
    let permit = match engine.begin(request.transactional()).await? {
        Admission::Execute(permit) => permit,
        Admission::Replay(receipt) => return Ok(receipt.effect),
        other => return Err(format!("another one is at it: {other:?}").into()),
    };
    let transaction = client.transaction().await?;
    let (key, set) = ([("id", &order as _)], [("state", &"taken" as _)]);
    let effect = upsert(&transaction, "semel_orders", &key, &set).await?;
    let mail = format!("thank you for order {order}");
    let sql = "INSERT INTO semel_outbox (id, mail, state) VALUES ($1, $2, 'waiting')";
    transaction.execute(sql, &[&order, &mail]).await?;
    let receipt = permit.commit(transaction, effect, &order).await?;
    Ok(receipt.effect)
}

/// Sends what waits in the outbox. It may be killed anywhere and started again.
async fn relay(engine: &Engine, client: &mut Client) -> Result<(), Box<dyn Error>> {
    let sql = "SELECT id, mail FROM semel_outbox WHERE state = 'waiting' ORDER BY id";
    for row in client.query(sql, &[]).await? {
        let (id, mail): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        // The mail server is outside: a crash in the middle is a doubt, which is seen and never lost.
        let sent = engine
            .effect("mail.send", Key::new(&format!("outbox-{id}"))?)
            .input(&mail)
            .run(|_attempt| async { Ok(SENT.fetch_add(1, Ordering::Relaxed)) })
            .await?;
        println!("outbox-{id}: `{mail}` (replayed: {})", sent.replayed);
        // A relay that dies before this finds the mail again, and the ledger says that it is sent.
        let transaction = client.transaction().await?;
        let key = [("id", &id as _)];
        transition(
            &transaction,
            "semel_outbox",
            &key,
            "state",
            &"waiting",
            &"sent",
        )
        .await?;
        transaction.commit().await?;
    }
    Ok(())
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
            "DROP TABLE IF EXISTS semel_orders, semel_outbox;
             CREATE TABLE semel_orders (id integer PRIMARY KEY, state text NOT NULL);
             CREATE TABLE semel_outbox (id integer PRIMARY KEY, mail text NOT NULL, state text NOT NULL)",
        )
        .await?;
    // Keys of their own for each run, as the ledger remembers the last one.
    let order = i32::try_from(std::process::id())?;

    for _ in 0..3 {
        let effect = take_order(&engine, &mut client, order).await?;
        println!("order-{order}: {effect}");
    }
    let mails = client.query("SELECT id FROM semel_outbox", &[]).await?;
    assert_eq!(mails.len(), 1, "one order, one mail");

    relay(&engine, &mut client).await?;
    // As after a crash between the mail server's answer and the note of it.
    let undo = "UPDATE semel_outbox SET state = 'waiting'";
    client.batch_execute(undo).await?;
    relay(&engine, &mut client).await?;
    assert_eq!(SENT.load(Ordering::Relaxed), 1, "it was sent once");
    Ok(())
}
