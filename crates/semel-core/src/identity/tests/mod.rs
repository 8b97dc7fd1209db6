//! Goal: which operation a call is for, held against every rule and the traces that break without
//! it. Method: tables of one earlier call each, then a small world that counts effects.

mod delivery;
mod keys;
mod kin;
mod pointers;
mod rules;
mod traces;
mod world;

use super::*;
use crate::fingerprint::{Fingerprint, Input};
use crate::text::{Key, Label};

const NOW: Timestamp = Timestamp(1_794_736_800_000_000);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn scope() -> Scope {
    Scope {
        principal: Some("alice".to_owned()),
        target: "https://api.example.com".to_owned(),
        conversation: Some("chat-1".to_owned()),
    }
}

fn client(text: &str) -> ClientText {
    ClientText::new(text).unwrap()
}

fn fingerprint() -> Fingerprint {
    let name = Label::new("pay").unwrap();
    Fingerprint::of(&name, Input::Json(br#"{"amount":100}"#)).unwrap()
}

/// A call without any key.
fn call(in_flight: InFlight) -> Call {
    Call {
        door: Door::Mcp,
        scope: scope(),
        explicit: None,
        call_id: None,
        business: None,
        fingerprint: fingerprint(),
        in_flight,
        repeat_of: None,
    }
}

fn call_with_id(id: &str) -> Call {
    Call {
        call_id: Some(client(id)),
        ..call(InFlight::Join)
    }
}

fn key_of(client_key: &ClientKey, occurrence: u32) -> Key {
    ledger_key(Door::Mcp, &scope(), client_key, occurrence)
}

/// The key of a fingerprint's `n`th occurrence.
fn nth(n: u32) -> Key {
    key_of(&ClientKey::Fingerprint(fingerprint()), n)
}

fn key_of_id(id: &str) -> Key {
    key_of(&ClientKey::CallId(client(id)), 1)
}

/// The `n`th occurrence, seen a minute ago.
fn prior(n: u32, state: StateKind, delivery: Delivery) -> Prior {
    Prior {
        key: nth(n),
        fingerprint: fingerprint(),
        occurrence: n,
        state,
        delivery,
        waiting: false,
        failure_told: false,
        call_ids: Vec::new(),
        last_seen: NOW.minus(MINUTE),
    }
}

fn new(n: u32, relation: Relation) -> Identity {
    Identity {
        key: nth(n),
        occurrence: n,
        relation,
        source: Source::Fingerprint,
    }
}

const POLICIES: [InFlight; 3] = [InFlight::Distinct, InFlight::Join, InFlight::Challenge];
const DELIVERIES: [Delivery; 4] = [
    Delivery::Unknown,
    Delivery::Delivered,
    Delivery::Undelivered,
    Delivery::Lapsed,
];
const SETTLED: [StateKind; 4] = [
    StateKind::Succeeded,
    StateKind::Failed,
    StateKind::Dead,
    StateKind::Tombstone,
];
