//! How a group of log entries is kept: one row, written once.

use semel_core::clock::Stamp;
use semel_core::ledger::codec::decode_entry;

use super::index::Hash;
use super::seal::{seal, unseal};
use crate::store::bytes::read_stamp;
use crate::store::{Logged, Place, Result, StoreError};

/// Collects the log entries of one group.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) fresh: Vec<u8>,
    pub(super) count: u64,
}

impl Body {
    pub(super) fn push(&mut self, place: Option<Place>, entry: &[u8]) {
        let length = u32::try_from(entry.len()).unwrap_or(u32::MAX);
        self.bytes
            .extend_from_slice(&place.map_or(0, |place| place.0).to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(entry);
        self.count += 1;
    }

    /// Remembers a new row, by which other processes find it before it is in the narrow table.
    pub(super) fn push_fresh(&mut self, hash: Hash, id: u64) {
        self.fresh.extend_from_slice(&hash.0.to_le_bytes());
        self.fresh.extend_from_slice(&id.to_le_bytes());
    }

    /// Adds the checksums, once all entries are there.
    pub(super) fn seal(&mut self, first_seq: u64, last_seq: u64, stamp: &[u8; 32]) {
        let (first, last) = (first_seq.to_le_bytes(), last_seq.to_le_bytes());
        seal(&mut self.fresh, &[&first, &last, stamp]);
        seal(&mut self.bytes, &[&first, &last]);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.fresh.clear();
        self.count = 0;
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} of the log cannot be read"))
}

fn array<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| damaged(what))
}

/// Says that entries are missing from the log.
pub(super) fn gap(expected: u64, found: u64) -> StoreError {
    StoreError::Corrupt(format!(
        "the log goes on with entry {found} where entry {expected} should be"
    ))
}

/// Reads the entries of a group.
pub(super) fn read_entries(first_seq: u64, last_seq: u64, sealed: &[u8]) -> Result<Vec<Logged>> {
    let beside: [&[u8]; 2] = [&first_seq.to_le_bytes(), &last_seq.to_le_bytes()];
    let mut bytes = unseal(sealed, &beside)
        .ok_or_else(|| damaged(&format!("the group of entry {first_seq}")))?;
    let mut entries = vec![];
    let mut seq = first_seq;
    while !bytes.is_empty() {
        let (head, rest) = bytes
            .split_at_checked(12)
            .ok_or_else(|| damaged("a group"))?;
        let place = u64::from_le_bytes(array(&head[..8], "a group")?);
        let length = u32::from_le_bytes(array(&head[8..], "a group")?) as usize;
        let (entry, rest) = rest
            .split_at_checked(length)
            .ok_or_else(|| damaged("an entry"))?;
        let entry = decode_entry(entry)
            .map_err(|error| StoreError::Corrupt(format!("log entry {seq}: {error}")))?;
        let place = (place != 0).then_some(Place(place));
        entries.push(Logged { seq, place, entry });
        seq += 1;
        bytes = rest;
    }
    Ok(entries)
}

/// What a row of the log says besides its entries.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) last_seq: u64,
    pub(super) stamp: Stamp,
    /// The rows that the group made.
    pub(super) fresh: Vec<(Hash, u64)>,
}

/// Reads what a row of the log says besides its entries.
pub(super) fn read_group(
    first_seq: u64,
    last_seq: u64,
    stamp: &[u8],
    sealed: &[u8],
) -> Result<Group> {
    let beside: [&[u8]; 3] = [&first_seq.to_le_bytes(), &last_seq.to_le_bytes(), stamp];
    let fresh = unseal(sealed, &beside)
        .ok_or_else(|| damaged(&format!("the group of entry {first_seq}")))?;
    Ok(Group {
        last_seq,
        stamp: read_stamp(stamp)?,
        fresh: read_fresh(fresh)?,
    })
}

fn read_fresh(bytes: &[u8]) -> Result<Vec<(Hash, u64)>> {
    if !bytes.len().is_multiple_of(24) {
        return Err(damaged("a group's list of new rows"));
    }
    let rows = bytes.chunks_exact(24).map(|row| {
        let hash = u128::from_le_bytes(array(&row[..16], "a new row")?);
        let id = u64::from_le_bytes(array(&row[16..], "a new row")?);
        Ok((Hash(hash), id))
    });
    rows.collect()
}
