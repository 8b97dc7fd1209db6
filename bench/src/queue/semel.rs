//! The ledger's own queue: the engine that people use, with its defaults, in this process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use semel::{Admission, Effect, Engine, Label, Namespace, Permit, Queueing, Request, Take};

use super::contender::{Queue, Submitter, Worker};
use crate::keys::Key;

/// The queue that is measured, and one that nobody takes from.
const QUEUE: &str = "bench";
const NOBODY: &str = "nobody";

pub(super) struct Semel {
    engine: Engine,
}

impl Semel {
    /// Opens the store at a URL.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let engine = Engine::open(url).await?;
        Ok(Self { engine })
    }
}

impl Queue for Semel {
    type Submitter = Submits;
    type Worker = Works;

    async fn submitter(&self) -> Result<Submits> {
        Ok(Submits {
            engine: self.engine.clone(),
            queue: label(QUEUE)?,
            nobody: label(NOBODY)?,
        })
    }

    async fn worker(&self) -> Result<Works> {
        Ok(Works {
            engine: self.engine.clone(),
            namespace: self.engine.namespace(),
            take: Take::one(label(QUEUE)?),
        })
    }
}

fn label(name: &str) -> Result<Label> {
    Label::new(name).context("a queue's name is a label")
}

fn request(key: &Key) -> Result<Request> {
    let key = str::from_utf8(key).context("keys are hexadecimal digits")?;
    Ok(Request::new("bench", semel::Key::new(key)?))
}

pub(super) struct Submits {
    engine: Engine,
    queue: Label,
    nobody: Label,
}

impl Submits {
    async fn submit_to(&self, queue: &Label, key: &Key, input: &[u8]) -> Result<()> {
        let request = request(key)?.input_json(input);
        let receipt = self
            .engine
            .submit(request, Queueing::on(queue.clone()))
            .await?;
        ensure!(
            receipt.effect == Effect::Created,
            "a fresh key was known: {receipt:?}"
        );
        Ok(())
    }
}

impl Submitter for Submits {
    async fn submit(&mut self, key: Key, input: Vec<u8>) -> Result<()> {
        self.submit_to(&self.queue, &key, &input).await
    }

    async fn commits(&mut self, keys: [Key; 2], input: Vec<u8>) -> Result<Duration> {
        let [submitted, begun] = keys;
        let began = Instant::now();
        self.submit_to(&self.nobody, &submitted, &input).await?;
        let admission = self.engine.begin(request(&begun)?).await?;
        let took = began.elapsed();
        match admission {
            Admission::Execute(permit) => permit.finish(true, Effect::Created, None).await?,
            other => bail!("a fresh key was answered with {other:?}"),
        };
        Ok(took)
    }
}

pub(super) struct Works {
    engine: Engine,
    namespace: Namespace,
    take: Take,
}

impl Worker for Works {
    type Held = Permit;

    async fn lease(&mut self, wait: Duration) -> Result<Option<(Permit, Vec<u8>)>> {
        self.take.wait = wait;
        let mut taken = self.engine.take(&self.namespace, &self.take).await?;
        let Some(task) = taken.pop() else {
            return Ok(None);
        };
        let (permit, input) = task.permit();
        Ok(Some((permit, input.context("the task has no input")?)))
    }

    async fn settle(&mut self, held: Permit, result: Vec<u8>) -> Result<()> {
        held.finish(true, Effect::Created, Some(result)).await?;
        Ok(())
    }
}
