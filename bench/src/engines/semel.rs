//! The ledger itself: the engine that people use, with its defaults.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use semel::{Admission, Effect, Engine, Request};

use super::{Contender, Cycles, Embedded, write_log_back};
use crate::keys::Key;

pub(crate) struct Semel {
    engine: Engine,
}

const FILE: &str = "semel.db";

impl Semel {
    /// Opens the store at a URL.
    pub(crate) async fn at(url: &str) -> Result<Self> {
        let engine = Engine::open(url).await?;
        Ok(Self { engine })
    }

    pub(crate) async fn begin(&self, key: &Key) -> Result<Admission> {
        let key = std::str::from_utf8(key).context("keys are hexadecimal digits")?;
        let request = Request::new("bench", semel::Key::new(key)?);
        Ok(self.engine.begin(request).await?)
    }
}

impl Cycles for Semel {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        match self.begin(&key).await? {
            Admission::Execute(permit) => {
                permit.finish(true, Effect::Created, Some(result)).await?;
                Ok(())
            }
            other => bail!("a fresh key was answered with {other:?}"),
        }
    }
}

impl Contender for Semel {
    type Found = Arc<[u8]>;

    async fn replay(&self, key: Key) -> Result<Arc<[u8]>> {
        match self.begin(&key).await? {
            Admission::Replay(receipt) => receipt.payload.context("the receipt has no result"),
            other => bail!("a settled key was answered with {other:?}"),
        }
    }
}

impl Embedded for Semel {
    async fn open(directory: &Path) -> Result<Self> {
        let url = format!("sqlite:{}", directory.join(FILE).display());
        Self::at(&url).await
    }

    fn tidy(directory: &Path) -> Result<()> {
        write_log_back(&directory.join(FILE))
    }
}
