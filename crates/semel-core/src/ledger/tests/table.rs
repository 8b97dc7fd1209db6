//! What is expected of a decision, in short words, and the table that checks case after case.

use core::time::Duration;
use std::collections::BTreeSet;

use super::world::{LEASE, World};
use crate::effect::Effect;
use crate::ledger::{
    AttemptKind, Command, Decision, Event, Fence, Grant, Ordered, Record, Rejection, Reply,
    Reported, Resolution, State, StateKind, decide,
};
use crate::time::Timestamp;
use crate::verdict::{Outcome, Verdict};

/// What a cell is expected to say, or says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing is written.
    Rejected(Rejection),
    /// Nothing is written.
    Answered(Reply),
    /// Exactly one version more, and all of this.
    Written(Written),
}

/// What a cell is expected to write, or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// By how much the version rises: by one, as long as there is a record to hold it.
    version: u64,
    state: Option<StateKind>,
    reply: Reply,
    events: Vec<Event>,
    /// By how much the fence rises.
    fence: u64,
    /// How many attempts are open afterwards.
    open: usize,
    /// What an older attempt's `done` left for later.
    evidence: Option<Outcome>,
    /// What the operation came to.
    outcome: Option<Outcome>,
}

pub(super) fn rejected(rejection: Rejection) -> Expected {
    Expected::Rejected(rejection)
}

pub(super) const fn in_flight(until: Option<Timestamp>) -> Rejection {
    Rejection::InFlight { until }
}

pub(super) const IN_DOUBT: Rejection = Rejection::InDoubt {
    own: false,
    probe_at: None,
};

pub(super) const OWN_DOUBT: Rejection = Rejection::InDoubt {
    own: true,
    probe_at: None,
};

/// In doubt, and a probe may look from then on.
pub(super) const fn probe_at(time: Timestamp) -> Rejection {
    Rejection::InDoubt {
        own: false,
        probe_at: Some(time),
    }
}

pub(super) const fn refused(state: StateKind) -> Rejection {
    Rejection::Refused { state }
}

pub(super) fn answered(reply: Reply) -> Expected {
    Expected::Answered(reply)
}

/// Expects a write after which nothing is open, settled or kept as evidence, and the fence stands.
pub(super) fn written(
    state: impl Into<Option<StateKind>>,
    reply: Reply,
    events: &[Event],
) -> Written {
    let state = state.into();
    Written {
        version: u64::from(state.is_some()),
        state,
        reply,
        events: events.to_vec(),
        fence: 0,
        open: 0,
        evidence: None,
        outcome: None,
    }
}

impl Written {
    pub(super) fn fence(self, by: u64) -> Self {
        Self { fence: by, ..self }
    }

    pub(super) fn open(self, open: usize) -> Self {
        Self { open, ..self }
    }

    pub(super) fn evidence(self, outcome: Outcome) -> Self {
        Self {
            evidence: Some(outcome),
            ..self
        }
    }

    pub(super) fn outcome(self, outcome: Outcome) -> Self {
        Self {
            outcome: Some(outcome),
            ..self
        }
    }
}

impl Expected {
    /// Says in the same words what was decided.
    fn from_decision(world: &World, decision: Result<Decision, Rejection>) -> Self {
        let write = match decision {
            Err(rejection) => return Self::Rejected(rejection),
            Ok(Decision::Answer(reply)) => return Self::Answered(reply),
            Ok(Decision::Write(write)) => *write,
        };
        let operation = write.next.as_ref().and_then(Record::operation);
        let (evidence, outcome) = match operation.map(|operation| &operation.state) {
            Some(State::Running { evidence }) => (*evidence, None),
            Some(State::Succeeded(settled) | State::Failed(settled)) => {
                (None, Some(settled.outcome))
            }
            Some(State::Pending | State::Doubtful | State::Dead) | None => (None, None),
        };
        let rise = |before: u64, after: fn(&Record) -> u64| {
            let next = write.next.as_ref().map_or(before, after);
            next.wrapping_sub(before)
        };
        Self::Written(Written {
            version: rise(world.version().0, |next| next.version().0),
            state: write.next.as_ref().map(Record::kind),
            fence: rise(world.fence().0, |next| next.fence().0),
            open: operation.map_or(0, |o| o.attempts.iter().filter(|a| a.open).count()),
            evidence,
            outcome,
            reply: write.reply,
            events: write.events,
        })
    }
}

impl From<Written> for Expected {
    fn from(written: Written) -> Self {
        Self::Written(written)
    }
}

pub(super) const CREATED: Reply = Reply::Submitted { created: true };
pub(super) const KNOWN: Reply = Reply::Submitted { created: false };
pub(super) const FENCED: Reply = Reply::Refused(Rejection::Fenced);

/// A permit to act for the usual lease from this time.
pub(super) fn act(fence: u64, number: u32, from: Timestamp) -> Reply {
    granted(AttemptKind::Act, fence, number, from)
}

/// A permit to probe for the usual lease from this time.
pub(super) fn look(fence: u64, number: u32, from: Timestamp) -> Reply {
    granted(AttemptKind::Probe, fence, number, from)
}

fn granted(kind: AttemptKind, fence: u64, number: u32, from: Timestamp) -> Reply {
    Reply::Granted(Grant {
        kind,
        fence: Fence(fence),
        number,
        lease_until: from.plus(Duration::from_secs(LEASE)),
    })
}

const fn reported(state: StateKind) -> Reported {
    Reported {
        state,
        repeated: false,
        late: false,
        conflict: false,
    }
}

/// The report was taken in time.
pub(super) const fn heard(state: StateKind) -> Reply {
    Reply::Reported(reported(state))
}

/// The report was taken, after the lease or after others had decided.
pub(super) const fn heard_late(state: StateKind) -> Reply {
    Reply::Reported(Reported {
        late: true,
        ..reported(state)
    })
}

/// The same was reported before.
pub(super) const fn heard_again(state: StateKind) -> Reply {
    Reply::Reported(Reported {
        repeated: true,
        ..reported(state)
    })
}

/// The same was reported before, or says nothing new, and the lease has ended meanwhile.
pub(super) const fn heard_again_late(state: StateKind) -> Reply {
    Reply::Reported(Reported {
        repeated: true,
        late: true,
        ..reported(state)
    })
}

/// The report contradicts what is stored, and the lease has ended meanwhile.
pub(super) const fn contradicted_late(state: StateKind) -> Reply {
    Reply::Reported(Reported {
        late: true,
        conflict: true,
        ..reported(state)
    })
}

/// The report contradicts what is stored.
pub(super) const fn contradicted(state: StateKind) -> Reply {
    Reply::Reported(Reported {
        conflict: true,
        ..reported(state)
    })
}

/// The order was accepted.
pub(super) const fn ordered(state: StateKind) -> Reply {
    Reply::Ordered(Ordered {
        state,
        repeated: false,
        previous_effect: None,
    })
}

/// The order was accepted before.
pub(super) const fn ordered_again(state: StateKind) -> Reply {
    Reply::Ordered(Ordered {
        state,
        repeated: true,
        previous_effect: None,
    })
}

/// Fresh attempts were given, after attempts that did this.
pub(super) const fn retried(previous: Effect, repeated: bool) -> Reply {
    Reply::Ordered(Ordered {
        state: StateKind::Pending,
        repeated,
        previous_effect: Some(previous),
    })
}

/// The rows of the design's tables; a lease that has ended makes a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    Absent,
    Stub,
    Pending,
    RunningAlive,
    RunningExp,
    Doubtful,
    Succeeded,
    Failed,
    Dead,
    Tombstone,
}

impl Row {
    const ALL: [Self; 10] = [
        Self::Absent,
        Self::Stub,
        Self::Pending,
        Self::RunningAlive,
        Self::RunningExp,
        Self::Doubtful,
        Self::Succeeded,
        Self::Failed,
        Self::Dead,
        Self::Tombstone,
    ];

    /// Finds the row by the stored state and the clock, without asking the code under test.
    fn of(world: &World) -> Self {
        let Some(record) = &world.record else {
            return Self::Absent;
        };
        match record.kind() {
            StateKind::Pending => Self::Pending,
            StateKind::Running => {
                let holder = record.operation().and_then(|o| o.attempts.last());
                if holder.is_some_and(|holder| world.now < holder.lease_until) {
                    Self::RunningAlive
                } else {
                    Self::RunningExp
                }
            }
            StateKind::Succeeded => Self::Succeeded,
            StateKind::Failed => Self::Failed,
            StateKind::Doubtful => Self::Doubtful,
            StateKind::Dead => Self::Dead,
            StateKind::Tombstone => Self::Tombstone,
            StateKind::Stub => Self::Stub,
            StateKind::Breaker(_) => unreachable!("a breaker has a table of its own"),
        }
    }
}

/// The columns of the design's tables: commands, and verdicts and resolutions apart.
pub(super) fn column(command: &Command) -> &'static str {
    match command {
        Command::Settle(settle) => match settle.verdict {
            Verdict::Done(_) => "settle done",
            Verdict::NotDone { .. } => "settle not_done",
            Verdict::Unknown { .. } => "settle unknown",
        },
        Command::Resolve(resolve) => match resolve.resolution {
            Resolution::Done(_) => "resolve done",
            Resolution::NotDone => "resolve not_done",
        },
        Command::Submit(_)
        | Command::Begin(_)
        | Command::Renew(_)
        | Command::Expire(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => command.name(),
    }
}

/// Checks some cases in one world: `world; command => what is expected; …`.
macro_rules! cases {
    ($table:ident, $name:ident = $world:expr; $($command:expr => $expected:expr;)+) => {{
        let $name: &World = &$world;
        $($table.check($name, &$command, $expected, stringify!($world; $command));)+
    }};
}
pub(super) use cases;

/// A table of cases that knows which of its cells have one, and which cases went wrong.
#[derive(Debug, Default)]
pub(super) struct Table {
    covered: BTreeSet<(Row, &'static str)>,
    wrong: Vec<String>,
}

impl Table {
    /// Checks one case: the decision, twice, and everything that it writes.
    pub(super) fn check(
        &mut self,
        world: &World,
        command: &Command,
        expected: impl Into<Expected>,
        case: &str,
    ) {
        let decision = decide(world.record.as_ref(), command, world.now);
        let again = decide(world.record.as_ref(), command, world.now);
        assert_eq!(decision, again, "the same inputs gave two decisions");
        let cell = (Row::of(world), column(command));
        let (decided, expected) = (Expected::from_decision(world, decision), expected.into());
        if decided != expected {
            self.wrong.push(format!(
                "{cell:?}: {case}\n  expected {expected:?}\n  decided  {decided:?}"
            ));
        }
        self.covered.insert(cell);
    }

    /// Fails on a wrong case, and unless every row has a case in each of these columns.
    pub(super) fn finish(self, columns: &[&'static str]) {
        assert!(self.wrong.is_empty(), "\n{}", self.wrong.join("\n"));
        let missing: Vec<_> = Row::ALL
            .into_iter()
            .flat_map(|row| columns.iter().map(move |column| (row, *column)))
            .filter(|cell| !self.covered.contains(cell))
            .collect();
        assert!(missing.is_empty(), "cells without a case: {missing:?}");
        let outside: Vec<_> = self
            .covered
            .iter()
            .filter(|(_, column)| !columns.contains(column))
            .collect();
        assert!(outside.is_empty(), "cases of another table: {outside:?}");
    }
}
