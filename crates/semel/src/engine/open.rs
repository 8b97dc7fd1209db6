//! Opening a store by its URL.

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::{Label, Redactor};

use super::{Builder, Engine};
use crate::error::{Error, Result};
#[cfg(feature = "remote")]
use crate::remote::RemoteStore;
use crate::store::memory::MemoryStore;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresStore;
use crate::store::sqlite::SqliteStore;
use crate::store::{CopyPolicy, Standing, Store, StoreError};

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Work,
    /// To fill it as a copy, or to adopt it.
    Copy,
}

impl Engine {
    /// Opens the store at this URL: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST/DATABASE`,
    /// `http://HOST:PORT` of a server (`semel serve`) that lets callers in without a token, or `memory:`
    /// for tests.
    ///
    /// # Errors
    /// Says why the store cannot be used.
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder().open(url).await
    }

    /// Opens the store of a server (`http://HOST:PORT`, `https://HOST`, `http+unix:PATH`) as the owner
    /// of this token. The operations of this engine are in the token's namespace.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), semel::Error> {
    /// let token = std::env::var("SEMEL_TOKEN").expect("a token");
    /// let engine = semel::Engine::open_with_token("https://semel.example", &token).await?;
    /// println!("acting in {}", engine.namespace());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Engine::open`]; `unauthorized` when the server does not know the token. A token is not sent
    /// in plain text to another machine.
    pub async fn open_with_token(url: &str, token: &str) -> Result<Self> {
        Self::builder().token(token).open(url).await
    }

    /// Opens the store at this URL to fill it as a copy, or to adopt it. Nothing is swept meanwhile.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open_copy(url: &str) -> Result<Self> {
        let store = open(url, Purpose::Copy, None, CopyPolicy::Refuse).await?;
        let builder = Self::builder().store(store).sweep_every(None);
        builder.start().await
    }
}

impl Builder {
    /// Opens the store at this URL and starts the engine.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open(self, url: &str) -> Result<Engine> {
        let token = self.token.as_ref().map(|token| token.0.as_str());
        let store = open(url, Purpose::Work, token, self.copied).await?;
        if self.copied == CopyPolicy::Adopt {
            adopt_copied_file(url, &*store).await?;
        }
        self.store(store).start().await
    }
}

/// Adopts a store whose file was copied, before anything is begun in it.
async fn adopt_copied_file(url: &str, store: &dyn Store) -> Result<()> {
    let is_copied =
        async || Ok::<_, Error>(matches!(store.standing().await?, Standing::Copied { .. }));
    let can_write = store
        .as_sqlite()
        .is_some_and(|sqlite| sqlite.only_reads().is_none());
    if !can_write || !is_copied().await? {
        return Ok(());
    }
    let by = Label::new("store.copied").map_err(|error| Error::InvalidInput(error.to_string()))?;
    let copy = Engine::open_copy(url).await?;
    match copy.adopt(by).await {
        // Another process was faster.
        Err(_) if !is_copied().await? => Ok(()),
        adopted => adopted.map(drop),
    }
}

async fn open(
    url: &str,
    purpose: Purpose,
    token: Option<&str>,
    copied: CopyPolicy,
) -> Result<Arc<dyn Store>> {
    let scheme = url.split_once(':');
    #[cfg(feature = "remote")]
    if let Some(("http" | "https" | "http+unix", _)) = scheme {
        return match purpose {
            Purpose::Work => Ok(Arc::new(RemoteStore::open(url, token).await?)),
            Purpose::Copy => Err(StoreError::Refused(
                "a ledger is restored and copied where the store is: run it there, with --store naming \
                 the store itself"
                    .to_owned(),
            )
            .into()),
        };
    }
    if token.is_some() {
        return Err(Error::InvalidInput(
            "a token is for a server: this store takes none".to_owned(),
        ));
    }
    Ok(match scheme {
        Some(("sqlite", path)) if !path.is_empty() => {
            let path = PathBuf::from(path);
            let opened = tokio::task::spawn_blocking(move || match purpose {
                Purpose::Work => SqliteStore::open_copied(path, copied),
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
                "`{url}` is not a store that this version knows; use `sqlite:PATH`, \
                 `postgres://USER:PASSWORD@HOST/DATABASE` or `http://HOST:PORT`"
            )));
        }
    })
}
