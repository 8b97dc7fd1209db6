//! Backups: one moment of the whole store, only read until it is adopted.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use semel::core::ledger::{Fence, Record, StateKind};
use semel::store::sqlite::SqliteStore;
use semel::store::{PAGE_MAX, Query, StoreError};
use semel::{Admission, Adopted, Effect, Engine, Error, Label, Namespace, Request};
use semel_testkit::conformance::scratch;

use super::world::{clean, engine_on, key, permit, record, replay, state};

fn request(name: &str) -> Request {
    Request::new("x", key(name))
}

fn ann() -> Label {
    Label::new("ann").expect("a valid name")
}

async fn open(path: &Path) -> Engine {
    let store = SqliteStore::open(path).expect("it opens");
    engine_on(Arc::new(store)).await
}

/// Makes a store with a settled, a running and a doubtful operation and a stub, and a backup of it.
async fn with_backup(directory: &Path) -> (Engine, PathBuf) {
    let engine = open(&directory.join("semel.db")).await;
    for name in ["done", "stub"] {
        let permit = permit(&engine, request(name)).await;
        permit.done(Effect::Created, name).await.expect("taken");
    }
    let version = record(&engine, &key("stub"))
        .await
        .expect("stored")
        .version();
    let operator = engine.operator(&Namespace::default(), &key("stub"), version, ann());
    operator.forget().await.expect("forgotten");
    std::mem::forget(permit(&engine, request("running")).await);
    let doubted = permit(&engine, request("doubtful")).await;
    doubted.unknown("reset").await.expect("taken");
    let copy = directory.join("copy.db");
    let made = engine.store().backup(copy.clone()).await;
    made.expect("the backup is made");
    (engine, copy)
}

/// Returns every record, the oldest first.
async fn everything(engine: &Engine) -> Vec<Arc<Record>> {
    let query = Query {
        states: StateKind::ALL.to_vec(),
        oldest_first: true,
        limit: PAGE_MAX,
        ..Query::default()
    };
    let page = engine.list(query).await.expect("it lists");
    page.items.into_iter().map(|stored| stored.record).collect()
}

async fn is_refused(engine: &Engine, name: &str) {
    match engine.begin(request(name)).await {
        Err(Error::Store(StoreError::Unusable { text, hint })) => {
            assert!(
                text.contains("is a copy") && hint.contains("semel restore"),
                "{text}; {hint}"
            );
        }
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_backup_holds_everything_and_can_be_read_only() {
    let directory = scratch();
    let (engine, path) = with_backup(directory.path()).await;
    let later = permit(&engine, request("later")).await;
    later
        .done(Effect::Created, "later")
        .await
        .expect("the original goes on");
    let copy = open(&path).await;
    clean(&copy).await;
    assert_eq!(everything(&copy).await, everything(&engine).await[..4]);
    replay(&copy, request("done")).await;
    assert_eq!(state(&copy, &key("later")).await, None);
    for name in ["later", "new", "stub"] {
        is_refused(&copy, name).await;
    }
    assert_eq!(everything(&copy).await.len(), 4, "nothing was written");
    let log = copy.store().log(0, PAGE_MAX).await.expect("it reads");
    let whole = engine.store().log(0, PAGE_MAX).await.expect("it reads");
    assert_eq!(log, whole[..log.len()]);
    assert_eq!(log.len() + 2, whole.len(), "as of when it was made");
}

#[tokio::test]
async fn a_backup_is_private_overwrites_nothing_and_leaves_nothing_beside_it() {
    let directory = scratch();
    let (engine, path) = with_backup(directory.path()).await;
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).expect("it reads");
    for there in [path.clone(), directory.path().to_owned()] {
        let again = engine.store().backup(there).await;
        let refused = matches!(&again, Err(StoreError::Refused(text)) if text.contains("exists"));
        assert!(refused, "{again:?}");
    }
    assert_eq!(std::fs::read(&path).expect("it reads"), before);
    let nowhere = directory.path().join("no").join("copy.db");
    let lost = engine.store().backup(nowhere).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let names = std::fs::read_dir(directory.path()).expect("it lists");
    let copies = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let copies: Vec<_> = copies.filter(|name| name.starts_with("copy")).collect();
    assert_eq!(copies, ["copy.db"]);
}

async fn to_adopt(path: &Path) -> Engine {
    let store = SqliteStore::open_copy(path).expect("it opens");
    engine_on(Arc::new(store)).await
}

#[tokio::test]
async fn an_adopted_backup_goes_on_above_every_fence_of_the_original() {
    let directory = scratch();
    let (_engine, path) = with_backup(directory.path()).await;
    let waiting = open(&path).await;
    is_refused(&waiting, "new").await;
    let before = everything(&waiting).await;
    let adopting = to_adopt(&path).await;
    let adopted = adopting.adopt(ann()).await.expect("adopted");
    assert_eq!(
        adopted,
        Adopted {
            records: 4,
            doubtful: 1
        }
    );
    // Whoever had it open hears of it.
    for engine in [waiting, open(&path).await] {
        for (old, new) in before.iter().zip(everything(&engine).await) {
            assert_eq!(new.fence(), Fence(old.fence().0 + (1 << 32)));
        }
        let running = state(&engine, &key("running")).await;
        assert_eq!(running, Some(StateKind::Doubtful));
        replay(&engine, request("done")).await;
        let again = engine.begin(request("running")).await;
        assert!(matches!(again, Ok(Admission::InDoubt(_))), "{again:?}");
        clean(&engine).await;
    }
    let engine = open(&path).await;
    let anew = permit(&engine, request("stub")).await;
    assert!(anew.fence().0 > 1 << 32, "{:?}", anew.fence());
    anew.done(Effect::Created, "anew").await.expect("taken");
    clean(&engine).await;
}

#[tokio::test]
async fn adopting_that_ended_in_the_middle_leaves_a_copy_and_can_be_done_again() {
    let directory = scratch();
    let (_engine, path) = with_backup(directory.path()).await;
    let sqlite = Connection::open(&path).expect("the file opens");
    // All records are raised, and then it ends before the mark is taken away.
    let stop = "CREATE TRIGGER stop BEFORE DELETE ON marks
        BEGIN SELECT raise(ABORT, 'stop'); END";
    sqlite.execute_batch(stop).expect("it is set up");
    let stopped = to_adopt(&path).await.adopt(ann()).await;
    assert!(matches!(stopped, Err(Error::Store(_))), "{stopped:?}");
    let copy = open(&path).await;
    is_refused(&copy, "new").await;
    clean(&copy).await;
    for record in everything(&copy).await {
        assert!(record.fence().0 > 1 << 32, "{record:?}");
    }

    sqlite
        .execute_batch("DROP TRIGGER stop")
        .expect("it may go on");
    let adopted = to_adopt(&path).await.adopt(ann()).await.expect("adopted");
    assert_eq!(adopted.records, 4);
    let engine = open(&path).await;
    for record in everything(&engine).await {
        assert!(record.fence().0 > 2 << 32, "{record:?}");
    }
    clean(&engine).await;
    let new = permit(&engine, request("new")).await;
    new.done(Effect::Created, "new").await.expect("taken");
}

#[tokio::test]
async fn the_log_begins_with_one_when_the_first_transaction_has_failed() {
    let directory = scratch();
    let path = directory.path().join("semel.db");
    let engine = open(&path).await;
    let sqlite = Connection::open(&path).expect("the file opens");
    let stop = "CREATE TRIGGER stop BEFORE INSERT ON log BEGIN SELECT raise(ABORT, 'stop'); END";
    sqlite.execute_batch(stop).expect("it is set up");
    for _ in 0..3 {
        let failed = engine.begin(request("done")).await;
        assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
    }
    sqlite
        .execute_batch("DROP TRIGGER stop")
        .expect("it may go on");
    let permit = permit(&engine, request("done")).await;
    permit.done(Effect::Created, "done").await.expect("taken");
    let log = engine.store().log(0, PAGE_MAX).await.expect("it reads");
    let numbers: Vec<_> = log.iter().map(|logged| logged.seq).collect();
    assert_eq!(numbers, [1, 2]);
    clean(&engine).await;
}
