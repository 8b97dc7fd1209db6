//! A small world around `decide`: one key, the time, and short names for every command.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::Digest;
use crate::effect::Effect;
use crate::fingerprint::Fingerprint;
use crate::ledger::{
    Adopt, Begin, Command, Decision, Delivery, Expire, Fence, Horizon, Operation, Order, Record,
    Rejection, Renew, Reply, Resolution, Resolve, Settle, Sighting, Spec, StateKind, Submit,
    Version, decide,
};
use crate::policy::{Class, OnDoubt, Policy};
use crate::queue::Task;
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::{Lease, Retention, Timestamp};
use crate::verdict::{Outcome, Payload, Verdict};

/// When every world begins.
pub(super) const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// The length of every lease that is not said to be another, in seconds.
pub(super) const LEASE: u64 = 60;

/// How long doubts are retried, in seconds.
pub(super) const WINDOW: u64 = 12 * 60 * 60;

/// Longer than a payload is kept, in seconds.
pub(super) const MONTH: u64 = 31 * 24 * 60 * 60;

/// Longer than a tombstone or a stub is kept, in seconds.
pub(super) const YEAR: u64 = 366 * 24 * 60 * 60;

/// By how much an adopted store's fences rise.
pub(super) const STEP: u64 = 1 << 32;

/// What the action usually comes to.
pub(super) const GOOD: Outcome = Outcome {
    ok: true,
    effect: Effect::Created,
    payload: Some(Payload {
        digest: Digest([7; 32]),
        size: 2,
        redacted: false,
    }),
};

/// A success that contradicts [`GOOD`].
pub(super) const OTHER: Outcome = Outcome {
    ok: true,
    effect: Effect::Updated,
    payload: None,
};

/// A failure that may have left something behind; [`HARMLESS`] as far as it holds beside an attempt
/// that nobody knows of.
pub(super) const BAD: Outcome = Outcome {
    ok: false,
    effect: Effect::Unknown,
    payload: None,
};

/// A failure that is known to have changed nothing.
pub(super) const HARMLESS: Outcome = Outcome {
    ok: false,
    effect: Effect::Noop,
    payload: None,
};

/// A success that found nothing left to change.
pub(super) const QUIET: Outcome = Outcome {
    ok: true,
    effect: Effect::Noop,
    payload: None,
};

/// Doubts wait for a resolution; no limit of attempts.
pub(super) fn hold() -> Policy {
    Policy::direct(Class::Unsafe)
}

/// Doubts are waived within the window; no limit of attempts.
pub(super) fn retry() -> Policy {
    Policy::direct(Class::Idempotent)
}

/// Doubts are looked up, ten seconds after the doubted lease at the earliest.
pub(super) fn probe() -> Policy {
    Policy {
        on_doubt: OnDoubt::Probe,
        settle_delay: Duration::from_secs(10),
        ..hold()
    }
}

/// The same policy with a limit of attempts.
pub(super) fn limited(attempts: u32, policy: Policy) -> Policy {
    Policy {
        max_attempts: NonZeroU32::new(attempts),
        ..policy
    }
}

pub(super) fn id(text: &str) -> AttemptId {
    AttemptId::new(text).expect("a test's attempt id is valid")
}

pub(super) fn label(text: &str) -> Label {
    Label::new(text).expect("a test's label is valid")
}

pub(super) fn lease(seconds: u64) -> Lease {
    Lease::new(Duration::from_secs(seconds)).expect("a test's lease is valid")
}

pub(super) fn spec(policy: Policy) -> Spec {
    Spec {
        namespace: Namespace::default(),
        key: Key::new("order-7").expect("the key is valid"),
        client_key: None,
        name: label("create-order"),
        fingerprint: Fingerprint(Digest([1; 32])),
        policy: Policy {
            retention: Retention::DEFAULT,
            ..policy
        },
        door: None,
        principal: None,
        parent: None,
        occurrence: 1,
        probe_digest: None,
    }
}

/// One key, what is stored under it, and the time.
#[derive(Clone, Debug)]
pub(super) struct World {
    spec: Arc<Spec>,
    pub(super) record: Option<Record>,
    pub(super) now: Timestamp,
    /// The fences that were granted, by the attempt's id.
    fences: BTreeMap<String, Fence>,
}

impl World {
    /// Nothing is stored yet; callers ask for this policy.
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            spec: Arc::new(spec(policy)),
            record: None,
            now: START,
            fences: BTreeMap::new(),
        }
    }

    /// Runs a command that must be accepted.
    pub(super) fn then(mut self, command: impl Fn(&Self) -> Command) -> Self {
        let command = command(&self);
        self.apply(&command);
        self
    }

    /// Lets time pass.
    pub(super) fn wait(mut self, seconds: u64) -> Self {
        self.now = self.now.plus(Duration::from_secs(seconds));
        self
    }

    /// Lets callers ask for another policy from now on.
    pub(super) fn asking(mut self, policy: Policy) -> Self {
        self.spec = Arc::new(spec(policy));
        self
    }

    /// Runs a command that must be accepted, and returns the reply.
    pub(super) fn apply(&mut self, command: &Command) -> Reply {
        match self.run(command) {
            Ok(Decision::Write(write)) => write.reply,
            other => panic!("{} was not accepted: {other:?}", command.name()),
        }
    }

    /// Runs a command, and stores what it writes.
    pub(super) fn run(&mut self, command: &Command) -> Result<Decision, Rejection> {
        let decision = decide(self.record.as_ref(), command, self.now);
        if let Ok(Decision::Write(write)) = &decision {
            if let (Reply::Granted(grant), Command::Begin(begin)) = (&write.reply, command) {
                self.fences
                    .insert(begin.attempt.as_str().to_owned(), grant.fence);
            }
            self.record.clone_from(&write.next);
        }
        decision
    }

    /// Asks without storing anything.
    pub(super) fn ask(&self, command: impl Fn(&Self) -> Command) -> Result<Decision, Rejection> {
        decide(self.record.as_ref(), &command(self), self.now)
    }

    /// Asserts that a command is refused and leaves no trace.
    #[track_caller]
    pub(super) fn refuses(&self, command: impl Fn(&Self) -> Command, rejection: Rejection) {
        assert_eq!(self.ask(command), Err(rejection));
    }

    /// Asserts that a command is answered and leaves no trace.
    #[track_caller]
    pub(super) fn answers(&self, command: impl Fn(&Self) -> Command, reply: Reply) {
        assert_eq!(self.ask(command), Ok(Decision::Answer(reply)));
    }

    pub(super) fn operation(&self) -> &Operation {
        let record = self.record.as_ref().expect("something is stored");
        record.operation().expect("it is a living operation")
    }

    pub(super) fn kind(&self) -> Option<StateKind> {
        self.record.as_ref().map(Record::kind)
    }

    pub(super) fn version(&self) -> Version {
        self.record.as_ref().map_or(Version(0), Record::version)
    }

    pub(super) fn fence(&self) -> Fence {
        self.record.as_ref().map_or(Fence(0), Record::fence)
    }

    /// The fence that this attempt was granted; one that never was names the present fence, so
    /// that its id alone gives it away.
    pub(super) fn fence_of(&self, attempt: &str) -> Fence {
        self.fences
            .get(attempt)
            .copied()
            .unwrap_or_else(|| self.fence())
    }

    pub(super) fn order(&self) -> Order {
        Order {
            version: self.version(),
            by: label("ann"),
            note: Note::from_lossy("checked by hand"),
        }
    }

    // The commands of callers.

    pub(super) fn submit(&self) -> Command {
        self.submit_to(None, None)
    }

    pub(super) fn queue(&self, queue: &str) -> Command {
        self.submit_to(Some(queue), None)
    }

    pub(super) fn submit_to(&self, queue: Option<&str>, run_at: Option<Timestamp>) -> Command {
        Command::Submit(Submit {
            task: None,
            spec: Arc::clone(&self.spec),
            queue: queue.map(label),
            run_at,
        })
    }

    pub(super) fn submit_task(&self, queue: &str, task: Task) -> Command {
        Command::Submit(Submit {
            spec: Arc::clone(&self.spec),
            queue: Some(label(queue)),
            run_at: None,
            task: Some(Arc::new(task)),
        })
    }

    pub(super) fn begin(&self, attempt: &str) -> Command {
        Command::Begin(self.asks_to_begin(attempt))
    }

    pub(super) fn work(&self, attempt: &str) -> Command {
        Command::Begin(Begin {
            worker: true,
            ..self.asks_to_begin(attempt)
        })
    }

    /// A Begin by a door that looked at the holder of an attempt.
    pub(super) fn begin_seeing(&self, attempt: &str, seen: &str, alive: bool) -> Command {
        Command::Begin(Begin {
            sighting: Some(Sighting {
                fence: self.fence_of(seen),
                alive,
            }),
            ..self.asks_to_begin(attempt)
        })
    }

    pub(super) fn asks_to_begin(&self, attempt: &str) -> Begin {
        Begin {
            spec: Arc::clone(&self.spec),
            attempt: id(attempt),
            lease: lease(LEASE),
            holder: None,
            worker: false,
            sighting: None,
        }
    }

    /// The same command with the same key for another input.
    pub(super) fn reused(&self, command: &Command) -> Command {
        let other = Arc::new(Spec {
            fingerprint: Fingerprint(Digest([2; 32])),
            ..(*self.spec).clone()
        });
        match command.clone() {
            Command::Submit(submit) => Command::Submit(Submit {
                spec: other,
                ..submit
            }),
            Command::Begin(begin) => Command::Begin(Begin {
                spec: other,
                ..begin
            }),
            command @ (Command::Renew(_)
            | Command::Settle(_)
            | Command::Expire(_)
            | Command::Resolve(_)
            | Command::Retry(_)
            | Command::Cancel(_)
            | Command::Forget(_)
            | Command::Bury(_)
            | Command::Drop(_)
            | Command::Deliver(_)
            | Command::Adopt(_)
            | Command::Breaker(_)) => panic!("{} carries no fingerprint", command.name()),
        }
    }

    // The commands of holders.

    pub(super) fn renew(&self, attempt: &str) -> Command {
        self.renew_for(attempt, LEASE)
    }

    pub(super) fn renew_for(&self, attempt: &str, seconds: u64) -> Command {
        Command::Renew(Renew {
            attempt: id(attempt),
            fence: self.fence_of(attempt),
            lease: lease(seconds),
        })
    }

    pub(super) fn settle(&self, attempt: &str, verdict: Verdict) -> Command {
        Command::Settle(Settle {
            attempt: id(attempt),
            fence: self.fence_of(attempt),
            verdict,
        })
    }

    pub(super) fn done(&self, attempt: &str, outcome: Outcome) -> Command {
        self.settle(attempt, Verdict::Done(outcome))
    }

    pub(super) fn not_done(&self, attempt: &str) -> Command {
        let error = Note::from_lossy("connection refused");
        self.settle(
            attempt,
            Verdict::NotDone {
                retry_after: None,
                reject: false,
                error,
            },
        )
    }

    pub(super) fn reject(&self, attempt: &str) -> Command {
        let error = Note::from_lossy("no such customer");
        self.settle(
            attempt,
            Verdict::NotDone {
                retry_after: None,
                reject: true,
                error,
            },
        )
    }

    pub(super) fn unknown(&self, attempt: &str) -> Command {
        let error = Note::from_lossy("connection reset");
        self.settle(attempt, Verdict::Unknown { error })
    }

    pub(super) fn expire(&self) -> Command {
        Command::Expire(Expire { gone: None })
    }

    pub(super) fn gone(&self, attempt: &str) -> Command {
        Command::Expire(Expire {
            gone: Some(self.fence_of(attempt)),
        })
    }

    // The commands of operators, each on the version that is stored now.

    pub(super) fn resolve_done(&self, outcome: Outcome) -> Command {
        Command::Resolve(Resolve {
            order: self.order(),
            resolution: Resolution::Done(outcome),
        })
    }

    pub(super) fn resolve_not_done(&self) -> Command {
        Command::Resolve(Resolve {
            order: self.order(),
            resolution: Resolution::NotDone,
        })
    }

    pub(super) fn retry(&self) -> Command {
        Command::Retry(self.order())
    }

    pub(super) fn cancel(&self) -> Command {
        Command::Cancel(self.order())
    }

    pub(super) fn forget(&self) -> Command {
        Command::Forget(self.order())
    }

    // The commands of the engine itself.

    pub(super) fn bury(&self) -> Command {
        Command::Bury(Horizon(self.now))
    }

    pub(super) fn drop(&self) -> Command {
        Command::Drop(Horizon(self.now))
    }

    pub(super) fn deliver(&self) -> Command {
        Command::Deliver(Delivery::Delivered)
    }

    pub(super) fn adopt(&self) -> Command {
        Command::Adopt(Adopt {
            fence_step: STEP,
            by: label("restore"),
        })
    }
}

/// Names the wrong fence in a report or a renewal, and the wrong version in an order.
pub(super) fn off_by_one(command: Command) -> Command {
    let older = |order: Order| Order {
        version: Version(order.version.0.wrapping_sub(1)),
        ..order
    };
    match command {
        Command::Renew(renew) => Command::Renew(Renew {
            fence: renew.fence.next(),
            ..renew
        }),
        Command::Settle(settle) => Command::Settle(Settle {
            fence: settle.fence.next(),
            ..settle
        }),
        Command::Resolve(resolve) => Command::Resolve(Resolve {
            order: older(resolve.order),
            ..resolve
        }),
        Command::Retry(order) => Command::Retry(older(order)),
        Command::Cancel(order) => Command::Cancel(older(order)),
        Command::Forget(order) => Command::Forget(older(order)),
        command @ (Command::Submit(_)
        | Command::Begin(_)
        | Command::Expire(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_)) => {
            panic!("{} names neither fence nor version", command.name())
        }
    }
}

/// Returns a later time than when every world begins.
pub(super) fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}
