//! What one history is made of: its keys and their policies, who takes part, what goes wrong.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use semel::{
    Class, Fingerprint, Key, Label, Lease, Namespace, OnDoubt, Policy, Request, Retention,
};
use semel_core::ledger::{Fence, Parent, Spec};
use semel_core::{Input, KeyHash};

use super::rng::Rng;
use super::world::Upstream;

/// One key of a history, and what its callers ask for.
#[derive(Clone, Debug)]
pub(crate) struct KeyPlan {
    pub(crate) key: Key,
    pub(crate) hash: KeyHash,
    /// The key that this one is a step of, by its index.
    pub(crate) parent: Option<usize>,
    pub(crate) on_doubt: OnDoubt,
    pub(crate) max_attempts: Option<NonZeroU32>,
    pub(crate) lease: Lease,
    pub(crate) settle_delay: Duration,
    pub(crate) retention: Retention,
    pub(crate) upstream: Upstream,
}

/// How often things go wrong, in a thousand chances each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) crash: u64,
    pub(crate) pause: u64,
    pub(crate) delay: u64,
    pub(crate) store: u64,
}

/// What one history is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) keys: Vec<KeyPlan>,
    pub(crate) agents: usize,
    pub(crate) calls: u64,
    pub(crate) operators: usize,
    pub(crate) repeats: u64,
    pub(crate) clock_moves: u64,
    pub(crate) rates: Rates,
    /// Whether a pause of hours lies in the middle, so that retention has something to do.
    pub(crate) second_round: bool,
    /// Whether years pass at the end.
    pub(crate) years: bool,
    /// Whether outcomes that cannot be stored are noted beside the store.
    pub(crate) notes: bool,
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut keys: Vec<KeyPlan> = (0..rng.pick(&[1, 1, 1, 2, 3]))
            .map(|number| KeyPlan::draw(rng, &format!("k{number}"), None))
            .collect();
        if rng.chance(300) {
            keys.truncate(rng.pick(&[1, 1, 3]));
            keys.push(KeyPlan::draw(rng, "k0/step", Some(0)));
        }
        let rates = Rates {
            crash: rng.pick(&[0, 3, 12, 40]),
            pause: rng.pick(&[0, 3, 12, 40]),
            delay: rng.pick(&[20, 80, 200]),
            store: rng.pick(&[0, 0, 10, 60]),
        };
        Self {
            keys,
            agents: rng.pick(&[1, 2, 2, 3, 3, 4]),
            calls: rng.between(1, 4),
            operators: rng.pick(&[0, 1, 2, 3]),
            repeats: rng.pick(&[0, 4, 8, 12]),
            clock_moves: rng.pick(&[0, 0, 0, 1, 2]),
            rates,
            second_round: rng.chance(200),
            years: rng.chance(60),
            notes: rng.chance(150),
        }
    }

    /// Returns which of the history's keys this is.
    pub(crate) fn find(&self, hash: &KeyHash) -> Option<usize> {
        self.keys.iter().position(|plan| plan.hash == *hash)
    }
}

/// What every action of a history is called.
const NAME: &str = "pay";

impl KeyPlan {
    fn draw(rng: &mut Rng, key: &str, parent: Option<usize>) -> Self {
        let key = Key::new(key).expect("a short key is valid");
        let on_doubt = rng.pick(&[
            OnDoubt::Hold,
            OnDoubt::Hold,
            OnDoubt::Retry,
            OnDoubt::Retry,
            OnDoubt::Probe,
            OnDoubt::Probe,
        ]);
        // A lookup proves something only where an effect cannot come after it.
        let upstream = match on_doubt {
            OnDoubt::Probe => rng.pick(&[Upstream::Timely, Upstream::Fenced]),
            OnDoubt::Hold | OnDoubt::Retry => Upstream::Opaque,
        };
        let retention = rng.pick(&[1, 600, 30 * 86_400]);
        Self {
            hash: KeyHash::of(&Namespace::default(), &key),
            key,
            parent,
            on_doubt,
            max_attempts: NonZeroU32::new(rng.pick(&[0, 0, 0, 1, 2, 3])),
            lease: Lease::new(rng.millis(1_000, 3_000)).expect("a second or more is a lease"),
            settle_delay: rng.millis(100, 1_500),
            retention: Retention::new(Duration::from_secs(retention)).expect("it is a retention"),
            upstream,
        }
    }

    pub(crate) fn input(stranger: bool) -> &'static [u8] {
        if stranger {
            br#"{"amount":2}"#
        } else {
            br#"{"amount":1}"#
        }
    }

    /// Describes the action as a caller of the library does; a stranger means something else by
    /// the same key.
    pub(crate) fn request(&self, stranger: bool) -> Request {
        let request = Request::new(NAME, self.key.clone())
            .input_json(Self::input(stranger))
            .on_doubt(self.on_doubt)
            .settle_delay(self.settle_delay)
            .retention(self.retention)
            .lease(self.lease);
        match self.max_attempts {
            Some(limit) => request.max_attempts(limit),
            None => request,
        }
    }

    /// Describes the same action as a door does that speaks the protocol itself.
    pub(crate) fn spec(&self, stranger: bool, parent: Option<(Key, Fence)>) -> Arc<Spec> {
        Arc::new(Spec {
            namespace: Namespace::default(),
            key: self.key.clone(),
            client_key: None,
            name: Label::new(NAME).expect("the name is a label"),
            fingerprint: Self::fingerprint(stranger),
            policy: Policy {
                on_doubt: self.on_doubt,
                max_attempts: self.max_attempts,
                settle_delay: self.settle_delay,
                retention: self.retention,
                ..Policy::direct(Class::Unsafe)
            },
            door: None,
            principal: None,
            parent: parent.map(|(key, fence)| Parent {
                root: key.clone(),
                key,
                fence,
            }),
            occurrence: 1,
            probe_digest: None,
        })
    }

    pub(crate) fn fingerprint(stranger: bool) -> Fingerprint {
        let name = Label::new(NAME).expect("the name is a label");
        Fingerprint::of(&name, Input::Json(Self::input(stranger))).expect("the input is JSON")
    }
}
