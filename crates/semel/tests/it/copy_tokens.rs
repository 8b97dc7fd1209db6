//! Tokens go along with their ledger: into copies, backups and databases that were made before there were any.

use std::sync::Arc;
use std::time::Duration;

use semel::core::token::Refusal;
use semel::store::sqlite::SqliteStore;
use semel::store::{Moved, Standing, StoreError};
use semel::{
    Effect, Engine, Error, Key, Label, Namespace, NewToken, Permit, Request, Scope, Token, TokenId,
    TokenRecord, Way,
};
use semel_testkit::conformance::scratch;
use semel_testkit::postgres::Cluster;
use tokio_postgres::NoTls;

fn ann() -> Label {
    Label::new("ann").expect("a label")
}

async fn make(engine: &Engine, namespace: &str) -> Token {
    let wanted = NewToken {
        namespace: Namespace::new(namespace).expect("a namespace"),
        scope: Scope::Write,
        label: Some(ann()),
        expires_in: Some(Duration::from_secs(3_600)),
    };
    engine.create_token(wanted).await.expect("it is made").0
}

async fn revoke(engine: &Engine, token: &Token) {
    let revoked = engine.revoke_token(token.id, None).await;
    let revoked = revoked.expect("it is taken").expect("it was there");
    assert!(!revoked.before);
}

async fn settle(engine: &Engine, key: &str) {
    let permit: Permit = match engine
        .begin(Request::new("pay", Key::new(key).expect("a key")))
        .await
    {
        Ok(semel::Admission::Execute(permit)) => permit,
        other => panic!("a permit was expected: {other:?}"),
    };
    permit
        .done(Effect::Created, key)
        .await
        .expect("it is taken");
}

/// Says why a token is not accepted; `None` when it is.
async fn refusal(engine: &Engine, token: &Token) -> Option<Refusal> {
    match engine.authenticate(&token.reveal()).await {
        Ok(_) => None,
        Err(Error::Unauthorized(refusal)) => Some(refusal),
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>, said: &str) {
    let Err(Error::Store(StoreError::Unusable { text, .. })) = &answer else {
        panic!("it was not refused: {answer:?}");
    };
    assert!(text.contains(said), "{text}");
}

async fn copy(from: &Engine, to: &Engine, way: &Way) -> semel::Copied {
    let copied = from.copy_to(to, way, |_| {}).await.expect("it is copied");
    assert_eq!(copied.difference, None);
    copied
}

/// Brings tokens from one store to another, twice as a snapshot and then for good.
async fn tokens_go_along(from: &str, to: &str) {
    let source = Engine::open(from).await.expect("it opens");
    settle(&source, "order-7").await;
    let (kept, early) = (make(&source, "a").await, make(&source, "b").await);
    let target = Engine::open_copy(to).await.expect("it opens");
    assert_eq!(copy(&source, &target, &Way::Snapshot).await.tokens, 2);
    assert_eq!(refusal(&target, &kept).await, None);
    // What may only be read makes no tokens and revokes none.
    let reader = Engine::open(to).await.expect("it opens");
    assert_eq!(refusal(&reader, &early).await, None);
    let wanted = NewToken {
        namespace: Namespace::default(),
        scope: Scope::Read,
        label: None,
        expires_in: None,
    };
    is_refused(reader.create_token(wanted.clone()).await, "is a copy");
    is_refused(reader.revoke_token(early.id, None).await, "is a copy");
    drop(reader);

    revoke(&source, &early).await;
    let late = make(&source, "c").await;
    assert_eq!(copy(&source, &target, &Way::Snapshot).await.tokens, 3);
    assert_eq!(refusal(&target, &early).await, Some(Refusal::Revoked));
    assert_eq!(refusal(&target, &late).await, None);

    let way = Way::Move {
        drain: Duration::ZERO,
        shown: "the other one".to_owned(),
        by: ann(),
    };
    copy(&source, &target, &way).await;
    let (here, there) = (source.tokens(None).await, target.tokens(None).await);
    let used = |tokens: semel::Result<Vec<TokenRecord>>| {
        let mut tokens = tokens.expect("they are listed");
        // Each store notes uses of its own from now on.
        tokens
            .iter_mut()
            .for_each(|token| token.last_used_at = None);
        tokens
    };
    assert_eq!(used(here), used(there));
    // Who reports to the closed store needs a token, and may have to be kept out.
    is_refused(source.create_token(wanted.clone()).await, "has moved");
    assert_eq!(refusal(&source, &late).await, None);
    revoke(&source, &late).await;
    assert_eq!(refusal(&source, &late).await, Some(Refusal::Revoked));
    assert_eq!(refusal(&target, &late).await, None);
    // The target goes on by itself.
    let own = target.create_token(wanted).await.expect("it is made").0;
    assert_eq!(refusal(&target, &own).await, None);
    assert_eq!(refusal(&source, &own).await, Some(Refusal::Unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_go_along_from_a_file_to_a_database() {
    let directory = scratch();
    let file = format!("sqlite:{}", directory.path().join("a.db").display());
    tokens_go_along(&file, &Cluster::shared().database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_go_along_from_a_database_to_a_file() {
    let directory = scratch();
    let file = format!("sqlite:{}", directory.path().join("a.db").display());
    tokens_go_along(&Cluster::shared().database(), &file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_the_tokens_of_its_moment() {
    let directory = scratch();
    let path = |name: &str| directory.path().join(name);
    let store = SqliteStore::open(path("a.db")).expect("it opens");
    let builder = Engine::builder().store(Arc::new(store)).sweep_every(None);
    let engine = builder.start().await.expect("an engine starts");
    let token = make(&engine, "a").await;
    let backup = engine.store().backup(path("copy.db")).await;
    backup.expect("it is made");
    revoke(&engine, &token).await;
    let copy = format!("sqlite:{}", path("copy.db").display());
    let copy = Engine::open_copy(&copy).await.expect("it opens");
    copy.adopt(ann()).await.expect("it is adopted");
    // What was revoked since has to be revoked again.
    assert_eq!(refusal(&copy, &token).await, None);
    revoke(&copy, &token).await;
    assert_eq!(refusal(&copy, &token).await, Some(Refusal::Revoked));
}

/// How many round trips whoever closes the store is given to go wrong.
const LOOKS: usize = 200;

/// Once a store is closed no token appears in it: whoever is making one is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_closed_after_those_who_make_tokens_are_done() {
    let url = Cluster::shared().database();
    let engine = Engine::open(&url).await.expect("it opens");
    make(&engine, "a").await;
    let template = engine.tokens(None).await.expect("listed").remove(0);
    let mine = TokenRecord {
        id: TokenId::from_random(7),
        ..template
    };
    // Somebody else is about to take the same id, so that this one waits in the middle.
    let (other, driver) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("connected");
    // Its end is told to whoever waits for an answer.
    tokio::spawn(async move { drop(driver.await) });
    let held = format!(
        "BEGIN; INSERT INTO semel.tokens (id, digest, namespace, scope, created_at) \
         VALUES ('{}', '', '', '', now())",
        mine.id
    );
    other.batch_execute(&held).await.expect("it is held up");
    let (store, id) = (Arc::clone(engine.store()), mine.id);
    let making = tokio::spawn(async move { store.add_token(mine).await });
    let name = url.rsplit('/').next().expect("a database");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
               AND datname = current_database()";
    while Cluster::shared().sql(name, sql) == "0" {
        assert!(!making.is_finished(), "it did not wait");
    }
    let store = Arc::clone(engine.store());
    let moved = Moved {
        to: "sqlite:/elsewhere".to_owned(),
        id: "1f".to_owned(),
    };
    let closing = tokio::spawn(async move { store.close(moved).await });
    let is_closed = async || {
        let standing = engine.store().standing().await;
        matches!(standing, Ok(Standing::Closed(_)))
    };
    while !is_closed().await {}
    for _ in 0..LOOKS {
        assert!(is_closed().await);
        assert!(!closing.is_finished(), "a token may still appear");
    }
    other.batch_execute("ROLLBACK").await.expect("it goes away");
    assert_eq!(making.await.expect("it ends"), Ok(true));
    closing.await.expect("it ends").expect("it closes");
    assert!(engine.token(id).await.expect("looked up").is_some());
}

#[tokio::test]
async fn a_database_that_was_made_before_there_were_tokens_gets_their_table() {
    let cluster = Cluster::shared();
    let url = cluster.database();
    let name = url.rsplit('/').next().expect("a database");
    cluster.sql(name, "CREATE SCHEMA semel");
    cluster.sql(name, include_str!("../../src/store/postgres/schema/1.sql"));
    let format = "UPDATE semel.meta SET value = '1' WHERE name = 'format'";
    cluster.sql(name, format);
    let engine = Engine::open(&url).await.expect("it opens");
    settle(&engine, "order-7").await;
    let token = make(&engine, "a").await;
    assert_eq!(refusal(&engine, &token).await, None);
    let verified = engine.verify().await.expect("it is verified");
    assert_eq!((verified.records, verified.difference), (1, None));
}
