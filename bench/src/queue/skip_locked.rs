//! The queue that one would write first on PostgreSQL: one table, and `SKIP LOCKED`. It is given every care.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use semel::tokio_postgres::types::ToSql;
use semel::tokio_postgres::{self, AsyncMessage, Client, NoTls, Statement};
use tokio::sync::Notify;

use super::contender::{Queue, Submitter, Worker};
use crate::keys::Key;

/// The table, and another one like it that nobody takes from. Rows change twice, so pages keep room for that; dead rows
/// at the head of the index are removed early.
const TABLES: &str = "\
CREATE TABLE tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    priority smallint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    leased_until timestamptz,
    settled_at timestamptz,
    input bytea NOT NULL,
    result bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE nobody (LIKE tasks INCLUDING ALL);
CREATE INDEX queued ON tasks (priority DESC, id) WHERE state = 'queued';
CREATE INDEX nobody_queued ON nobody (priority DESC, id) WHERE state = 'queued';";

const SUBMIT: &str = "INSERT INTO tasks (key, input) VALUES ($1, $2)";

/// Wakes the workers, in a transaction of its own right behind the submission: within it, all submissions would commit
/// one by one, as PostgreSQL lets only one transaction at a time commit that notifies.
const WAKE: &str = "NOTIFY tasks";

const LEASE: &str = "\
UPDATE tasks SET state = 'running', attempts = attempts + 1, leased_until = now() + interval '60 s'
WHERE id = (SELECT id FROM tasks WHERE state = 'queued' AND run_at <= now()
            ORDER BY priority DESC, id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING id, input";

const SETTLE: &str = "\
UPDATE tasks SET state = 'done', result = $2, settled_at = now(), leased_until = NULL
WHERE id = $1 AND state = 'running'";

/// How soon a worker looks again that nothing woke: a notification is lost with its connection.
const POLL: Duration = Duration::from_secs(1);

pub(super) struct SkipLocked {
    url: String,
    /// Rung once for each notification.
    wake: Arc<Notify>,
    /// Keeps the connection that listens.
    _listener: Client,
}

impl SkipLocked {
    /// Makes the tables in an empty database.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let wake = Arc::new(Notify::new());
        let listener = listen(url, Arc::clone(&wake)).await?;
        listener.batch_execute(TABLES).await?;
        listener.batch_execute("LISTEN tasks").await?;
        Ok(Self {
            url: url.to_owned(),
            wake,
            _listener: listener,
        })
    }

    /// Adds tasks that wait, in bulk.
    pub(super) async fn fill(&self, count: u64) -> Result<()> {
        let client = connect(&self.url).await?;
        let count = i64::try_from(count).context("too many tasks")?;
        let bulk = "INSERT INTO tasks (key, input)
                    SELECT md5(random()::text), convert_to('\"' || repeat(md5(n::text), 7) || repeat('x', 30) || '\"', 'UTF8')
                    FROM generate_series(1, $1::bigint) AS n";
        client.execute(bulk, &[&count]).await?;
        client.batch_execute("VACUUM ANALYZE tasks").await?;
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // What went wrong with it, its statements say.
    tokio::spawn(connection);
    Ok(client)
}

/// Connects, and rings for each notification that comes.
async fn listen(url: &str, wake: Arc<Notify>) -> Result<Client> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        let mut message = std::future::poll_fn(move |context| connection.poll_message(context));
        loop {
            match (&mut message).await {
                Some(Ok(AsyncMessage::Notification(_))) => wake.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    Ok(client)
}

impl Queue for SkipLocked {
    type Submitter = Submits;
    type Worker = Works;

    async fn submitter(&self) -> Result<Submits> {
        let client = connect(&self.url).await?;
        let elsewhere = SUBMIT.replace("INTO tasks", "INTO nobody") + " RETURNING id";
        let begin = "UPDATE nobody SET state = 'running', attempts = attempts + 1, leased_until = now() + interval '60 s' WHERE id = $1";
        Ok(Submits {
            submit: client.prepare(SUBMIT).await?,
            wake: client.prepare(WAKE).await?,
            elsewhere: client.prepare(&elsewhere).await?,
            begin: client.prepare(begin).await?,
            client,
        })
    }

    async fn worker(&self) -> Result<Works> {
        let client = connect(&self.url).await?;
        Ok(Works {
            lease: client.prepare(LEASE).await?,
            settle: client.prepare(SETTLE).await?,
            client,
            wake: Arc::clone(&self.wake),
        })
    }
}

pub(super) struct Submits {
    client: Client,
    submit: Statement,
    wake: Statement,
    elsewhere: Statement,
    begin: Statement,
}

impl Submitter for Submits {
    async fn submit(&mut self, key: Key, input: Vec<u8>) -> Result<()> {
        let key = str::from_utf8(&key).context("keys are hexadecimal digits")?;
        // Both are sent at once.
        let given: [&(dyn ToSql + Sync); 2] = [&key, &input];
        let submitted = self.client.execute(&self.submit, &given);
        let woken = self.client.execute(&self.wake, &[]);
        tokio::try_join!(submitted, woken)?;
        Ok(())
    }

    async fn commits(&mut self, keys: [Key; 2], input: Vec<u8>) -> Result<Duration> {
        let key = str::from_utf8(&keys[0]).context("keys are hexadecimal digits")?;
        let began = Instant::now();
        let given: [&(dyn ToSql + Sync); 2] = [&key, &input];
        let row = self.client.query_one(&self.elsewhere, &given).await?;
        let id: i64 = row.get(0);
        self.client.execute(&self.begin, &[&id]).await?;
        Ok(began.elapsed())
    }
}

pub(super) struct Works {
    client: Client,
    lease: Statement,
    settle: Statement,
    wake: Arc<Notify>,
}

impl Worker for Works {
    type Held = i64;

    async fn lease(&mut self, wait: Duration) -> Result<Option<(i64, Vec<u8>)>> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(row) = self.client.query_opt(&self.lease, &[]).await? {
                return Ok(Some((row.get(0), row.get(1))));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // One that comes in between is kept, or wakes another worker.
            let woken = self.wake.notified();
            let _looks_anyway = tokio::time::timeout(left.min(POLL), woken).await;
        }
    }

    async fn settle(&mut self, held: i64, result: Vec<u8>) -> Result<()> {
        let settled = self.client.execute(&self.settle, &[&held, &result]).await?;
        ensure!(settled == 1, "task {held} was not in this worker's hands");
        Ok(())
    }
}
