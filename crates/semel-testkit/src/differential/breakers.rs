//! The breakers of a stream: what they are asked, by callers who know what they heard and by those who do not.

use std::time::Duration;

use semel_core::breaker::{Act, Admit, Ask, Breaker, Order, Phase, Report, Settings, Window};
use semel_core::ledger::{Command, Fence, Record};
use semel_core::{AttemptId, Key, KeyHash, Label, Lease, Namespace, Note};

use super::model::Model;
use super::random::Random;
use crate::conformance::hand::Asked;

/// The same name behind two walls.
pub(super) fn targets() -> [(Namespace, Key); 2] {
    let name = Key::new("payments").expect("a valid name");
    let other = Namespace::new("other").expect("a valid namespace");
    [(Namespace::default(), name.clone()), (other, name)]
}

/// Returns the hashes of all of them.
pub(super) fn hashes() -> impl Iterator<Item = KeyHash> {
    let targets = targets().into_iter();
    targets.map(|(namespace, name)| Breaker::hash_of(&namespace, &name))
}

/// Makes something to ask of one.
pub(super) fn ask(random: &mut Random, model: &Model, next_id: u128) -> Asked {
    let (namespace, name) = random.pick(&targets()).clone();
    let hash = Breaker::hash_of(&namespace, &name);
    let record = model.record(&hash);
    let fence = record.map_or_else(Fence::default, Record::fence);
    let fence = if random.percent(15) {
        Fence(fence.0.wrapping_add(random.below(3)).wrapping_sub(1))
    } else {
        fence
    };
    let order = |random: &mut Random| Order {
        fence,
        by: Label::new("ann").expect("a valid name"),
        note: random
            .percent(30)
            .then(|| Note::new("why").expect("a valid note")),
    };
    let act = match random.below(8) {
        0..=2 => Act::Admit(Admit {
            id: AttemptId::from_random(next_id),
            lease: Lease::DEFAULT,
        }),
        3..=5 => Act::Report(Report {
            fence,
            probe: prober(record).filter(|_| random.percent(80)),
            calls: calls(random, model),
        }),
        6 => {
            let length = random.percent(50).then(|| Duration::from_secs(60));
            Act::Open(order(random), length)
        }
        _ if random.percent(50) => Act::Close(order(random)),
        _ => Act::Reset(order(random)),
    };
    let mut asked = Asked::new(
        hash,
        Command::Breaker(Box::new(Ask {
            namespace,
            name: name.clone(),
            settings: Settings::default(),
            act,
        })),
    );
    asked.named = Some(name);
    asked
}

fn prober(record: Option<&Record>) -> Option<AttemptId> {
    match &record?.breaker()?.phase {
        Phase::HalfOpen(probe) => Some(probe.id.clone()),
        Phase::Closed(_) | Phase::Open(_) => None,
    }
}

fn calls(random: &mut Random, model: &Model) -> Window {
    let mut calls = Window::default();
    for _ in 0..random.below(4) {
        calls.count(random.percent(40), &Settings::default(), model.now());
    }
    calls
}
