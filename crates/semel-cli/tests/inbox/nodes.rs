//! Two nodes on one database that receive the same delivery at the same moment.

use std::sync::{Arc, Barrier};
use std::thread;

use semel::Engine;
use semel_testkit::postgres::Cluster;
use serde_json::json;

use crate::setup::{Sender, start_with, taken, world};

/// How many deliveries arrive at both nodes.
const DELIVERIES: usize = 40;

#[test]
fn of_two_nodes_with_the_same_delivery_one_stores_it() {
    let cluster = Cluster::start();
    let world = world();
    let url = cluster.url("semel", "postgres");
    let nodes = [(); 2].map(|()| start_with(&world, &["--store", &url]));
    let barrier = Arc::new(Barrier::new(nodes.len()));
    let heard = thread::scope(|scope| {
        let each = nodes.each_ref().map(|node| {
            let barrier = Arc::clone(&barrier);
            scope.spawn(move || {
                let sender = Sender::new("github");
                let mut connection = node.connect();
                let answers = (0..DELIVERIES).map(|id| {
                    let id = format!("evt_{id}");
                    let asked = sender.signed(&id, &sender.body(&id)).bytes();
                    barrier.wait();
                    connection.send(&asked).expect("it can be sent");
                    let answer = connection.answer().expect("it is answered");
                    (answer.status, answer.json()["effect"].clone())
                });
                answers.collect::<Vec<_>>()
            })
        });
        each.map(|one| one.join().expect("nobody panics"))
    });
    let [first, second] = heard;
    let mut won = [0, 0];
    for pair in first.into_iter().zip(second) {
        let (created, noop) = ((202, json!("created")), (200, json!("noop")));
        if pair == (created.clone(), noop.clone()) {
            won[0] += 1;
        } else {
            assert_eq!(pair, (noop, created));
            won[1] += 1;
        }
    }
    assert_eq!(won[0] + won[1], DELIVERIES);
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    let tasks = runtime.block_on(async {
        let engine = Engine::open(&url).await.expect("the store opens");
        taken(&engine).await
    });
    assert_eq!(tasks.len(), DELIVERIES);
}
