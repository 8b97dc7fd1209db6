//! JSON that a flag gives: the text itself, `@FILE`, or `@-` for standard input.

use std::fs::File;
use std::io::{self, Read};

use crate::failure::Failure;

/// Reads the JSON of a flag; `what` it is may not be larger than this.
pub(crate) fn json(flag: &str, what: &str, text: &str, limit: usize) -> Result<Vec<u8>, Failure> {
    let bytes = match text.strip_prefix('@') {
        None => text.as_bytes().to_vec(),
        Some("-") => read(io::stdin(), flag, "standard input", limit)?,
        Some(path) => {
            let file = File::open(path)
                .map_err(|error| Failure::input(format!("{flag}: {path}: {error}")))?;
            read(file, flag, path, limit)?
        }
    };
    if bytes.len() > limit {
        return Err(Failure::too_large(what, limit));
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::input(format!("{flag} is not JSON: {error}"))
            .hint(format!("a text needs its own quotes: {flag} '\"text\"'"))),
    }
}

fn read(from: impl Read, flag: &str, name: &str, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![];
    from.take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::input(format!("{flag}: {name}: {error}")))?;
    Ok(bytes)
}
