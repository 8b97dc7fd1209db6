//! A client that asks until it has an answer, and sometimes does not wait for it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_testkit::process::Dice;

use crate::http::{Connection, PATIENCE};
use crate::setup::{keyed, refusal};

use super::Crowd;

/// The pause before the same question is asked again.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Client<'a> {
    crowd: &'a Crowd,
    dice: Dice,
    connection: Option<Connection>,
}

impl<'a> Client<'a> {
    pub(super) const fn new(crowd: &'a Crowd, dice: Dice) -> Self {
        Self {
            crowd,
            dice,
            connection: None,
        }
    }

    /// Asks for every key, in an order of its own, until each has an answer.
    pub(super) fn ask_for_everything(mut self) {
        let mut numbers: Vec<_> = (0..self.crowd.keys).collect();
        self.dice.shuffle(&mut numbers);
        for number in numbers {
            let key = format!("key-{number}");
            let end = Instant::now() + PATIENCE;
            while !self.ask_for(&key) {
                if self.crowd.failed.load(Ordering::Relaxed) {
                    return;
                }
                assert!(Instant::now() < end, "there is no answer for {key}");
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Asks once; says whether that was the end of it.
    fn ask_for(&mut self, key: &str) -> bool {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match Connection::open(&self.crowd.address) {
                Ok(connection) => connection,
                // The proxy is not back yet.
                Err(_) => return false,
            },
        };
        if connection.send(&keyed(key).bytes()).is_err() {
            self.crowd.meets("cut");
            return false;
        }
        if self.dice.below(16) == 0 {
            // It leaves, and comes back for the answer.
            return false;
        }
        let Ok(answer) = connection.answer() else {
            self.crowd.meets("cut");
            return false;
        };
        self.connection = Some(connection);
        let is_ours = answer.header("semel-error").is_some();
        match answer.status {
            200 | 201 if !is_ours => {
                if answer.header("idempotency-stored") == Some("false") {
                    self.crowd.meets("unstored");
                    return false;
                }
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                self.crowd.answer(key, (answer.status, body));
                true
            }
            // What the upstream says when it fails.
            429 | 500 if !is_ours => {
                self.crowd.meets(&answer.status.to_string());
                false
            }
            status if is_ours => {
                let problem = refusal(&answer, status);
                let code = problem["code"].as_str().unwrap_or_default();
                let known = ["in_flight", "in_doubt", "not_sent", "store_unavailable"];
                assert!(known.contains(&code), "{key}: {answer:?}");
                self.crowd.meets(code);
                false
            }
            _ => panic!("{key}: {answer:?}"),
        }
    }
}
