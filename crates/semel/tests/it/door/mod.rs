//! Goal: which operation a call is for, through a real store, and what is left of it after a crash.
//! Method: doorways on one store stand for processes; dropping one without a flush is its crash.

mod calls;
mod crowds;
mod marks;
mod names;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use semel::core::identity::{
    Call, ClientText, Door, Identity, InFlight, Kin, Observation, Relation, Scope,
};
use semel::core::ledger::Record;
use semel::door::{Admission, Doorway, Entered, Ticket};
use semel::{Effect, Engine, Key, Namespace, Permit, Request};
use semel_testkit::conformance::{Bed, ManualClock, MemoryBed, SqliteBed};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn memory() -> Arc<dyn Bed> {
    Arc::new(MemoryBed::new(&Arc::new(ManualClock::default())))
}

fn sqlite() -> Arc<dyn Bed> {
    Arc::new(SqliteBed::new(&Arc::new(ManualClock::default())))
}

/// Starts a process: an engine of its own and a doorway.
async fn start(bed: &Arc<dyn Bed>) -> Doorway {
    let builder = Engine::builder().store(bed.open().await);
    let engine = builder.holder(None).sweep_every(None).start().await;
    Doorway::new(engine.expect("it starts"))
}

fn request() -> Request {
    let key = Key::new("any").expect("a valid key");
    Request::new("pay", key).input_json(br#"{"amount":100}"#)
}

/// A call without any key.
fn call() -> Call {
    Call {
        door: Door::Mcp,
        scope: Scope {
            principal: Some("alice".to_owned()),
            target: "everything".to_owned(),
            conversation: Some("chat-1".to_owned()),
        },
        explicit: None,
        call_id: None,
        business: None,
        fingerprint: request().fingerprint().expect("a valid input"),
        in_flight: InFlight::Join,
        repeat_of: None,
    }
}

fn text(text: &str) -> ClientText {
    ClientText::new(text).expect("a valid text")
}

fn with_id(id: &str) -> Call {
    Call {
        call_id: Some(text(id)),
        ..call()
    }
}

async fn enter(door: &Doorway, call: &Call) -> Entered {
    let entered = door.enter(call, request()).await;
    entered.expect("it is judged")
}

/// Enters a call that is to run.
async fn run(door: &Doorway, call: &Call) -> (Identity, Ticket, Permit) {
    let entered = enter(door, call).await;
    let Admission::Execute(permit) = entered.admission else {
        panic!("it does not run: {entered:?}");
    };
    let ticket = entered.ticket.expect("it has a ticket");
    (entered.identity, ticket, permit)
}

/// Enters a call that is to be answered with what is stored.
async fn replay(door: &Doorway, call: &Call) -> (Identity, Ticket) {
    let entered = enter(door, call).await;
    let Admission::Replay(_) = entered.admission else {
        panic!("it is not replayed: {entered:?}");
    };
    let ticket = entered.ticket.expect("it has a ticket");
    (entered.identity, ticket)
}

async fn done(permit: Permit) {
    let receipt = permit.done(Effect::Created, "paid").await;
    assert!(receipt.expect("it is stored").ok);
}

/// Says that the answer arrived.
fn arrived(ticket: &Ticket) {
    ticket.see(Observation::Written);
    ticket.see(Observation::Acknowledged);
}

/// Runs a call to its end, and its answer arrives.
async fn complete(door: &Doorway, call: &Call) -> Identity {
    let (identity, ticket, permit) = run(door, call).await;
    done(permit).await;
    arrived(&ticket);
    identity
}

async fn record(door: &Doorway, key: &Key) -> Arc<Record> {
    let record = door.engine().load(&Namespace::default(), key).await;
    record.expect("it loads").expect("it is there")
}

/// Returns how many count among the kin of the usual call.
async fn counting(door: &Doorway) -> usize {
    let kin = Kin::of(&Namespace::default(), &call());
    let found = door.engine().store().kin(kin).await;
    found.expect("it reads").len()
}

fn as_a(relation: Relation, occurrence: u32) -> (Relation, u32) {
    (relation, occurrence)
}

fn told(identity: &Identity) -> (Relation, u32) {
    (identity.relation, identity.occurrence)
}
