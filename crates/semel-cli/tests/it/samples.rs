//! Operations in every state.

use std::time::Duration;

use semel::{Effect, Engine, Lease, Request};
use serde_json::json;

use crate::harness::{World, elsewhere, key, label, permit, request};

/// A store with one operation of every state, held by a process on another host.
pub(crate) fn world() -> World {
    let world = World::new();
    world.past_of(elsewhere(), all);
    world
}

async fn all(engine: Engine) {
    let permit_of = async |name| permit(&engine, request(name)).await;
    let answer = json!({"id": 42});
    let done = permit_of("order-1").await.done(Effect::Created, &answer);
    done.await.expect("taken");
    let failed = permit_of("order-2").await.failed(Effect::Noop, "no stock");
    failed.await.expect("taken");
    let doubted = permit_of("order-3").await.unknown("connection reset");
    doubted.await.expect("taken");
    let waiting = permit_of("order-4").await.not_done("shop is closed");
    waiting.await.expect("taken");
    let dead = permit_of("order-5").await.reject("no such item");
    dead.await.expect("taken");
    let queued = Request::new("send-mail", key("mail-6"));
    let queued = engine.submit(queued, semel::Queueing::on(label("mail")));
    queued.await.expect("taken");
    leave(&engine, request("order-7")).await;
    let day = Lease::new(Duration::from_secs(86_400)).expect("a test's lease is valid");
    leave(&engine, request("order-8").lease(day)).await;
}

/// Begins, and ends without a word.
pub(crate) async fn leave(engine: &Engine, request: Request) {
    // A permit that is dropped reports that nobody knows; a process that dies reports nothing.
    std::mem::forget(permit(engine, request).await);
}
