//! The outside world: it counts effects, knows nothing of the ledger, and may answer late or never.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Digest;
use semel_core::ledger::Fence;
use tokio::sync::oneshot;

use super::history::{Inner, Sim};
use super::process::Process;
use super::rng::Rng;
use super::trace::Seen;

/// What kind of thing the effect happens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// A request may take effect whenever it likes, also long after its sender is gone.
    Opaque,
    /// A request takes effect within the key's settle delay, or never.
    Timely,
    /// A request whose fence is lower than one seen before is refused.
    Fenced,
}

/// Everything that took effect, by key.
#[derive(Debug)]
pub(crate) struct World {
    targets: Vec<Target>,
    last_serial: u64,
}

#[derive(Debug, Default)]
struct Target {
    effects: Vec<Happened>,
    /// Requests that are out and may still take effect.
    flying: u32,
    highest: Fence,
}

/// One effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    /// Its number: what the action answers.
    pub(crate) serial: u64,
    /// The fence that the request carried, if its sender had one.
    pub(crate) fence: Option<Fence>,
}

/// What the upstream answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It happened.
    Done(u64),
    /// It failed half-way: something changed.
    FailedDirty(u64),
    /// It failed and provably changed nothing.
    FailedClean,
    /// It was not even tried.
    Refused,
}

/// What is going to come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    FailDirty,
    FailClean,
    Refuse,
    Vanish,
}

impl World {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            targets: (0..keys).map(|_| Target::default()).collect(),
            last_serial: 0,
        }
    }

    pub(crate) fn effects(&self, key: usize) -> &[Happened] {
        &self.targets[key].effects
    }

    /// Says whether this answer came of an effect that happened.
    pub(crate) fn saw(&self, key: usize, payload: &Digest) -> bool {
        let effects = &self.targets[key].effects;
        effects.iter().any(|effect| {
            // The library writes the message of a failure as a JSON string.
            let quoted = format!("\"{}\"", effect.serial);
            let forms = [payload_of(effect.serial), quoted.into_bytes()];
            forms.iter().any(|form| Digest::of(form) == *payload)
        })
    }

    pub(crate) fn flying(&self, key: usize) -> bool {
        self.targets[key].flying > 0
    }

    /// Looks for the effect of one of these attempts, newest first. An upstream that keeps fences
    /// remembers the one that looks, so that nothing older takes effect after it.
    pub(crate) fn look(
        &mut self,
        key: usize,
        upstream: Upstream,
        fence: Option<Fence>,
        attempts: &[Fence],
    ) -> Option<u64> {
        let target = &mut self.targets[key];
        if let (Upstream::Fenced, Some(fence)) = (upstream, fence) {
            target.highest = target.highest.max(fence);
        }
        let mut newest_first = target.effects.iter().rev();
        let found =
            newest_first.find(|effect| effect.fence.is_some_and(|fence| attempts.contains(&fence)));
        found.map(|effect| effect.serial)
    }
}

/// Returns what an action answers, as the ledger stores it.
pub(crate) fn payload_of(serial: u64) -> Vec<u8> {
    serial.to_string().into_bytes()
}

/// The longest that a request of an opaque upstream flies: longer than any lease.
pub(crate) const FLIGHT_MAX: Duration = Duration::from_secs(6);

fn draw_delay(rng: &mut Rng, upstream: Upstream, settle_delay: Duration) -> Duration {
    let longest = match upstream {
        Upstream::Opaque | Upstream::Fenced => FLIGHT_MAX,
        Upstream::Timely => settle_delay,
    };
    match rng.below(10) {
        0..=3 => Duration::ZERO,
        4..=6 => rng.millis(1, 300).min(longest),
        _ => rng.millis(1, u64::try_from(longest.as_millis()).unwrap_or(1)),
    }
}

fn draw_fate(rng: &mut Rng) -> Fate {
    match rng.below(100) {
        0..=61 => Fate::Done,
        62..=69 => Fate::FailDirty,
        70..=77 => Fate::FailClean,
        78..=91 => Fate::Refuse,
        _ => Fate::Vanish,
    }
}

impl Sim {
    /// Sends the request that makes the effect happen; the answer comes when it comes, if it does.
    ///
    /// From here on the request is out: what becomes of it no longer depends on its sender.
    pub(crate) fn send(
        self: &Arc<Self>,
        process: &Process,
        key: usize,
        fence: Option<Fence>,
    ) -> oneshot::Receiver<Answer> {
        let plan = &self.plan.keys[key];
        let (answer, answered) = oneshot::channel();
        let now = self.now();
        let (fate, delay, heard) = self.with(|s| {
            s.started(process, key, fence, now);
            let fate = if s.calm {
                Fate::Done
            } else {
                draw_fate(&mut s.rng)
            };
            let delay = if s.calm {
                Duration::ZERO
            } else {
                draw_delay(&mut s.rng, plan.upstream, plan.settle_delay)
            };
            let heard = s.calm || !s.rng.chance(300);
            s.world.targets[key].flying += 1;
            (fate, delay, heard)
        });
        if delay.is_zero() {
            reply(self.with(|s| s.land(key, fence, fate)), heard, answer);
            return answered;
        }
        let sim = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            reply(sim.with(|s| s.land(key, fence, fate)), heard, answer);
        });
        answered
    }
}

fn reply(answer: Option<Answer>, heard: bool, to: oneshot::Sender<Answer>) {
    if let Some(answer) = answer.filter(|_| heard) {
        // Nobody listens when the sender of the request has given up or died.
        let _ = to.send(answer);
    }
}

impl Inner {
    /// A request arrives.
    fn land(&mut self, key: usize, fence: Option<Fence>, fate: Fate) -> Option<Answer> {
        let fenced = self.upstream(key) == Upstream::Fenced;
        let target = &mut self.world.targets[key];
        target.flying -= 1;
        if fate == Fate::Vanish {
            self.seen.note(Seen::World("vanished"));
            return None;
        }
        let carried = fence.unwrap_or_default();
        if fenced && carried < target.highest {
            self.seen.note(Seen::World("refused an old fence"));
            self.say(
                "world",
                format_args!("refuses k{key} with old fence {}", carried.0),
            );
            return Some(Answer::Refused);
        }
        target.highest = target.highest.max(carried);
        let serial = match fate {
            Fate::Refuse => return Some(Answer::Refused),
            Fate::FailClean => return Some(Answer::FailedClean),
            Fate::Done | Fate::FailDirty | Fate::Vanish => {
                self.world.last_serial += 1;
                self.world.last_serial
            }
        };
        self.world.targets[key]
            .effects
            .push(Happened { serial, fence });
        self.seen.note(Seen::World("took effect"));
        self.say(
            "world",
            format_args!("effect #{serial} on k{key} with fence {}", carried.0),
        );
        self.happened(key, fence);
        Some(match fate {
            Fate::FailDirty => Answer::FailedDirty(serial),
            Fate::Done | Fate::FailClean | Fate::Refuse | Fate::Vanish => Answer::Done(serial),
        })
    }
}
