//! Opening a store by its URL.

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::Redactor;

use super::Engine;
use crate::error::{Error, Result};
use crate::store::memory::MemoryStore;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresStore;
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Work,
    /// To fill it as a copy, or to adopt it.
    Copy,
}

impl Engine {
    /// Opens the store at this URL: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST/DATABASE`, or
    /// `memory:` for tests.
    ///
    /// # Errors
    /// Says why the store cannot be used.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_redacting(url, Redactor::default()).await
    }

    /// Opens the store at this URL; what is stored about operations is redacted by these rules.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open_redacting(url: &str, redactor: Redactor) -> Result<Self> {
        let store = open(url, Purpose::Work).await?;
        let builder = Self::builder().store(store).redactor(redactor);
        builder.start().await
    }

    /// Opens the store at this URL to fill it as a copy, or to adopt it. Nothing is swept meanwhile.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open_copy(url: &str) -> Result<Self> {
        let store = open(url, Purpose::Copy).await?;
        let builder = Self::builder().store(store).sweep_every(None);
        builder.start().await
    }
}

async fn open(url: &str, purpose: Purpose) -> Result<Arc<dyn Store>> {
    Ok(match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => {
            let path = PathBuf::from(path);
            let opened = tokio::task::spawn_blocking(move || match purpose {
                Purpose::Work => SqliteStore::open(path),
                Purpose::Copy => SqliteStore::open_copy(path),
            });
            let opened = opened.await.map_err(|error| {
                StoreError::Unavailable(format!("opening the store was interrupted: {error}"))
            })?;
            Arc::new(opened?)
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
            Arc::new(match purpose {
                Purpose::Work => PostgresStore::open(url).await?,
                Purpose::Copy => PostgresStore::open_copy(url).await?,
            })
        }
        Some(("memory", "")) => Arc::new(MemoryStore::default()),
        Some(_) | None => {
            let url = Redactor::default().text(url).into_owned();
            return Err(Error::InvalidInput(format!(
                "`{url}` is not a store that this version knows; use `sqlite:PATH` or \
                 `postgres://USER:PASSWORD@HOST/DATABASE`"
            )));
        }
    })
}
