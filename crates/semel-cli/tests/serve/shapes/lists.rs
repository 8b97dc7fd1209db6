use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{STATES, begin, bring, is_time, last_event};
use crate::harness::World;
use crate::server::Server;

fn keys(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("there are items");
    items
        .iter()
        .map(|item| item["key"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Reads all pages.
fn all(server: &Server, query: &str, limit: usize) -> Vec<Value> {
    let mut items = vec![];
    let mut after = String::new();
    loop {
        let separator = if query.contains('?') { '&' } else { '?' };
        let page = server
            .get(&format!("{query}{separator}limit={limit}{after}"))
            .expect(200);
        let found = page["items"].as_array().expect("there are items");
        assert!(found.len() <= limit, "{page}");
        items.extend(found.clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return items,
        }
        assert!(page.get("next").is_some() && items.len() < 10_000, "{page}");
    }
}

#[test]
fn a_record_has_all_its_members() {
    let world = World::new();
    let server = Server::start(&world);
    bring(&server, "k", "succeeded");
    let record = super::record(&server, "k");
    let members = [
        "namespace",
        "key",
        "client_key",
        "name",
        "state",
        "ok",
        "effect",
        "class",
        "on_doubt",
        "door",
        "principal",
        "queue",
        "parent",
        "attempt",
        "fence",
        "version",
        "max_attempts",
        "fingerprint",
        "created_at",
        "started_at",
        "settled_at",
        "lease_until",
        "run_at",
        "delivery",
        "holder",
        "resolved",
    ];
    for member in members.iter().chain(&["attempts", "data"]) {
        assert!(
            record.get(member).is_some(),
            "{member} is missing: {record}"
        );
    }
    assert_eq!(
        (
            &record["state"],
            &record["ok"],
            &record["effect"],
            &record["class"],
            &record["on_doubt"]
        ),
        (
            &json!("succeeded"),
            &json!(true),
            &json!("created"),
            &json!("unsafe"),
            &json!("hold")
        ),
    );
    assert_eq!(
        (&record["door"], &record["version"]),
        (&json!("api"), &json!(2))
    );
    assert_eq!(record["data"], json!({"id": 42}));
    for time in ["created_at", "started_at", "settled_at"] {
        is_time(&record[time]);
    }
    let attempt = &record["attempts"][0];
    for member in [
        "attempt",
        "fence",
        "started_at",
        "ended_at",
        "verdict",
        "error",
    ] {
        assert!(
            attempt.get(member).is_some(),
            "{member} is missing: {attempt}"
        );
    }
    let listed = server.get("/v1/operations").expect(200);
    let listed = &listed["items"][0];
    for member in members {
        assert_eq!(listed[member], record[member], "{member}");
    }
    assert_eq!(
        (listed.get("attempts"), listed.get("data")),
        (None, None),
        "{listed}"
    );
    server
        .get("/v1/operations/nothing")
        .problem(404, "not_found");
    server
        .get("/v1/operations/nothing/events")
        .problem(404, "not_found");
}

#[test]
fn lists_are_filtered_and_paged() {
    let world = World::new();
    let server = Server::start(&world);
    for state in STATES {
        for number in 0..3 {
            bring(&server, &format!("{state}-{number}"), state);
        }
    }
    let queued = json!({"key": "queued", "name": "send-mail", "queue": "mail"});
    server.post("/v1/submit", &queued).expect(200);
    let listed = server.get("/v1/operations").expect(200);
    let newest_first = keys(&listed);
    assert_eq!(newest_first.len(), 19);
    assert_eq!(
        (&*newest_first[0], &*newest_first[18]),
        ("queued", "pending-0")
    );
    assert_eq!(listed["next"], Value::Null);
    for limit in [1, 2, 7, 19, 20] {
        let paged = all(&server, "/v1/operations", limit);
        assert_eq!(keys(&json!({"items": paged})), newest_first, "by {limit}");
    }
    // A page goes on where it stopped, also when something new came meanwhile.
    let page = server.get("/v1/operations?limit=5").expect(200);
    bring(&server, "newer", "running");
    let next = page["next"].as_str().expect("there is more");
    let rest = server
        .get(&format!("/v1/operations?limit=50&after={next}"))
        .expect(200);
    let both: Vec<_> = keys(&page).into_iter().chain(keys(&rest)).collect();
    assert_eq!(both, newest_first);

    let of =
        |query: &str| keys(&json!({"items": all(&server, &format!("/v1/operations?{query}"), 2)}));
    for state in ["succeeded", "failed", "doubtful", "dead"] {
        assert_eq!(
            of(&format!("state={state}")),
            [2, 1, 0].map(|number| format!("{state}-{number}"))
        );
    }
    assert_eq!(of("state=dead&state=failed").len(), 6);
    assert_eq!(of("state=dead,failed").len(), 6);
    assert_eq!(of("name=send-mail"), ["queued"]);
    assert_eq!(of("queue=mail"), ["queued"]);
    assert_eq!(of("prefix=dead-").len(), 3);
    assert_eq!(of("prefix=dead-&state=failed"), [""; 0]);
    assert_eq!(of("door=api").len(), 20);
    assert_eq!(of("door=cli"), [""; 0]);
    assert_eq!(of("since=2999-01-01T00:00:00Z"), [""; 0]);
    assert_eq!(of("until=2000-01-01T00:00:00Z"), [""; 0]);
    assert_eq!(
        of("since=2000-01-01T00:00:00Z&until=2999-01-01T00:00:00Z").len(),
        20
    );
}

#[test]
fn events_are_paged_in_order_and_are_those_of_the_operation() {
    let world = World::new();
    let server = Server::start(&world);
    for number in 0..10 {
        bring(&server, &format!("k-{number}"), "succeeded");
    }
    bring(&server, "d", "doubtful");
    for limit in [1, 3, 1000] {
        let events = all(&server, "/v1/events", limit);
        let numbers: Vec<_> = events
            .iter()
            .filter_map(|event| event["seq"].as_u64())
            .collect();
        assert_eq!(numbers.len(), 22, "by {limit}");
        let unique: BTreeSet<_> = numbers.iter().copied().collect();
        assert!(numbers.is_sorted() && unique.len() == 22, "{numbers:?}");
        for event in &events {
            for member in [
                "seq",
                "at",
                "namespace",
                "key",
                "command",
                "state",
                "fence",
                "by",
            ] {
                assert!(event.get(member).is_some(), "{member} is missing: {event}");
            }
            is_time(&event["at"]);
        }
        let own = all(&server, "/v1/operations/d/events", limit);
        let told: Vec<_> = own
            .iter()
            .map(|event| (event["command"].clone(), event["state"].clone()))
            .collect();
        assert_eq!(
            told,
            [
                (json!("begin"), json!("running")),
                (json!("settle"), json!("doubtful"))
            ]
        );
        let expected: Vec<_> = events
            .iter()
            .filter(|event| event["key"] == "d")
            .cloned()
            .collect();
        assert_eq!(own, expected);
    }
    // Those of an operation that many commands were about, among others.
    for number in 0..30 {
        let renew = json!({"key": "d", "attempt_id": "x", "fence": number});
        server.post("/v1/renew", &renew).problem(409, "fenced");
        let settle = json!({"key": "d", "attempt_id": "x", "fence": number, "verdict": "unknown"});
        server.post("/v1/settle", &settle).problem(409, "fenced");
        server
            .post("/v1/begin", &begin(&format!("between-{number}")))
            .expect(200);
    }
    let last = last_event(&server);
    let own = all(&server, "/v1/operations/d/events", 7);
    let events = all(&server, "/v1/events", 1000);
    let expected: Vec<_> = events
        .iter()
        .filter(|event| event["key"] == "d")
        .cloned()
        .collect();
    assert_eq!(own, expected);
    assert_eq!(last_event(&server), last, "looking writes nothing");
}
