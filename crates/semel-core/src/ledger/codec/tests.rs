//! The bytes are fixed for ever, and every other spelling of them is refused.

use core::fmt::Debug;
use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::digest::{Digest, KeyHash};
use crate::effect::Effect;
use crate::fingerprint::Fingerprint;
use crate::ledger::{
    ATTEMPTS_REMEMBERED, Adopt, Attempt, AttemptKind, Begin, Command, Delivery, Entry, Event,
    Expire, Fence, Holder, Horizon, LastOrder, Operation, Order, Parent, Record, Renew, Resolution,
    Resolve, Resolved, Settle, Settled, Sighting, Spec, State, StateKind, Stub, Submit, Tombstone,
    Version,
};
use crate::policy::{Class, OnDoubt, Policy};
use crate::text::{AttemptId, Key, Label, Namespace, Note};
use crate::time::{Lease, Retention, Timestamp};
use crate::verdict::{Outcome, Payload, Verdict, VerdictKind};

fn label(text: &str) -> Label {
    Label::new(text).expect("the label is valid")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("the key is valid")
}

fn note(text: &str) -> Note {
    Note::new(text).expect("the note is valid")
}

fn id(text: &str) -> AttemptId {
    AttemptId::new(text).expect("the attempt id is valid")
}

fn lease(length: Duration) -> Lease {
    Lease::new(length).expect("the lease is valid")
}

const CREATED_AT: Timestamp = Timestamp(1_794_736_800_000_000);

const GOOD: Outcome = Outcome {
    ok: true,
    effect: Effect::Created,
    payload: Some(Payload {
        digest: Digest([0xab; 32]),
        size: 300,
    }),
};

const BAD: Outcome = Outcome {
    ok: false,
    effect: Effect::Unknown,
    payload: None,
};

// A small operation, as most are.

fn plain_spec() -> Spec {
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
    }
}

fn plain_attempt() -> Attempt {
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

fn plain() -> Operation {
    Operation {
        spec: Arc::new(plain_spec()),
        version: Version(2),
        fence: Fence(1),
        created_at: CREATED_AT,
        state: State::Succeeded(Settled {
            outcome: GOOD,
            at: CREATED_AT.plus(Duration::from_millis(1)),
        }),
        attempt: 1,
        attempts: vec![plain_attempt()],
        forgotten_open: None,
        queue: None,
        run_at: None,
        delivery: Delivery::Unknown,
        resolved: None,
        last_order: None,
    }
}

// An operation with everything that there can be, at its limits.

fn full_spec() -> Spec {
    Spec {
        namespace: Namespace::new(&"n".repeat(64)).expect("the namespace is valid"),
        key: key(&"k".repeat(Key::MAX_BYTES)),
        client_key: Some(note(&"é".repeat(Note::MAX_BYTES / 2))),
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
        principal: Some(label(&"p".repeat(255))),
        parent: Some(Parent {
            key: key("order-7/charge"),
            fence: Fence(u64::MAX),
            root: key("order-7"),
        }),
        occurrence: u32::MAX,
    }
}

fn full_holder() -> Holder {
    Holder {
        host: label("host-1"),
        pid: u32::MAX,
        boot: u128::MAX - 1,
        pid_namespace: 4_026_531_836,
        started: u64::MAX,
    }
}

fn full_attempt(number: u32) -> Attempt {
    let verdicts = [
        None,
        Some(VerdictKind::Done),
        Some(VerdictKind::NotDone),
        Some(VerdictKind::Unknown),
    ];
    Attempt {
        id: id(&"z".repeat(64)),
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

fn full() -> Operation {
    Operation {
        spec: Arc::new(full_spec()),
        version: Version(u64::MAX),
        fence: Fence(u64::MAX),
        created_at: Timestamp(i64::MIN),
        state: State::Running {
            evidence: Some(GOOD),
        },
        attempt: u32::MAX,
        attempts: (1..=16).map(full_attempt).collect(),
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

fn tombstone() -> Tombstone {
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

fn stub() -> Stub {
    Stub {
        key_hash: KeyHash(Digest([0x33; 32])),
        fence: Fence(1 << 32),
        version: Version(4),
        since: CREATED_AT,
    }
}

fn records() -> Vec<Record> {
    let states = [
        State::Pending,
        State::Running { evidence: None },
        State::Running {
            evidence: Some(BAD),
        },
        State::settled(GOOD, Timestamp(i64::MIN)),
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
    records
}

fn order() -> Order {
    Order {
        version: Version(5),
        by: label("ann"),
        note: Some(note("checked by hand")),
    }
}

fn begin() -> Begin {
    Begin {
        spec: Arc::new(plain_spec()),
        attempt: id("a1"),
        lease: Lease::DEFAULT,
        holder: None,
        worker: false,
        sighting: None,
    }
}

fn settle(verdict: Verdict) -> Command {
    Command::Settle(Settle {
        attempt: id("a1"),
        fence: Fence(1),
        verdict,
    })
}

fn resolve(resolution: Resolution) -> Command {
    Command::Resolve(Resolve {
        order: order(),
        resolution,
    })
}

fn commands() -> Vec<Command> {
    vec![
        Command::Submit(Submit {
            spec: Arc::new(plain_spec()),
            queue: None,
            run_at: None,
        }),
        Command::Submit(Submit {
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
        settle(Verdict::Done(BAD)),
        settle(Verdict::NotDone {
            reject: true,
            error: None,
        }),
        settle(Verdict::NotDone {
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
}

fn entries() -> Vec<Entry> {
    let mut entries: Vec<_> = commands()
        .into_iter()
        .map(|command| Entry {
            at: CREATED_AT,
            unplaced: None,
            command,
            events: vec![Event::Begun],
            state: Some(StateKind::Running),
            fence: Fence(1),
        })
        .collect();
    entries.push(Entry {
        at: Timestamp(i64::MAX),
        unplaced: Some(KeyHash(Digest([0x33; 32]))),
        command: Command::Bury(Horizon(Timestamp(i64::MIN))),
        events: Event::ALL.to_vec(),
        state: None,
        fence: Fence(u64::MAX),
    });
    entries
}

// One word for what all three kinds of bytes can do.

/// Something that is written as bytes.
trait Coded: Sized + Debug + PartialEq {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Fails if these bytes are a second spelling of something.
    fn assert_canonical(bytes: &[u8]) {
        if let Ok(value) = Self::decode(bytes) {
            assert_eq!(hex(&value.encode()), hex(bytes), "{value:?}");
        }
    }
}

impl Coded for Record {
    fn encode(&self) -> Vec<u8> {
        encode_record(self)
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode_record(bytes)
    }
}

impl Coded for Command {
    fn encode(&self) -> Vec<u8> {
        encode_command(self)
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode_command(bytes)
    }
}

impl Coded for Entry {
    fn encode(&self) -> Vec<u8> {
        encode_entry(self)
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode_entry(bytes)
    }
}

/// Runs a check on every sample of every kind.
macro_rules! every_sample {
    ($check:ident) => {{
        records().iter().for_each($check::<Record>);
        commands().iter().for_each($check::<Command>);
        entries().iter().for_each($check::<Entry>);
    }};
}

fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn everything_reads_back_as_it_was() {
    fn check<T: Coded>(value: &T) {
        assert_eq!(T::decode(&value.encode()).as_ref(), Ok(value));
    }
    every_sample!(check);
}

#[test]
fn the_samples_hold_every_command() {
    let names: Vec<_> = commands().iter().map(Command::name).collect();
    for name in Command::NAMES {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn format_1_is_fixed_for_ever() {
    fn check<T: Coded>(value: &T, golden: &[&str]) {
        assert_eq!(hex(&value.encode()), golden.concat());
    }
    check(&Record::Operation(plain()), &["GOLD1"]);
    check(&Record::Tombstone(tombstone()), &["GOLD2"]);
    check(&Record::Stub(stub()), &["GOLD3"]);
    check(&Command::Begin(begin()), &["GOLD4"]);
    check(&settle(Verdict::Done(GOOD)), &["GOLD5"]);
    check(&resolve(Resolution::NotDone), &["GOLD6"]);
}

#[test]
fn every_truncation_is_refused() {
    fn check<T: Coded>(value: &T) {
        let bytes = value.encode();
        for length in 0..bytes.len() {
            assert!(
                T::decode(&bytes[..length]).is_err(),
                "{length} of {value:?}"
            );
        }
    }
    every_sample!(check);
    let nothing = Err(DecodeError::Truncated("the format"));
    assert_eq!(decode_record(&[]), nothing);
}

#[test]
fn trailing_bytes_are_refused() {
    fn check<T: Coded>(value: &T) {
        for trailing in [vec![0], vec![1], vec![0xff], value.encode()] {
            let bytes = [value.encode(), trailing.clone()].concat();
            assert_eq!(
                T::decode(&bytes),
                Err(DecodeError::Trailing(trailing.len()))
            );
        }
    }
    every_sample!(check);
}

#[test]
fn a_newer_format_is_refused_with_its_own_error() {
    fn check<T: Coded>(value: &T) {
        let mut bytes = value.encode();
        assert_eq!(bytes[0], 1);
        for found in 2..=u8::MAX {
            bytes[0] = found;
            let newer = DecodeError::Newer { found, known: 1 };
            assert_eq!(T::decode(&bytes), Err(newer.clone()));
            assert_eq!(T::decode(&bytes[..1]), Err(newer));
        }
        bytes[0] = 0;
        assert_eq!(T::decode(&bytes), Err(DecodeError::Invalid("the format")));
    }
    every_sample!(check);
}

#[test]
fn no_change_of_one_byte_makes_a_second_spelling() {
    fn check<T: Coded>(value: &T) {
        let mut bytes = value.encode();
        for position in 0..bytes.len() {
            let original = bytes[position];
            for other in 0..=u8::MAX {
                bytes[position] = other;
                T::assert_canonical(&bytes);
            }
            bytes[position] = original;
        }
    }
    every_sample!(check);
}

// Spellings that a careless reader would accept.

/// Replaces the only place where some bytes stand.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let found: Vec<_> = bytes
        .windows(from.len())
        .enumerate()
        .filter_map(|(at, window)| (window == from).then_some(at))
        .collect();
    let [at] = found[..] else {
        panic!("{} stands at {found:?} in {}", hex(from), hex(bytes));
    };
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn a_padded_or_overlong_number_is_refused() {
    // A renewal is: format, kind, id, fence, and the lease in seconds and nanoseconds.
    let renewal = |fence: &[u8]| [&[1, 2, 2, b'a', b'1'], fence, &[60, 0]].concat();
    assert!(decode_command(&renewal(&[0])).is_ok());
    let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert!(decode_command(&renewal(&largest)).is_ok());
    let padded = [0x80, 0x00];
    let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    let too_long = [0x80; 11];
    for number in [padded.as_slice(), &too_large, &too_long] {
        let refused = Err(DecodeError::Invalid("the fence"));
        assert_eq!(decode_command(&renewal(number)), refused);
    }
}

#[test]
fn durations_outside_their_type_are_refused() {
    let renewal = |lease: &[u8]| [&[1, 2, 2, b'a', b'1', 1], lease].concat();
    let (a_day, more) = ([0x80, 0xa3, 0x05, 0], [0x80, 0xa3, 0x05, 1]);
    assert!(decode_command(&renewal(&a_day)).is_ok());
    let billion = [60, 0x80, 0x94, 0xeb, 0xdc, 0x03];
    for lease in [[0, 0].as_slice(), &more, &billion] {
        let refused = Err(DecodeError::Invalid("the lease"));
        assert_eq!(decode_command(&renewal(lease)), refused);
    }
}

#[test]
fn the_ordinary_policy_has_one_spelling() {
    let ordinary = encode_command(&commands()[0]);
    // After the fingerprint: the class, and that nothing special follows.
    let (from, to) = (
        [0x11, 2, 0],
        [
            0x11, 2, 1, 0, 0, 0xc0, 0xd1, 2, 0, 0, 0, 0x80, 0x9a, 0x9e, 1, 0,
        ],
    );
    let spelled_out = replaced(&ordinary, &from, &to);
    let refused = Err(DecodeError::Invalid("the policy"));
    assert_eq!(decode_command(&spelled_out), refused);

    // The same bytes with one attempt as the limit say something, and are read.
    let limited = replaced(&spelled_out, &[2, 1, 0, 0, 0xc0], &[2, 1, 0, 1, 0xc0]);
    assert!(decode_command(&limited).is_ok());
}

#[test]
fn a_running_operation_without_an_attempt_is_refused() {
    let refused = Err(DecodeError::Invalid("the attempts"));
    let record = Record::Operation(Operation {
        state: State::Running { evidence: None },
        attempts: vec![],
        ..plain()
    });
    assert_eq!(decode_record(&encode_record(&record)), refused);
}

#[test]
fn more_attempts_than_are_remembered_are_refused() {
    let attempts = vec![plain_attempt(); ATTEMPTS_REMEMBERED + 1];
    let record = Record::Operation(Operation {
        attempts,
        ..plain()
    });
    let refused = Err(DecodeError::Invalid("the attempts"));
    assert_eq!(decode_record(&encode_record(&record)), refused);
}

#[test]
fn texts_that_break_their_own_rule_are_refused() {
    let bytes = encode_record(&Record::Tombstone(tombstone()));
    for bad in [
        b"order 7 ".as_slice(),
        b"order\n7",
        b"\xc3\xa9rder",
        b"order\xff7",
    ] {
        let from = [b"\x07".as_slice(), b"order-7"].concat();
        let length = u8::try_from(bad.len()).expect("the text is short");
        let to = [&[length], bad].concat();
        let refused = decode_record(&replaced(&bytes, &from, &to));
        assert!(refused.is_err(), "{refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(3_000)
    })]

    #[test]
    fn arbitrary_bytes_are_refused_or_have_one_spelling(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..14,
    ) {
        Record::assert_canonical(&bytes);
        Command::assert_canonical(&bytes);
        Entry::assert_canonical(&bytes);
        // Most bytes fail at the first two, so these get past them.
        bytes.splice(0..0, [1, kind]);
        Record::assert_canonical(&bytes);
        Command::assert_canonical(&bytes);
        Entry::assert_canonical(&bytes);
    }

    #[test]
    fn damaged_bytes_are_refused_or_have_one_spelling(
        sample in any::<prop::sample::Index>(),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..3, prop::collection::vec(any::<u8>(), 0..3)),
            1..6,
        ),
    ) {
        let damage = |mut bytes: Vec<u8>| {
            for (at, removed, inserted) in &edits {
                let at = at.index(bytes.len() + 1);
                let end = (at + removed).min(bytes.len());
                bytes.splice(at..end, inserted.iter().copied());
            }
            bytes
        };
        Record::assert_canonical(&damage(sample.get(&records()).encode()));
        Command::assert_canonical(&damage(sample.get(&commands()).encode()));
        Entry::assert_canonical(&damage(sample.get(&entries()).encode()));
    }
}
