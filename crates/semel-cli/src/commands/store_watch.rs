//! Tells the operator of a long-lived process that its store may not be written any more.

use std::time::Duration;

use semel::{Engine, Error};

/// How often the store's files are looked at: three `stat` calls and a read.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts to look after a store in a file. A line is logged whenever it becomes unusable, even if no call
/// writes to it meanwhile.
pub(crate) fn start(engine: &Engine) {
    if engine.store().as_sqlite().is_none() {
        return;
    }
    let engine = engine.clone();
    tokio::spawn(async move {
        let mut was_usable = true;
        loop {
            let failure = engine.store().ready().await.err().map(Error::from);
            let failure = failure.filter(|error| error.code() == "store_unusable");
            if let (Some(error), true) = (&failure, was_usable) {
                let hint = error.hint().unwrap_or_default();
                tracing::error!(%error, hint, "the store may not be written");
            }
            was_usable = failure.is_none();
            tokio::time::sleep(PAUSE).await;
        }
    });
}
