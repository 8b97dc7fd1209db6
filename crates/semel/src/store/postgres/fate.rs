//! What became of a transaction: a COMMIT that was not answered is looked for, never assumed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::fault::{failed, told};
use super::pool::{Pool, in_time};
use super::reader::{column, head_of};
use super::statements::{Rows, Statement, pipeline};
use super::writer::{BEGIN, Told};
use crate::store::{Result, StoreError};

/// How long the fate of a transaction is looked for whose COMMIT was not answered: longer than the
/// server keeps an idle one alive.
const FATE_WAIT: Duration = Duration::from_secs(20);

/// The pause between two looks for it.
const FATE_PAUSE: Duration = Duration::from_millis(200);

/// How a transaction ended.
pub(super) enum Fate {
    Committed,
    /// Nothing was written.
    Refused(StoreError),
    Unknown(String),
}

/// Judges how a transaction ended by the answers to its statements, of which COMMIT is the last.
pub(super) fn judge(mut results: Vec<Rows>) -> Fate {
    let end = results.pop();
    for result in results {
        match result {
            Ok(_) => {}
            // A statement that the server refused turns COMMIT into a rollback.
            Err(error) if error.as_db_error().is_some() => {
                return Fate::Refused(failed("write to the ledger", &error));
            }
            Err(error) => return Fate::Unknown(told(&error)),
        }
    }
    match end {
        Some(Ok(_)) => Fate::Committed,
        Some(Err(error)) => Fate::Unknown(told(&error)),
        None => Fate::Unknown("COMMIT was not sent".to_owned()),
    }
}

/// What is looked for when COMMIT was not answered.
pub(super) struct Lost {
    pub(super) pool: Arc<Pool>,
    pub(super) id: [u8; 16],
    /// The transaction before.
    pub(super) before: Option<Vec<u8>>,
    /// The number of its first log entry, if it has one.
    pub(super) first: Option<u64>,
    pub(super) answers: Vec<Told>,
    pub(super) error: String,
}

impl Lost {
    /// Reads what became of the transaction, and answers accordingly. It may still be going on in the
    /// server: whoever holds the lock knows that it is over.
    pub(super) async fn find(self) {
        let started = Instant::now();
        let found = loop {
            match self.look().await {
                Ok(found) => break Some(found),
                Err(_) if started.elapsed() < FATE_WAIT => sleep(FATE_PAUSE).await,
                Err(_) => break None,
            }
        };
        let error = match found {
            Some(true) => return self.answers.into_iter().for_each(Told::tell),
            Some(false) => StoreError::Unavailable(format!(
                "the connection to PostgreSQL was lost before COMMIT: {}",
                self.error
            )),
            None => StoreError::Unknown(self.error),
        };
        self.answers
            .into_iter()
            .for_each(|answer| answer.fail(&error));
    }

    /// Says whether the transaction was committed.
    async fn look(&self) -> Result<bool> {
        let connection = self.pool.take().await?;
        let looked = in_time(self.look_with(connection.client()?)).await;
        match looked {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) | Err(error) => {
                connection.give_up();
                Err(error)
            }
        }
    }

    async fn look_with(&self, client: &Client) -> Result<bool> {
        let statements = [
            Statement::new("SELECT seq, stamp, batch FROM semel.head FOR UPDATE"),
            Statement::new("SELECT batch FROM semel.log WHERE seq = $1")
                .with(self.first.unwrap_or(0).cast_signed(), Type::INT8),
            Statement::new("ROLLBACK"),
        ];
        let (begun, answers) =
            tokio::join!(biased; client.batch_execute(BEGIN), pipeline(client, &statements));
        let wrong = |error: Error| failed("read the log", &error);
        begun.map_err(wrong)?;
        let read = answers
            .into_iter()
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(wrong)?;
        let head = match read.first().and_then(|rows| rows.first()) {
            Some(head) => head_of(head)?,
            None => return Err(StoreError::Corrupt("`semel.head` has no row".to_owned())),
        };
        let entry = read.get(1).and_then(|rows| rows.first());
        let entry: Option<Vec<u8>> = entry.map(|row| column(row, 0)).transpose()?.flatten();
        let ours = |found: &Option<Vec<u8>>| found.as_deref() == Some(&self.id[..]);
        if ours(&head.batch) || ours(&entry) {
            return Ok(true);
        }
        // Without a log entry, only the next transaction tells; others may have come since.
        if self.first.is_none() && head.batch != self.before {
            return Err(StoreError::Unknown(self.error.clone()));
        }
        Ok(false)
    }
}
