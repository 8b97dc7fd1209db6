//! Records, commands and log entries by hand, at the corners of their formats.

use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use crate::breaker::{
    self, Act, Admit, Ask, Breaker, Counts, Forced, Open, Phase, Report, Settings, Slice, Window,
};
use crate::digest::{Digest, KeyHash};
use crate::effect::Effect;
use crate::fingerprint::Fingerprint;
use crate::ledger::{
    Adopt, Attempt, AttemptKind, Begin, Command, Delivery, Entry, Event, Expire, Fence, Holder,
    Horizon, LastOrder, Operation, Order, Parent, Record, Renew, Resolution, Resolve, Resolved,
    Settle, Settled, Sighting, Spec, State, StateKind, Stub, Submit, Tombstone, Version,
};
use crate::policy::{Class, OnDoubt, Policy};
use crate::queue::{Backoff, Priority, Task};
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::{Lease, Retention, Timestamp};
use crate::verdict::{Outcome, Payload, Verdict, VerdictKind};

pub(super) fn label(text: &str) -> Label {
    Label::new(text).expect("the label is valid")
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("the key is valid")
}

pub(super) fn note(text: &str) -> Note {
    Note::new(text).expect("the note is valid")
}

pub(super) fn id(text: &str) -> AttemptId {
    AttemptId::new(text).expect("the attempt id is valid")
}

pub(super) fn lease(length: Duration) -> Lease {
    Lease::new(length).expect("the lease is valid")
}

pub(super) const CREATED_AT: Timestamp = Timestamp(1_794_736_800_000_000);

pub(super) const GOOD: Outcome = Outcome {
    ok: true,
    effect: Effect::Created,
    payload: Some(Payload {
        digest: Digest([0xab; 32]),
        size: 300,
        redacted: false,
    }),
};

pub(super) const REDACTED: Outcome = Outcome {
    payload: Some(Payload {
        digest: Digest([0xab; 32]),
        size: 300,
        redacted: true,
    }),
    ..GOOD
};

pub(super) const BAD: Outcome = Outcome {
    ok: false,
    effect: Effect::Unknown,
    payload: None,
};

// A small operation, as most are.

pub(super) fn plain_spec() -> Spec {
    Spec {
        namespace: Namespace::default(),
        key: key("order-7"),
        client_key: None,
        name: label("create-order"),
        fingerprint: Fingerprint(Digest([0x11; 32])),
        policy: Policy::direct(Class::Unsafe),
        door: Some(label("cli")),
        principal: None,
        parent: None,
        occurrence: 1,
        probe_digest: None,
    }
}

pub(super) fn plain_attempt() -> Attempt {
    Attempt {
        id: id("a1"),
        fence: Fence(1),
        number: 1,
        kind: AttemptKind::Act,
        holder: None,
        started_at: CREATED_AT,
        lease_until: CREATED_AT.plus(Duration::from_secs(60)),
        ended_at: Some(CREATED_AT.plus(Duration::from_millis(1))),
        verdict: Some(VerdictKind::Done),
        open: false,
        error: None,
    }
}

pub(super) fn plain() -> Operation {
    Operation {
        task: None,
        spec: Arc::new(plain_spec()),
        version: Version(2),
        fence: Fence(1),
        created_at: CREATED_AT,
        state: State::Succeeded(Settled {
            outcome: GOOD,
            at: CREATED_AT.plus(Duration::from_millis(1)),
        }),
        attempt: 1,
        rejected: false,
        attempts: vec![plain_attempt()],
        forgotten_open: None,
        queue: None,
        run_at: None,
        delivery: Delivery::Unknown,
        resolved: None,
        last_order: None,
    }
}

// An operation with everything that there can be, and numbers at their limits.

pub(super) fn full_spec() -> Spec {
    Spec {
        namespace: Namespace::new("team-1").expect("the namespace is valid"),
        key: key("order 7~#2"),
        client_key: Some(note("é")),
        name: label("überweise"),
        fingerprint: Fingerprint(Digest([0xff; 32])),
        policy: Policy {
            class: Class::Idempotent,
            on_doubt: OnDoubt::Probe,
            max_attempts: NonZeroU32::new(u32::MAX),
            retry_within: Duration::MAX,
            settle_delay: Duration::new(0, 999_999_999),
            retention: Retention::new(Duration::new(1, 1)).expect("the retention is valid"),
        },
        door: Some(label("proxy")),
        principal: Some(label("ann")),
        parent: Some(Parent {
            key: key("order-7/charge"),
            fence: Fence(u64::MAX),
            root: key("order-7"),
        }),
        occurrence: u32::MAX,
        probe_digest: Some(Digest([0x55; 32])),
    }
}

pub(super) fn full_holder() -> Holder {
    Holder {
        host: label("host-1"),
        pid: u32::MAX,
        boot: u128::MAX - 1,
        pid_namespace: 4_026_531_836,
        started: u64::MAX,
    }
}

pub(super) fn full_attempt(number: u32) -> Attempt {
    let verdicts = [
        None,
        Some(VerdictKind::Done),
        Some(VerdictKind::NotDone),
        Some(VerdictKind::Unknown),
    ];
    Attempt {
        id: id("~"),
        fence: Fence(u64::MAX - 16 + u64::from(number)),
        number,
        kind: AttemptKind::Probe,
        holder: Some(full_holder()),
        started_at: Timestamp(i64::MAX),
        lease_until: Timestamp(i64::MIN),
        ended_at: Some(Timestamp(0)),
        verdict: verdicts[number as usize % verdicts.len()],
        open: true,
        error: Some(note("connection reset")),
    }
}

/// A task with everything that there can be.
pub(super) fn full_task() -> Task {
    Task {
        priority: Priority::new(-100).expect("the priority is valid"),
        lane: Some(label("agent-7")),
        input: GOOD.payload,
        backoff: Backoff::new(Duration::from_millis(1), Duration::from_secs(86_400))
            .expect("the backoff is valid"),
    }
}

pub(super) fn full() -> Operation {
    Operation {
        task: Some(Arc::new(full_task())),
        spec: Arc::new(full_spec()),
        version: Version(u64::MAX),
        fence: Fence(u64::MAX),
        created_at: Timestamp(i64::MIN),
        state: State::Running {
            evidence: Some(GOOD),
        },
        attempt: u32::MAX,
        rejected: true,
        attempts: (1..=2).map(full_attempt).collect(),
        forgotten_open: Some(Timestamp(i64::MAX)),
        queue: Some(label("mail")),
        run_at: Some(Timestamp(-1)),
        delivery: Delivery::Undelivered,
        resolved: Some(Resolved {
            by: label("ann"),
            at: Timestamp(i64::MAX),
            note: Some(note("checked by hand")),
        }),
        last_order: Some(LastOrder {
            digest: Digest([0x22; 32]),
            state: StateKind::Stub,
            previous_effect: Some(Effect::Unknown),
        }),
    }
}

/// The longest operation that can be stored.
pub(super) fn longest() -> Operation {
    let attempt = |number| Attempt {
        id: id(&"z".repeat(64)),
        error: Some(note(&"e".repeat(Note::MAX_BYTES))),
        ..full_attempt(number)
    };
    Operation {
        spec: Arc::new(Spec {
            namespace: Namespace::new(&"n".repeat(64)).expect("the namespace is valid"),
            key: key(&"k".repeat(Key::MAX_BYTES)),
            client_key: Some(note(&"é".repeat(Note::MAX_BYTES / 2))),
            name: label(&"n".repeat(255)),
            ..full_spec()
        }),
        attempts: (1..=16).map(attempt).collect(),
        ..full()
    }
}

pub(super) fn tombstone() -> Tombstone {
    Tombstone {
        namespace: Namespace::default(),
        key: key("order-7"),
        fingerprint: Fingerprint(Digest([0x11; 32])),
        ok: true,
        effect: Effect::Created,
        settled_at: CREATED_AT,
        buried_at: CREATED_AT.plus(Duration::from_secs(30 * 24 * 60 * 60)),
        fence: Fence(1),
        version: Version(3),
        delivery: Delivery::Delivered,
        occurrence: 1,
    }
}

pub(super) fn stub() -> Stub {
    Stub {
        key_hash: KeyHash(Digest([0x33; 32])),
        fence: Fence(1 << 32),
        version: Version(4),
        since: CREATED_AT,
    }
}

pub(super) fn records() -> Vec<Record> {
    let states = [
        State::Pending,
        State::Running { evidence: None },
        State::Running {
            evidence: Some(BAD),
        },
        State::settled(GOOD, Timestamp(i64::MIN)),
        State::settled(REDACTED, Timestamp(0)),
        State::settled(BAD, Timestamp(i64::MAX)),
        State::Doubtful,
        State::Dead,
    ];
    let policies = [
        Policy::direct(Class::Safe),
        Policy::direct(Class::Idempotent),
        Policy::queued(Class::Unsafe),
    ];
    let mut operations = vec![plain(), full()];
    operations.extend(states.map(|state| Operation { state, ..plain() }));
    operations.extend(policies.map(|policy| Operation {
        spec: Arc::new(Spec {
            policy,
            ..plain_spec()
        }),
        state: State::Pending,
        attempts: vec![],
        ..plain()
    }));
    let mut records: Vec<_> = operations.into_iter().map(Record::Operation).collect();
    records.extend([
        Record::Tombstone(tombstone()),
        Record::Tombstone(Tombstone {
            ok: false,
            effect: Effect::Noop,
            settled_at: Timestamp(i64::MAX),
            buried_at: Timestamp(i64::MIN),
            delivery: Delivery::Unknown,
            ..tombstone()
        }),
        Record::Stub(stub()),
        Record::Stub(Stub {
            fence: Fence(u64::MAX),
            version: Version(0),
            since: Timestamp(i64::MIN),
            ..stub()
        }),
    ]);
    records.extend(
        breakers()
            .into_iter()
            .map(|it| Record::Breaker(Box::new(it))),
    );
    records
}

pub(super) fn order() -> Order {
    Order {
        version: Version(5),
        by: label("ann"),
        note: Some(note("checked by hand")),
    }
}

pub(super) fn begin() -> Begin {
    Begin {
        spec: Arc::new(plain_spec()),
        attempt: id("a1"),
        lease: Lease::DEFAULT,
        holder: None,
        worker: false,
        sighting: None,
    }
}

pub(super) fn settle(verdict: Verdict) -> Command {
    Command::Settle(Settle {
        attempt: id("a1"),
        fence: Fence(1),
        verdict,
    })
}

pub(super) fn resolve(resolution: Resolution) -> Command {
    Command::Resolve(Resolve {
        order: order(),
        resolution,
    })
}

pub(super) fn commands() -> Vec<Command> {
    vec![
        Command::Submit(Submit {
            task: None,
            spec: Arc::new(plain_spec()),
            queue: None,
            run_at: None,
        }),
        Command::Submit(Submit {
            task: Some(Arc::new(Task::default())),
            spec: Arc::new(plain_spec()),
            queue: Some(label("mail")),
            run_at: None,
        }),
        Command::Submit(Submit {
            task: Some(Arc::new(full_task())),
            spec: Arc::new(full_spec()),
            queue: Some(label("mail")),
            run_at: Some(Timestamp(i64::MIN)),
        }),
        Command::Begin(begin()),
        Command::Begin(Begin {
            spec: Arc::new(full_spec()),
            attempt: AttemptId::from_random(u128::MAX),
            lease: lease(Lease::MAX),
            holder: Some(full_holder()),
            worker: true,
            sighting: Some(Sighting {
                fence: Fence(u64::MAX),
                alive: true,
            }),
        }),
        Command::Renew(Renew {
            attempt: id("a1"),
            fence: Fence(0),
            lease: lease(Duration::new(1, 1)),
        }),
        settle(Verdict::Done(GOOD)),
        settle(Verdict::Done(REDACTED)),
        settle(Verdict::Done(BAD)),
        settle(Verdict::NotDone {
            retry_after: None,
            reject: true,
            error: None,
        }),
        settle(Verdict::NotDone {
            retry_after: Some(Duration::MAX),
            reject: false,
            error: Some(note("refused")),
        }),
        settle(Verdict::Unknown { error: None }),
        settle(Verdict::Unknown {
            error: Some(note("reset")),
        }),
        Command::Expire(Expire { gone: None }),
        Command::Expire(Expire {
            gone: Some(Fence(0)),
        }),
        resolve(Resolution::Done(BAD)),
        resolve(Resolution::NotDone),
        Command::Retry(order()),
        Command::Cancel(Order {
            version: Version(u64::MAX),
            by: label("a"),
            note: None,
        }),
        Command::Forget(order()),
        Command::Bury(Horizon(Timestamp(i64::MIN))),
        Command::Drop(Horizon(Timestamp(i64::MAX))),
        Command::Deliver(Delivery::Delivered),
        Command::Adopt(Adopt {
            fence_step: u64::MAX,
            by: label("restore"),
        }),
    ]
    .into_iter()
    .chain(
        asks()
            .into_iter()
            .map(|ask| Command::Breaker(Box::new(ask))),
    )
    .collect()
}

/// A breaker in each of its phases.
pub(super) fn breakers() -> Vec<Breaker> {
    let closed = Breaker {
        namespace: Namespace::default(),
        name: key("payments"),
        version: Version(3),
        fence: Fence(2),
        created_at: CREATED_AT,
        since: Timestamp(CREATED_AT.0 + 5),
        settings: Settings::default(),
        phase: Phase::Closed(calls()),
        last_order: None,
    };
    let phases = [
        Phase::Open(Open {
            until: Some(Timestamp(i64::MAX)),
            times: u32::MAX,
            forced: None,
        }),
        Phase::Open(Open {
            until: None,
            times: 0,
            forced: Some(Forced {
                by: label("ops"),
                note: Note::new("maintenance").ok(),
            }),
        }),
        Phase::HalfOpen(breaker::Probe {
            id: AttemptId::from_random(7),
            until: Timestamp(i64::MIN),
            times: 1,
        }),
    ];
    let moved = phases.map(|phase| Breaker {
        phase,
        settings: Settings {
            failures: None,
            ..Settings::default()
        },
        last_order: Some(Digest([0x11; 32])),
        ..closed.clone()
    });
    [closed].into_iter().chain(moved).collect()
}

fn calls() -> Window {
    let slice = |at, failed| Slice {
        at: Timestamp(at),
        counts: Counts {
            succeeded: 1,
            failed,
        },
    };
    Window {
        slices: vec![slice(1, 0), slice(2, u32::MAX)],
        in_row: 3,
    }
}

/// Everything that can be asked of a breaker.
fn asks() -> Vec<Ask> {
    let order = || breaker::Order {
        fence: Fence(u64::MAX),
        by: label("ops"),
        note: Note::new("why").ok(),
    };
    let acts = [
        Act::Admit(Admit {
            id: AttemptId::from_random(1),
            lease: Lease::DEFAULT,
        }),
        Act::Report(Report {
            fence: Fence(1),
            probe: Some(AttemptId::from_random(2)),
            calls: calls(),
        }),
        Act::Open(order(), Some(Duration::new(1, 999_999_999))),
        Act::Close(order()),
        Act::Reset(breaker::Order {
            note: None,
            ..order()
        }),
    ];
    let ask = |act| Ask {
        namespace: Namespace::default(),
        name: key("payments"),
        settings: Settings::default(),
        act,
    };
    acts.into_iter().map(ask).collect()
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            at: CREATED_AT,
            unplaced: None,
            command: Command::Begin(begin()),
            events: vec![Event::Begun],
            state: Some(StateKind::Running),
            fence: Fence(1),
        },
        Entry {
            at: Timestamp(i64::MAX),
            unplaced: Some(KeyHash(Digest([0x33; 32]))),
            command: Command::Bury(Horizon(Timestamp(i64::MIN))),
            events: Event::ALL.to_vec(),
            state: None,
            fence: Fence(u64::MAX),
        },
    ]
}
