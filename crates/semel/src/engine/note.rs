//! Notes of outcomes that the store could not take: synced files that the next open delivers.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use semel_core::ledger::Command;
use semel_core::ledger::codec::{decode_command, encode_command};
use semel_core::{Digest, KeyHash};

use super::ledger::{Brought, Bytes, Ledger, Subject};
use crate::error::Error;
use crate::store::{Store, StoreError};

/// The most notes that one open delivers; the rest wait for the next one.
const DELIVER_MAX: usize = 1_024;

/// Keeps an outcome beside the store, synced.
pub(crate) fn keep(
    store: &dyn Store,
    subject: &Subject,
    command: &Command,
    brought: &Brought,
) -> io::Result<()> {
    let directory = store
        .notes()
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the store keeps no notes"))?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    let bytes = encode(subject, command, brought);
    let name = Digest::of(&bytes).hex();
    let unfinished = directory.join(format!("{name}.part"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, directory.join(format!("{name}.note")))?;
    File::open(&directory)?.sync_all()
}

/// Delivers what earlier processes could not store, as late reports.
pub(crate) async fn deliver(ledger: &Ledger) -> Result<usize, StoreError> {
    let Some(directory) = ledger.store.notes() else {
        return Ok(0);
    };
    let mut delivered = 0;
    for path in waiting(&directory) {
        let Some((subject, command, brought)) =
            std::fs::read(&path).ok().and_then(|bytes| decode(&bytes))
        else {
            // Damaged, or taken by another process meanwhile: it is left for a person to look at.
            continue;
        };
        match ledger.apply(&subject, None, &command, &brought).await {
            // Refused or accepted, the ledger has heard it.
            Ok(_) | Err(Error::Refused(_)) => {
                remove(&path).map_err(|error| {
                    StoreError::Unavailable(format!("a delivered note cannot be removed: {error}"))
                })?;
                delivered += 1;
            }
            Err(Error::Store(error @ (StoreError::Unavailable(_) | StoreError::Unknown(_)))) => {
                return Err(error);
            }
            // Never to be delivered as things are: it must not keep everybody out of the store.
            Err(_) => {}
        }
    }
    Ok(delivered)
}

fn waiting(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let notes = entries.map(|entry| entry.path());
    let mut notes: Vec<_> = notes
        .filter(|path| path.extension().is_some_and(|e| e == "note"))
        .take(DELIVER_MAX)
        .collect();
    // A directory lists its files in any order; delivering them must not depend on it.
    notes.sort();
    notes
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Lays a note out: a digest of all that follows, then parts that each begin with their length.
fn encode(subject: &Subject, command: &Command, brought: &Brought) -> Vec<u8> {
    let (kind, payload): (u8, &[u8]) = match &brought.payload {
        None => (0, &[]),
        Some(Bytes::Here(bytes)) => (1, bytes),
        Some(Bytes::Streamed(fence)) => (2, &fence.0.to_le_bytes()),
    };
    let command = encode_command(command);
    let parts: [&[u8]; 4] = [&subject.hash.0.0, &command, &[kind], payload];
    let mut body = vec![];
    for part in parts {
        body.extend_from_slice(&(part.len() as u64).to_le_bytes());
        body.extend_from_slice(part);
    }
    [&Digest::of(&body).0[..], &body].concat()
}

fn decode(bytes: &[u8]) -> Option<(Subject, Command, Brought)> {
    let (digest, mut rest) = bytes.split_at_checked(32)?;
    if Digest::of(rest).0 != digest {
        return None;
    }
    let mut part = || {
        let (length, after) = rest.split_at_checked(8)?;
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let (part, after) = after.split_at_checked(length)?;
        rest = after;
        Some(part)
    };
    let hash = KeyHash(Digest(part()?.try_into().ok()?));
    let command = decode_command(part()?).ok()?;
    let (kind, payload) = (part()?, part()?);
    let payload = match kind {
        [0] => None,
        [1] => Some(Bytes::Here(payload.into())),
        [2] => {
            let fence = u64::from_le_bytes(payload.try_into().ok()?);
            Some(Bytes::Streamed(semel_core::ledger::Fence(fence)))
        }
        _ => return None,
    };
    Some((
        Subject::unnamed(hash),
        command,
        Brought {
            payload,
            ..Brought::default()
        },
    ))
}
