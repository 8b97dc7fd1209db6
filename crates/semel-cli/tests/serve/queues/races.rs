use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use super::{TASKS, done, lease, leave};
use crate::harness::World;
use crate::server::Server;

const RACERS: usize = 8;

/// Runs the same at the same time, and returns what came of each.
fn race<T: Send>(run: impl Fn() -> T + Sync) -> Vec<T> {
    let start = Barrier::new(RACERS);
    thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    run()
                })
            })
            .collect();
        let ended = racers.into_iter().map(|racer| racer.join());
        ended.map(|it| it.expect("nobody panics")).collect()
    })
}

#[test]
fn one_of_many_who_leave_the_same_task_created_it() {
    let world = World::new();
    let server = Server::start(&world);
    for round in 0..20 {
        let key = format!("k-{round}");
        let answers = race(|| leave(&server, &key, &json!({"input": round})));
        let created = answers
            .iter()
            .filter(|it| it["effect"] == "created")
            .count();
        let found = answers.iter().filter(|it| it["effect"] == "noop").count();
        assert_eq!((created, found), (1, RACERS - 1), "{answers:?}");
    }
    let taken = lease(&server, &json!({"max": 256}));
    assert_eq!(taken.len(), 20);
}

#[test]
fn each_task_is_given_to_one_of_many_workers() {
    const TASKS_EACH: usize = 300;
    let world = World::new();
    let server = Server::start(&world);
    let tasks: Vec<_> = (0..TASKS_EACH)
        .map(|n| json!({"key": format!("k-{n}")}))
        .collect();
    server.post(TASKS, &json!(tasks)).expect(200);
    let taken = race(|| {
        let mut mine: Vec<Value> = vec![];
        loop {
            // An empty answer may be the luck of a race: it is the end when nothing is pending any more.
            let some = lease(&server, &json!({"max": 7}));
            let reports: Vec<_> = some.iter().map(done).collect();
            let settled = server.post("/v1/settle", &json!(reports)).expect(200);
            let settled = settled.as_array().expect("a list");
            assert!(settled.iter().all(|it| it["replayed"] == false));
            mine.extend(some);
            let left = server
                .get("/v1/operations?state=pending&limit=1")
                .expect(200);
            if left["items"] == json!([]) {
                return mine;
            }
        }
    });
    let all: Vec<_> = taken.iter().flatten().collect();
    assert_eq!(all.len(), TASKS_EACH);
    assert!(all.iter().all(|task| task["attempt"] == 1));
    let keys: BTreeSet<_> = all.iter().map(|task| task["key"].to_string()).collect();
    assert_eq!(keys.len(), TASKS_EACH);
    let workers = taken.iter().filter(|mine| !mine.is_empty()).count();
    assert!(workers > 1, "one worker took them all");
}
