//! One seeded stream of commands: likely ones, stale ones, wrong ones, and old ones again.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use semel::store::{Chunk, Place, Query, Waiting};
use semel_core::ledger::{
    Adopt, Begin, Command, Delivery, Expire, Fence, Horizon, Order, Parent, Record, Renew, Reply,
    Resolution, Resolve, Settle, Sighting, Spec, StateKind, Submit, Version,
};
use semel_core::queue::{Backoff, Priority, QueueHash, Task, lane_hash};
use semel_core::{
    AttemptId, Class, Digest, Effect, Fingerprint, KeyHash, Label, Lease, Namespace, Note, OnDoubt,
    Outcome, Payload, Policy, Retention, Timestamp, Verdict,
};

use super::breakers;
use super::model::{Answered, Model};
use super::random::Random;
use crate::conformance::ManualClock;
use crate::conformance::hand::{Asked, Brought, hash, spec};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How often each command is asked for, in the order of [`Command::NAMES`]; it takes many claims
/// and reports to bring an operation where the rarer ones do something.
const WEIGHTS: [u64; 14] = [8, 24, 8, 24, 5, 9, 7, 6, 6, 7, 7, 4, 2, 8];

/// One operation of the stream, and who was granted it.
#[derive(Debug)]
struct Subject {
    spec: Spec,
    hash: KeyHash,
    grants: Vec<(AttemptId, Fence)>,
}

/// Makes commands; it knows what the model answered, as callers know their own answers.
#[derive(Debug)]
pub struct Stream {
    random: Random,
    subjects: Vec<Subject>,
    next_attempt: u128,
    sent: Vec<Asked>,
    breakers: Vec<(Namespace, KeyHash)>,
}

/// Pieces to be stored before the next command.
#[derive(Debug)]
pub struct Append {
    /// The operation's place.
    pub place: Place,
    /// The attempt's fence.
    pub fence: Fence,
    /// The pieces.
    pub chunks: Vec<Chunk>,
}

fn label(text: &str) -> Label {
    Label::new(text).expect("the label is valid")
}

impl Stream {
    /// Starts a stream.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policies = [
            Policy::direct(Class::Unsafe),
            Policy {
                retry_within: HOUR,
                ..Policy::direct(Class::Idempotent)
            },
            Policy {
                on_doubt: OnDoubt::Probe,
                settle_delay: Duration::from_secs(10),
                ..Policy::direct(Class::Unsafe)
            },
            Policy {
                max_attempts: NonZeroU32::new(2),
                ..Policy::queued(Class::Idempotent)
            },
            Policy {
                max_attempts: NonZeroU32::new(1),
                ..Policy::direct(Class::Unsafe)
            },
            Policy::direct(Class::Unsafe),
        ];
        let mut subjects: Vec<Subject> = vec![];
        for (n, policy) in policies.into_iter().enumerate() {
            // Most are kin of each other, each behind its wall.
            let door = if n < 2 {
                ""
            } else {
                "mcp/0c52a1d5f1e0b7a3/call:"
            };
            let mut spec = spec(&format!("{door}order-{}", n / 2));
            spec.key = semel::Key::new(&format!("{}/{n}", spec.key)).expect("a valid key");
            if n >= 2 {
                spec.client_key = Note::from_lossy(&format!("order-{}/{n}", n / 2));
            }
            let days = 1 + u32::try_from(random.below(40)).expect("a small number");
            let retention = Retention::new(DAY * days).expect("a valid retention");
            spec.policy = Policy {
                retention,
                ..policy
            };
            if n % 2 == 1 {
                spec.namespace = Namespace::new("other").expect("a valid namespace");
                spec.door = Some(label("cli"));
            }
            let hash = hash(&spec);
            subjects.push(Subject {
                spec,
                hash,
                grants: vec![],
            });
        }
        Self {
            random,
            subjects,
            next_attempt: 1,
            sent: vec![],
            breakers: breakers::targets()
                .map(|(namespace, _)| namespace)
                .into_iter()
                .zip(breakers::hashes())
                .collect(),
        }
    }

    /// Lets some time pass, or makes the clock jump.
    pub fn move_time(&mut self, clock: &ManualClock) {
        let random = &mut self.random;
        match random.weighted(&[300, 120, 40, 12, 6, 6, 6, 3, 2, 2, 2]) {
            0 => {}
            1 => clock.advance(random.up_to(Duration::from_secs(10))),
            2 => clock.advance(random.up_to(MINUTE * 2)),
            3 => clock.advance(random.up_to(HOUR * 3)),
            4 => clock.advance(random.up_to(DAY * 40)),
            5 => clock.jump_back(random.up_to(HOUR)),
            6 => clock.jump_forward(random.up_to(HOUR)),
            7 => clock.jump_back(random.up_to(DAY * 900)),
            8 => clock.jump_forward(random.up_to(DAY * 900)),
            9 => clock.reboot(random.up_to(DAY), random.up_to(MINUTE)),
            // Longer than a tombstone or a stub is kept.
            _ => clock.advance(DAY * 366),
        }
    }

    /// Makes pieces of a stream, now and then, for an attempt that runs.
    pub fn append(&mut self, model: &Model) -> Option<Append> {
        if !self.random.percent(10) {
            return None;
        }
        let subject = self.random.pick(&self.subjects);
        let record = model.record(&subject.hash)?;
        let place = model.place(&subject.hash)?;
        if record.kind() != StateKind::Running {
            return None;
        }
        let fence = record.fence();
        let count = 1 + self.random.below(3);
        let chunks = (0..count)
            .map(|_| {
                let length = *self.random.pick(&[0, 3, 80, 600]);
                Chunk {
                    stream: u8::from(self.random.percent(30)) + 1,
                    bytes: self.random.bytes(length),
                }
            })
            .collect();
        Some(Append {
            place,
            fence,
            chunks,
        })
    }

    /// Makes the next command.
    pub fn command(&mut self, model: &Model) -> Asked {
        // A message that was delayed or duplicated, perhaps from long ago.
        let asked = if self.random.percent(9) && !self.sent.is_empty() {
            self.random.pick(&self.sent).clone()
        } else {
            self.fresh(model)
        };
        self.sent.push(asked.clone());
        asked
    }

    fn fresh(&mut self, model: &Model) -> Asked {
        let kind = self.random.weighted(&WEIGHTS);
        let subject = self.random.index(self.subjects.len());
        match Command::NAMES[kind] {
            "submit" => self.submit(subject, model),
            "begin" => self.begin(subject, model),
            "renew" => self.renew(subject, model),
            "settle" => self.settle(subject, model),
            "expire" => {
                let fence = self.fence(subject, model);
                let gone = self.random.percent(30).then_some(fence);
                self.plain(subject, Command::Expire(Expire { gone }))
            }
            "resolve" => self.resolve(subject, model),
            "retry" => {
                let order = self.order(subject, model);
                self.plain(subject, Command::Retry(order))
            }
            "cancel" => {
                let order = self.order(subject, model);
                self.plain(subject, Command::Cancel(order))
            }
            "forget" => {
                let order = self.order(subject, model);
                self.plain(subject, Command::Forget(order))
            }
            "bury" => {
                let horizon = self.horizon(model);
                self.plain(subject, Command::Bury(horizon))
            }
            "drop" => {
                let horizon = self.horizon(model);
                self.plain(subject, Command::Drop(horizon))
            }
            "deliver" => {
                let marks = [
                    Delivery::Unknown,
                    Delivery::Delivered,
                    Delivery::Undelivered,
                    Delivery::Lapsed,
                ];
                let mark = *self.random.pick(&marks);
                self.plain(subject, Command::Deliver(mark))
            }
            "adopt" => {
                let adopt = Adopt {
                    fence_step: *self.random.pick(&[0, 1, 1 << 32]),
                    by: label("restore"),
                };
                self.plain(subject, Command::Adopt(adopt))
            }
            "breaker" => {
                self.next_attempt += 1;
                breakers::ask(&mut self.random, model, self.next_attempt)
            }
            other => panic!("the stream does not know `{other}`"),
        }
    }

    fn plain(&self, subject: usize, command: Command) -> Asked {
        let subject = &self.subjects[subject];
        let mut asked = Asked::new(subject.hash, command);
        asked.named = Some(subject.spec.key.clone());
        asked
    }

    /// The description of an operation, now and then with another input.
    fn described(&mut self, subject: usize) -> Arc<Spec> {
        let mut spec = self.subjects[subject].spec.clone();
        if self.random.percent(5) {
            spec.fingerprint = Fingerprint(Digest([9; 32]));
        }
        Arc::new(spec)
    }

    fn submit(&mut self, subject: usize, model: &Model) -> Asked {
        let spec = self.described(subject);
        let later = model.now().plus(self.random.up_to(MINUTE));
        let queue = self.random.percent(50).then(|| label("mails"));
        let input = self.random.percent(50).then(|| b"to whom".as_slice());
        let task = queue.is_some().then(|| self.task(input));
        let command = Command::Submit(Submit {
            spec,
            queue,
            run_at: self.random.percent(20).then_some(later),
            task: task.clone(),
        });
        let mut asked = self.plain(subject, command);
        asked.input = input.filter(|_| task.is_some()).map(Into::into);
        asked
    }

    fn task(&mut self, input: Option<&[u8]>) -> Arc<Task> {
        let number = i64::try_from(self.random.below(3)).expect("a small number");
        let lane = self
            .random
            .percent(50)
            .then(|| *self.random.pick(&["ann", "bob"]));
        Arc::new(Task {
            priority: Priority::new(number - 1).expect("a valid priority"),
            lane: lane.map(label),
            input: input.map(Payload::of),
            backoff: Backoff::default(),
        })
    }

    /// What a worker asks for.
    pub fn waiting(&mut self, model: &Model) -> Waiting {
        let random = &mut self.random;
        let namespace = random.pick(&self.subjects).spec.namespace.clone();
        let lane = *random.pick(&[None, Some("ann"), Some("bob")]);
        Waiting {
            queue: QueueHash::of(&namespace, &label("mails")),
            now: model.now(),
            after_lane: lane_hash(lane.map(label).as_ref()),
            skip: random.index(3),
            limit: 1 + random.index(6),
            taken: random.percent(20),
            inputs: true,
        }
    }

    fn begin(&mut self, subject: usize, model: &Model) -> Asked {
        let mut spec = self.described(subject);
        let parent = self.parent(subject, model);
        if let Some((parent, fence)) = &parent {
            let parent = Parent {
                key: parent.key.clone(),
                fence: *fence,
                root: parent.key.clone(),
            };
            Arc::make_mut(&mut spec).parent = Some(parent);
        }
        let own = self.subjects[subject].grants.last().cloned();
        let attempt = match own {
            Some((id, _)) if self.random.percent(10) => id,
            Some(_) | None => {
                self.next_attempt += 1;
                AttemptId::from_random(self.next_attempt)
            }
        };
        let seconds = Duration::from_secs(1 + self.random.below(120));
        let fence = self.fence(subject, model);
        let sighting = self.random.percent(10).then_some(Sighting {
            fence,
            alive: fence.0.is_multiple_of(2),
        });
        let command = Command::Begin(Begin {
            spec,
            attempt,
            lease: Lease::new(seconds).expect("a valid lease"),
            holder: None,
            worker: self.random.percent(60),
            sighting,
        });
        let mut asked = self.plain(subject, command);
        asked.parent = parent.map(|(parent, fence)| (hash(&parent), fence));
        asked
    }

    /// The last operation is a step of the first.
    fn parent(&mut self, subject: usize, model: &Model) -> Option<(Spec, Fence)> {
        if subject + 1 != self.subjects.len() {
            return None;
        }
        Some((self.subjects[0].spec.clone(), self.fence(0, model)))
    }

    /// The fence of the present attempt, now and then another one.
    fn fence(&mut self, subject: usize, model: &Model) -> Fence {
        let present = model
            .record(&self.subjects[subject].hash)
            .map_or(Fence(0), Record::fence);
        if self.random.percent(15) {
            Fence(present.0.wrapping_add(self.random.below(4)).wrapping_sub(2))
        } else {
            present
        }
    }

    /// A grant: mostly the newest, now and then an older one or one that was never given.
    fn grant(&mut self, subject: usize, model: &Model) -> (AttemptId, Fence) {
        let fence = self.fence(subject, model);
        let grants = &self.subjects[subject].grants;
        match (grants.last(), self.random.below(100)) {
            (Some(newest), 0..75) => newest.clone(),
            (Some(_), 75..92) => self.random.pick(grants).clone(),
            (Some((id, _)), 92..97) => (id.clone(), fence),
            (Some(_), _) | (None, _) => (AttemptId::from_random(u128::MAX), fence),
        }
    }

    fn renew(&mut self, subject: usize, model: &Model) -> Asked {
        let (attempt, fence) = self.grant(subject, model);
        let seconds = Duration::from_secs(1 + self.random.below(120));
        let command = Command::Renew(Renew {
            attempt,
            fence,
            lease: Lease::new(seconds).expect("a valid lease"),
        });
        self.plain(subject, command)
    }

    fn settle(&mut self, subject: usize, model: &Model) -> Asked {
        let (attempt, fence) = self.grant(subject, model);
        let error = Note::from_lossy("it broke").filter(|_| self.random.percent(50));
        let (verdict, payload) = match self.random.weighted(&[60, 22, 4, 18]) {
            0 => {
                let place = model.place(&self.subjects[subject].hash);
                let (outcome, payload) = self.outcome(model, place, fence);
                (Verdict::Done(outcome), payload)
            }
            1 => (
                Verdict::NotDone {
                    reject: false,
                    error,
                    retry_after: None,
                },
                None,
            ),
            2 => (
                Verdict::NotDone {
                    reject: true,
                    error,
                    retry_after: None,
                },
                None,
            ),
            _ => (Verdict::Unknown { error }, None),
        };
        let command = Command::Settle(Settle {
            attempt,
            fence,
            verdict,
        });
        let mut asked = self.plain(subject, command);
        asked.payload = payload;
        asked
    }

    fn outcome(
        &mut self,
        model: &Model,
        place: Option<Place>,
        fence: Fence,
    ) -> (Outcome, Option<Brought>) {
        let pieces = place.map_or(&[][..], |place| model.stream(place, fence));
        let (bytes, brought) = if !pieces.is_empty() && self.random.percent(80) {
            let whole = pieces.iter().flat_map(|piece| piece.bytes.clone());
            (Some(whole.collect()), Some(Brought::Stream(fence)))
        } else if self.random.percent(80) {
            let length = *self.random.pick(&[0, 1, 20, 300, 513, 2_000]);
            let bytes = self.random.bytes(length);
            let brought = Brought::Bytes(bytes.as_slice().into());
            (Some(bytes), Some(brought))
        } else {
            (None, None)
        };
        let payload = bytes.map(|bytes: Vec<u8>| Payload::of(&bytes));
        let outcome = Outcome {
            ok: self.random.percent(60),
            effect: *self.random.pick(&Effect::ALL),
            payload,
        };
        (outcome, brought)
    }

    fn order(&mut self, subject: usize, model: &Model) -> Order {
        let present = model
            .record(&self.subjects[subject].hash)
            .map_or(Version(0), Record::version);
        let version = if self.random.percent(15) {
            Version(present.0.wrapping_add(self.random.below(4)).wrapping_sub(2))
        } else {
            present
        };
        Order {
            version,
            by: label(if self.random.percent(50) {
                "ann"
            } else {
                "bob"
            }),
            note: Note::from_lossy("looked it up").filter(|_| self.random.percent(30)),
        }
    }

    fn resolve(&mut self, subject: usize, model: &Model) -> Asked {
        let order = self.order(subject, model);
        let (resolution, payload) = if self.random.percent(50) {
            (Resolution::NotDone, None)
        } else {
            let (outcome, payload) = self.outcome(model, None, Fence(0));
            (Resolution::Done(outcome), payload)
        };
        let mut asked = self.plain(subject, Command::Resolve(Resolve { order, resolution }));
        asked.payload = payload;
        asked
    }

    fn horizon(&mut self, model: &Model) -> Horizon {
        let now = model.now();
        Horizon(match self.random.below(10) {
            0 => now.minus(DAY * 50),
            1 => now.plus(DAY * 50),
            2 => Timestamp(i64::MAX),
            _ => now,
        })
    }

    /// Makes something to list.
    pub fn query(&mut self, model: &Model) -> Query {
        let random = &mut self.random;
        let mut query = Query {
            limit: *random.pick(&[1, 2, 3, 100]),
            oldest_first: random.percent(40),
            ..Query::default()
        };
        match random.below(8) {
            0 => {
                let open = StateKind::ALL.into_iter().filter(|kind| kind.is_open());
                query.states = open.collect();
            }
            1 | 2 => {
                let kinds = StateKind::ALL.into_iter();
                query.states = kinds.filter(|_| random.percent(40)).collect();
            }
            3 => query.namespace = Namespace::new("other").ok(),
            4 => query.prefix = Some((*random.pick(&["order-", "mcp/", "x"])).to_owned()),
            5 => query.queue = Some("mails".to_owned()),
            6 => {
                let names = ["order-1/2", "order-1/3", "order-2/4", "order-1", "x"];
                query.client_key = Some((*random.pick(&names)).to_owned());
            }
            _ => {}
        }
        if random.percent(25) {
            query.since = Some(model.now().minus(random.up_to(DAY * 400)));
        }
        if random.percent(15) {
            query.until = Some(model.now().minus(random.up_to(DAY * 400)));
        }
        if random.percent(30) {
            query.cursor = Some(Place(random.below(model.log().len() as u64 + 2)));
        }
        query
    }

    /// Takes note of an answer, as the caller does.
    pub fn hear(&mut self, asked: &Asked, answered: &Answered) {
        if let (Command::Begin(begin), Ok(Reply::Granted(grant))) =
            (&asked.command, &answered.reply)
        {
            let subject = self.subjects.iter_mut().find(|one| one.hash == asked.key);
            let grants = subject.map(|subject| &mut subject.grants);
            grants
                .expect("every command is for a subject")
                .push((begin.attempt.clone(), grant.fence));
        }
    }

    /// Returns the namespace of an operation or a breaker.
    ///
    /// # Panics
    /// When the stream knows no such one.
    #[must_use]
    pub fn namespace(&self, key: &KeyHash) -> &Namespace {
        let subject = self.subjects.iter().find(|subject| subject.hash == *key);
        let breakers = self.breakers.iter();
        let mut breakers = breakers.filter(|(_, hash)| hash == key);
        let subject = subject.map(|subject| &subject.spec.namespace);
        let breaker = || breakers.next().map(|(namespace, _)| namespace);
        subject.or_else(breaker).expect("it is one of the stream's")
    }

    /// Returns the hash of every operation, and of every breaker.
    pub fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        let operations = self.subjects.iter().map(|subject| subject.hash);
        operations.chain(breakers::hashes())
    }
}
