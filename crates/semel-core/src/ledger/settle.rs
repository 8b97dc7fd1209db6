//! Settle: what an attempt's report does, also when it comes late or twice.

use core::time::Duration;

use super::command::Settle;
use super::decide::{no_operation, write, write_nothing, write_stub, write_tombstone};
use super::decision::{Decision, Event, Rejection, Reply, Reported};
use super::lease::{Ending, Judged, judge};
use super::record::{Attempt, AttemptKind, Operation, Record, State};
use crate::effect::Effect;
use crate::queue::RETRY_AFTER_MAX;
use crate::retry::backoff;
use crate::time::Timestamp;
use crate::verdict::{Outcome, Verdict, VerdictKind};

pub(super) fn decide(
    current: Option<&Record>,
    settle: &Settle,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let operation = match current {
        None => {
            return Ok(write_nothing(
                Event::Unplaced,
                Reply::Refused(Rejection::NotFound),
            ));
        }
        Some(Record::Stub(stub)) => {
            return Ok(write_stub(
                *stub,
                Event::Unplaced,
                Reply::Refused(Rejection::NotFound),
            ));
        }
        Some(Record::Tombstone(tombstone)) => {
            let reply = Reply::Refused(Rejection::Expired);
            return Ok(write_tombstone(tombstone.clone(), Event::Unplaced, reply));
        }
        Some(breaker @ Record::Breaker(_)) => return Err(no_operation(breaker)),
        Some(Record::Operation(operation)) => operation,
    };
    // A report that names no attempt of this operation is fenced in every state.
    let index = operation
        .find(&settle.attempt, settle.fence)
        .ok_or(Rejection::Fenced)?;
    let Judged { operation, events } = judge(operation, now, Ending::Lease);
    let late = !events.is_empty();
    let report = Report {
        next: operation.into_owned(),
        index,
        events,
        late,
        now,
    };
    match report.next.state.clone() {
        // The lease of a silent probe ended just now and left nothing to doubt. This is its own
        // word, and counts like that of any holder whose lease is over.
        State::Pending | State::Dead if late && report.is_latest() => {
            report.in_doubtful(&settle.verdict)
        }
        State::Pending => report.in_pending(&settle.verdict),
        State::Running { evidence } => report.in_running(&settle.verdict, evidence),
        State::Doubtful => report.in_doubtful(&settle.verdict),
        State::Succeeded(settled) | State::Failed(settled) => {
            report.in_settled(&settle.verdict, settled.outcome)
        }
        State::Dead => report.in_dead(&settle.verdict),
    }
}

/// A report by a known attempt, and the operation it changes.
struct Report {
    next: Operation,
    /// Which of the operation's attempts speaks.
    index: usize,
    events: Vec<Event>,
    late: bool,
    now: Timestamp,
}

impl Report {
    fn attempt(&self) -> &Attempt {
        &self.next.attempts[self.index]
    }

    fn is_latest(&self) -> bool {
        self.index + 1 == self.next.attempts.len()
    }

    fn in_pending(self, verdict: &Verdict) -> Result<Decision, Rejection> {
        match verdict {
            Verdict::Done(outcome) => self.settle_late(verdict, *outcome),
            Verdict::NotDone { .. } => {
                if self.is_latest() && self.attempt().verdict == Some(VerdictKind::NotDone) {
                    return Ok(self.repeated(false));
                }
                self.clear_mark(verdict)
            }
            Verdict::Unknown { .. } => {
                Ok(self.write(Event::Unplaced, Reply::Refused(Rejection::Fenced)))
            }
        }
    }

    fn in_running(
        self,
        verdict: &Verdict,
        evidence: Option<Outcome>,
    ) -> Result<Decision, Rejection> {
        match verdict {
            Verdict::Done(outcome) if self.is_latest() => {
                Ok(self.settle(verdict, *outcome, evidence))
            }
            Verdict::Done(outcome) => self.keep_evidence(verdict, *outcome, evidence),
            Verdict::NotDone { .. } if self.is_latest() => Ok(self.release(verdict, evidence)),
            Verdict::NotDone { .. } => self.clear_mark(verdict),
            Verdict::Unknown { .. } if self.is_latest() => Ok(self.doubt(verdict, evidence)),
            Verdict::Unknown { .. } => Err(Rejection::Fenced),
        }
    }

    fn in_doubtful(self, verdict: &Verdict) -> Result<Decision, Rejection> {
        match verdict {
            Verdict::Done(outcome) => self.settle_late(verdict, *outcome),
            Verdict::NotDone { .. } if self.attempt().verdict == Some(VerdictKind::NotDone) => {
                if self.is_latest() {
                    Ok(self.repeated(false))
                } else {
                    Err(Rejection::Fenced)
                }
            }
            Verdict::NotDone { .. } if self.is_latest() => Ok(self.release(verdict, None)),
            Verdict::NotDone { .. } => self.clear_mark(verdict),
            Verdict::Unknown { .. } if self.is_latest() && self.attempt().verdict.is_none() => {
                Ok(self.doubt(verdict, None))
            }
            Verdict::Unknown { .. } => Ok(self.repeated(false)),
        }
    }

    fn in_settled(self, verdict: &Verdict, stored: Outcome) -> Result<Decision, Rejection> {
        let contradicts = match verdict {
            // What is stored may say less than this very report did.
            Verdict::Done(outcome) => *outcome != stored && unproven(*outcome) != stored,
            // A stale duplicate of what this attempt said before contradicts nothing.
            Verdict::NotDone { .. } => self.attempt().verdict != Some(VerdictKind::NotDone),
            Verdict::Unknown { .. } => false,
        };
        // The first definite verdict is stored even when it agrees: unremembered, its duplicate
        // could undo a Retry.
        let speaks = match verdict {
            Verdict::Done(_) | Verdict::NotDone { .. } => !self.attempt().has_spoken(),
            Verdict::Unknown { .. } => false,
        };
        // The end of the lease alone may have settled it, by evidence: that is to be stored too.
        if !contradicts && !speaks && self.events.is_empty() {
            return Ok(self.repeated(false));
        }
        let mut report = self;
        report.hear(verdict);
        if contradicts {
            report.events.push(Event::Conflict);
        } else if speaks {
            report.events.push(Event::MarkCleared);
        }
        let reply = report.reported(contradicts);
        Ok(write(report.next, report.events, reply))
    }

    fn in_dead(self, verdict: &Verdict) -> Result<Decision, Rejection> {
        match verdict {
            Verdict::Done(outcome) => self.settle_late(verdict, *outcome),
            Verdict::NotDone { .. } => self.clear_mark(verdict),
            Verdict::Unknown { .. } => Err(Rejection::Fenced),
        }
    }

    /// Remembers the verdict of the speaking attempt; its first definite one is final.
    fn hear(&mut self, verdict: &Verdict) {
        let now = self.now;
        let attempt = &mut self.next.attempts[self.index];
        if attempt.has_spoken() {
            return;
        }
        let error = match verdict {
            Verdict::Done(_) => None,
            Verdict::NotDone { error, .. } | Verdict::Unknown { error } => error.clone(),
        };
        attempt.end(Some(verdict.kind()), error, now);
    }

    /// Settles by the attempt that runs.
    fn settle(
        mut self,
        verdict: &Verdict,
        outcome: Outcome,
        evidence: Option<Outcome>,
    ) -> Decision {
        self.hear(verdict);
        let conflict = evidence.is_some_and(|other| other != outcome);
        self.settle_as(beside(outcome, evidence));
        self.events.push(Event::Settled);
        if conflict {
            self.events.push(Event::Conflict);
        }
        let reply = self.reported(conflict);
        write(self.next, self.events, reply)
    }

    /// Settles by what the speaking attempt said of itself, or of everything if it looked.
    fn settle_as(&mut self, outcome: Outcome) {
        let looked = self.is_latest() && self.attempt().kind == AttemptKind::Probe;
        if looked && unproven(outcome) != outcome {
            clear_marks(&mut self.next);
        }
        self.next.state = State::settled(proven(&self.next, outcome), self.now);
    }

    /// Settles by an attempt that no longer runs: a late `done` is never thrown away.
    fn settle_late(mut self, verdict: &Verdict, outcome: Outcome) -> Result<Decision, Rejection> {
        if self.attempt().has_spoken() {
            return Err(Rejection::Fenced);
        }
        self.hear(verdict);
        self.late = true;
        self.settle_as(outcome);
        self.next.run_at = None;
        self.events.push(Event::SettledLate);
        let reply = self.reported(false);
        Ok(write(self.next, self.events, reply))
    }

    /// Keeps an older attempt's `done` while a newer attempt runs; the first one stays.
    fn keep_evidence(
        mut self,
        verdict: &Verdict,
        outcome: Outcome,
        evidence: Option<Outcome>,
    ) -> Result<Decision, Rejection> {
        if self.attempt().has_spoken() {
            return Err(Rejection::Fenced);
        }
        self.hear(verdict);
        self.events.push(Event::EvidenceKept);
        if evidence.is_some_and(|first| first != outcome) {
            self.events.push(Event::Conflict);
        }
        let first = evidence.map_or(outcome, |first| beside(first, Some(outcome)));
        self.next.state = State::Running {
            evidence: Some(first),
        };
        Ok(write(
            self.next,
            self.events,
            Reply::Refused(Rejection::Fenced),
        ))
    }

    /// Ends the latest attempt with `not_done`.
    fn release(mut self, verdict: &Verdict, evidence: Option<Outcome>) -> Decision {
        let ended = Ended::by(verdict);
        self.hear(verdict);
        if self.attempt().kind == AttemptKind::Probe {
            // It looked after everything in doubt could no longer act, and found nothing.
            clear_marks(&mut self.next);
        }
        if let Some(outcome) = evidence {
            return self.settle_by_evidence(outcome);
        }
        // An open attempt puts the end off, which must not be forgotten meanwhile.
        self.next.rejected |= ended.rejected && self.next.open_since().is_some();
        self.fall(ended);
        let reply = self.reported(false);
        write(self.next, self.events, reply)
    }

    /// Goes where an operation goes whose latest attempt did not act.
    fn fall(&mut self, ended: Ended) {
        let event = fall(&mut self.next, ended, self.now);
        self.say(event);
    }

    /// Adds an event, unless the end of the lease has said so already.
    fn say(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    /// Ends the latest attempt with `unknown`.
    fn doubt(mut self, verdict: &Verdict, evidence: Option<Outcome>) -> Decision {
        self.hear(verdict);
        if let Some(outcome) = evidence {
            return self.settle_by_evidence(outcome);
        }
        let event = doubt(&mut self.next, self.now);
        self.say(event);
        let reply = self.reported(false);
        write(self.next, self.events, reply)
    }

    fn settle_by_evidence(mut self, outcome: Outcome) -> Decision {
        self.next.state = State::settled(proven(&self.next, outcome), self.now);
        self.events.push(Event::SettledLate);
        let reply = self.reported(false);
        write(self.next, self.events, reply)
    }

    /// Takes an older attempt's `not_done`: it can no longer be in doubt, and decides nothing else,
    /// unless it was the last thing in doubt.
    fn clear_mark(mut self, verdict: &Verdict) -> Result<Decision, Rejection> {
        if self.attempt().has_spoken() {
            return Err(Rejection::Fenced);
        }
        self.hear(verdict);
        if self.next.state == State::Doubtful && self.next.open_since().is_none() {
            self.fall(Ended::default());
        }
        Ok(self.write(Event::MarkCleared, Reply::Refused(Rejection::Fenced)))
    }

    fn write(mut self, event: Event, reply: Reply) -> Decision {
        self.events.push(event);
        write(self.next, self.events, reply)
    }

    fn repeated(&self, conflict: bool) -> Decision {
        let state = self.next.state.kind();
        let late = self.late;
        Decision::Answer(Reply::Reported(Reported {
            state,
            repeated: true,
            late,
            conflict,
        }))
    }

    fn reported(&self, conflict: bool) -> Reply {
        let state = self.next.state.kind();
        Reply::Reported(Reported {
            state,
            repeated: false,
            late: self.late,
            conflict,
        })
    }
}

/// Returns what the report of an attempt, now heard, settles its operation as.
///
/// A failure that changed nothing is one attempt's word about itself. While another one is open,
/// nobody knows whether the operation was applied, and `noop` would say that it was not.
pub(super) fn proven(operation: &Operation, outcome: Outcome) -> Outcome {
    if operation.open_since().is_some() {
        unproven(outcome)
    } else {
        outcome
    }
}

/// Returns an outcome as far as it holds beside what another attempt said.
fn beside(outcome: Outcome, other: Option<Outcome>) -> Outcome {
    if other.is_some_and(|other| other.effect != Effect::Noop) {
        unproven(outcome)
    } else {
        outcome
    }
}

/// Returns an outcome without the claim that a failure changed nothing.
fn unproven(outcome: Outcome) -> Outcome {
    if !outcome.ok && outcome.effect == Effect::Noop {
        Outcome {
            effect: Effect::Unknown,
            ..outcome
        }
    } else {
        outcome
    }
}

/// Moves an operation whose latest attempt ended and left it unknown whether it acted.
///
/// A probe's silence leaves nothing open of its own: where what it was to look up was cleared
/// meanwhile, there is nothing to doubt.
pub(super) fn doubt(operation: &mut Operation, at: Timestamp) -> Event {
    if operation.open_since().is_none() {
        return fall(operation, Ended::default(), at);
    }
    operation.state = State::Doubtful;
    Event::Doubted
}

/// What an attempt that did not act says about the next one.
#[derive(Clone, Copy, Default)]
struct Ended {
    /// There is to be none.
    rejected: bool,
    /// It waits at least so long.
    retry_after: Duration,
}

impl Ended {
    fn by(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::NotDone {
                reject,
                retry_after,
                ..
            } => Self {
                rejected: *reject,
                retry_after: retry_after.unwrap_or_default().min(RETRY_AFTER_MAX),
            },
            Verdict::Done(_) | Verdict::Unknown { .. } => Self::default(),
        }
    }
}

/// Moves an operation whose latest attempt ended and did not act.
fn fall(operation: &mut Operation, ended: Ended, at: Timestamp) -> Event {
    if !ended.rejected && operation.attempts_left() {
        operation.state = State::Pending;
        if let (Some(_), Some(latest)) = (&operation.queue, operation.latest()) {
            let times = operation.task.as_ref().map(|task| task.backoff);
            let wait = backoff(times.unwrap_or_default(), operation.attempt, &latest.id);
            operation.run_at = Some(at.plus(wait.max(ended.retry_after)));
        }
        Event::Released
    } else if operation.open_since().is_some() {
        operation.state = State::Doubtful;
        Event::Doubted
    } else {
        operation.state = State::Dead;
        Event::Died
    }
}

/// Clears every open mark: somebody knows now that none of these attempts took effect.
pub(super) fn clear_marks(operation: &mut Operation) {
    operation.forgotten_open = None;
    for attempt in &mut operation.attempts {
        attempt.open = false;
    }
}
