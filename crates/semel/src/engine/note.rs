//! Notes of outcomes that the store could not take: synced files that the next open delivers.

use std::io::{self, Read as _, Write as _};

use semel_core::ledger::Command;
use semel_core::ledger::codec::{decode_command, encode_command};
use semel_core::{Digest, KeyHash};

use super::ledger::{Brought, Bytes, Ledger, Subject};
use crate::error::Error;
use crate::owned::OwnedDirectory;
use crate::store::{PAYLOAD_MAX, Store, StoreError, make_notes, open_notes};

/// The most notes that one open delivers; the rest wait for the next one.
const DELIVER_MAX: usize = 1_024;

/// The most that is read of a note: the largest payload, and what stands around it.
const BYTES_MAX: u64 = PAYLOAD_MAX as u64 + 64 * 1024;

/// Keeps an outcome beside the store, synced.
pub(crate) fn keep(
    store: &dyn Store,
    subject: &Subject,
    command: &Command,
    brought: &Brought,
) -> io::Result<()> {
    let directory = make_notes(store)?;
    let bytes = encode(subject, command, brought);
    let name = Digest::of(&bytes).hex();
    let unfinished = format!("{name}.part");
    // A process that was killed while it wrote the same note has left its beginning.
    match directory.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = directory.make_file(&unfinished)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    directory.rename(&unfinished, &format!("{name}.note"))?;
    directory.sync()
}

/// Delivers what earlier processes could not store, as late reports.
///
/// A note reports what its own attempt learned, and nothing else: any other command that lies there is
/// left, and `semel doctor` counts it. So is everything in a directory that another user controls.
pub(crate) async fn deliver(ledger: &Ledger) -> Result<usize, StoreError> {
    let Ok(Some(directory)) = open_notes(&*ledger.store) else {
        return Ok(0);
    };
    let mut delivered = 0;
    for name in waiting(&directory) {
        let Some((subject, command, brought)) = read(&directory, &name)
            .ok()
            .and_then(|bytes| decode(&bytes))
        else {
            // Damaged, or taken by another process meanwhile: it is left for a person to look at.
            continue;
        };
        if !is_report_of_an_attempt(&command) {
            continue;
        }
        match ledger.apply(&subject, None, &command, &brought).await {
            // Refused or accepted, the ledger has heard it.
            Ok(_) | Err(Error::Refused(_)) => {
                remove(&directory, &name).map_err(|error| {
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

/// Says whether a command is what a note may hold: the verdict of a named attempt. Anything else would
/// let a file beside the store act as an operator or a caller.
const fn is_report_of_an_attempt(command: &Command) -> bool {
    match command {
        Command::Settle(_) => true,
        Command::Submit(_)
        | Command::Begin(_)
        | Command::Renew(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => false,
    }
}

fn waiting(directory: &OwnedDirectory) -> Vec<String> {
    let mut notes = directory.names(DELIVER_MAX, |name| name.ends_with(".note"));
    // A directory lists its files in any order; delivering them must not depend on it.
    notes.sort();
    notes
}

fn read(directory: &OwnedDirectory, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    let file = directory.read_file(name)?;
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn remove(directory: &OwnedDirectory, name: &str) -> io::Result<()> {
    match directory.remove(name) {
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
