//! Failures whose cause goes to the log, and not to the client.

use semel::{Error, Incident};

/// Writes the cause of a failure to the log, under the number that the client is told.
pub(crate) fn log(incident: &Incident) {
    let Incident { id, cause } = incident;
    tracing::warn!(incident = %id, cause, "the store failed");
}

/// Returns what a client is told of an error, and logs what it is not told.
pub(crate) fn conceal(error: Error) -> Error {
    match error.concealed() {
        Some(concealed) => {
            log(&concealed.incident);
            concealed.error
        }
        None => error,
    }
}

/// As [`conceal`], where the error itself is still needed; `None` where it may be told as it is.
pub(crate) fn conceal_from(error: &Error) -> Option<Error> {
    let concealed = error.concealed()?;
    log(&concealed.incident);
    Some(concealed.error)
}
