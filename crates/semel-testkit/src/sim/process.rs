//! Processes: they die, stop and come back at every point where they wait for something.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::history::Sim;
use super::trace::Seen;

/// A place where a process can die or be stopped: every await of an agent and every step of every
/// store call, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The agent is about to claim.
    BeforeClaim,
    /// It holds a permit and has done nothing yet.
    AfterClaim,
    /// The request is out, the reply is not back.
    MidEffect,
    /// It knows what came of the effect and has not said so.
    AfterEffect,
    /// It has said so, and its caller has not heard it.
    AfterSettle,
    /// It is about to look whether a doubted effect happened.
    BeforeLook,
    /// It knows what it found.
    AfterLook,
    /// A record is about to be read.
    BeforeLoad,
    /// It was read, and the reply is on its way.
    AfterLoad,
    /// A change is about to leave the process.
    BeforeCommit,
    /// It has left, and was not written yet.
    InFlight,
    /// It was written, and the reply is on its way.
    AfterCommit,
    /// Payloads, streams, lists, marks and the log, before.
    BeforeOther,
    /// And after.
    AfterOther,
}

impl Point {
    /// Every point.
    pub const ALL: [Self; 14] = [
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::MidEffect,
        Self::AfterEffect,
        Self::AfterSettle,
        Self::BeforeLook,
        Self::AfterLook,
        Self::BeforeLoad,
        Self::AfterLoad,
        Self::BeforeCommit,
        Self::InFlight,
        Self::AfterCommit,
        Self::BeforeOther,
        Self::AfterOther,
    ];
}

/// Whether a process can still do something.
#[derive(Debug)]
pub(crate) struct Life {
    name: String,
    mortal: bool,
    dead: bool,
    stopped_until: Option<Instant>,
    died: Arc<Notify>,
}

/// One process; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) id: usize,
    pub(crate) name: Arc<str>,
    sim: Arc<Sim>,
    died: Arc<Notify>,
}

enum Fate {
    Go,
    Yield,
    Wait(Duration),
    Stop(Duration),
    Die,
}

impl Process {
    /// Starts a process; only a mortal one crashes by itself.
    pub(crate) fn start(sim: &Arc<Sim>, name: &str, mortal: bool) -> Self {
        let died = Arc::new(Notify::new());
        let id = sim.with(|s| {
            s.lives.push(Life {
                name: name.to_owned(),
                mortal,
                dead: false,
                stopped_until: None,
                died: Arc::clone(&died),
            });
            s.lives.len() - 1
        });
        Self {
            id,
            name: Arc::from(name),
            sim: Arc::clone(sim),
            died,
        }
    }

    /// Ends with the process.
    pub(crate) async fn died(&self) {
        self.died.notified().await;
    }

    /// Waits while the process is stopped, and for ever when it is dead: what it spawned before
    /// goes on being polled by the runtime, and must not reach anything any more.
    pub(crate) async fn gate(&self) {
        loop {
            let (dead, until) = self.sim.with(|s| {
                let life = &s.lives[self.id];
                (life.dead, life.stopped_until)
            });
            if dead {
                pending::<()>().await;
            }
            match until {
                Some(until) if Instant::now() < until => tokio::time::sleep_until(until).await,
                Some(_) | None => return,
            }
        }
    }

    /// Passes a point, or does not.
    pub(crate) async fn point(&self, point: Point) {
        self.gate().await;
        match self.fate(point) {
            Fate::Go => return,
            Fate::Yield => tokio::task::yield_now().await,
            Fate::Wait(time) => tokio::time::sleep(time).await,
            Fate::Stop(time) => {
                let until = Instant::now() + time;
                self.sim.with(|s| {
                    s.seen.note(Seen::Pause(point));
                    s.say(
                        &self.name,
                        format_args!("is stopped at {point:?} for {time:?}"),
                    );
                    s.lives[self.id].stopped_until = Some(until);
                });
            }
            Fate::Die => {
                self.sim.with(|s| {
                    s.seen.note(Seen::Crash(point));
                    s.say(&self.name, format_args!("dies at {point:?}"));
                });
                kill(&self.sim, self.id);
            }
        }
        self.gate().await;
    }

    fn fate(&self, point: Point) -> Fate {
        let rates = self.sim.plan.rates;
        self.sim.with(|s| {
            if s.calm {
                return Fate::Go;
            }
            let mortal = s.lives[self.id].mortal;
            let draw = s.rng.below(1_000);
            if mortal && draw < rates.crash {
                Fate::Die
            } else if mortal && draw < rates.crash + rates.pause {
                Fate::Stop(s.rng.millis(200, 6_000))
            } else if draw < rates.crash + rates.pause + rates.delay {
                // A change on its way may take longer than a lease.
                match s.rng.below(8) {
                    0 => Fate::Yield,
                    1..=3 if point == Point::InFlight => Fate::Wait(s.rng.millis(300, 5_000)),
                    1..=2 => Fate::Wait(s.rng.millis(50, 1_500)),
                    _ => Fate::Wait(s.rng.millis(1, 60)),
                }
            } else {
                Fate::Go
            }
        })
    }
}

/// Ends a process; nothing of it reaches anything from now on.
pub(crate) fn kill(sim: &Sim, id: usize) {
    sim.with(|s| {
        let life = &mut s.lives[id];
        if !life.dead {
            life.dead = true;
            life.died.notify_one();
        }
    });
}

/// Ends every mortal process, as a power loss does.
pub(crate) fn kill_all(sim: &Sim) {
    sim.with(|s| {
        for life in s.lives.iter_mut().filter(|life| life.mortal && !life.dead) {
            life.dead = true;
            life.died.notify_one();
        }
    });
}

impl Life {
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Says whether this is a process that can be killed.
    pub(crate) fn can_die(&self) -> bool {
        self.mortal && !self.dead
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
