//! What strangers and broken programs send: refused clearly, never carried out, and nobody else is disturbed.

mod framing;
mod json;
mod keys;
mod limits;
mod origins;
mod slow;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::http::{Asked, Connection};
use crate::server::{Server, wait_until};

/// The body of a begin that must never be carried out.
fn begin(key: &str) -> String {
    json!({"key": key, "name": "evil"}).to_string()
}

/// Expects that nothing was ever stored under a key.
#[track_caller]
fn nothing_happened(server: &Server, key: &str) {
    server
        .get(&format!("/v1/operations/{key}"))
        .problem(404, "not_found");
}

/// A client that behaves, and is busy all the time.
struct Bystander<'a> {
    server: &'a Server,
    cycles: AtomicU64,
    over: AtomicBool,
}

impl Bystander<'_> {
    /// Expects that the well-behaved client is served from now on, too.
    #[track_caller]
    fn is_served(&self) {
        let before = self.cycles.load(Ordering::Relaxed);
        // The first cycle from now on may have begun before.
        wait_until("the well-behaved client is served", || {
            self.cycles.load(Ordering::Relaxed) >= before + 2
        });
    }

    fn work(&self) {
        let mut connection = self.server.connect();
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            cycle(&mut connection, &format!("good-{number}"));
            self.cycles.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Lets something happen beside a client that behaves, which must be served before, meanwhile and after.
fn beside_a_good_client<T>(server: &Server, work: impl FnOnce(&Bystander<'_>) -> T) -> T {
    let bystander = Bystander {
        server,
        cycles: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    /// Ends the bystander also when the work fails.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _over = Over(&bystander.over);
        scope.spawn(|| bystander.work());
        bystander.is_served();
        let result = work(&bystander);
        bystander.is_served();
        result
    })
}

/// Begins and settles a key on a connection that is kept.
fn cycle(connection: &mut Connection, key: &str) {
    let granted = exchange(
        connection,
        "/v1/begin",
        &json!({"key": key, "name": "good"}),
    );
    assert_eq!(granted["decision"], "execute", "{granted}");
    let settle = json!({
        "key": key, "attempt_id": granted["attempt_id"], "fence": granted["fence"],
        "verdict": "done", "ok": true, "effect": "created", "data": key,
    });
    let receipt = exchange(connection, "/v1/settle", &settle);
    assert_eq!(receipt["data"], key, "{receipt}");
}

fn exchange(connection: &mut Connection, target: &str, body: &Value) -> Value {
    let asked = Asked::post(target, body);
    let sent = connection.send(&asked.bytes());
    let answer = sent.and_then(|()| connection.answer());
    let answer = answer.unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    answer.expect(200)
}
