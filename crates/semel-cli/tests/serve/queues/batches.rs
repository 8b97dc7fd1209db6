use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{TASKS, done, lease, report};
use crate::harness::World;
use crate::server::Server;

/// As many as an agent leaves behind that fans out.
const MANY: usize = 5_000;

#[test]
fn thousands_of_tasks_are_left_in_one_call() {
    let world = World::new();
    let server = Server::start(&world);
    let tasks: Vec<_> = (0..MANY)
        .map(|n| json!({"key": format!("k-{n}"), "input": {"to": n}}))
        .collect();
    let tasks = json!(tasks);
    let first = server.post(TASKS, &tasks).expect(200);
    let said = |answer: &Value, effect: &str| {
        let items = answer.as_array().expect("they are a list");
        assert_eq!(items.len(), MANY);
        for (n, item) in items.iter().enumerate() {
            assert_eq!(
                (&item["status"], &item["key"], &item["effect"]),
                (&json!(200), &json!(format!("k-{n}")), &json!(effect)),
                "{item}"
            );
        }
    };
    said(&first, "created");
    said(&server.post(TASKS, &tasks).expect(200), "noop");
    // They were written in groups, not one by one.
    let metrics = server.get("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body);
    let number = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|number| number.trim().parse::<f64>().ok());
        number.unwrap_or_else(|| panic!("{name}:\n{metrics}"))
    };
    assert!(number("semel_store_group_size_count") < 1_000.0);
    assert!(number("semel_store_group_size_sum") >= 5_000.0);
    let mut keys = BTreeSet::new();
    while keys.len() < MANY {
        let taken = lease(&server, &json!({"max": 256}));
        assert!(!taken.is_empty(), "{} were taken", keys.len());
        for task in &taken {
            let n = task["input"]["to"].as_u64().expect("a number");
            assert_eq!(task["key"], format!("k-{n}"));
            assert!(keys.insert(n), "{task}");
        }
        let reports: Vec<_> = taken.iter().map(done).collect();
        let settled = server.post("/v1/settle", &json!(reports)).expect(200);
        let settled = settled.as_array().expect("they are a list");
        assert!(settled.iter().all(|it| it["state"] == "succeeded"));
    }
    assert!(lease(&server, &json!({"max": 256})).is_empty());
}

#[test]
fn each_task_of_an_array_is_answered_by_itself() {
    let world = World::new();
    let server = Server::start(&world);
    let tasks = json!([
        {"key": "a", "input": 1},
        {"input": 1},
        {"key": "a", "input": 2},
        {"key": " "},
        ["b"],
        5,
        {"key": "b", "priority": 101},
        {"key": "b", "nmae": "typo"},
        {"key": "b", "dry_run": true},
        {"key": "b"},
    ]);
    let answers = server.post(TASKS, &tasks).expect(200);
    let answers = answers.as_array().expect("they are a list");
    let said: Vec<_> = answers
        .iter()
        .map(|it| {
            it["code"]
                .as_str()
                .or_else(|| it["effect"].as_str())
                .unwrap_or("?")
        })
        .collect();
    let same_key = [said[0], said[2]];
    assert!(
        same_key == ["created", "key_reused"] || same_key == ["key_reused", "created"],
        "{said:?}"
    );
    assert_eq!(said[1], "invalid_input", "{answers:?}");
    assert_eq!(
        said[3..],
        [
            "invalid_key",
            "invalid_input",
            "invalid_input",
            "invalid_input",
            "invalid_input",
            "would_create",
            "created",
        ],
        "{answers:?}"
    );
    assert_eq!(server.post(TASKS, &json!([])).expect(200), json!([]));
    let tasks: Vec<_> = (0..10_001).map(|_| json!({})).collect();
    server.post(TASKS, &json!(tasks)).problem(413, "too_large");
}

#[test]
fn one_task_may_not_be_as_large_as_an_array_of_them() {
    let world = World::new();
    let server = Server::start(&world);
    let text = "x".repeat(900_000);
    let large = |key: &str| json!({"key": key, "input": text});
    let tasks = json!([large("a"), large("b"), large("c")]);
    let answers = server.post(TASKS, &tasks).expect(200);
    assert_eq!(answers[2]["effect"], "created");
    let too_large = json!({"key": "d", "input": "x".repeat(2_200_000)});
    server.post(TASKS, &too_large).problem(413, "too_large");
    // A task in an array is no larger than one alone.
    let answers = server.post(TASKS, &json!([too_large])).expect(200);
    assert_eq!(answers[0]["code"], "too_large", "{answers}");
    let beyond = json!({"key": "d", "input": "x".repeat(1_048_576)});
    server.post(TASKS, &beyond).problem(413, "too_large");
}

#[test]
fn leases_are_renewed_in_one_call() {
    let world = World::new();
    let server = Server::start(&world);
    let tasks: Vec<_> = (0..10).map(|n| json!({"key": format!("k-{n}")})).collect();
    server.post(TASKS, &json!(tasks)).expect(200);
    let taken = lease(&server, &json!({"max": 10}));
    let mut renewals: Vec<_> = taken
        .iter()
        .map(|task| report(task, &json!({"lease_ms": 600_000})))
        .collect();
    renewals[3]["fence"] = json!(9);
    let renewed = server.post("/v1/renew", &json!(renewals)).expect(200);
    for (n, item) in renewed.as_array().expect("a list").iter().enumerate() {
        if n == 3 {
            assert_eq!(item["code"], "fenced", "{item}");
        } else {
            assert_eq!(item["status"], 200, "{item}");
            assert_eq!(item["key"], taken[n]["key"]);
            let longer = item["lease_until"].as_str() > taken[n]["lease_until"].as_str();
            assert!(longer, "{item}");
        }
    }
}
