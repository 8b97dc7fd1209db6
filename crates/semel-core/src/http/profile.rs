//! Profiles: what the specification of `Idempotency-Key` leaves open, chosen together.
//!
//! A profile is data. Whoever needs another one changes some of its values; there is no other code for it.

use core::time::Duration;

use super::credentials::CredentialSource;
use super::key_field::Spelling;
use super::status::{Meaning, Statuses};
use crate::identity::Pointer;
use crate::policy::{Class, OnDoubt};

/// How requests of a route are treated and answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What users call it.
    pub name: String,
    /// How a key is written.
    pub spelling: Spelling,
    /// Where a body in JSON has its key, for a request that has none in a header.
    pub key_members: Vec<Pointer>,
    /// Whether a protected request must have one.
    pub requires_key: bool,
    /// The methods that are protected, and what repeating them would do. Others are protected where they have a key.
    pub methods: Vec<(String, Class)>,
    /// How long a request waits for an identical one that runs.
    pub wait: Duration,
    /// What is answered to those that are refused.
    pub refusals: Refusals,
    /// What the upstream's answers mean.
    pub statuses: Statuses,
    /// What happens in doubt, where the class of the method does not say.
    pub on_doubt: Option<OnDoubt>,
    /// What a key names.
    pub extent: Extent,
    /// The header that says that an answer was given before, in small letters.
    pub replayed: String,
    /// Whether answers repeat the key.
    pub echoes_key: bool,
    /// What counts as a credential besides the usual ones.
    pub credentials: Vec<CredentialSource>,
}

/// The statuses of what the proxy answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// There is no key where one is required.
    pub missing: u16,
    /// The first request still runs.
    pub in_flight: u16,
    /// The key was used for another request.
    pub mismatch: u16,
    /// Nobody knows what became of the first request.
    pub in_doubt: u16,
    /// The answer is no longer kept.
    pub expired: AfterExpiry,
}

/// What becomes of a request whose answer is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExpiry {
    /// It is refused with this status.
    Refuse(u16),
    /// It is a new request.
    Fresh,
}

/// What a request must have in common with the first one of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Method, path, query and body: the same key elsewhere is a mistake.
    Upstream,
    /// The body; the same key at another path is another key.
    Path,
}

/// Statuses by which a request is refused for its form or its sender.
const ENVELOPE: [u16; 10] = [400, 401, 403, 405, 411, 413, 414, 415, 422, 431];

/// Too early, too many: nothing was looked at.
const PUT_OFF: [u16; 2] = [425, 429];

const ANSWERS: (core::ops::RangeInclusive<u16>, Meaning) = (200..=499, Meaning::Outcome);

fn all(
    statuses: &[u16],
    meaning: Meaning,
) -> impl Iterator<Item = (core::ops::RangeInclusive<u16>, Meaning)> {
    statuses
        .iter()
        .map(move |status| (*status..=*status, meaning))
}

fn methods(table: &[(&str, Class)]) -> Vec<(String, Class)> {
    let table = table.iter();
    table
        .map(|(method, class)| ((*method).to_owned(), *class))
        .collect()
}

impl Profile {
    /// The names of all profiles.
    pub const NAMES: [&'static str; 7] = ["semel", "ietf", "stripe", "acp", "ucp", "square", "llm"];

    /// Returns the profile of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "semel" => Self::semel(),
            "ietf" => Self::ietf(),
            "stripe" => Self::stripe(),
            "acp" => Self::acp(),
            "ucp" => Self::ucp(),
            "square" => Self::square(),
            "llm" => Self::llm(),
            _ => return None,
        })
    }

    /// The default: what is not proved is a doubt.
    #[must_use]
    pub fn semel() -> Self {
        let statuses = Statuses::new(
            all(&ENVELOPE, Meaning::Release)
                .chain(all(&PUT_OFF, Meaning::Release))
                .chain(all(&[408], Meaning::Doubt))
                .chain([ANSWERS]),
        );
        Self {
            name: "semel".to_owned(),
            spelling: Spelling::QuotedOrBare,
            key_members: vec![],
            requires_key: false,
            methods: methods(&[
                ("POST", Class::Unsafe),
                ("PATCH", Class::Unsafe),
                ("PUT", Class::Idempotent),
                ("DELETE", Class::Idempotent),
            ]),
            wait: Duration::from_secs(25),
            refusals: Refusals {
                missing: 400,
                in_flight: 409,
                mismatch: 422,
                in_doubt: 409,
                expired: AfterExpiry::Refuse(410),
            },
            statuses,
            on_doubt: None,
            extent: Extent::Upstream,
            replayed: "idempotent-replayed".to_owned(),
            echoes_key: false,
            credentials: vec![],
        }
    }

    /// draft-ietf-httpapi-idempotency-key-header: quoted keys, and a retry that comes too early is told so.
    #[must_use]
    pub fn ietf() -> Self {
        Self {
            name: "ietf".to_owned(),
            spelling: Spelling::Quoted,
            requires_key: true,
            methods: methods(&[("POST", Class::Unsafe), ("PATCH", Class::Unsafe)]),
            wait: Duration::ZERO,
            ..Self::semel()
        }
    }

    /// As Stripe's first API answers: what ran is replayed, failures of the server included.
    #[must_use]
    pub fn stripe() -> Self {
        let semel = Self::semel();
        Self {
            name: "stripe".to_owned(),
            methods: methods(&[("POST", Class::Unsafe)]),
            wait: Duration::ZERO,
            refusals: Refusals {
                mismatch: 400,
                expired: AfterExpiry::Fresh,
                ..semel.refusals
            },
            statuses: semel.statuses.with([(500..=599, Meaning::Outcome)]),
            ..semel
        }
    }

    /// The Agentic Commerce Protocol: a key for every POST, and a failure of the server is tried afresh.
    #[must_use]
    pub fn acp() -> Self {
        let semel = Self::semel();
        Self {
            name: "acp".to_owned(),
            requires_key: true,
            methods: methods(&[("POST", Class::Unsafe)]),
            wait: Duration::ZERO,
            refusals: Refusals {
                expired: AfterExpiry::Fresh,
                ..semel.refusals
            },
            statuses: semel.statuses.with([(500..=599, Meaning::Release)]),
            extent: Extent::Path,
            echoes_key: true,
            ..semel
        }
    }

    /// The Universal Commerce Protocol: POST and PUT, and a key that was used is a conflict. Agents name themselves by the
    /// URL of their profile, often without any other credential.
    #[must_use]
    pub fn ucp() -> Self {
        let semel = Self::semel();
        Self {
            name: "ucp".to_owned(),
            methods: methods(&[("POST", Class::Unsafe), ("PUT", Class::Unsafe)]),
            refusals: Refusals {
                mismatch: 409,
                ..semel.refusals
            },
            credentials: vec![CredentialSource::Profile("UCP-Agent".to_owned())],
            ..semel
        }
    }

    /// Square: keys are members of bodies, and the upstream itself answers a key with its first success. So whatever is
    /// no success is sent again by a retry, and Square decides.
    #[must_use]
    pub fn square() -> Self {
        let semel = Self::semel();
        let key = Pointer::new("/idempotency_key").expect("it is a pointer");
        let release = [(408..=408, Meaning::Doubt), (400..=599, Meaning::Release)];
        Self {
            name: "square".to_owned(),
            key_members: vec![key],
            refusals: Refusals {
                mismatch: 400,
                ..semel.refusals
            },
            statuses: semel.statuses.with(release),
            ..semel
        }
    }

    /// Language models: the effect is only cost, so that nobody must resolve a completion.
    #[must_use]
    pub fn llm() -> Self {
        let semel = Self::semel();
        Self {
            name: "llm".to_owned(),
            methods: methods(&[("POST", Class::Unsafe)]),
            statuses: semel.statuses.with([(500..=599, Meaning::Release)]),
            on_doubt: Some(OnDoubt::Retry),
            ..semel
        }
    }

    /// Returns what repeating a method would do; `None` for one that the profile does not list.
    #[must_use]
    pub fn class(&self, method: &str) -> Option<Class> {
        let found = self.methods.iter().find(|(name, _)| name == method);
        found.map(|(_, class)| *class)
    }
}
