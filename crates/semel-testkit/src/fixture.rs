//! Makes and describes fixture stores: small ones that hold everything a store can hold, kept from
//! every released format, so that later versions are seen to read them.
//!
//! A fixture is made once, by the version that introduces its format, with
//! `cargo run -p semel-testkit --bin make-fixture -- tests/fixtures/format-N`, and never again.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel::clock::Clock;
use semel::core::clock::Reading;
use semel::core::ledger::{Record, StateKind};
use semel::core::token::Secret;
use semel::core::{Digest, Payload};
use semel::store::sqlite::SqliteStore;
use semel::store::{Chunk, PAGE_MAX, Query};
use semel::{
    Admission, Effect, Engine, Error, Key, Label, Lease, Namespace, Note, OnDoubt, Permit,
    Queueing, Request, Retention, Scope, Timestamp, TokenId, TokenRecord,
};

/// When fixtures are made: the first of January 2026, so that every later reader lives after it.
const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// A clock that is moved by hand, so that a fixture is the same whenever it is made.
#[derive(Debug)]
struct Hand(Mutex<Duration>);

impl Hand {
    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for Hand {
    fn read(&self) -> Reading {
        let uptime = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Reading {
            wall: START.plus(uptime),
            boot: 1,
            uptime,
        }
    }
}

/// The kinds of payload that a fixture holds: short, compressed, and streamed.
fn long_answer() -> String {
    "once and only once, ".repeat(200)
}

fn request(key: &str) -> Request {
    let key = Key::new(key).expect("a fixture's key follows the rule");
    Request::new("make-fixture", key.clone()).input(key.as_str())
}

async fn begin(engine: &Engine, request: Request) -> Result<Permit, Error> {
    match engine.begin(request).await? {
        Admission::Execute(permit) | Admission::Probe(permit) => Ok(permit),
        other => Err(Error::InvalidInput(format!("not granted: {other:?}"))),
    }
}

async fn version(engine: &Engine, key: &str) -> Result<semel::Operator, Error> {
    let key = Key::new(key)?;
    let record = engine.load(&Namespace::default(), &key).await?;
    let version = record.map(|record| record.version()).unwrap_or_default();
    let by = Label::new("fixture").map_err(Error::from)?;
    Ok(engine.operator(&Namespace::default(), &key, version, by))
}

/// Makes a store with operations in every state, rows in the index and rows that are not there yet.
///
/// # Errors
/// Fails when the store does, or when the rules have changed so that the fixture cannot be made.
///
/// # Panics
/// When the file cannot be opened.
pub async fn make(path: &Path) -> Result<(), Error> {
    let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(60 * 60))));
    let store = SqliteStore::open_with(path, Arc::clone(&clock) as Arc<dyn Clock>)?;
    let counter = AtomicU64::new(1);
    let engine = Engine::builder()
        .store(Arc::new(store))
        .ids(Arc::new(move || {
            u128::from(counter.fetch_add(1, Ordering::SeqCst))
        }))
        .holder(None)
        .sweep_every(None)
        .start()
        .await?;
    past_their_retention(&engine, &clock).await?;
    settled(&engine).await?;
    // What exists by now is put into the index; what comes next is found by the log's tail.
    while engine.store().tidy().await? {}
    open_ones(&engine, &clock).await?;
    family(&engine).await?;
    tokens(&engine).await
}

/// A tombstone, a stub of a forgotten operation, and one that was begun again.
async fn past_their_retention(engine: &Engine, clock: &Hand) -> Result<(), Error> {
    let short = Retention::new(Duration::from_secs(60))?;
    let old = begin(engine, request("tombstone").retention(short)).await?;
    old.done(Effect::Created, "long ago").await?;
    for _ in 0..2 {
        engine.sweep().await?;
        clock.advance(Duration::from_secs(2 * 60 * 60));
    }
    engine.sweep().await?;
    for key in ["stub", "begun-again"] {
        let gone = begin(engine, request(key)).await?;
        gone.done(Effect::Deleted, "to be forgotten").await?;
        version(engine, key).await?.forget().await?;
    }
    let again = begin(engine, request("begun-again")).await?;
    again.done(Effect::Created, "once more").await?;
    Ok(())
}

/// Successes and failures, with all kinds of answers.
async fn settled(engine: &Engine) -> Result<(), Error> {
    let short = begin(engine, request("succeeded")).await?;
    short.done(Effect::Created, "a short answer").await?;
    let long = begin(engine, request("succeeded-long")).await?;
    long.done(Effect::Updated, &long_answer()).await?;
    let silent = begin(engine, request("succeeded-silent")).await?;
    silent.finish(true, Effect::Noop, None).await?;
    let failed = begin(engine, request("failed")).await?;
    failed.failed(Effect::Unknown, "it went wrong").await?;

    let streamed = begin(engine, request("succeeded-streamed")).await?;
    let pieces = ["one ", "after ", "another"];
    for (stream, piece) in [1, 2, 1].into_iter().zip(pieces) {
        let bytes = piece.as_bytes().to_vec();
        streamed.append(vec![Chunk { stream, bytes }]).await?;
    }
    let whole = pieces.concat().into_bytes();
    let payload = Payload::of(&whole);
    let ended = streamed.finish_streamed(true, Effect::Created, payload);
    ended.await?;

    let unanswered = request("mcp/0c52a1d5f1e0b7a3/call:toolu_1");
    let unanswered = begin(engine, unanswered).await?;
    unanswered.done(Effect::Created, "was it heard?").await?;

    let widest = "k".repeat(Key::MAX_BYTES);
    let elsewhere = Namespace::new("elsewhere").map_err(Error::from)?;
    let walled = begin(engine, request(&widest).namespace(elsewhere)).await?;
    walled.done(Effect::Created, "behind a wall").await?;
    Ok(())
}

/// Everything that waits for somebody.
async fn open_ones(engine: &Engine, clock: &Hand) -> Result<(), Error> {
    engine
        .submit(request("pending"), Queueing::nobody())
        .await?;
    let queue = Label::new("mail").map_err(Error::from)?;
    let later = START.plus(Duration::from_secs(365 * 24 * 60 * 60));
    let queued = engine.submit(request("pending-queued"), Queueing::on(queue).at(later));
    queued.await?;
    let twice = NonZeroU32::new(2).expect("two is not zero");
    let dead = begin(engine, request("dead").max_attempts(twice)).await?;
    dead.not_done("no connection").await?;
    let dead = begin(engine, request("dead").max_attempts(twice)).await?;
    dead.reject("never again").await?;

    let doubtful = begin(engine, request("doubtful")).await?;
    doubtful.unknown("the connection was lost").await?;
    let resolved = begin(engine, request("resolved")).await?;
    resolved.unknown("the connection was lost").await?;
    let note = Note::from_lossy("seen in the other system").expect("a note");
    let operator = version(engine, "resolved").await?.note(note);
    let answer = Some(b"\"found\"".to_vec());
    operator.resolve_done(true, Effect::Created, answer).await?;

    // An attempt whose doubt was waived reports late, while its successor runs.
    let retried = request("running-with-evidence").on_doubt(OnDoubt::Retry);
    let first = begin(engine, retried.clone().lease(Lease::new(Lease::MIN)?)).await?;
    clock.advance(Duration::from_secs(5));
    let second = begin(engine, retried.lease(Lease::new(Lease::MAX)?)).await?;
    let late = first.done(Effect::Created, "late, but done").await;
    assert!(
        late.is_err(),
        "an older attempt is fenced while a newer one runs"
    );
    std::mem::forget(second);
    let running = request("running").lease(Lease::new(Lease::MAX)?);
    std::mem::forget(begin(engine, running).await?);
    let probed = request("doubtful-probed").on_doubt(OnDoubt::Probe);
    let unknown = begin(engine, probed.lease(Lease::new(Lease::MIN)?)).await?;
    unknown.unknown("a probe will tell").await?;
    Ok(())
}

/// A parent that runs, and a step of it.
async fn family(engine: &Engine) -> Result<(), Error> {
    let running = request("parent").lease(Lease::new(Lease::MAX)?);
    let parent = begin(engine, running).await?;
    let step = request("parent/step").parent(parent.key().clone(), parent.fence());
    let child = begin(engine, step).await?;
    child.done(Effect::Created, "a step").await?;
    std::mem::forget(parent);
    Ok(())
}

/// Tokens of every scope; one has everything that a token can have.
async fn tokens(engine: &Engine) -> Result<(), Error> {
    for (scope, number) in Scope::ALL.into_iter().zip(1..) {
        let secret = Secret::new([number; 32]);
        let plain = TokenRecord {
            id: TokenId::from_random(u64::from(number)),
            digest: secret.digest(),
            namespace: Namespace::default(),
            scope,
            label: None,
            created_at: START,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        let token = match scope {
            Scope::Admin => TokenRecord {
                namespace: Namespace::new("elsewhere").map_err(Error::from)?,
                label: Some(Label::new("for the fixture").map_err(Error::from)?),
                expires_at: Some(START.plus(Duration::from_secs(3))),
                revoked_at: Some(START.plus(Duration::from_secs(2))),
                last_used_at: Some(START.plus(Duration::from_secs(1))),
                ..plain
            },
            Scope::Read | Scope::Write | Scope::Operate => plain,
        };
        engine.store().add_token(token).await?;
    }
    Ok(())
}

/// Describes everything that a store holds, line by line, in words that outlive the code.
///
/// # Errors
/// Fails when the store does.
pub async fn describe(engine: &Engine) -> Result<String, Error> {
    let mut text = String::new();
    let mut cursor = None;
    loop {
        let query = Query {
            states: StateKind::ALL.to_vec(),
            oldest_first: true,
            cursor,
            limit: PAGE_MAX,
            ..Query::default()
        };
        let page = engine.list(query).await?;
        for stored in &page.items {
            let payload = payload_of(engine, &stored.record).await?;
            writeln!(text, "{} {payload}", describe_record(&stored.record)).expect("text grows");
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for logged in engine.store().log(0, PAGE_MAX).await? {
        let entry = &logged.entry;
        let state = entry.state.map_or("absent", StateKind::as_str);
        let command = entry.command.name();
        let (seq, at, fence) = (logged.seq, entry.at, entry.fence.0);
        let line = writeln!(text, "log {seq} {at} {command} {state} fence={fence}");
        line.expect("text grows");
    }
    for token in engine.tokens(None).await? {
        let line = writeln!(
            text,
            "token {} {} {} {} label={:?} created={} expires={:?} revoked={:?} used={:?}",
            token.id,
            token.namespace,
            token.scope,
            token.digest,
            token.label.as_ref().map(Label::as_str),
            token.created_at,
            token.expires_at,
            token.revoked_at,
            token.last_used_at,
        );
        line.expect("text grows");
    }
    Ok(text)
}

async fn payload_of(engine: &Engine, record: &Record) -> Result<String, Error> {
    let Some(operation) = record.operation() else {
        return Ok("-".to_owned());
    };
    let spec = &operation.spec;
    let payload = engine.payload(&spec.namespace, &spec.key).await?;
    Ok(payload.map_or_else(
        || "-".to_owned(),
        |bytes| format!("{} bytes {}", bytes.len(), Digest::of(&bytes).hex()),
    ))
}

fn describe_record(record: &Record) -> String {
    let (state, version, fence) = (record.kind().as_str(), record.version().0, record.fence().0);
    let common = format!("{state} version={version} fence={fence}");
    match record {
        Record::Operation(operation) => {
            let spec = &operation.spec;
            let attempts: Vec<_> = operation
                .attempts
                .iter()
                .map(|attempt| {
                    let verdict = attempt.verdict.map(|verdict| format!("{verdict:?}"));
                    let open = if attempt.open { "?" } else { "" };
                    let fence = attempt.fence.0;
                    format!("{fence}:{}{open}", verdict.unwrap_or_default())
                })
                .collect();
            let settled = operation.settled().map(|settled| {
                let outcome = settled.outcome;
                format!(
                    "ok={} effect={} at={}",
                    outcome.ok, outcome.effect, settled.at
                )
            });
            format!(
                "{}/{} {common} created={} attempts=[{}] queue={:?} parent={:?} resolved={:?} {}",
                spec.namespace,
                spec.key,
                operation.created_at,
                attempts.join(" "),
                operation.queue.as_ref().map(Label::as_str),
                spec.parent.as_ref().map(|parent| parent.key.as_str()),
                operation
                    .resolved
                    .as_ref()
                    .map(|resolved| resolved.by.as_str()),
                settled.unwrap_or_default(),
            )
        }
        Record::Tombstone(tombstone) => format!(
            "{}/{} {common} settled={} buried={} ok={} effect={}",
            tombstone.namespace,
            tombstone.key,
            tombstone.settled_at,
            tombstone.buried_at,
            tombstone.ok,
            tombstone.effect,
        ),
        Record::Breaker(breaker) => format!("{} {common} {:?}", breaker.name, breaker.phase),
        Record::Stub(stub) => format!("{} {common} since={}", stub.key_hash.0.hex(), stub.since),
    }
}
