//! How the requests of a route are treated.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use semel_core::http::{Compare, CredentialRule, Lookup, Members, Price, Profile};
use semel_core::identity::Pointer;
use semel_core::{Lease, OnDoubt, Retention};

use crate::breaker::Target;

/// The header that keys come in, unless it is named otherwise.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How the requests of a route are treated. The default is the profile `semel` for an upstream without a name.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What names the upstream in the scope of keys.
    pub target: String,
    /// What the specification leaves open.
    pub profile: Profile,
    /// Which credentials say whose request it is; without it the usual ones, and those of the profile.
    pub credentials: Option<CredentialRule>,
    /// The headers that keys come in.
    pub key_headers: Vec<HeaderName>,
    /// Whether a key that is a UUID of version 7 says when its request was first sent: one that is older than anything
    /// that is kept is refused where nothing is known of it.
    pub dated_keys: bool,
    /// What becomes of requests without a key.
    pub keyless: Keyless,
    /// What the key of a request without one is made of; empty means the whole request, and whether the answers to
    /// identical ones before it arrived.
    pub derive_from: DeriveFrom,
    /// What makes two requests the same.
    pub sameness: Sameness,
    /// What the upstream gets to see of keys.
    pub forward: Forward,
    /// What happens in doubt, where neither profile nor method should say.
    pub on_doubt: Option<OnDoubt>,
    /// How long a doubt may be sent again.
    pub retry_within: Option<Duration>,
    /// What finds out whether a doubted effect happened.
    pub probe: Option<Lookup>,
    /// How long the upstream may take until the head of its answer.
    pub timeout: Duration,
    /// How long an attempt may be silent.
    pub lease: Lease,
    /// How long answers are kept.
    pub retention: Retention,
    /// Whether a recorded stream is replayed at the pace at which it came.
    pub keeps_pace: bool,
    /// What its answers cost, for counting what is saved.
    pub price: Option<Price>,
    /// What keeps requests from an upstream that fails.
    pub breaker: Option<Target>,
    /// What is bounded.
    pub limits: Limits,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            target: String::new(),
            profile: Profile::semel(),
            credentials: None,
            key_headers: vec![IDEMPOTENCY_KEY],
            dated_keys: false,
            keyless: Keyless::Derive,
            derive_from: DeriveFrom::default(),
            sameness: Sameness::default(),
            forward: Forward::Pass,
            on_doubt: None,
            retry_within: None,
            probe: None,
            timeout: TIMEOUT,
            lease: Lease::DEFAULT,
            retention: Retention::DEFAULT,
            keeps_pace: false,
            price: None,
            breaker: None,
            limits: Limits::default(),
        }
    }
}

impl Rules {
    /// Returns the header that says that an answer was given before.
    #[must_use]
    pub fn replayed(&self) -> HeaderName {
        let named = HeaderName::try_from(&self.profile.replayed);
        named.unwrap_or(HeaderName::from_static("idempotent-replayed"))
    }

    /// Returns which credentials say whose request it is.
    #[must_use]
    pub fn credential_rule(&self) -> CredentialRule {
        self.credentials.clone().unwrap_or_else(|| {
            let mut usual = CredentialRule::default();
            usual.sources.extend(self.profile.credentials.clone());
            usual
        })
    }
}

/// How long an upstream may take until the head of its answer: longer than any that is meant to answer at all.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What becomes of requests without a key whose method is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keyless {
    /// Their key is made from themselves.
    #[default]
    Derive,
    /// They are refused.
    Require,
    /// They pass, unprotected.
    Pass,
}

impl Keyless {
    /// The words that users see.
    pub const WORDS: [&'static str; 3] = ["derive", "require", "pass"];

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "derive" => Some(Self::Derive),
            "require" => Some(Self::Require),
            "pass" => Some(Self::Pass),
            _ => None,
        }
    }
}

/// The parts of a request that name the business at hand.
#[derive(Clone, Debug, Default)]
pub struct DeriveFrom {
    /// Headers.
    pub headers: Vec<HeaderName>,
    /// Members of a body in JSON.
    pub members: Vec<Pointer>,
}

/// What makes two requests the same.
#[derive(Clone, Debug, Default)]
pub struct Sameness {
    /// How bodies are compared.
    pub compare: Compare,
    /// Headers that make a difference.
    pub headers: Vec<HeaderName>,
    /// The members of a body in JSON that make a difference.
    pub members: Members,
    /// Whether the host that was asked for makes a difference.
    pub host: bool,
}

/// What the upstream gets to see of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// The client's key, as it came.
    #[default]
    Pass,
    /// None.
    Strip,
    /// One of our own: the same for every attempt of an operation, and that of no other one.
    Derive,
}

impl Forward {
    /// The words that users see.
    pub const WORDS: [&'static str; 3] = ["pass", "strip", "derive"];

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "pass" => Some(Self::Pass),
            "strip" => Some(Self::Strip),
            "derive" => Some(Self::Derive),
            _ => None,
        }
    }
}

/// What is bounded.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body of a protected request, in bytes.
    pub request: u64,
    /// The largest answer that is kept, in bytes.
    pub answer: usize,
    /// The protected requests that are under way at once, those whose callers have left included.
    pub under_way: usize,
    /// Where bodies are put that are too large for memory.
    pub spool: PathBuf,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: 4 * 1024 * 1024 * 1024,
            answer: crate::store::PAYLOAD_MAX,
            under_way: 8_192,
            spool: std::env::temp_dir(),
        }
    }
}
