//! A bank transfer, exactly once: the accounts and the ledger are in one SQLite file, and the money and
//! the report that it was moved are one transaction.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use semel::rusqlite::{self, Connection, Transaction};
use semel::store::sqlite::SqliteStore;
use semel::{Admission, Effect, Engine, Key, Permit, Receipt, Request};

/// Moves money inside a transaction, or says why not.
fn move_money(
    transaction: &Transaction<'_>,
    amount: i64,
) -> rusqlite::Result<Result<(), &'static str>> {
    let taken = transaction.execute(
        "UPDATE account SET balance = balance - ?1 WHERE id = 'ann' AND balance >= ?1",
        [amount],
    )?;
    if taken == 0 {
        return Ok(Err("not enough money"));
    }
    let sql = "UPDATE account SET balance = balance + ?1 WHERE id = 'bob'";
    transaction.execute(sql, [amount])?;
    Ok(Ok(()))
}

/// Carries a transfer out once, however often it is asked for.
async fn transfer(
    engine: &Engine,
    store: &SqliteStore,
    connection: &mut Connection,
    key: &str,
    amount: i64,
) -> Result<Receipt, Box<dyn Error>> {
    let permit = match engine.begin(request(key, amount)?).await? {
        Admission::Execute(permit) => permit,
        Admission::Replay(receipt) => return Ok(receipt),
        other => return Err(format!("another one is at it: {other:?}").into()),
    };
    // From here to the end of the transaction nothing is awaited: nobody else can write meanwhile.
    let refused = {
        let transaction = store.transaction(connection)?;
        match move_money(&transaction, amount)? {
            Ok(()) => return Ok(permit.commit_sqlite(transaction, Effect::Updated, &amount)?),
            Err(why) => why,
        }
    };
    // The transaction is rolled back, and a retry gets the same answer.
    Ok(permit.failed(Effect::Noop, refused).await?)
}

fn request(key: &str, amount: i64) -> Result<Request, Box<dyn Error>> {
    let request = Request::new("transfer", Key::new(key)?).input(&amount);
    Ok(request.transactional())
}

fn balances(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let sql = "SELECT (SELECT balance FROM account WHERE id = 'ann'),
                      (SELECT balance FROM account WHERE id = 'bob')";
    connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(directory.path().join("bank.db"))?);
    let engine = Engine::builder().store(Arc::clone(&store) as _);
    let engine = engine.start().await?;
    let mut connection = store.connect()?;
    connection.execute_batch(
        "CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
         INSERT INTO account VALUES ('ann', 100), ('bob', 0);",
    )?;

    let first = transfer(&engine, &store, &mut connection, "t-1", 30).await?;
    println!("t-1: {}, {:?}", first.effect, balances(&connection)?);
    let again = transfer(&engine, &store, &mut connection, "t-1", 30).await?;
    println!("t-1 again: {}, {:?}", again.effect, balances(&connection)?);
    assert!(!first.replayed && again.replayed);
    assert_eq!(balances(&connection)?, (70, 30));

    // An attempt that ends before its commit has done nothing, so it is simply run again.
    let lost: Permit = match engine.begin(request("t-2", 20)?).await? {
        Admission::Execute(permit) => permit,
        other => return Err(format!("it is new: {other:?}").into()),
    };
    let transaction = store.transaction(&mut connection)?;
    move_money(&transaction, 20)??;
    drop(transaction);
    let doubt = lost.unknown("the process was killed").await?;
    println!(
        "t-2: {}, {:?}",
        doubt.state.as_str(),
        balances(&connection)?
    );
    assert_eq!(balances(&connection)?, (70, 30));
    let retried = transfer(&engine, &store, &mut connection, "t-2", 20).await?;
    println!(
        "t-2 again: {}, {:?}",
        retried.effect,
        balances(&connection)?
    );
    assert_eq!((retried.attempt, balances(&connection)?), (2, (50, 50)));

    let refused = transfer(&engine, &store, &mut connection, "t-3", 1_000).await?;
    println!(
        "t-3: {}, {:?}",
        refused.state.as_str(),
        balances(&connection)?
    );
    assert!(!refused.ok);
    assert_eq!(balances(&connection)?, (50, 50));
    Ok(())
}
