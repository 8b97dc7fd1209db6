//! Log entries as bytes.

use super::command::{get_command, put_command};
use super::fields::{DecodeError, Reader, Writer};
use crate::digest::KeyHash;
use crate::ledger::decision::Event;
use crate::ledger::entry::Entry;
use crate::ledger::record::{Fence, StateKind};

/// Writes a log entry as bytes.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut w = Writer::new();
    w.base(entry.at);
    w.option(entry.unplaced.as_ref(), |w, key| w.digest(&key.0));
    w.option(entry.state, |w, state| w.byte(state.code()));
    w.number(entry.fence.0);
    w.number(entry.events.len() as u64);
    for event in &entry.events {
        w.byte(event.code());
    }
    put_command(&mut w, &entry.command);
    w.finish()
}

/// Reads a log entry from bytes.
///
/// # Errors
/// Refuses everything that [`encode_entry`] cannot have written.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let mut r = Reader::new(bytes)?;
    let at = r.base("the time")?;
    let unplaced = r.option("the key's hash", |r| {
        r.digest("the key's hash").map(KeyHash)
    })?;
    let state = r.option("the state", |r| {
        StateKind::from_code(r.byte("the state")?).ok_or(DecodeError::Invalid("the state"))
    })?;
    let fence = Fence(r.number("the fence")?);
    let count = r.number("the events")?;
    let mut events = vec![];
    for _ in 0..count {
        let event = Event::from_code(r.byte("the events")?);
        events.push(event.ok_or(DecodeError::Invalid("the events"))?);
    }
    let command = get_command(&mut r)?;
    r.finish()?;
    Ok(Entry {
        at,
        unplaced,
        command,
        events,
        state,
        fence,
    })
}
