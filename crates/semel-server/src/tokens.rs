//! Tokens that were looked up a moment ago, where looking up costs a round trip.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel::core::token::{Granted, Refusal, judge};
use semel::{Engine, Error, Namespace, Scope, Token, TokenId, TokenRecord};

use crate::auth::unauthorized;
use crate::config::Config;
use crate::http::Problem;

/// How long a token is remembered: a revoked one works for no longer.
const REMEMBERED: Duration = Duration::from_secs(1);

/// How many are remembered.
const TOKENS_MAX: usize = 4_096;

/// Tokens that were found, and when. Those that were not are looked for each time, so that a new one works
/// at once.
#[derive(Debug)]
pub(crate) struct Tokens {
    found: Mutex<HashMap<TokenId, (TokenRecord, Instant)>>,
    /// Whether to remember at all: a store in a file answers at once.
    remembers: bool,
    /// The only namespace whose tokens are taken, where there is one.
    only: Option<Namespace>,
}

/// Names the holder of a token as the principal of its operations.
pub(crate) fn principal_of(granted: &Granted) -> String {
    format!("token {}", granted.id)
}

impl Tokens {
    pub(crate) fn new(engine: &Engine, config: &Config) -> Self {
        Self {
            found: Mutex::default(),
            remembers: engine.store().as_sqlite().is_none(),
            only: config.namespace.clone(),
        }
    }

    /// Finds out who shows this token, and notes that it was used.
    pub(crate) async fn authenticate(&self, engine: &Engine, text: &str) -> semel::Result<Granted> {
        if !self.remembers {
            return engine.authenticate(text).await;
        }
        let token: Token = text
            .parse()
            .map_err(|error| Error::Unauthorized(Refusal::Malformed(error)))?;
        let record = match self.remembered(token.id) {
            Some(record) => Some(record),
            None => self.look_up(engine, token.id).await?,
        };
        let granted = judge(record.as_ref(), &token, engine.store().now());
        let granted = granted.map_err(Error::Unauthorized)?;
        if let Some(record) = &record {
            engine.note_token_use(record);
        }
        Ok(granted)
    }

    /// Lets the holder of a token in: one that is valid, and of a namespace that this server serves.
    pub(crate) async fn admit(
        &self,
        engine: &Engine,
        text: &str,
        deadline: Duration,
    ) -> Result<Granted, Problem> {
        match tokio::time::timeout(deadline, self.authenticate(engine, text)).await {
            Ok(Ok(granted)) if granted.may_enter(self.only.as_ref()) => Ok(granted),
            Ok(Ok(granted)) => {
                tracing::info!(why = "other_namespace", "a token was refused");
                let own = granted.namespace;
                let text =
                    format!("the token is for the namespace `{own}`, and this server is not");
                let hint = "use a server for that namespace, or a token that `semel token create --namespace NAME` made for this one";
                Err(Problem::new("forbidden", text).hint(hint))
            }
            Ok(Err(Error::Unauthorized(refusal))) => {
                tracing::info!(why = refusal.as_str(), "a token was refused");
                Err(unauthorized())
            }
            Ok(Err(error)) => Err(Problem::of(&error, engine.store().now())),
            Err(_) => Err(Problem::timeout(deadline)),
        }
    }

    /// Lets the holder of a token in who may cause effects.
    pub(crate) async fn admit_writer(
        &self,
        engine: &Engine,
        text: &str,
        deadline: Duration,
    ) -> Result<Granted, Problem> {
        let granted = self.admit(engine, text, deadline).await?;
        if granted.scope.includes(Scope::Write) {
            return Ok(granted);
        }
        let text = "calls that may have an effect need a token with scope `write`";
        let hint = "`semel token create --scope write` makes one";
        Err(Problem::new("forbidden", text).hint(hint))
    }

    fn remembered(&self, id: TokenId) -> Option<TokenRecord> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (record, at) = found.get(&id)?;
        (at.elapsed() < REMEMBERED).then(|| record.clone())
    }

    async fn look_up(&self, engine: &Engine, id: TokenId) -> semel::Result<Option<TokenRecord>> {
        // From before it was asked for: what is revoked meanwhile is not remembered for longer.
        let at = Instant::now();
        let record = engine.token(id).await?;
        if let Some(record) = &record {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            if found.len() >= TOKENS_MAX {
                found.clear();
            }
            found.insert(id, (record.clone(), at));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use semel::NewToken;

    use super::*;

    #[tokio::test]
    async fn a_new_token_works_at_once_and_a_revoked_one_for_a_moment_at_most() {
        let engine = Engine::open("memory:").await.expect("it opens");
        let config = Config::new(crate::Listen::Unix("/run/semel.sock".into()));
        let tokens = Tokens::new(&engine, &config);
        assert!(tokens.remembers);
        let wanted = NewToken {
            namespace: Namespace::default(),
            scope: Scope::Read,
            label: None,
            expires_in: None,
        };
        let (token, record) = engine.create_token(wanted).await.expect("it is made");
        let text = token.reveal();
        assert!(tokens.authenticate(&engine, &text).await.is_ok());
        let revoked = engine.revoke_token(record.id, None).await;
        assert!(revoked.expect("it is revoked").is_some());
        assert!(tokens.authenticate(&engine, &text).await.is_ok());
        {
            let mut found = tokens.found.lock().expect("nobody panicked");
            let (_, at) = found.get_mut(&record.id).expect("it is remembered");
            *at -= REMEMBERED;
        }
        assert!(tokens.authenticate(&engine, &text).await.is_err());
    }
}
