//! Kin: the operations by which the next identical call is judged, and which of them still count.
//!
//! Operations of one fingerprint in one scope are kin, unless a caller gave them a key. A store keeps an
//! index of those that count, so that a door finds them without knowing their keys:
//!
//! | an operation | counts |
//! |---|---|
//! | pending, running, in doubt | yes |
//! | settled or dead, and delivered, or lapsed | no: the next identical call is another one |
//! | settled or dead, and undelivered or nothing known | yes |
//! | the same, a tombstone | only if it was buried within [`WINDOW`] |
//! | a stub | no |
//!
//! What is over leaves the index with the commit that ends it. What nobody came for again is over once
//! its window has passed, but no commit tells: a door that meets it marks it as lapsed.

use super::call::{Call, InFlight, WINDOW};
use super::key::{self, ClientKey};
use crate::digest::Digest;
use crate::fingerprint::Fingerprint;
use crate::ledger::{Delivery, Operation, Record, StateKind, Tombstone};
use crate::text::{Key, Namespace};

/// Names the kin of an operation: 64 bits of a hash, which lead to candidates. Whether one of them is
/// meant is told by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kin(pub u64);

/// Separates the kin of this scheme from every other use of SHA-256.
const SCHEME: &[u8] = b"semel-k1\0";

impl Kin {
    /// Returns the kin among which a call is judged.
    #[must_use]
    pub fn of(namespace: &Namespace, call: &Call) -> Self {
        let prefix = key::prefix(call.door, &call.scope);
        Self::hash(namespace, &prefix, call.fingerprint)
    }

    /// Returns the kin of a record, where it has any and still counts.
    #[must_use]
    pub fn counting(record: &Record) -> Option<Self> {
        counting(record).map(|face| face.kin())
    }

    /// Hashes what kin have in common. The namespace begins with its length and the others have fixed
    /// ones, up to the door's word, which ends at a slash: so no two share the hashed bytes.
    fn hash(namespace: &Namespace, prefix: &str, fingerprint: Fingerprint) -> Self {
        let namespace = namespace.as_str().as_bytes();
        let digest = Digest::of_parts(&[
            SCHEME,
            &(namespace.len() as u64).to_be_bytes(),
            namespace,
            prefix.as_bytes(),
            &fingerprint.0.0,
        ]);
        let [a, b, c, d, e, f, g, h, ..] = digest.0;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// What a store's index of kin has to do when one record follows another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KinChange {
    /// The record counts from now on, among these.
    pub enters: Option<Kin>,
    /// The record counts no more among these.
    pub leaves: Option<Kin>,
}

impl KinChange {
    /// Compares what was stored with what follows it.
    #[must_use]
    pub fn between(before: Option<&Record>, after: Option<&Record>) -> Self {
        let (before, after) = (before.and_then(counting), after.and_then(counting));
        if before == after {
            return Self::default();
        }
        Self {
            enters: after.map(|face| face.kin()),
            leaves: before.map(|face| face.kin()),
        }
    }
}

/// What tells the kin of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Face<'a> {
    namespace: &'a Namespace,
    /// Door and scope.
    prefix: &'a str,
    fingerprint: Fingerprint,
}

impl<'a> Face<'a> {
    fn new(namespace: &'a Namespace, key: &'a Key, fingerprint: Fingerprint) -> Option<Self> {
        let (prefix, body) = key::split(key)?;
        key::is_named_by_delivery(body).then_some(Self {
            namespace,
            prefix,
            fingerprint,
        })
    }

    fn kin(self) -> Kin {
        Kin::hash(self.namespace, self.prefix, self.fingerprint)
    }
}

/// Returns what tells the kin of a record that counts.
fn counting(record: &Record) -> Option<Face<'_>> {
    match record {
        Record::Operation(operation) if operation_counts(operation) => {
            let spec = &operation.spec;
            Face::new(&spec.namespace, &spec.key, spec.fingerprint)
        }
        Record::Tombstone(tombstone) if tombstone_counts(tombstone) => {
            Face::new(&tombstone.namespace, &tombstone.key, tombstone.fingerprint)
        }
        Record::Operation(_) | Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_) => None,
    }
}

fn operation_counts(operation: &Operation) -> bool {
    match operation.state.kind() {
        StateKind::Pending | StateKind::Running | StateKind::Doubtful => true,
        StateKind::Succeeded | StateKind::Failed | StateKind::Dead => {
            is_suspect(operation.delivery)
        }
        StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => false,
    }
}

fn tombstone_counts(tombstone: &Tombstone) -> bool {
    let age = tombstone.buried_at.since(tombstone.settled_at);
    is_suspect(tombstone.delivery) && age <= WINDOW
}

/// Says whether the caller may have to ask again.
pub(super) const fn is_suspect(delivery: Delivery) -> bool {
    match delivery {
        Delivery::Unknown | Delivery::Undelivered => true,
        Delivery::Delivered | Delivery::Lapsed => false,
    }
}

impl Call {
    /// Returns the key of the operation of this fingerprint that has this number, the first being 1. A
    /// door finds the last one that is taken by looking them up, as what is over is not in the index.
    #[must_use]
    pub fn numbered(&self, occurrence: u32) -> Key {
        self.key(&ClientKey::Fingerprint(self.fingerprint), occurrence)
    }

    /// Says whether a new operation for this call is named by its fingerprint and a number.
    #[must_use]
    pub const fn is_numbered(&self) -> bool {
        // What is over must be found by its number where the caller is to be asked about it.
        let is_asked = matches!(self.in_flight, InFlight::Challenge);
        self.explicit.is_none() && self.business.is_none() && (self.call_id.is_none() || is_asked)
    }
}
