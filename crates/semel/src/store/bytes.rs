//! How payloads, time stamps and progress are written: the same in every store that persists.

use std::time::Duration;

use semel_core::Timestamp;
use semel_core::clock::Stamp;

use super::{PAYLOAD_MAX, Pass, Place, Progress, Result, StoreError};

/// Payloads of more bytes than this are compressed.
const COMPRESS_OVER: usize = 512;

/// Packs a payload for storing: a byte that says how, then the bytes.
pub(super) fn pack(bytes: &[u8]) -> Result<Vec<u8>> {
    if bytes.len() > PAYLOAD_MAX {
        let (size, limit) = (bytes.len(), PAYLOAD_MAX);
        return Err(StoreError::TooLarge {
            what: "the payload",
            size,
            limit,
        });
    }
    if bytes.len() > COMPRESS_OVER {
        let packed = zstd::bulk::compress(bytes, 3)
            .map_err(|error| StoreError::Unavailable(format!("compressing failed: {error}")))?;
        if packed.len() < bytes.len() {
            return Ok([&[1], packed.as_slice()].concat());
        }
    }
    Ok([&[0], bytes].concat())
}

/// Unpacks a stored payload; `None` when it was erased.
pub(super) fn unpack(packed: &[u8]) -> Result<Option<Vec<u8>>> {
    let damaged = || StoreError::Corrupt("a stored payload cannot be read".to_owned());
    match packed.split_first() {
        Some((0, bytes)) => Ok(Some(bytes.to_vec())),
        Some((1, bytes)) => zstd::bulk::decompress(bytes, PAYLOAD_MAX)
            .map(Some)
            .map_err(|_| damaged()),
        Some((&ERASED, _)) => Ok(None),
        Some(_) | None => Err(damaged()),
    }
}

/// Stands where a payload was packed before it was erased.
pub(super) const ERASED: u8 = 0xff;

/// Writes a time stamp.
pub(super) fn write_stamp(stamp: &Stamp) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&stamp.at.0.to_le_bytes());
    bytes[8..24].copy_from_slice(&stamp.boot.to_le_bytes());
    let micros = u64::try_from(stamp.uptime.as_micros()).unwrap_or(u64::MAX);
    bytes[24..].copy_from_slice(&micros.to_le_bytes());
    bytes
}

/// Reads a time stamp.
pub(super) fn read_stamp(bytes: &[u8]) -> Result<Stamp> {
    let damaged = || StoreError::Corrupt("a time stamp cannot be read".to_owned());
    let bytes: &[u8; 32] = bytes.try_into().map_err(|_| damaged())?;
    Ok(Stamp {
        at: Timestamp(i64::from_le_bytes(
            bytes[..8].try_into().map_err(|_| damaged())?,
        )),
        boot: u128::from_le_bytes(bytes[8..24].try_into().map_err(|_| damaged())?),
        uptime: Duration::from_micros(u64::from_le_bytes(
            bytes[24..].try_into().map_err(|_| damaged())?,
        )),
    })
}

/// Writes how far the sweeps have come. No place has the number zero.
pub(super) fn write_progress(progress: &Progress) -> Vec<u8> {
    let place = |place: Option<Place>| place.map_or(0, |place| place.0).to_le_bytes();
    let running = place(progress.running);
    match progress.retention {
        None => running.to_vec(),
        Some(Pass { horizon, after }) => [running, horizon.0.to_le_bytes(), place(after)].concat(),
    }
}

/// Reads how far the sweeps have come.
pub(super) fn read_progress(bytes: &[u8]) -> Result<Progress> {
    let place = |bytes: [u8; 8]| match u64::from_le_bytes(bytes) {
        0 => None,
        number => Some(Place(number)),
    };
    match bytes.as_chunks::<8>() {
        ([running], []) => Ok(Progress {
            running: place(*running),
            retention: None,
        }),
        ([running, horizon, after], []) => Ok(Progress {
            running: place(*running),
            retention: Some(Pass {
                horizon: Timestamp(i64::from_le_bytes(*horizon)),
                after: place(*after),
            }),
        }),
        _ => Err(StoreError::Corrupt(
            "how far the sweeps have come cannot be read".to_owned(),
        )),
    }
}
