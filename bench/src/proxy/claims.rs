//! What a claim costs by itself: one durable commit by the engine, in this process.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use semel::{Admission, Effect};

use crate::engines::{Cycles, Embedded as _, Semel};
use crate::keys::Key;

/// Claims and settles; only the claim is timed.
pub(crate) struct Claims(Semel);

impl Claims {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        Ok(Self(Semel::open(directory).await?))
    }
}

impl Cycles for Claims {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        self.timed(key, result).await.map(drop)
    }

    async fn timed(&self, key: Key, result: Vec<u8>) -> Result<Duration> {
        let began = Instant::now();
        let admission = self.0.begin(&key).await?;
        let took = began.elapsed();
        let Admission::Execute(permit) = admission else {
            bail!("a fresh key was answered with {admission:?}");
        };
        permit.finish(true, Effect::Created, Some(result)).await?;
        Ok(took)
    }
}
