//! Floods of everything at once, and crashes right after an answer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use semel::core::webhook::Scheme;

use crate::server::Server;
use crate::setup::{Sender, start, stored, tasks, world};

/// How many senders there are at once.
const SENDERS: usize = 8;

/// How many webhooks are sent.
const WEBHOOKS: usize = 120;

/// Each webhook comes once from every sender, in another order, with strangers in between: each id becomes one task.
#[test]
fn of_a_flood_each_id_becomes_one_task() {
    let world = world();
    let server = start(&world);
    let answers = Mutex::new(BTreeMap::<u16, usize>::new());
    thread::scope(|scope| {
        for number in 0..SENDERS {
            let (server, answers) = (&server, &answers);
            scope.spawn(move || flood(server, number, answers));
        }
    });
    let answers = answers.into_inner().expect("nobody panics");
    let expected = [
        (200, WEBHOOKS * (SENDERS - 1)),
        (202, WEBHOOKS),
        (401, WEBHOOKS * SENDERS),
    ];
    assert_eq!(answers, BTreeMap::from(expected));
    // One entry for each, and nothing for strangers and repeats.
    assert_eq!(stored(&world), (WEBHOOKS as u64, WEBHOOKS));
    let tasks = tasks(&world);
    let expected = (0..WEBHOOKS).map(|id| format!("inbox/{}/evt_{id}", source(id)));
    let mut expected: Vec<_> = expected.collect();
    expected.sort_unstable();
    assert_eq!(tasks.into_keys().collect::<Vec<_>>(), expected);
    // A flood of strangers does not fill the log.
    let refusals = server.said().matches("a webhook was refused").count();
    assert!(refusals < 100, "{refusals} lines");
}

fn source(id: usize) -> &'static str {
    ["standard", "stripe", "github"][id % 3]
}

fn flood(server: &Server, number: usize, answers: &Mutex<BTreeMap<u16, usize>>) {
    let mut connection = server.connect();
    let stranger = Sender::with("github", Scheme::Github, "a-strangers-secret");
    for step in 0..WEBHOOKS {
        // A stride that is prime to the number of webhooks visits all of them.
        let id = (step * 7 + number * 13) % WEBHOOKS;
        let name = format!("evt_{id}");
        let sender = Sender::new(source(id));
        let right = sender.signed(&name, &sender.body(&name));
        let wrong = stranger.signed(&name, &stranger.body(&name));
        for asked in [right, wrong] {
            connection.send(&asked.bytes()).expect("it can be sent");
            let answer = connection.answer().expect("it is answered");
            let mut answers = answers.lock().expect("nobody panics");
            *answers.entry(answer.status).or_default() += 1;
        }
    }
}

/// What was answered is stored: a server that is killed right after it loses nothing, and what was not answered can be
/// sent again.
#[test]
fn a_server_that_is_killed_right_after_its_answer_loses_nothing() {
    let world = world();
    let sender = Sender::new("standard");
    let mut answered = 0;
    for round in 0..5 {
        let mut server = start(&world);
        thread::scope(|scope| {
            let (sender, server) = (&sender, &server);
            // All of them are let in before the first one is answered.
            let connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
            let each = connections
                .into_iter()
                .zip(0..)
                .map(|(mut connection, number)| {
                    scope.spawn(move || {
                        let id = format!("evt_{round}_{number}");
                        let asked = sender.signed(&id, &sender.body(&id)).bytes();
                        // The others are cut off by the first answer.
                        connection.send(&asked)?;
                        let status = connection.answer()?.status;
                        server.signal(rustix::process::Signal::KILL);
                        std::io::Result::Ok(status)
                    })
                });
            let each: Vec<_> = each.collect();
            for one in each {
                match one.join().expect("nobody panics") {
                    Ok(status) => {
                        assert_eq!(status, 202);
                        answered += 1;
                    }
                    Err(error) => assert!(crate::http::was_cut(&error), "{error}"),
                }
            }
        });
        server.wait();
        assert!(stored(&world).1 >= answered, "an answer was forgotten");
    }
    assert!(answered >= 5, "{answered}");
    // The senders come again with everything, as they heard of some only.
    let server = start(&world);
    for round in 0..5 {
        for number in 0..8 {
            let answer = sender.deliver(&server, &format!("evt_{round}_{number}"));
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        }
    }
    assert_eq!(tasks(&world).len(), 40);
}
