//! A door, a ledger and a world that counts effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::Effect;
use crate::ledger::{
    Begin, Command, Decision, Expire, Fence, Order, Record, Reply, Resolution, Resolve, Settle,
    Spec, decide,
};
use crate::policy::{Class, Policy};
use crate::text::{AttemptId, Namespace};
use crate::time::Lease;
use crate::verdict::{Outcome, Verdict};

pub(super) fn outcome() -> Outcome {
    Outcome {
        ok: true,
        effect: Effect::Created,
        payload: None,
    }
}

pub(super) fn done() -> Verdict {
    Verdict::Done(outcome())
}

pub(super) fn failed() -> Verdict {
    let ok = false;
    Verdict::Done(Outcome { ok, ..outcome() })
}

pub(super) fn not_done() -> Verdict {
    Verdict::NotDone {
        retry_after: None,
        reject: false,
        error: None,
    }
}

/// A call as its door holds it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) identity: Identity,
    /// The attempt, where the ledger let the call run.
    attempt: Option<(AttemptId, Fence)>,
    caller: Option<CallerId>,
}

impl Held {
    pub(super) const fn ran(&self) -> bool {
        self.attempt.is_some()
    }

    pub(super) const fn relation(&self) -> Relation {
        self.identity.relation
    }
}

/// One door on one ledger; half a minute passes between any two things.
pub(super) struct World {
    now: Timestamp,
    pub(super) records: BTreeMap<Key, Record>,
    /// What the door's memory holds: lost in a crash.
    pub(super) callers: BTreeMap<Key, Callers>,
    call_ids: BTreeMap<Key, Vec<ClientText>>,
    arrived: u32,
    pub(super) effects: u32,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            now: NOW.minus(MINUTE / 2),
            records: BTreeMap::new(),
            callers: BTreeMap::new(),
            call_ids: BTreeMap::new(),
            arrived: 0,
            effects: 0,
        }
    }

    pub(super) fn record(&self, held: &Held) -> &Record {
        &self.records[&held.identity.key]
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    fn apply(&mut self, key: &Key, command: &Command) -> Reply {
        match decide(self.records.get(key), command, self.now).unwrap() {
            Decision::Answer(reply) => reply,
            Decision::Write(write) => {
                self.records.insert(key.clone(), write.next.unwrap());
                write.reply
            }
        }
    }

    pub(super) fn known(&self) -> Vec<Prior> {
        let read = |record| {
            let prior = Prior::of(record, self.now)?;
            let callers = self.callers.get(&prior.key).cloned().unwrap_or_default();
            let call_ids = self.call_ids.get(&prior.key).cloned().unwrap_or_default();
            let at = prior.last_seen;
            Some(Prior { call_ids, ..prior }.with(&callers, at))
        };
        self.records.values().filter_map(read).collect()
    }

    pub(super) fn call(&mut self, call: &Call) -> Held {
        self.pass(MINUTE / 2);
        let identity = identify(call, &self.known(), self.now);
        self.arrived += 1;
        let callers = self.callers.entry(identity.key.clone()).or_default();
        let mut held = Held {
            caller: callers.enter(identity.relation, self.now),
            identity: identity.clone(),
            attempt: None,
        };
        if held.caller.is_none() {
            return held;
        }
        let ids = self.call_ids.entry(identity.key.clone()).or_default();
        ids.extend(call.call_id.clone());
        held.attempt = self.begin(call, &identity);
        held
    }

    pub(super) fn begin(&mut self, call: &Call, identity: &Identity) -> Option<(AttemptId, Fence)> {
        let attempt = AttemptId::from_random(u128::from(self.arrived));
        let spec = Spec {
            namespace: Namespace::default(),
            key: identity.key.clone(),
            client_key: None,
            name: Label::new("pay").unwrap(),
            fingerprint: call.fingerprint,
            policy: Policy::direct(Class::Unsafe),
            door: None,
            principal: None,
            parent: None,
            occurrence: identity.occurrence,
            probe_digest: None,
        };
        let begin = Begin {
            spec: Arc::new(spec),
            attempt: attempt.clone(),
            lease: Lease::DEFAULT,
            holder: None,
            worker: false,
            sighting: None,
        };
        match decide(
            self.records.get(&identity.key),
            &Command::Begin(begin.clone()),
            self.now,
        ) {
            Ok(Decision::Write(write)) if matches!(write.reply, Reply::Granted(_)) => {}
            Ok(_) | Err(_) => return None,
        }
        self.apply(&identity.key, &Command::Begin(begin));
        self.effects += 1;
        Some((attempt, self.records[&identity.key].fence()))
    }

    pub(super) fn settle(&mut self, held: &Held, verdict: Verdict) {
        self.pass(MINUTE / 2);
        let (attempt, fence) = held.attempt.clone().expect("it ran");
        if let Verdict::NotDone { .. } = verdict {
            self.effects -= 1;
        }
        let settle = Settle {
            attempt,
            fence,
            verdict,
        };
        self.apply(&held.identity.key, &Command::Settle(settle));
    }

    pub(super) fn see(&mut self, held: &Held, seen: &[Observation]) {
        let (Some(callers), Some(caller)) = (self.callers.get_mut(&held.identity.key), held.caller)
        else {
            return;
        };
        for observation in seen {
            callers.see(caller, *observation, self.now);
        }
    }

    /// Writes the marks that the memory holds.
    pub(super) fn group_commits(&mut self) {
        for (key, callers) in self.callers.clone() {
            if let Some(mark) = callers.mark() {
                self.apply(&key, &Command::Deliver(mark));
            }
        }
    }

    /// Loses the memory; what ran is in doubt.
    pub(super) fn crash(&mut self) {
        self.callers.clear();
        self.call_ids.clear();
        for (key, record) in self.records.clone() {
            if record.kind() == StateKind::Running {
                let gone = Some(record.fence());
                self.apply(&key, &Command::Expire(Expire { gone }));
            }
        }
    }

    pub(super) fn resolve(&mut self, held: &Held, resolution: Resolution) {
        self.pass(MINUTE / 2);
        if resolution == Resolution::NotDone {
            self.effects -= 1;
        }
        let resolve = Resolve {
            order: Order {
                version: self.record(held).version(),
                by: Label::new("operator").unwrap(),
                note: None,
            },
            resolution,
        };
        self.apply(&held.identity.key, &Command::Resolve(resolve));
    }

    pub(super) fn state(&self, held: &Held) -> StateKind {
        self.record(held).kind()
    }
}
