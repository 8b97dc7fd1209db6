//! Messages come back as they were sent, and no bytes can do harm.

use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;
use semel_core::identity::Kin;
use semel_core::ledger::{
    AttemptKind, Begin, Command, Decision, Entry, Event, Expire, Fence, Grant, Order, Ordered,
    Record, Rejection, Reply, Reported, Spec, StateKind, Submit, Version, decide,
};
use semel_core::queue::{Limits, QueueHash, Task};
use semel_core::{
    AttemptId, Class, Digest, Effect, Fingerprint, Input, Key, KeyHash, Label, Lease, Namespace,
    Payload, Policy, Scope, Timestamp, TokenRecord,
};

use super::*;
use crate::store::{
    AbsentAsOf, Chunk, Current, Logged, Moved, Page, Place, Query, Standing, StoreError, Stored,
    Waiting,
};

const NOW: Timestamp = Timestamp(1_794_744_000_000_000);

fn begin() -> Command {
    let name = Label::new("create-order").expect("a valid name");
    Command::Begin(Begin {
        spec: Arc::new(Spec {
            namespace: Namespace::default(),
            key: Key::new("order-7").expect("a valid key"),
            client_key: None,
            fingerprint: Fingerprint::of(&name, Input::None).expect("no input has one meaning"),
            name,
            policy: Policy::direct(Class::Unsafe),
            door: Label::new("run").ok(),
            principal: None,
            parent: None,
            occurrence: 1,
            probe_digest: None,
        }),
        attempt: AttemptId::from_random(7),
        lease: Lease::DEFAULT,
        holder: None,
        worker: false,
        sighting: None,
    })
}

fn record() -> Arc<Record> {
    let Ok(Decision::Write(write)) = decide(None, &begin(), NOW) else {
        panic!("a first claim is written");
    };
    Arc::new(write.next.expect("it leaves a record"))
}

fn hash() -> KeyHash {
    KeyHash(Digest::of(b"order-7"))
}

fn stored() -> Stored {
    Stored {
        payload: Some(Arc::from(&b"answer"[..])),
        ..Stored::new(record(), Place(3))
    }
}

fn chunks() -> Vec<Chunk> {
    let chunk = |stream, bytes: &[u8]| Chunk {
        stream,
        bytes: bytes.to_vec(),
    };
    vec![chunk(1, b"out"), chunk(2, b"")]
}

/// A task and what its workers are given.
fn submit(input: &[u8]) -> Call {
    let Command::Begin(begin) = begin() else {
        unreachable!("it is a Begin");
    };
    let task = Task {
        input: Some(Payload::of(input)),
        ..Task::default()
    };
    Call::Apply(Box::new(Apply {
        subject: Subject {
            hash: hash(),
            key: None,
        },
        command: Command::Submit(Submit {
            spec: begin.spec,
            queue: Label::new("mails").ok(),
            run_at: None,
            task: Some(Arc::new(task)),
        }),
        brought: Brought {
            input: Some(input.into()),
            ..Brought::default()
        },
    }))
}

/// Takes a task, of which a lane may have so many.
fn take_one_of(lane: u32) -> Call {
    Call::Apply(Box::new(Apply {
        subject: Subject {
            hash: hash(),
            key: None,
        },
        command: begin(),
        brought: Brought {
            limits: Limits {
                queue: None,
                lane: NonZeroU32::new(lane),
            },
            ..Brought::default()
        },
    }))
}

fn tokens(call: TokenCall) -> Call {
    Call::Tokens(Box::new(call))
}

fn token() -> TokenRecord {
    TokenRecord {
        id: "0123456789ab".parse().expect("it is an id"),
        digest: hash().0,
        namespace: Namespace::new("team-a").expect("a valid namespace"),
        scope: Scope::Admin,
        label: Label::new("the build").ok(),
        created_at: NOW,
        expires_at: Some(NOW),
        revoked_at: None,
        last_used_at: Some(NOW),
    }
}

fn calls() -> Vec<Call> {
    let (place, fence) = (Place(u64::MAX), Fence(9));
    let order = Order {
        version: Version(4),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    };
    let apply = |command, key: Option<&str>, payload, parent| {
        Call::Apply(Box::new(Apply {
            subject: Subject {
                hash: hash(),
                key: key.map(|key| Key::new(key).expect("a valid key")),
            },
            command,
            brought: Brought {
                payload,
                parent,
                ..Brought::default()
            },
        }))
    };
    let gone = Some(Fence(2));
    vec![
        Call::Hello,
        apply(begin(), Some("order-7"), None, Some((hash(), fence))),
        apply(Command::Expire(Expire { gone }), None, None, None),
        apply(
            Command::Forget(order),
            Some("a b"),
            Some(Bytes::Here(Arc::from(&b"x"[..]))),
            None,
        ),
        apply(begin(), None, Some(Bytes::Streamed(fence)), None),
        submit(b"to whom"),
        take_one_of(3),
        Call::Waiting(Waiting {
            queue: QueueHash(u64::MAX),
            now: NOW,
            after_lane: 7,
            skip: 3,
            limit: 256,
            taken: true,
            inputs: true,
        }),
        Call::Taken {
            queue: QueueHash(1),
            lane: Some(2),
            limit: 3,
        },
        tokens(TokenCall::Add(token())),
        tokens(TokenCall::Find(token().id)),
        tokens(TokenCall::List {
            after: Some(token().id),
            limit: 7,
        }),
        tokens(TokenCall::Revoke(token().id)),
        Call::PrincipalCode(Digest::of(b"credentials")),
        Call::Load(hash()),
        Call::LoadAt(place),
        Call::Payload { place, offset: 7 },
        Call::Append {
            place,
            fence,
            chunks: chunks(),
        },
        Call::Discard { place, fence },
        Call::Stream {
            place,
            fence,
            skip: 1,
        },
        Call::List(Box::default()),
        Call::List(Box::new(Query {
            namespace: Namespace::new("team-a").ok(),
            states: StateKind::ALL.to_vec(),
            name: Some("n".to_owned()),
            door: Some("d".to_owned()),
            queue: Some("q".to_owned()),
            client_key: None,
            prefix: Some("p ü".to_owned()),
            since: Some(NOW),
            until: Some(Timestamp(-1)),
            oldest_first: true,
            cursor: Some(place),
            limit: 50,
        })),
        Call::List(Box::new(Query {
            client_key: Some("order 7 ü".to_owned()),
            ..Query::default()
        })),
        Call::Log { after: 3, limit: 7 },
        Call::End,
        Call::Standing,
        Call::Kin(Kin(u64::MAX)),
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Submitted { created: true },
        Reply::Granted(Grant {
            kind: AttemptKind::Probe,
            fence: Fence(3),
            number: u32::MAX,
            lease_until: NOW,
        }),
        Reply::Granted(Grant {
            kind: AttemptKind::Act,
            fence: Fence(u64::MAX),
            number: 1,
            lease_until: NOW,
        }),
        Reply::Replay,
        Reply::Renewed { lease_until: NOW },
        Reply::Reported(Reported {
            state: StateKind::Succeeded,
            repeated: true,
            late: false,
            conflict: true,
        }),
        Reply::Ordered(Ordered {
            state: StateKind::Pending,
            repeated: false,
            previous_effect: Some(Effect::Unknown),
        }),
        Reply::Kept,
        Reply::Refused(Rejection::Fenced),
    ]
}

fn rejections() -> Vec<Rejection> {
    vec![
        Rejection::KeyReused,
        Rejection::InFlight { until: Some(NOW) },
        Rejection::InDoubt {
            own: true,
            probe_at: None,
        },
        Rejection::Dead,
        Rejection::Expired,
        Rejection::Fenced,
        Rejection::Refused {
            state: StateKind::Running,
        },
        Rejection::NotFound,
    ]
}

fn errors() -> Vec<StoreError> {
    let text = || "why".to_owned();
    vec![
        StoreError::Unavailable(text()),
        StoreError::Unknown(text()),
        StoreError::Corrupt(text()),
        StoreError::Refused(text()),
        StoreError::Unauthorized(text()),
        StoreError::Forbidden(text()),
        StoreError::TooLarge {
            what: "the payload",
            size: 17,
            limit: 16,
        },
    ]
}

fn answers() -> Vec<Answer> {
    let current = || Current::Stored(stored());
    let entry = Entry {
        at: NOW,
        unplaced: None,
        command: begin(),
        events: vec![Event::Begun],
        state: Some(StateKind::Running),
        fence: Fence(1),
    };
    let mut said = vec![
        Said::Hello(Hello {
            store: Some("7f".to_owned()),
            namespace: Namespace::default(),
            scope: Scope::Operate,
        }),
        Said::Found(current()),
        Said::Found(Current::Absent(AbsentAsOf(12))),
        Said::Lies(Some(stored())),
        Said::Lies(None),
        Said::Payload(None),
        Said::Payload(Some(Part {
            total: 9,
            bytes: b"ans".to_vec(),
        })),
        Said::Taken,
        Said::Stream {
            chunks: chunks(),
            more: true,
        },
        Said::Page(Page {
            items: vec![stored(), stored()],
            next: Some(Place(3)),
        }),
        Said::Log {
            entries: vec![Logged {
                seq: 8,
                place: Some(Place(8)),
                entry,
            }],
            reached: 8,
            more: true,
        },
        Said::End(8),
        Said::Records(vec![stored(), stored()]),
        Said::Count(9),
        Said::Tokens(vec![token()]),
        Said::PrincipalCode(Digest::of(b"code")),
        Said::Standing(Standing::Open),
        Said::Standing(Standing::Copy),
        Said::Standing(Standing::Closed(Moved {
            to: "sqlite:a".to_owned(),
            id: "1".to_owned(),
        })),
    ];
    said.extend(replies().into_iter().map(|reply| Said::Applied {
        reply,
        current: current(),
        at: NOW,
    }));
    said.extend(rejections().into_iter().map(|rejection| Said::Refused {
        rejection,
        record: Some(record()),
    }));
    said.extend(errors().into_iter().map(Said::Failed));
    let answers = said.into_iter();
    answers.map(|said| Answer { now: NOW, said }).collect()
}

#[test]
fn a_call_arrives_as_it_was_sent() {
    for call in calls() {
        let bytes = call.encode();
        let arrived = Call::decode(&bytes).expect("it can be read");
        assert_eq!(format!("{arrived:?}"), format!("{call:?}"));
        assert_eq!(arrived.encode(), bytes);
    }
}

#[test]
fn an_answer_arrives_as_it_was_given() {
    for answer in answers() {
        let bytes = answer.encode();
        let arrived = Answer::decode(&bytes).expect("it can be read");
        assert_eq!(format!("{arrived:?}"), format!("{answer:?}"));
        assert_eq!(arrived.encode(), bytes);
    }
}

#[test]
fn a_message_that_was_cut_or_goes_on_is_refused() {
    for bytes in calls().iter().map(Call::encode) {
        for length in 0..bytes.len() {
            assert!(Call::decode(&bytes[..length]).is_err());
        }
        assert!(Call::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
    for bytes in answers().iter().map(Answer::encode) {
        for length in 0..bytes.len() {
            assert!(Answer::decode(&bytes[..length]).is_err());
        }
        assert!(Answer::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn a_newer_message_is_named_as_one() {
    let newer = |known: u8| {
        let mut bytes = Call::Hello.encode();
        bytes[0] = known + 1;
        let found = known + 1;
        (bytes, Malformed::Newer { found, known })
    };
    let (bytes, refused) = newer(FORMAT_PRINCIPALS);
    assert_eq!(Call::decode(&bytes).err(), Some(refused));
    let (bytes, refused) = newer(FORMAT);
    assert_eq!(Answer::decode(&bytes).err(), Some(refused));
}

/// A server that does not know the filter must not list what was not asked for.
#[test]
fn a_list_by_a_clients_key_has_the_format_that_older_servers_refuse() {
    let called = Query {
        client_key: Some("order-7".to_owned()),
        ..Query::default()
    };
    assert_eq!(Call::List(Box::new(called)).encode()[0], FORMAT_CALLED);
    for call in calls() {
        let bytes = call.encode();
        let is_called = matches!(&call, Call::List(query) if query.client_key.is_some());
        assert_eq!(bytes[0] == FORMAT_CALLED, is_called, "{call:?}");
        // Nothing else is written so.
        let other = [&[FORMAT_CALLED], &bytes[1..]].concat();
        assert!(is_called || Call::decode(&other).is_err(), "{call:?}");
    }
}

/// A server that knows no tasks would lose what a worker is given.
#[test]
fn tasks_have_the_format_that_older_servers_refuse() {
    let mut some = false;
    for call in calls() {
        let bytes = call.encode();
        let is_task = match &call {
            Call::Apply(apply) => {
                matches!(&apply.command, Command::Submit(it) if it.task.is_some())
                    || apply.brought.limits != Limits::default()
            }
            Call::Waiting(_) | Call::Taken { .. } => true,
            _ => false,
        };
        some |= is_task;
        assert_eq!(bytes[0] == FORMAT_TASKS, is_task, "{call:?}");
        let other = [&[FORMAT], &bytes[1..]].concat();
        assert!(!is_task || Call::decode(&other).is_err(), "{call:?}");
    }
    assert!(some);
}

/// Whatever lasts longer than its caller needs the highest scope.
#[test]
fn calls_about_tokens_need_an_administrator_and_their_own_format() {
    let mut some = false;
    for call in calls() {
        let is_token = matches!(call, Call::Tokens(_));
        some |= is_token;
        assert_eq!(call.encode()[0] == FORMAT_TOKENS, is_token, "{call:?}");
        assert!(!is_token || call.scope() == Scope::Admin, "{call:?}");
    }
    assert!(some);
}

/// A server without a key must refuse the call instead of taking it for another one.
#[test]
fn principal_codes_have_the_format_that_older_servers_refuse() {
    let call = Call::PrincipalCode(Digest::of(b"credentials"));
    let bytes = call.encode();
    assert_eq!((bytes[0], call.scope()), (FORMAT_PRINCIPALS, Scope::Write));
    for format in FORMAT..FORMAT_PRINCIPALS {
        let other = [&[format], &bytes[1..]].concat();
        assert!(Call::decode(&other).is_err(), "{format}");
    }
    for call in calls() {
        let is_code = matches!(call, Call::PrincipalCode(_));
        assert_eq!(call.encode()[0] == FORMAT_PRINCIPALS, is_code, "{call:?}");
    }
}

#[test]
fn operators_commands_need_their_scope() {
    let scope = |command| {
        let subject = Subject::unnamed(hash());
        let brought = Brought::default();
        Call::Apply(Box::new(Apply {
            subject,
            command,
            brought,
        }))
        .scope()
    };
    let order = || Order {
        version: Version(1),
        by: Label::new("ann").expect("a valid name"),
        note: None,
    };
    assert_eq!(scope(begin()), Scope::Write);
    assert_eq!(scope(Command::Retry(order())), Scope::Operate);
    assert_eq!(scope(Command::Cancel(order())), Scope::Operate);
    assert_eq!(scope(Command::Forget(order())), Scope::Operate);
    assert_eq!(Call::End.scope(), Scope::Read);
}

/// Whatever is read must be something that could have been sent.
fn read_again(bytes: &[u8]) {
    if let Ok(call) = Call::decode(bytes) {
        assert_eq!(call.encode(), bytes);
    }
    if let Ok(answer) = Answer::decode(bytes) {
        assert!(Answer::decode(&answer.encode()).is_ok());
    }
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read_again(&bytes);
        read_again(&[&[FORMAT], &bytes[..]].concat());
    }

    #[test]
    fn no_damaged_message_does_harm(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        wide in any::<bool>(),
    ) {
        let mut all: Vec<Vec<u8>> = calls().iter().map(Call::encode).collect();
        all.extend(answers().iter().map(Answer::encode));
        let mut bytes = which.get(&all).clone();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if wide {
            // A length or a count that is far too large.
            let end = bytes.len().min(at + 8);
            bytes[at..end].fill(0xff);
        }
        read_again(&bytes);
    }
}
