//! A client that asks until it has an answer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel::core::ledger::Fence;
use semel_testkit::process::Dice;
use serde_json::{Value, json};

use crate::http::{Answer, Asked, Connection, PATIENCE};

use super::Crowd;

/// How long a client that lives may be silent: longer than any of them is.
const LEASE_MS: u64 = 120_000;

/// How long one that will die may be: the shortest that there is, so that its doubt comes soon.
const SHORT_LEASE_MS: u64 = 1_000;

/// How long a begin waits for another's attempt, half of the time.
const WAIT_MS: u64 = 300;

/// The pause before the same question is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// What a client does with a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Acts and reports.
    Lives,
    /// Says that it did nothing.
    GivesBack,
    /// Does not know what it did, and says so.
    LosesTrack { acted: bool },
    /// Dies without a word.
    Dies { acted: bool },
}

impl Fate {
    fn cast(dice: &mut Dice) -> Self {
        match dice.below(40) {
            0 => Self::GivesBack,
            1 => Self::LosesTrack { acted: true },
            2 => Self::LosesTrack { acted: false },
            3 | 4 => Self::Dies { acted: true },
            5 | 6 => Self::Dies { acted: false },
            _ => Self::Lives,
        }
    }
}

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
            while !self.ask_for(&key) {
                if self.crowd.failed.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }

    /// Asks once; says whether that was the end of it.
    fn ask_for(&mut self, key: &str) -> bool {
        let fate = Fate::cast(&mut self.dice);
        let id = format!("{:016x}{:016x}", self.dice.next(), self.dice.next());
        let dies = matches!(fate, Fate::Dies { .. });
        let begin = json!({
            "key": key,
            "name": "append-line",
            "input": {"line": key},
            "attempt_id": id,
            "lease_ms": if dies { SHORT_LEASE_MS } else { LEASE_MS },
            "wait_ms": self.dice.below(2) * WAIT_MS,
        });
        let answer = self.send("/v1/begin", &begin);
        let told = answer.json();
        match (answer.status, &told["decision"], &told["code"]) {
            (200, decision, _) if *decision == "execute" => {
                assert_eq!(told["attempt_id"], id, "{answer:?}");
                assert_eq!(told["key"], key, "{answer:?}");
                let fence = told["fence"].as_u64().expect("there is a fence");
                if !dies && self.dice.below(4) == 0 {
                    let again = self.send("/v1/begin", &begin).json();
                    assert_eq!(again, told, "the same attempt has the same grant");
                    self.crowd.repeated.fetch_add(1, Ordering::Relaxed);
                }
                self.act(key, &id, fence, fate);
                // Whoever acted asks again, as any other client does.
                false
            }
            (200, decision, _) if *decision == "replay" => {
                let receipt = &told["receipt"];
                assert_eq!(receipt["ok"], true, "{answer:?}");
                assert_eq!(receipt["state"], "succeeded", "{answer:?}");
                self.crowd.answer(key, receipt["data"].clone());
                true
            }
            (409, _, code) if *code == "in_flight" => {
                std::thread::sleep(PAUSE);
                false
            }
            (409, _, code) if *code == "in_doubt" => {
                self.did_nothing(key, &id);
                std::thread::sleep(PAUSE);
                false
            }
            _ => panic!("{key}: {answer:?}"),
        }
    }

    /// Reports that nothing was done, in case it is this client's own attempt that is in doubt: its grant may
    /// have been lost with a server, and its lease be over. Nobody else can know that it did nothing.
    fn did_nothing(&mut self, key: &str, id: &str) {
        let record = self.record(key);
        let report = json!({
            "key": key, "attempt_id": id, "fence": record["fence"],
            "verdict": "not_done", "error": "never heard of the grant",
        });
        let answer = self.send("/v1/settle", &report);
        if answer.status != 200 {
            answer.problem(409, "fenced");
        }
    }

    fn record(&mut self, key: &str) -> Value {
        let answer = self.exchange(&Asked::get(&format!("/v1/operations/{key}")));
        answer.expect(200)
    }

    /// Does what a client with this fate does.
    fn act(&mut self, key: &str, id: &str, fence: u64, fate: Fate) {
        let acts = match fate {
            Fate::Lives => true,
            Fate::GivesBack => false,
            Fate::LosesTrack { acted } | Fate::Dies { acted } => acted,
        };
        let line = acts.then(|| self.crowd.sink.cause(key, Fence(fence), || ()));
        let report = match fate {
            Fate::Lives => json!({
                "verdict": "done", "ok": true, "effect": "created",
                "data": line.map(|line| line.answer()),
            }),
            Fate::GivesBack => json!({"verdict": "not_done", "error": "not today"}),
            Fate::LosesTrack { .. } => {
                // It can no longer act; what it says may come later than what others find out.
                self.crowd.goes(key, fence);
                json!({"verdict": "unknown", "error": "the line is busy"})
            }
            Fate::Dies { .. } => return self.crowd.goes(key, fence),
        };
        let mut report = report;
        report["key"] = key.into();
        report["attempt_id"] = id.into();
        report["fence"] = fence.into();
        let answer = self.send("/v1/settle", &report);
        if fate != Fate::Lives {
            let settled = answer.status == 200 || answer.json()["code"] == "fenced";
            assert!(settled, "{answer:?}");
            return;
        }
        let receipt = answer.expect(200);
        assert_eq!(receipt["data"], report["data"], "{answer:?}");
        if self.dice.below(4) == 0 {
            let again = self.send("/v1/settle", &report).expect(200);
            assert_eq!(again, receipt, "the same report has the same receipt");
            self.crowd.repeated.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send(&mut self, target: &str, body: &Value) -> Answer {
        self.exchange(&Asked::post(target, body))
    }

    /// Sends the same bytes until there is an answer, whatever becomes of servers and connections.
    fn exchange(&mut self, asked: &Asked) -> Answer {
        let bytes = asked.bytes();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "nobody answers: {asked:?}");
            if self.connection.is_none() {
                self.connection = Connection::open(&self.crowd.address()).ok();
            }
            let Some(connection) = &mut self.connection else {
                std::thread::sleep(PAUSE);
                continue;
            };
            match connection.send(&bytes).and_then(|()| connection.answer()) {
                // A server that starts or ends may say so.
                Ok(answer) if answer.status == 503 => {
                    answer.problem(503, "store_unavailable");
                    std::thread::sleep(PAUSE);
                }
                Ok(answer) => return answer,
                Err(_) => {
                    self.connection = None;
                    self.crowd.lost.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}
