//! What canonical JSON promises, checked from the outside.

mod model;
mod numbers;
mod properties;
mod reader;
mod refusals;
mod rfc8785;
mod structure;

use super::{Error, Limits, canonicalize};

/// Canonicalizes text that must be accepted.
fn canonical(text: &str) -> String {
    match canonicalize(text.as_bytes(), &Limits::default()) {
        Ok(bytes) => String::from_utf8(bytes).expect("canonical text is UTF-8"),
        Err(error) => panic!("refused {text:?}: {error}"),
    }
}

/// Gives the error for input that must be refused.
fn refusal(input: impl AsRef<[u8]>) -> Error {
    let input = input.as_ref();
    match canonicalize(input, &Limits::default()) {
        Ok(bytes) => panic!(
            "accepted {:?} as {:?}",
            String::from_utf8_lossy(input),
            String::from_utf8_lossy(&bytes)
        ),
        Err(error) => error,
    }
}
