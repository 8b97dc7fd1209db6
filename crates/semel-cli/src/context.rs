//! What every verb works with.

use std::path::Path;

use semel::store::StoreError;
use semel::{Engine, Error, Namespace};
use tokio::sync::OnceCell;

use crate::failure::Failure;
use crate::printer::Printer;
use crate::settings::{Kind, Origin, SETTINGS, Settings, without_password};

/// The settings and the way to speak.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
    /// The store, once it was opened.
    engine: OnceCell<Engine>,
}

impl Context {
    pub(crate) fn new(settings: Settings, printer: Printer) -> Self {
        Self {
            settings,
            printer,
            engine: OnceCell::new(),
        }
    }

    /// Opens the store; a file that is not there is made.
    pub(crate) async fn open(&self) -> Result<Engine, Failure> {
        let store = frugal(self.settings.store());
        let engine = self
            .engine
            .get_or_try_init(async || self.engine(&store).await);
        engine.await.cloned()
    }

    /// Opens the store for much at once.
    pub(crate) async fn open_wide(&self) -> Result<Engine, Failure> {
        let store = self.settings.store();
        let engine = self
            .engine
            .get_or_try_init(async || self.engine(store).await);
        engine.await.cloned()
    }

    async fn engine(&self, store: &str) -> Result<Engine, Failure> {
        let named = Namespace::new(self.settings.get("namespace"));
        let named = named.map_err(|error| Failure::input(error.to_string()))?;
        let builder = Engine::builder()
            .namespace(named)
            .copied(self.settings.copied())
            .redactor(self.settings.redactor()?);
        let builder = self.settings.queues_of(builder);
        if !self.is_remote() {
            return Ok(builder.open(store).await?);
        }
        let builder = match self.settings.get("token") {
            "" => builder,
            token => builder.token(token),
        };
        let engine = builder.open(store).await?;
        let (asked, own) = (self.settings.namespace(), engine.namespace());
        if asked.is_some_and(|asked| asked != own.as_str()) {
            let text = format!("the server lets this caller into the namespace `{own}` only");
            return Err(Error::from(StoreError::Forbidden(text)).into());
        }
        Ok(engine)
    }

    /// Says whether a server keeps the ledger.
    pub(crate) fn is_remote(&self) -> bool {
        let store = self.settings.store();
        let schemes = ["http:", "https:", "http+unix:"];
        schemes.iter().any(|scheme| store.starts_with(scheme))
    }

    /// Finds out what has to be known before an operation can be named: the namespace, where a server
    /// says which it is.
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        if self.is_remote() {
            self.open().await?;
        }
        Ok(())
    }

    /// Opens a store that must be there: a command that only looks must not make an empty one, and
    /// then say that all is well with it.
    pub(crate) async fn open_existing(&self) -> Result<Engine, Failure> {
        if let Some(path) = self.missing() {
            let text = format!("there is no store at {}", path.display());
            return Err(Error::from(StoreError::Unavailable(text)).into());
        }
        self.open().await
    }

    /// Returns the store's file when it is not there.
    pub(crate) fn missing(&self) -> Option<&Path> {
        let path = Path::new(self.settings.store().strip_prefix("sqlite:")?);
        (!path.exists()).then_some(path)
    }

    /// Writes a command that does something about the same ledger as this one: what was said with
    /// flags has to be said again.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let mut line = "semel".to_owned();
        for setting in &SETTINGS {
            let value = self.settings.value(setting);
            if let (Origin::Flag(flag), Kind::Plain) = (&value.origin, setting.kind) {
                line = format!("{line} {flag} {}", quoted(&without_password(&value.text)));
            }
        }
        words
            .iter()
            .fold(line, |line, word| format!("{line} {}", quoted(word)))
    }

    /// Returns the namespace that was asked for, else the one that the store is used in.
    pub(crate) fn namespace(&self) -> Result<Namespace, Failure> {
        if let (None, Some(engine)) = (self.settings.namespace(), self.engine.get()) {
            return Ok(engine.namespace());
        }
        Namespace::new(self.settings.get("namespace"))
            .map_err(|error| Failure::input(error.to_string()))
    }
}

/// A command does one thing after the other: one connection to a server is enough for it, unless the URL
/// says otherwise, and many commands at once leave room for each other.
fn frugal(store: &str) -> String {
    let is_server = ["postgres://", "postgresql://", "http://", "https://"];
    let parameters = store.split_once('?').map(|(_, parameters)| parameters);
    let says = |parameter: &str| parameter.starts_with("connections=");
    if !is_server.iter().any(|scheme| store.starts_with(scheme))
        || parameters.is_some_and(|parameters| parameters.split('&').any(says))
    {
        return store.to_owned();
    }
    let joint = if parameters.is_some() { '&' } else { '?' };
    format!("{store}{joint}connections=1")
}

/// Quotes a word for the shell, where that is needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_uses_one_connection_unless_the_url_says_otherwise() {
        for (store, opened) in [
            ("sqlite:/a?b", "sqlite:/a?b"),
            ("postgres://h/d", "postgres://h/d?connections=1"),
            ("http://h:1", "http://h:1?connections=1"),
            ("http+unix:/a", "http+unix:/a"),
            (
                "postgresql://h/d?sslmode=require",
                "postgresql://h/d?sslmode=require&connections=1",
            ),
            (
                "postgres://h/d?user=a&connections=4",
                "postgres://h/d?user=a&connections=4",
            ),
        ] {
            assert_eq!(frugal(store), opened);
        }
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        for (word, text) in [
            ("order-7", "order-7"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), text);
        }
    }
}
