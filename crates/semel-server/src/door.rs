//! Where callers come in: opened only to those who may.

use semel::Engine;
use semel::core::token::TokenState;

use crate::StartError;
use crate::config::{Config, Listen};
use crate::connection::{Spoken, room_for};
use crate::listener::Listener;
use crate::tls::Encryption;

/// Where callers come in, and how.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: Listener,
    pub(crate) encryption: Option<Encryption>,
    /// Where it is, as callers write it.
    pub(crate) address: String,
}

impl Door {
    /// Opens a door, if those who could come in by it are the ones who may.
    pub(crate) async fn open(
        engine: &Engine,
        config: &mut Config,
        spoken: Spoken,
    ) -> Result<Self, StartError> {
        config.limits.connections = room_for(config.limits.connections);
        let place = match &config.listen {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        if !config.listen.is_local() {
            let now = engine.store().now();
            // Those of other namespaces open nothing here.
            let tokens = engine.tokens(config.namespace.as_ref()).await?;
            if !tokens
                .iter()
                .any(|token| token.state(now) == TokenState::Active)
            {
                return Err(StartError::NoTokens { place });
            }
        }
        let encrypted = |files| Encryption::new(files, spoken);
        let encryption = config.tls.as_ref().map(encrypted).transpose();
        let encryption = encryption.map_err(StartError::Tls)?;
        let opened = Listener::open(&config.listen).await;
        let listener = opened.map_err(|source| StartError::Listen {
            place: place.clone(),
            source,
        })?;
        let address = listener.address(encryption.is_some());
        let address = address.map_err(|source| StartError::Listen { place, source })?;
        Ok(Self {
            listener,
            encryption,
            address,
        })
    }
}
