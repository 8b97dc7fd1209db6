//! Walls between namespaces, and scopes: what is another's is not there.

use semel::core::ledger::{Command, Expire, Fence, Horizon, Record, Settle, StateKind};
use semel::core::{Digest, KeyHash, Verdict};
use semel::remote::{RemoteStore, Told};
use semel::store::{Chunk, Current, Query, StoreError};
use semel::wire::{Brought, Bytes, Caller, Subject};
use semel::{AttemptId, Effect, Engine, Error, Label, Namespace, OnDoubt, Outcome, Payload, Scope};
use semel_testkit::remote::{Server, caller};

use super::{key, open, order, permit, server, stored};

async fn tenants() -> (Server, Engine, Engine) {
    let server = server().await;
    server.admit("a", caller("team-a", Scope::Admin));
    server.admit("b", caller("team-b", Scope::Admin));
    let (a, b) = (
        open(&server, Some("a")).await,
        open(&server, Some("b")).await,
    );
    (server, a, b)
}

fn everything() -> Query {
    Query {
        states: StateKind::ALL.to_vec(),
        limit: 100,
        ..Query::default()
    }
}

fn by() -> Label {
    Label::new("ann").expect("a valid name")
}

async fn current(engine: &Engine, text: &str) -> Current {
    let hash = KeyHash::of(&engine.namespace(), &key(text));
    engine.store().load(&hash).await.expect("it loads")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_anothers_is_not_there() {
    let (_server, a, b) = tenants().await;
    assert_eq!(a.namespace().as_str(), "team-a");
    let held = permit(&a, order()).await;
    let piece = Chunk {
        stream: 1,
        bytes: b"piece".to_vec(),
    };
    held.append(vec![piece.clone()]).await.expect("it is taken");
    let Current::Stored(theirs) = current(&a, "order-7").await else {
        panic!("it is there");
    };
    let (place, fence) = (theirs.place, held.fence());
    let hash = theirs.record.key_hash();
    let store = b.store();
    let nobody = KeyHash(Digest([7; 32]));
    for hash in [hash, nobody] {
        let found = store.load(&hash).await.expect("it loads");
        assert!(matches!(found, Current::Absent(_)), "{found:?}");
    }
    assert!(store.load_at(place).await.expect("it loads").is_none());
    assert_eq!(store.stream(place, fence).await, Ok(vec![]));
    assert!(
        store
            .append(place, fence, vec![piece.clone()])
            .await
            .is_err()
    );
    store.discard(place, fence).await.expect("it is answered");
    assert_eq!(a.store().stream(place, fence).await, Ok(vec![piece]));
    held.done(Effect::Created, "secret")
        .await
        .expect("it is stored");
    assert_eq!(store.payload(place).await, Ok(None));
    assert!(a.store().payload(place).await.expect("it loads").is_some());
    assert!(
        store
            .list(everything())
            .await
            .expect("it lists")
            .items
            .is_empty()
    );
    assert_eq!(store.log(0, 100).await, Ok(vec![]));
    assert_eq!(a.store().log(0, 100).await.expect("it reads").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_behind_two_walls_is_two_operations() {
    let (_server, a, b) = tenants().await;
    for (engine, answer) in [(&a, "a"), (&b, "b"), (&a, "a"), (&b, "b")] {
        let effect = engine.effect("create-order", key("order-7"));
        let answer = answer.to_owned();
        let expected = answer.clone();
        let done = effect.run(move |_| async move { Ok(answer) }).await;
        assert_eq!(done.expect("it is done").value, expected);
    }
    for engine in [&a, &b] {
        let log = engine.store().log(0, 100).await.expect("it reads");
        assert_eq!(log.len(), 2, "each sees its own entries");
        let listed = engine.list(everything()).await.expect("it lists").items;
        assert_eq!(listed.len(), 1);
    }
}

/// Another's operation and none at all must not be told apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_operation_is_refused_as_if_it_were_not_there() {
    let (server, a, b) = tenants().await;
    let held = permit(&a, order()).await;
    let settle = Command::Settle(Settle {
        attempt: held.attempt_id().clone(),
        fence: held.fence(),
        verdict: Verdict::Unknown { error: None },
    });
    let mut orders = vec![settle];
    orders.extend(
        [Command::Retry, Command::Cancel, Command::Forget].map(|make| {
            make(semel::core::ledger::Order {
                version: semel::core::ledger::Version(1),
                by: by(),
                note: None,
            })
        }),
    );
    let remote = b.store().as_remote().expect("it is remote");
    let theirs = KeyHash::of(&a.namespace(), &key("order-7"));
    for command in &orders {
        let mut answers = vec![];
        for hash in [theirs, KeyHash(Digest([7; 32]))] {
            let subject = Subject::unnamed(hash);
            let told = remote.apply(&subject, command, &Brought::default()).await;
            answers.push(format!("{told:?}"));
        }
        assert_eq!(answers[0], answers[1]);
        assert!(answers[0].contains("NotFound"), "{}", answers[0]);
    }
    let record = a.load(&a.namespace(), &key("order-7")).await;
    let record = record.expect("it loads").expect("it is there");
    assert_eq!(record.kind(), StateKind::Running);
    let log = server.engine().store().log(0, 100).await;
    assert_eq!(log.expect("it reads").len(), 1, "nothing was written");
    held.done(Effect::Created, "x").await.expect("it is stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_choose_another_namespace() {
    let (_server, a, b) = tenants().await;
    permit(&a, order())
        .await
        .done(Effect::Created, "x")
        .await
        .expect("it is stored");
    let foreign = b.begin(order().namespace(a.namespace())).await;
    assert_eq!(foreign.expect_err("it is refused").code(), "forbidden");
    let version = semel::core::ledger::Version(2);
    let operator = b.operator(&a.namespace(), &key("order-7"), version, by());
    assert_eq!(
        operator.forget().await.expect_err("it is refused").code(),
        "forbidden"
    );
    let query = Query {
        namespace: Some(a.namespace()),
        limit: 10,
        ..Query::default()
    };
    assert_eq!(
        b.list(query).await.expect_err("it is refused").code(),
        "forbidden"
    );
    // A child of another's operation does not begin, either.
    let child = super::Request::new("charge", key("order-7/charge"));
    let child = child.parent(key("order-7"), Fence(1));
    assert_eq!(
        b.begin(child).await.expect_err("it is refused").code(),
        "fenced"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_an_operation_is_its_owners() {
    let (_server, a, b) = tenants().await;
    permit(&a, order())
        .await
        .done(Effect::Created, "x")
        .await
        .expect("it is stored");
    let version = semel::core::ledger::Version(2);
    let operator = a.operator(&a.namespace(), &key("order-7"), version, by());
    operator.forget().await.expect("it is forgotten");
    let Current::Stored(stub) = current(&a, "order-7").await else {
        panic!("a stub is left");
    };
    assert!(matches!(*stub.record, Record::Stub(_)));
    let theirs = b
        .store()
        .load(&stub.record.key_hash())
        .await
        .expect("it loads");
    assert!(matches!(theirs, Current::Absent(_)));
    assert!(
        b.store()
            .load_at(stub.place)
            .await
            .expect("it loads")
            .is_none()
    );
    assert_eq!(a.store().log(0, 10).await.expect("it reads").len(), 3);
    assert_eq!(b.store().log(0, 10).await, Ok(vec![]));
    assert_eq!(a.list(everything()).await.expect("it lists").items.len(), 1);
    assert!(
        b.list(everything())
            .await
            .expect("it lists")
            .items
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scope_allows_what_it_says() {
    let server = server().await;
    for (token, scope) in [
        ("r", Scope::Read),
        ("w", Scope::Write),
        ("o", Scope::Operate),
    ] {
        server.admit(token, caller("default", scope));
    }
    let (reader, writer) = (
        open(&server, Some("r")).await,
        open(&server, Some("w")).await,
    );
    let operator = open(&server, Some("o")).await;
    assert_eq!(
        reader
            .begin(order())
            .await
            .expect_err("it is refused")
            .code(),
        "forbidden"
    );
    let held = permit(&writer, order()).await;
    held.unknown("nobody knows").await.expect("it is stored");
    assert!(
        reader
            .load(&reader.namespace(), &key("order-7"))
            .await
            .expect("it loads")
            .is_some()
    );
    let version = stored(&server, "order-7").await.version;
    let namespace = Namespace::default();
    let order = |engine: &Engine| engine.operator(&namespace, &key("order-7"), version, by());
    let refused = order(&writer).resolve_not_done().await;
    assert_eq!(refused.expect_err("it is refused").code(), "forbidden");
    let resolved = order(&operator).resolve_not_done().await;
    assert_eq!(resolved.expect("it is resolved").state, StateKind::Pending);
    let unknown = RemoteStore::open(&server.url(), Some("x")).await;
    assert!(
        matches!(unknown, Err(StoreError::Unauthorized(_))),
        "{unknown:?}"
    );
}

/// A server cannot look for a process on another machine. A client that says so of another caller's attempt would end
/// a lease that is alive, and where doubts are retried both would act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_not_believed_that_another_callers_holder_is_gone() {
    for (claims, scope, is_believed) in [
        ("a", Scope::Write, true),
        ("b", Scope::Write, false),
        ("b", Scope::Operate, true),
    ] {
        let server = server().await;
        let named = |name: &str, scope| Caller {
            principal: Some(Label::new(&format!("token {name}")).expect("a valid name")),
            ..caller("default", scope)
        };
        server.admit("holder", named("a", Scope::Write));
        server.admit("claims", named(claims, scope));
        let (holder, claimant) = (
            open(&server, Some("holder")).await,
            open(&server, Some("claims")).await,
        );
        let held = permit(&holder, order().on_doubt(OnDoubt::Retry)).await;
        let subject = Subject {
            hash: KeyHash::of(&holder.namespace(), &key("order-7")),
            key: Some(key("order-7")),
        };
        let remote = claimant.store().as_remote().expect("it is remote");
        let gone = Command::Expire(Expire {
            gone: Some(held.fence()),
        });
        let told = remote.apply(&subject, &gone, &Brought::default()).await;
        told.expect("it is answered");
        let state = stored(&server, "order-7").await.state.kind();
        let expected = if is_believed {
            StateKind::Doubtful
        } else {
            StateKind::Running
        };
        assert_eq!(state, expected, "{claims} {scope}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_does_itself_nobody_asks_for() {
    let server = server().await;
    let engine = open(&server, None).await;
    permit(&engine, order())
        .await
        .done(Effect::Created, "x")
        .await
        .expect("it is stored");
    let remote = engine.store().as_remote().expect("it is remote");
    let subject = Subject {
        hash: KeyHash::of(&engine.namespace(), &key("order-7")),
        key: Some(key("order-7")),
    };
    let far = Horizon(semel::Timestamp(i64::MAX));
    for command in [
        Command::Bury(far),
        Command::Drop(far),
        Command::Adopt(semel::core::ledger::Adopt {
            fence_step: 1,
            by: by(),
        }),
    ] {
        let told = remote.apply(&subject, &command, &Brought::default()).await;
        assert!(matches!(told, Err(StoreError::Forbidden(_))), "{told:?}");
    }
    assert_eq!(stored(&server, "order-7").await.version.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_comes_with_the_answer_that_it_names() {
    let server = server().await;
    let engine = open(&server, None).await;
    let held = permit(&engine, order()).await;
    let remote = engine.store().as_remote().expect("it is remote");
    let subject = Subject {
        hash: KeyHash::of(&engine.namespace(), held.key()),
        key: Some(held.key().clone()),
    };
    let named = Payload::of;
    let settle = |payload| {
        Command::Settle(Settle {
            attempt: held.attempt_id().clone(),
            fence: held.fence(),
            verdict: Verdict::Done(Outcome {
                ok: true,
                effect: Effect::Created,
                payload,
            }),
        })
    };
    let brought = |payload| Brought {
        payload,
        ..Brought::default()
    };
    let here = |bytes: &[u8]| Some(Bytes::Here(bytes.into()));
    for (payload, bytes) in [
        (Some(named(b"a")), None),
        (Some(named(b"a")), here(b"b")),
        (None, here(b"a")),
        (Some(named(b"a")), Some(Bytes::Streamed(held.fence()))),
    ] {
        let told = remote
            .apply(&subject, &settle(payload), &brought(bytes))
            .await;
        assert!(matches!(told, Err(StoreError::Refused(_))), "{told:?}");
    }
    let foreign = Command::Settle(Settle {
        attempt: AttemptId::from_random(9),
        fence: held.fence(),
        verdict: Verdict::Unknown { error: None },
    });
    let told = remote.apply(&subject, &foreign, &brought(None)).await;
    assert!(matches!(told, Ok(Told::Refused { .. })), "{told:?}");
    let large = vec![0; semel::store::PAYLOAD_MAX + 1];
    let refused = held.finish(true, Effect::Created, Some(large)).await;
    match refused {
        Err(Error::Unstored { source, noted, .. }) => {
            assert!(matches!(source, StoreError::TooLarge { .. }) && !noted);
        }
        other => panic!("it is too large: {other:?}"),
    }
}
