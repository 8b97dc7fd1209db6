//! An outbox: an order and the mail about it are written in one transaction, exactly once; then a relay
//! sends each mail under a key of its own, so that it is not sent twice either.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::effects::sqlite::upsert;
use semel::rusqlite::Connection;
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Effect, Engine, Key, Request};

/// Stands for a mail server: mails leave the database's world here.
static SENT: AtomicU32 = AtomicU32::new(0);

/// Takes an order: its row, the mail that is to be sent, and the report are one transaction.
async fn take_order(
    engine: &Engine,
    store: &SqliteStore,
    connection: &mut Connection,
    order: i64,
) -> Result<Effect, Box<dyn Error>> {
    let request = Request::new("take-order", Key::new(&format!("order-{order}"))?);
    let permit = match engine.begin(request.transactional()).await? {
        Admission::Execute(permit) => permit,
        Admission::Replay(receipt) => return Ok(receipt.effect),
        other => return Err(format!("another one is at it: {other:?}").into()),
    };
    let transaction = store.transaction(connection)?;
    let effect = upsert(
        &transaction,
        "orders",
        &[("id", &order)],
        &[("state", &"taken")],
    )?;
    let sql = "INSERT INTO outbox (mail) VALUES (?1)";
    transaction.execute(sql, [format!("thank you for order {order}")])?;
    let receipt = permit.commit_sqlite(transaction, effect, &order)?;
    Ok(receipt.effect)
}

/// Sends what waits in the outbox. It may be killed anywhere and started again.
async fn relay(engine: &Engine, connection: &Connection) -> Result<(), Box<dyn Error>> {
    let waiting: Vec<(i64, String)> = connection
        .prepare("SELECT id, mail FROM outbox WHERE sent = 0 ORDER BY id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (id, mail) in waiting {
        // The mail server is outside: a crash in the middle is a doubt, which is seen and never lost.
        let sent = engine
            .effect("mail.send", Key::new(&format!("outbox-{id}"))?)
            .input(&mail)
            .run(|_attempt| async { Ok(SENT.fetch_add(1, Ordering::Relaxed)) })
            .await?;
        println!("outbox-{id}: `{mail}` (replayed: {})", sent.replayed);
        // A relay that dies before this line finds the mail again, and the ledger says that it is sent.
        connection.execute("UPDATE outbox SET sent = 1 WHERE id = ?1", [id])?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(directory.path().join("shop.db"))?);
    let engine = Engine::builder().store(Arc::clone(&store) as _);
    let engine = engine.start().await?;
    let mut connection = store.connect()?;
    connection.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL) STRICT;
         CREATE TABLE outbox (id INTEGER PRIMARY KEY, mail TEXT NOT NULL, sent INTEGER DEFAULT 0) STRICT;",
    )?;

    for _ in 0..3 {
        let effect = take_order(&engine, &store, &mut connection, 7).await?;
        println!("order-7: {effect}");
    }
    let mails: i64 = connection.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))?;
    assert_eq!(mails, 1, "one order, one mail");

    relay(&engine, &connection).await?;
    // As after a crash between the mail server's answer and the note of it.
    connection.execute("UPDATE outbox SET sent = 0", [])?;
    relay(&engine, &connection).await?;
    assert_eq!(SENT.load(Ordering::Relaxed), 1, "it was sent once");
    Ok(())
}
