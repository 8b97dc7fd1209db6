//! Settled records that were read lately, and when they may answer.
//!
//! A settled record may answer from memory only while nothing can have changed it. Changes of this
//! process remove it here before they are committed. Changes of other processes are told by the
//! *mark* in the turn file: whoever is about to commit, and was not the last one to do so, first
//! writes its own mark there. While the mark is ours, nobody else has committed since we looked.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::KeyHash;

use crate::store::{Place, Stored};

/// Records in each of the two generations.
const RECORDS_MAX: usize = 16_384;

/// Bytes of payloads in each of the two generations.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest payload that is kept: a few large ones must not push all others out.
const PAYLOAD_MAX: usize = 16 * 1024;

/// The settled records of one store.
#[derive(Debug)]
pub(super) struct Cache {
    turn: File,
    /// This process's mark, unlike any other's.
    mark: [u8; 16],
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Grows with every change of a settled record: what was read before must not be kept after.
    age: u64,
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    records: HashMap<KeyHash, Stored>,
    payloads: HashMap<Place, Arc<[u8]>>,
    payload_bytes: usize,
}

/// Permission to keep what is read from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age(u64);

impl Cache {
    pub(super) fn open(turn: &Path, mark: [u8; 16]) -> std::io::Result<Self> {
        Ok(Self {
            turn: File::open(turn)?,
            mark,
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether nobody else has committed since this process last looked.
    pub(super) fn is_current(&self) -> bool {
        let mut found = [0; 16];
        matches!(self.turn.read_at(&mut found, 0), Ok(16)) && found == self.mark
    }

    /// Returns a settled record, if it may answer; otherwise permission to keep it once read.
    pub(super) fn record(&self, key: &KeyHash) -> Result<Stored, Option<Age>> {
        if !self.is_current() {
            return Err(None);
        }
        let mut inner = self.lock();
        if let Some(stored) = inner.young.records.get(key) {
            return Ok(stored.clone());
        }
        match inner.old.records.remove(key) {
            Some(stored) => {
                inner.keep(*key, stored.clone());
                Ok(stored)
            }
            None => Err(Some(Age(inner.age))),
        }
    }

    pub(super) fn keep(&self, age: Age, key: KeyHash, stored: &Stored) {
        let mut inner = self.lock();
        if inner.age == age.0 {
            inner.keep(key, stored.clone());
        }
    }

    /// Returns the payload at a place, if it may answer.
    pub(super) fn payload(&self, place: Place) -> Result<Arc<[u8]>, Option<Age>> {
        if !self.is_current() {
            return Err(None);
        }
        let inner = self.lock();
        let found = inner
            .young
            .payloads
            .get(&place)
            .or_else(|| inner.old.payloads.get(&place));
        found.cloned().ok_or(Some(Age(inner.age)))
    }

    pub(super) fn keep_payload(&self, age: Age, place: Place, payload: &[u8]) {
        if payload.len() > PAYLOAD_MAX {
            return;
        }
        let mut inner = self.lock();
        if inner.age == age.0 {
            inner.keep_payload(place, payload.into());
        }
    }

    /// Returns this process's mark.
    pub(super) const fn mark(&self) -> &[u8; 16] {
        &self.mark
    }

    /// Forgets a record that is about to change, or has just changed.
    pub(super) fn forget(&self, key: &KeyHash, place: Place) {
        let mut inner = self.lock();
        inner.age += 1;
        let Inner { young, old, .. } = &mut *inner;
        for generation in [young, old] {
            generation.records.remove(key);
            generation.payloads.remove(&place);
        }
    }

    /// Forgets everything: somebody else may have changed it.
    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        let age = inner.age + 1;
        *inner = Inner {
            age,
            ..Inner::default()
        };
    }
}

impl Inner {
    fn keep(&mut self, key: KeyHash, stored: Stored) {
        self.young.records.insert(key, stored);
        self.age_out();
    }

    fn keep_payload(&mut self, place: Place, payload: Arc<[u8]>) {
        self.young.payload_bytes += payload.len();
        self.young.payloads.insert(place, payload);
        self.age_out();
    }

    /// Lets the older half go when the younger one is full.
    fn age_out(&mut self) {
        let full = self.young.records.len() >= RECORDS_MAX
            || self.young.payload_bytes >= PAYLOAD_BYTES_MAX;
        if full {
            self.old = std::mem::take(&mut self.young);
        }
    }
}
