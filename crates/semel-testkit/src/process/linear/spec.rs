//! What one key may do, one call after the other.
//!
//! ```text
//!                 granted                done
//!   free ───────────────────▶ running ─────────▶ done
//!    ▲ ▲      not done          │  ▲              ▲
//!    │ └────────────────────────┤  │ retry, probe │ late done,
//!    │                   lapses ▼  │              │ resolved
//!    └───────────────────── doubtful ─────────────┘
//!          resolved, not done
//! ```
//!
//! Two steps nobody calls for, and they may come before any call. A lease lapses: for attempts only
//! that may have lost it. And a doubt is taken back: whoever meets a lapsed lease judges that by
//! itself and writes nothing, so a renewal that was decided before the lease's end and stored after
//! it still counts; for attempts only whose lease the log says was renewed.
//!
//! As several things may have happened unseen, a state here is the set of all that a key can be in; a
//! call is impossible when none of them allows it.

use std::collections::BTreeSet;

use semel::OnDoubt;
use todc_utils::specifications::Specification;

use crate::process::{Answer, Ask};

/// A call with its answer, as the specification judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// What a doubt about the key leads to.
    pub(super) on_doubt: OnDoubt,
    /// What was asked.
    pub(super) ask: Ask,
    /// What came back; `None` means that it may have happened or not.
    pub(super) answer: Option<Answer>,
    /// Whether an attempt that this call began may lose its lease, or its holder.
    pub(super) mortal: bool,
    /// Whether the lease of an attempt that this call began was renewed.
    pub(super) renewed: bool,
    /// Whether a claim of this key is stored that nobody heard of.
    pub(super) unheard: bool,
}

/// Where a key can stand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// Nobody has begun, or whoever has did nothing.
    Free,
    Running(Running),
    /// What is judged to be in doubt, and what it is again if that is taken back.
    Doubtful(Option<Running>),
    Done(String),
}

/// An attempt that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Running {
    mortal: bool,
    renewed: bool,
    probe: bool,
    /// An older attempt's answer.
    evidence: Option<String>,
}

/// One thing that a key can be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Standing {
    /// The newest attempt's.
    fence: u64,
    /// The fences of attempts that have not said `done` or `not_done`.
    silent: BTreeSet<u64>,
    phase: Phase,
}

/// The specification of a key.
#[derive(Debug)]
pub(super) struct OneKey;

impl Specification for OneKey {
    type State = BTreeSet<Standing>;
    type Operation = Step;

    fn init() -> Self::State {
        BTreeSet::from([Standing {
            fence: 0,
            silent: BTreeSet::new(),
            phase: Phase::Free,
        }])
    }

    fn apply(step: &Step, state: &Self::State) -> (bool, Self::State) {
        let lapsed = state.iter().flat_map(Standing::change_by_itself);
        let before: BTreeSet<_> = state.iter().cloned().chain(lapsed).collect();
        let after: BTreeSet<_> = before.iter().flat_map(|s| s.after(step)).collect();
        (!after.is_empty(), after)
    }
}

impl Standing {
    fn with(&self, phase: Phase) -> Self {
        Self {
            phase,
            ..self.clone()
        }
    }

    fn heard(mut self, fence: u64) -> Self {
        self.silent.remove(&fence);
        self
    }

    /// What the end of a lease, or of its holder, leads to, and what a late renewal does.
    fn change_by_itself(&self) -> Vec<Self> {
        match &self.phase {
            Phase::Running(running) if running.mortal => {
                if let Some(answer) = &running.evidence {
                    return vec![self.with(Phase::Done(answer.clone()))];
                }
                let back = running.renewed.then(|| running.clone());
                let mut all = vec![self.with(Phase::Doubtful(back))];
                // A probe that says nothing leaves open what it was to look up, if anything is.
                all.extend(running.probe.then(|| self.with(Phase::Free)));
                all
            }
            Phase::Doubtful(Some(running)) => vec![self.with(Phase::Running(running.clone()))],
            Phase::Running(_) | Phase::Free | Phase::Doubtful(None) | Phase::Done(_) => vec![],
        }
    }

    /// All that this call can have led to with its answer.
    fn after(&self, step: &Step) -> Vec<Self> {
        let Some(answer) = &step.answer else {
            let mut all = vec![self.clone()];
            all.extend(self.effects(step).into_iter().map(|(after, _)| after));
            return all;
        };
        let fits = |(after, said): (Self, Answer)| agree(answer, &said).then_some(after);
        self.effects(step).into_iter().filter_map(fits).collect()
    }

    /// What the call leads to here, and what it is answered.
    fn effects(&self, step: &Step) -> Vec<(Self, Answer)> {
        match &step.ask {
            Ask::Begin => self.begin(step),
            Ask::Done(fence, answer) => self.done(*fence, answer),
            Ask::NotDone(fence) => self.not_done(*fence),
            Ask::Resolve(answer) => match (&self.phase, answer) {
                (Phase::Doubtful(_), Some(answer)) => {
                    vec![(self.with(Phase::Done(answer.clone())), Answer::Resolved)]
                }
                (Phase::Doubtful(_), None) => vec![(self.with(Phase::Free), Answer::Resolved)],
                (Phase::Free | Phase::Running(_) | Phase::Done(_), _) => vec![],
            },
        }
    }

    fn begin(&self, step: &Step) -> Vec<(Self, Answer)> {
        let mut all = match (&self.phase, step.on_doubt) {
            (Phase::Done(answer), _) => vec![(self.clone(), Answer::Replay(answer.clone()))],
            (Phase::Running(_), _) => vec![(self.clone(), Answer::InFlight)],
            (Phase::Free, _) | (Phase::Doubtful(_), OnDoubt::Retry) => {
                vec![self.grant(step, false)]
            }
            (Phase::Doubtful(_), OnDoubt::Hold) => vec![(self.clone(), Answer::InDoubt)],
            // Too early to look, or not.
            (Phase::Doubtful(_), OnDoubt::Probe) => {
                vec![(self.clone(), Answer::InDoubt), self.grant(step, true)]
            }
        };
        // A claim whose reply was lost is sent again. If its lease is over by then, its own caller
        // meets the doubt about it.
        if step.unheard {
            let own = all.iter().filter(|(_, said)| said_to_act(said));
            let lost: Vec<_> = own
                .map(|(after, _)| (after.with(Phase::Doubtful(None)), Answer::InDoubt))
                .collect();
            all.extend(lost);
        }
        all
    }

    fn grant(&self, step: &Step, probe: bool) -> (Self, Answer) {
        let fence = self.fence + 1;
        let mut after = self.with(Phase::Running(Running {
            mortal: step.mortal || step.answer.is_none(),
            renewed: step.renewed,
            probe,
            evidence: None,
        }));
        after.fence = fence;
        after.silent.insert(fence);
        // How long the lease is, only its holder knows.
        let lease = std::time::Duration::ZERO;
        let answer = if probe {
            Answer::Probing { fence, lease }
        } else {
            Answer::Granted { fence, lease }
        };
        (after, answer)
    }

    fn done(&self, fence: u64, answer: &str) -> Vec<(Self, Answer)> {
        let (latest, silent) = (fence == self.fence, self.silent.contains(&fence));
        let settled = || {
            let after = self.with(Phase::Done(answer.to_owned())).heard(fence);
            vec![
                (after.clone(), Answer::Settled(answer.to_owned())),
                // The evidence of an older attempt says something else.
                (after, Answer::Stored(answer.to_owned())),
            ]
        };
        match &self.phase {
            Phase::Done(stored) => {
                let after = self.clone().heard(fence);
                let mut all = vec![(after.clone(), Answer::Stored(stored.clone()))];
                if stored == answer {
                    all.push((after, Answer::Settled(stored.clone())));
                }
                all
            }
            Phase::Running(_) if latest => settled(),
            Phase::Free | Phase::Doubtful(_) if silent => settled(),
            Phase::Running(running) if silent => {
                let first = running.evidence.clone();
                let after = self.with(Phase::Running(Running {
                    evidence: first.or_else(|| Some(answer.to_owned())),
                    ..running.clone()
                }));
                vec![(after.heard(fence), Answer::Fenced)]
            }
            Phase::Running(_) | Phase::Free | Phase::Doubtful(_) => {
                vec![(self.clone(), Answer::Fenced)]
            }
        }
    }

    fn not_done(&self, fence: u64) -> Vec<(Self, Answer)> {
        let (latest, after) = (fence == self.fence, self.clone().heard(fence));
        match &self.phase {
            Phase::Done(stored) => vec![(after, Answer::Stored(stored.clone()))],
            Phase::Running(Running {
                evidence: Some(answer),
                ..
            }) if latest => {
                let settled = after.with(Phase::Done(answer.clone()));
                vec![(settled, Answer::Stored(answer.clone()))]
            }
            Phase::Running(_) | Phase::Doubtful(_) if latest => {
                vec![(after.with(Phase::Free), Answer::Released)]
            }
            // Said again.
            Phase::Free if latest && !self.silent.contains(&fence) => {
                vec![(after, Answer::Released)]
            }
            // Nothing may be in doubt any more.
            Phase::Doubtful(_) => vec![
                (after.with(Phase::Free), Answer::Fenced),
                (after, Answer::Fenced),
            ],
            Phase::Running(_) | Phase::Free => vec![(after, Answer::Fenced)],
        }
    }
}

fn said_to_act(answer: &Answer) -> bool {
    matches!(answer, Answer::Granted { .. } | Answer::Probing { .. })
}

/// Says whether two answers are the same, whatever the lease.
fn agree(heard: &Answer, said: &Answer) -> bool {
    match (heard, said) {
        (Answer::Granted { fence: heard, .. }, Answer::Granted { fence: said, .. })
        | (Answer::Probing { fence: heard, .. }, Answer::Probing { fence: said, .. }) => {
            heard == said
        }
        _ => heard == said,
    }
}
