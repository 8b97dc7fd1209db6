//! The bytes are fixed for ever, and every other spelling of them is refused.

mod samples;

use core::fmt::Debug;
use std::sync::Arc;

use proptest::prelude::*;

use self::samples::{
    GOOD, REDACTED, begin, commands, entries, longest, plain, plain_attempt, plain_spec, records,
    resolve, settle, stub, tombstone,
};
use super::*;
use crate::digest::Digest;
use crate::ledger::{
    ATTEMPTS_REMEMBERED, Begin, Command, Entry, Operation, Record, Resolution, Spec, State,
};
use crate::verdict::Verdict;

// One word for what all three kinds of bytes can do.

/// Something that is written as bytes.
trait Coded: Sized + Debug + PartialEq {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Fails if these bytes are a second spelling of something. The first format has one where it holds the text of a
    /// probe: what is written again has its digest, and its digest only.
    fn assert_canonical(bytes: &[u8]) {
        if let Ok(value) = Self::decode(bytes) {
            let written = value.encode();
            let is_older = bytes[0] == 1 && written[0] == 2;
            let is_same = written == bytes || (is_older && Self::decode(&written) == Ok(value));
            assert!(is_same, "{} is also {}", hex(bytes), hex(&written));
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
    check(&Record::Operation(longest()));
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
    let base = "00e86db94d600600";
    let (digest_11, digest_33) = ("11".repeat(32), "33".repeat(32));
    let outcome = ["010001", &"ab".repeat(32), "ac02"].concat();
    let spec = [
        "0764656661756c74",           // the namespace
        "076f726465722d37",           // the key
        "00",                         // no client's key
        "0c6372656174652d6f72646572", // the name
        &digest_11,                   // the fingerprint
        "0200",                       // unsafe, with its ordinary policy
        "0103636c69",                 // the door
        "0000",                       // no principal, no parent
        "01",                         // the occurrence
        "00",                         // no probe
    ]
    .concat();
    let operation = [
        "0100",       // format and kind
        base,         // when it was created
        "0201",       // version and fence
        "02",         // settled
        &outcome,     // its outcome
        "d00f",       // a millisecond later
        "0101",       // one attempt, one remembered
        "0261310101", // its id, fence and number
        "0000",       // it acts, without a holder
        "00809c9c39", // its start and the end of its lease
        "01d00f",     // when it ended
        "010000",     // done, not open, no error
        "000000",     // nothing open is forgotten, no queue, no start time
        "000000",     // delivery unknown, no resolution, no order
        &spec,        // what it is
    ];
    check(&Record::Operation(plain()), &operation);
    let mut rejected_bytes = operation;
    rejected_bytes[6] = "0181"; // one attempt, one remembered, and rejected
    let rejected = Operation {
        rejected: true,
        ..plain()
    };
    check(&Record::Operation(rejected), &rejected_bytes);
    let tombstone_bytes = [
        "0101",             // format and kind
        base,               // when it was settled
        "8080eaf3ef9601",   // thirty days until it was buried
        "0764656661756c74", // the namespace
        "076f726465722d37", // the key
        &digest_11,         // the fingerprint
        "0100",             // success, created
        "0103",             // fence and version
        "0101",             // delivered, the first occurrence
    ];
    check(&Record::Tombstone(tombstone()), &tombstone_bytes);
    let stub_bytes = ["0102", base, &digest_33, "8080808010", "04"];
    check(&Record::Stub(stub()), &stub_bytes);

    let lease_and_holder = "3c0000"; // sixty seconds, no holder
    let begin_bytes = ["0101", &spec, "026131", lease_and_holder, "0000"];
    check(&Command::Begin(begin()), &begin_bytes);
    let settle_bytes = ["0103", "026131", "01", "00", &outcome];
    check(&settle(Verdict::Done(GOOD)), &settle_bytes);
    let redacted = ["010002", &"ab".repeat(32), "ac02"].concat();
    let settle_bytes = ["0103", "026131", "01", "00", &redacted];
    check(&settle(Verdict::Done(REDACTED)), &settle_bytes);
    let note = "010f636865636b65642062792068616e64";
    let resolve_bytes = ["0105", "05", "03616e6e", note, "00"];
    check(&resolve(Resolution::NotDone), &resolve_bytes);
}

/// Writes the bytes of an operation, a Begin and its log entry as versions of Semel did that kept the text of a probe.
fn with_probe_text(text: &[u8]) -> [Vec<u8>; 3] {
    let spec = Spec {
        probe_digest: Some(Digest([0x55; 32])),
        ..plain_spec()
    };
    let operation = Operation {
        spec: Arc::new(spec.clone()),
        ..plain()
    };
    let begin = Command::Begin(Begin {
        spec: Arc::new(spec),
        ..begin()
    });
    let entry = Entry {
        command: begin.clone(),
        ..entries()[0].clone()
    };
    let mut length = vec![];
    let mut left = text.len();
    while left >= 0x80 {
        length.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    length.push(left as u8);
    [
        encode_record(&Record::Operation(operation)),
        encode_command(&begin),
        encode_entry(&entry),
    ]
    .map(|bytes| {
        assert_eq!(bytes[0], 2, "a digest is of format 2");
        let mut bytes = replaced(&bytes, &[0x55; 32], &[&length, text].concat());
        bytes[0] = 1;
        bytes
    })
}

#[test]
fn probe_text_of_format_1_is_read_as_its_digest() {
    let longest = [b'p'; 1_024];
    for text in [b"grep -x order-7 posted.log".as_slice(), b"p\n", &longest] {
        let [record, command, entry] = with_probe_text(text);
        let digest = Some(Digest::of(text));
        let Ok(Record::Operation(operation)) = decode_record(&record) else {
            panic!("a stored record is read");
        };
        assert_eq!(operation.spec.probe_digest, digest);
        let Ok(Entry {
            command: Command::Begin(begin),
            ..
        }) = decode_entry(&entry)
        else {
            panic!("a stored log entry is read");
        };
        assert_eq!(begin.spec.probe_digest, digest);
        // No command lies in a store by itself: it comes from a client.
        assert_eq!(decode_command(&command), Err(DecodeError::ProbeText));
        let again = encode_record(&Record::Operation(operation));
        assert!(
            !again.windows(text.len()).any(|window| window == text),
            "what is written again has no text"
        );
    }
    for text in [b"".as_slice(), b"a\0b", &[b'p'; 1_025]] {
        let [record, command, entry] = with_probe_text(text);
        let refused = decode_record(&record).err();
        assert!(matches!(refused, Some(DecodeError::Text(_))), "{refused:?}");
        assert!(decode_command(&command).is_err() && decode_entry(&entry).is_err());
    }
}

#[test]
fn probe_digest_of_format_2_is_fixed_for_ever() {
    let spec = Spec {
        probe_digest: Some(Digest([0x55; 32])),
        ..plain_spec()
    };
    let bytes = hex(&encode_command(&Command::Begin(Begin {
        spec: Arc::new(spec),
        ..begin()
    })));
    let without = hex(&encode_command(&Command::Begin(begin())));
    let (ends, tail) = ("0100", "0261313c00000000");
    assert_eq!(
        without
            .strip_suffix(&[ends, tail].concat())
            .map(|it| &it[2..]),
        bytes
            .strip_suffix(&["0101", &"55".repeat(32), tail].concat())
            .map(|it| &it[2..]),
        "only the digest is added"
    );
    assert_eq!((&without[..2], &bytes[..2]), ("01", "02"));
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
        assert!(matches!(bytes[0], 1 | 2), "{value:?}");
        for found in 3..=u8::MAX {
            bytes[0] = found;
            let newer = DecodeError::Newer { found, known: 2 };
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
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..14,
    ) {
        Record::assert_canonical(&bytes);
        Command::assert_canonical(&bytes);
        Entry::assert_canonical(&bytes);
        // Most bytes fail at the first two, so these get past them.
        for format in [1, 2] {
            let bytes = [&[format, kind], &bytes[..]].concat();
            Record::assert_canonical(&bytes);
            Command::assert_canonical(&bytes);
            Entry::assert_canonical(&bytes);
        }
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
