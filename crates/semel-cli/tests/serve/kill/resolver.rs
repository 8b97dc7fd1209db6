//! Somebody who looks up what became of the attempts in doubt, and says it over the API.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Answer, Asked, Connection};

use super::Crowd;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How many doubts were resolved, and how.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) done: u64,
    pub(super) not_done: u64,
}

/// Resolves what is in doubt until everybody has their answers.
pub(super) fn resolve_until(crowd: &Crowd, wanted: u64) -> Resolved {
    let mut resolved = Resolved::default();
    while crowd.answered.load(Ordering::Relaxed) < wanted {
        if crowd.failed.load(Ordering::Relaxed) {
            break;
        }
        let doubts = ask(
            crowd,
            &Asked::get("/v1/operations?state=doubtful&limit=100"),
        );
        let items = doubts.map(|answer| answer.expect(200)["items"].clone());
        for record in items.iter().filter_map(Value::as_array).flatten() {
            resolve(crowd, record, &mut resolved);
        }
        std::thread::sleep(PAUSE);
    }
    resolved
}

/// Resolves one doubt, if its holder can no longer act: until then the file proves nothing.
fn resolve(crowd: &Crowd, record: &Value, resolved: &mut Resolved) {
    let key = record["key"].as_str().expect("there is a key");
    let fence = record["fence"].as_u64().expect("there is a fence");
    if !crowd.is_gone(key, fence) {
        return;
    }
    let happened = crowd.sink.last_of(key);
    let word = match &happened {
        Some(line) => json!({
            "verdict": "done", "ok": true, "effect": "created", "data": line.answer(),
        }),
        None => json!({"verdict": "not_done"}),
    };
    let mut order = word;
    order["key"] = key.into();
    order["version"] = record["version"].clone();
    order["note"] = "looked it up".into();
    let asked = Asked::post("/v1/resolve", &order);
    // A lost reply, and a record that has changed, are looked at again.
    let Some(answer) = ask(crowd, &asked) else {
        return;
    };
    if answer.status == 409 {
        answer.problem(409, "fenced");
        return;
    }
    let receipt = answer.expect(200);
    let again = ask(crowd, &asked);
    match happened {
        Some(line) => {
            assert_eq!(receipt["data"], line.answer(), "{receipt}");
            assert_eq!(receipt["state"], "succeeded", "{receipt}");
            // A settled operation stays as it is, so the repeat of the order is answered the same.
            if let Some(again) = again {
                assert_eq!(again.expect(200), receipt);
            }
            resolved.done += 1;
        }
        None => resolved.not_done += 1,
    }
}

/// Asks once; none when the server went away.
fn ask(crowd: &Crowd, asked: &Asked) -> Option<Answer> {
    let mut connection = Connection::open(&crowd.address()).ok()?;
    connection.send(&asked.bytes()).ok()?;
    let answer = connection.answer().ok()?;
    (answer.status != 503).then_some(answer)
}
