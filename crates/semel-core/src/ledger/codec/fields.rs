//! The fields that records and commands are made of.

use core::time::Duration;

use crate::digest::Digest;
use crate::effect::Effect;
use crate::text::{AttemptId, Key, Label, Namespace, Note, Probe, TextError};
use crate::time::Timestamp;
use crate::verdict::{Outcome, Payload};

/// Says why bytes are not what an encoder wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the bytes end in the middle of {0}")]
    Truncated(&'static str),
    /// Something follows that should not.
    #[error("{0} bytes follow the end")]
    Trailing(usize),
    /// A field holds a value that no encoder writes.
    #[error("{0} holds a value that is not known")]
    Invalid(&'static str),
    /// A text breaks its own rule.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A command brings the text of a probe, of which only the digest may be sent.
    #[error(
        "a command holds the text of a probe; the ledger takes only its SHA-256, and the text stays with its caller"
    )]
    ProbeText,
    /// The bytes were written by a newer format.
    #[error("the format is {found}; this version knows up to {known}")]
    Newer {
        /// The format of the bytes.
        found: u8,
        /// The newest format that is known here.
        known: u8,
    },
}

/// The first format: the probe of an operation is there as a text.
pub(super) const FORMAT_1: u8 = 1;

/// The format of what holds the digest of a probe. Everything else is written in [`FORMAT_1`], whose bytes it shares.
pub(super) const FORMAT_2: u8 = 2;

/// Stands before a payload that something was taken out of; before any other stands 1.
const REDACTED: u8 = 2;

/// Writes fields; times are stored relative to a base, as most lie close to it.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    base: Timestamp,
}

impl Writer {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(FORMAT_1);
        Self {
            bytes,
            base: Timestamp(0),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    /// Writes a number in groups of seven bits, lowest first.
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub(super) fn wide(&mut self, value: u128) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Sets the base of the times that follow, writing it in full.
    pub(super) fn base(&mut self, base: Timestamp) {
        self.bytes.extend_from_slice(&base.0.to_le_bytes());
        self.base = base;
    }

    pub(super) fn time(&mut self, time: Timestamp) {
        let delta = time.0.wrapping_sub(self.base.0);
        // Small distances in both directions become small numbers.
        self.number(((delta << 1) ^ (delta >> 63)).cast_unsigned());
    }

    pub(super) fn duration(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.number(u64::from(duration.subsec_nanos()));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn digest(&mut self, digest: &Digest) {
        self.bytes.extend_from_slice(&digest.0);
    }

    /// Writes the digest of a probe, which only the second format has.
    pub(super) fn probe_digest(&mut self, digest: Option<&Digest>) {
        if digest.is_some() {
            self.bytes[0] = FORMAT_2;
        }
        self.option(digest, Self::digest);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.byte(0),
            Some(value) => {
                self.byte(1);
                put(self, value);
            }
        }
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.byte(match effect {
            Effect::Created => 0,
            Effect::Updated => 1,
            Effect::Deleted => 2,
            Effect::Noop => 3,
            Effect::WouldCreate => 4,
            Effect::WouldUpdate => 5,
            Effect::WouldDelete => 6,
            Effect::Unknown => 7,
        });
    }

    pub(super) fn outcome(&mut self, outcome: &Outcome) {
        self.bool(outcome.ok);
        self.effect(outcome.effect);
        self.payload(outcome.payload.as_ref());
    }

    pub(super) fn payload(&mut self, payload: Option<&Payload>) {
        let Some(payload) = payload else {
            return self.byte(0);
        };
        self.byte(if payload.redacted { REDACTED } else { 1 });
        self.digest(&payload.digest);
        self.number(payload.size);
    }
}

/// Reads fields, refusing what a [`Writer`] would not write.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    base: Timestamp,
    format: u8,
    has_probe: bool,
}

impl<'a> Reader<'a> {
    /// Starts reading, after checking the format.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.split_first() {
            None => Err(DecodeError::Truncated("the format")),
            Some((0, _)) => Err(DecodeError::Invalid("the format")),
            Some((&format, rest)) if format <= FORMAT_2 => Ok(Self {
                rest,
                base: Timestamp(0),
                format,
                has_probe: false,
            }),
            Some((&found, _)) => Err(DecodeError::Newer {
                found,
                known: FORMAT_2,
            }),
        }
    }

    pub(super) fn finish(self) -> Result<(), DecodeError> {
        // Without a digest it would be a second spelling of what the first format says.
        if self.format == FORMAT_2 && !self.has_probe {
            return Err(DecodeError::Invalid("the format"));
        }
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// Says whether what was read holds the text of a probe, as the first format has it.
    pub(super) const fn has_probe_text(&self) -> bool {
        self.format == FORMAT_1 && self.has_probe
    }

    fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N, what)?;
        taken.try_into().map_err(|_| DecodeError::Truncated(what))
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            2.. => Err(DecodeError::Invalid(what)),
        }
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            let placed = bits
                .checked_shl(shift)
                .filter(|placed| placed >> shift == bits);
            value |= placed.ok_or(DecodeError::Invalid(what))?;
            if byte < 0x80 {
                // A padded spelling of a number would be a second encoding of the same record.
                let padded = byte == 0 && shift > 0;
                return if padded {
                    Err(DecodeError::Invalid(what))
                } else {
                    Ok(value)
                };
            }
        }
        Err(DecodeError::Invalid(what))
    }

    pub(super) fn number32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.number(what)?).map_err(|_| DecodeError::Invalid(what))
    }

    pub(super) fn wide(&mut self, what: &'static str) -> Result<u128, DecodeError> {
        self.array(what).map(u128::from_le_bytes)
    }

    pub(super) fn base(&mut self, what: &'static str) -> Result<Timestamp, DecodeError> {
        self.base = Timestamp(self.array(what).map(i64::from_le_bytes)?);
        Ok(self.base)
    }

    pub(super) fn time(&mut self, what: &'static str) -> Result<Timestamp, DecodeError> {
        let folded = self.number(what)?;
        let delta = (folded >> 1).cast_signed() ^ -((folded & 1).cast_signed());
        Ok(Timestamp(self.base.0.wrapping_add(delta)))
    }

    pub(super) fn duration(&mut self, what: &'static str) -> Result<Duration, DecodeError> {
        let seconds = self.number(what)?;
        let nanos = self.number32(what)?;
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Invalid(what));
        }
        Ok(Duration::new(seconds, nanos))
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = usize::try_from(self.number(what)?).map_err(|_| DecodeError::Invalid(what))?;
        core::str::from_utf8(self.take(length, what)?).map_err(|_| DecodeError::Invalid(what))
    }

    pub(super) fn key(&mut self) -> Result<Key, DecodeError> {
        Ok(Key::new(self.text("the key")?)?)
    }

    pub(super) fn namespace(&mut self) -> Result<Namespace, DecodeError> {
        Ok(Namespace::new(self.text("the namespace")?)?)
    }

    pub(super) fn attempt_id(&mut self) -> Result<AttemptId, DecodeError> {
        Ok(AttemptId::new(self.text("the attempt id")?)?)
    }

    pub(super) fn label(&mut self, what: &'static str) -> Result<Label, DecodeError> {
        Ok(Label::new(self.text(what)?)?)
    }

    /// Reads the digest of a probe. A text is hashed here, so that no reader of an old ledger can run it.
    pub(super) fn probe_digest(&mut self) -> Result<Option<Digest>, DecodeError> {
        let digest = self.option("the probe", |r| {
            if r.format == FORMAT_1 {
                Ok(Probe::new(r.text("the probe")?)?.digest())
            } else {
                r.digest("the probe")
            }
        })?;
        self.has_probe |= digest.is_some();
        Ok(digest)
    }

    pub(super) fn note(&mut self, what: &'static str) -> Result<Note, DecodeError> {
        Ok(Note::new(self.text(what)?)?)
    }

    pub(super) fn digest(&mut self, what: &'static str) -> Result<Digest, DecodeError> {
        self.array(what).map(Digest)
    }

    pub(super) fn option<T>(
        &mut self,
        what: &'static str,
        get: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool(what)? {
            get(self).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn effect(&mut self) -> Result<Effect, DecodeError> {
        let code = usize::from(self.byte("the effect")?);
        Effect::ALL
            .get(code)
            .copied()
            .ok_or(DecodeError::Invalid("the effect"))
    }

    pub(super) fn outcome(&mut self) -> Result<Outcome, DecodeError> {
        Ok(Outcome {
            ok: self.bool("the outcome")?,
            effect: self.effect()?,
            payload: self.payload()?,
        })
    }

    pub(super) fn payload(&mut self) -> Result<Option<Payload>, DecodeError> {
        Ok(match self.byte("the payload")? {
            0 => None,
            kind @ (1 | REDACTED) => Some(Payload {
                digest: self.digest("the payload")?,
                size: self.number("the payload")?,
                redacted: kind == REDACTED,
            }),
            _ => return Err(DecodeError::Invalid("the payload")),
        })
    }
}
