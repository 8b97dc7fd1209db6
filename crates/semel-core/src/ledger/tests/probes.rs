//! A doubt is looked up only by callers that bring the probe which the operation was begun with.

use std::sync::Arc;

use super::world::{LEASE, World, hold, lease, probe, retry, spec};
use crate::digest::Digest;
use crate::ledger::{
    AttemptKind, Begin, Command, Decision, ProbeMatch, Rejection, Reply, Spec, admit_probe,
};
use crate::policy::Policy;
use crate::text::AttemptId;

fn begin(policy: Policy, attempt: &str, probe_digest: Option<Digest>) -> Command {
    Command::Begin(Begin {
        spec: Arc::new(Spec {
            probe_digest,
            ..spec(policy)
        }),
        attempt: AttemptId::new(attempt).expect("it is an id"),
        lease: lease(LEASE),
        holder: None,
        worker: false,
        sighting: None,
    })
}

#[test]
fn probe_permit_needs_the_recorded_probe() {
    let (mine, other) = (Digest::of(b"mine"), Digest::of(b"other"));
    let table = [
        (None, None, ProbeMatch::Unrecorded),
        (None, Some(other), ProbeMatch::Unrecorded),
        (Some(mine), Some(mine), ProbeMatch::Same),
        (Some(mine), None, ProbeMatch::Missing),
        (Some(mine), Some(other), ProbeMatch::Other),
    ];
    for (recorded, given, matched) in table {
        let mut world = World::new(probe());
        world.apply(&begin(probe(), "a", recorded));
        let world = world.then(|w| w.unknown("a")).wait(LEASE + 10);
        let asked = begin(probe(), "p", given);
        let record = world.record.as_ref();
        let spec = &world.operation().spec;
        assert_eq!(spec.match_probe(given.as_ref()), matched);
        let decision = world.ask(|_| asked.clone()).expect("the rules grant it");
        let is_probe = |decision: &Decision| {
            matches!(decision, Decision::Write(write) if matches!(
                &write.reply, Reply::Granted(grant) if grant.kind == AttemptKind::Probe
            ))
        };
        assert!(is_probe(&decision), "what an old log holds is replayed");
        let admitted = admit_probe(record, &asked, decision);
        let held = Rejection::InDoubt {
            own: false,
            probe_at: None,
        };
        match matched {
            ProbeMatch::Unrecorded | ProbeMatch::Same => {
                assert!(admitted.as_ref().is_ok_and(is_probe), "{matched:?}");
                assert_eq!(spec.probe_refusal(given.as_ref()), None);
            }
            ProbeMatch::Missing | ProbeMatch::Other => {
                assert_eq!(admitted, Err(held), "{matched:?}");
                assert!(spec.probe_refusal(given.as_ref()).is_some());
            }
        }
    }
}

#[test]
fn other_permits_need_no_probe() {
    let mine = Some(Digest::of(b"mine"));
    let mut fresh = World::new(probe());
    fresh.apply(&begin(probe(), "a", mine));
    let waived = fresh.clone().then(|w| w.not_done("a"));
    let mut retried = World::new(retry());
    retried.apply(&begin(retry(), "a", mine));
    let retried = retried.then(|w| w.unknown("a"));
    for world in [World::new(hold()), waived, retried] {
        let asked = begin(probe(), "b", None);
        let decision = world.ask(|_| asked.clone()).expect("it is granted");
        let admitted = admit_probe(world.record.as_ref(), &asked, decision.clone());
        assert_eq!(admitted, Ok(decision));
    }
}
