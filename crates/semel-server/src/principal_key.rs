//! The names of callers who show credentials that are not tokens of ours.

use semel::Engine;
use semel::core::Digest;

use crate::StartError;
use crate::http::Problem;

/// How many bytes of a code name a caller.
const NAME_BYTES: usize = 16;

/// Hashes credentials with the ledger's secret key, so that they cannot be guessed from what is stored. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub(crate) struct PrincipalKey {
    engine: Engine,
    /// Keeps the entry points apart: the same credentials name different callers at each.
    label: String,
}

impl PrincipalKey {
    /// Makes that of an entry point.
    ///
    /// On a ledger that a server keeps, it asks for a code at once: a server that is too old, and a token that may
    /// not write, are told when the process starts and not with the first request.
    pub(crate) async fn open(engine: &Engine, entry_point: &str) -> Result<Self, StartError> {
        let this = Self {
            engine: engine.clone(),
            label: format!("semel-{entry_point}-principal\0"),
        };
        if engine.store().as_remote().is_some() {
            let asked = engine.principal_code(&this.digest(&[])).await;
            asked?;
        }
        Ok(this)
    }

    fn digest(&self, credentials: &[u8]) -> Digest {
        Digest::of_parts(&[self.label.as_bytes(), credentials])
    }

    /// Names the caller who shows these credentials.
    pub(crate) async fn principal(&self, credentials: &[u8]) -> Result<String, Problem> {
        let code = self.engine.principal_code(&self.digest(credentials)).await;
        let code = code.map_err(|error| Problem::of(&error, self.engine.store().now()))?;
        let name = code.0[..NAME_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"));
        Ok(format!("auth {}", name.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn memory() -> Engine {
        Engine::open("memory:").await.expect("it opens")
    }

    #[tokio::test]
    async fn names_differ_by_credentials_entry_point_and_ledger() {
        let (one, other) = (memory().await, memory().await);
        let name = async |engine: &Engine, label: &str, credentials: &[u8]| {
            let key = PrincipalKey::open(engine, label).await.expect("it opens");
            key.principal(credentials).await.expect("a name")
        };
        let first = name(&one, "proxy", b"Bearer abc").await;
        assert_eq!(first, name(&one, "proxy", b"Bearer abc").await);
        assert_ne!(first, name(&one, "proxy", b"Bearer abd").await);
        assert_ne!(first, name(&one, "mcp", b"Bearer abc").await);
        assert_ne!(first, name(&other, "proxy", b"Bearer abc").await);
        assert!(!first.contains("abc"), "{first}");
        assert_eq!(first.len(), "auth ".len() + 32);
    }
}
