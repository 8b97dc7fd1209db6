//! The fields that messages are made of.

use std::ops::RangeInclusive;
use std::sync::Arc;

use semel_core::ledger::codec::{
    DecodeError, decode_command, decode_entry, decode_record, encode_command, encode_entry,
    encode_record,
};
use semel_core::ledger::{Command, Fence, Record, StateKind};
use semel_core::{Digest, Key, KeyHash, Namespace, Timestamp};

use crate::store::{AbsentAsOf, Chunk, Current, Logged, Place, Stored};

/// Says why bytes are no message that this version knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are of a later format.
    #[error("the message has format {found}; this version of Semel knows up to {known}")]
    Newer {
        /// The format of the bytes.
        found: u8,
        /// The newest format that is known here.
        known: u8,
    },
    /// A command brings the text of a probe, as clients of earlier versions send it.
    #[error("{0}")]
    ProbeText(DecodeError),
    /// The bytes are not what an encoder wrote.
    #[error("the message cannot be read: {0}")]
    Unreadable(String),
}

pub(super) type Result<T> = std::result::Result<T, Malformed>;

/// Says that a field is not what it should be.
pub(super) fn wrong(what: &str) -> Malformed {
    Malformed::Unreadable(format!("{what} is not what it should be"))
}

/// Writes fields, one after the other.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(format: u8) -> Self {
        Self(vec![format])
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    pub(super) fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn time(&mut self, time: Timestamp) {
        self.number(time.0.cast_unsigned());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn digest(&mut self, digest: &Digest) {
        self.0.extend_from_slice(&digest.0);
    }

    pub(super) fn hash(&mut self, hash: &KeyHash) {
        self.0.extend_from_slice(&hash.0.0);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(super) fn all<T>(&mut self, values: &[T], put: impl Fn(&mut Self, &T)) {
        self.number(values.len() as u64);
        for value in values {
            put(self, value);
        }
    }

    pub(super) fn command(&mut self, command: &Command) {
        self.bytes(&encode_command(command));
    }

    pub(super) fn record(&mut self, record: &Record) {
        self.bytes(&encode_record(record));
    }

    pub(super) fn stored(&mut self, stored: &Stored) {
        self.number(stored.place.0);
        self.record(&stored.record);
        self.option(stored.payload.as_deref(), Self::bytes);
    }

    pub(super) fn current(&mut self, current: &Current) {
        match current {
            Current::Absent(as_of) => {
                self.byte(0);
                self.number(as_of.0);
            }
            Current::Stored(stored) => {
                self.byte(1);
                self.stored(stored);
            }
        }
    }

    pub(super) fn chunk(&mut self, chunk: &Chunk) {
        self.byte(chunk.stream);
        self.bytes(&chunk.bytes);
    }

    pub(super) fn logged(&mut self, logged: &Logged) {
        self.number(logged.seq);
        self.option(logged.place, |w, place| w.number(place.0));
        self.bytes(&encode_entry(&logged.entry));
    }
}

/// Reads fields, refusing what a [`Writer`] would not write.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts reading, after checking the format; returns which one it is.
    pub(super) fn new(bytes: &'a [u8], known: RangeInclusive<u8>) -> Result<(u8, Self)> {
        let newest = *known.end();
        match bytes.split_first() {
            Some((found, rest)) if known.contains(found) => Ok((*found, Self(rest))),
            Some((&found, _)) if found > newest => Err(Malformed::Newer {
                found,
                known: newest,
            }),
            Some(_) | None => Err(wrong("the format")),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(wrong("the end"))
        }
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| wrong(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        self.take(N, what)?.try_into().map_err(|_| wrong(what))
    }

    pub(super) fn byte(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self, what: &str) -> Result<bool> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            2.. => Err(wrong(what)),
        }
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn size(&mut self, what: &str) -> Result<usize> {
        usize::try_from(self.number(what)?).map_err(|_| wrong(what))
    }

    pub(super) fn time(&mut self, what: &str) -> Result<Timestamp> {
        Ok(Timestamp(self.number(what)?.cast_signed()))
    }

    pub(super) fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let length = self.size(what)?;
        self.take(length, what)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| wrong(what))
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String> {
        self.text(what).map(str::to_owned)
    }

    pub(super) fn digest(&mut self, what: &str) -> Result<Digest> {
        Ok(Digest(self.array(what)?))
    }

    pub(super) fn hash(&mut self, what: &str) -> Result<KeyHash> {
        self.digest(what).map(KeyHash)
    }

    pub(super) fn key(&mut self) -> Result<Key> {
        Key::new(self.text("the key")?).map_err(|_| wrong("the key"))
    }

    pub(super) fn namespace(&mut self) -> Result<Namespace> {
        Namespace::new(self.text("the namespace")?).map_err(|_| wrong("the namespace"))
    }

    pub(super) fn fence(&mut self) -> Result<Fence> {
        self.number("the fence").map(Fence)
    }

    pub(super) fn place(&mut self) -> Result<Place> {
        self.number("the place").map(Place)
    }

    pub(super) fn state(&mut self) -> Result<StateKind> {
        StateKind::from_code(self.byte("the state")?).ok_or_else(|| wrong("the state"))
    }

    pub(super) fn option<T>(
        &mut self,
        what: &str,
        get: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.bool(what)? {
            get(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Reads as many as there are said to be. Nothing is set aside for them before they are there, so
    /// that a number alone costs nothing.
    pub(super) fn all<T>(
        &mut self,
        what: &str,
        get: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.number(what)?;
        let mut all = vec![];
        for _ in 0..count {
            all.push(get(self)?);
        }
        Ok(all)
    }

    pub(super) fn command(&mut self) -> Result<Command> {
        let bytes = self.bytes("the command")?;
        decode_command(bytes).map_err(|error| match error {
            error @ DecodeError::ProbeText => Malformed::ProbeText(error),
            other => Malformed::Unreadable(other.to_string()),
        })
    }

    pub(super) fn record(&mut self) -> Result<Record> {
        let bytes = self.bytes("the record")?;
        decode_record(bytes).map_err(|error| Malformed::Unreadable(error.to_string()))
    }

    pub(super) fn stored(&mut self) -> Result<Stored> {
        let place = self.place()?;
        let record = self.record()?;
        let payload = self.option("the payload", |r| r.bytes("the payload").map(Arc::from))?;
        Ok(Stored {
            record: Arc::new(record),
            place,
            payload,
        })
    }

    pub(super) fn current(&mut self) -> Result<Current> {
        match self.byte("what is stored")? {
            0 => Ok(Current::Absent(AbsentAsOf(self.number("what is stored")?))),
            1 => self.stored().map(Current::Stored),
            2.. => Err(wrong("what is stored")),
        }
    }

    pub(super) fn chunk(&mut self) -> Result<Chunk> {
        Ok(Chunk {
            stream: self.byte("the stream")?,
            bytes: self.bytes("a piece")?.to_vec(),
        })
    }

    pub(super) fn logged(&mut self) -> Result<Logged> {
        let seq = self.number("the number")?;
        let place = self.option("the place", Self::place)?;
        let entry = decode_entry(self.bytes("the entry")?);
        let entry = entry.map_err(|error| Malformed::Unreadable(error.to_string()))?;
        Ok(Logged { seq, place, entry })
    }
}
