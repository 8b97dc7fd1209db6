//! A target that is down when the test says so, and counts what it gets; in virtual time.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Bytes;
use semel::breaker::{Settings, Target as Named};
use semel::clock::Clock;
use semel::core::clock::Reading;
use semel::core::ledger::{Event, Operation, StateKind};
use semel::store::memory::MemoryStore;
use semel::{Engine, Key, Label, OnDoubt, QueueSettings, Queueing, Request, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::outbound::{Lost, Url};
use crate::push::courier::Courier;
use crate::push::delivery::Desk;
use crate::push::parcel::Parcel;
use crate::push::transport::{Answer, Body, Connection, Transport};
use crate::push::{Counts, Push};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// The clock that tokio stops and winds forward.
#[derive(Debug)]
struct Virtual(Instant);

impl Clock for Virtual {
    fn read(&self) -> Reading {
        let uptime = self.0.elapsed();
        let started: Timestamp = "2026-11-15T10:00:00Z".parse().expect("it is a time");
        Reading {
            wall: started.plus(uptime),
            boot: 1,
            uptime,
        }
    }
}

/// How a target fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// Nobody is there.
    Refuses,
    /// Somebody is there who can do nothing.
    Answers(u16),
}

/// What a target got, counted by itself.
#[derive(Debug, Default)]
pub(super) struct Got {
    /// When it was called: a connection that was refused, or a request.
    pub(super) calls: Vec<Instant>,
    /// Effects by key.
    pub(super) effects: BTreeMap<String, usize>,
    now: usize,
    pub(super) most_at_once: usize,
}

#[derive(Debug)]
pub(super) struct Target {
    down: Mutex<Option<Down>>,
    takes: Duration,
    got: Mutex<Got>,
}

#[derive(Clone, Debug)]
pub(super) struct Way(pub(super) Arc<Target>);

impl Way {
    pub(super) fn new(takes: Duration) -> Self {
        Self(Arc::new(Target {
            down: Mutex::new(None),
            takes,
            got: Mutex::default(),
        }))
    }

    pub(super) fn got(&self) -> MutexGuard<'_, Got> {
        self.0.got.lock().expect("nobody panics with it")
    }

    pub(super) fn set(&self, down: Option<Down>) {
        *self.0.down.lock().expect("nobody panics with it") = down;
    }

    fn down(&self) -> Option<Down> {
        *self.0.down.lock().expect("nobody panics with it")
    }
}

impl Transport for Way {
    type Connection = Self;

    async fn reach(&self, _until: Instant) -> Result<Self, Lost> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.down() == Some(Down::Refuses) {
            self.got().calls.push(Instant::now());
            return Err(Lost::unsent("nobody is there"));
        }
        Ok(self.clone())
    }

    fn place(&self) -> String {
        "target".to_owned()
    }
}

impl Connection for Way {
    async fn send(self, parcel: Parcel, _until: Instant) -> Result<Answer, Lost> {
        {
            let mut got = self.got();
            got.calls.push(Instant::now());
            got.now += 1;
            got.most_at_once = got.most_at_once.max(got.now);
        }
        tokio::time::sleep(self.0.takes).await;
        let down = self.down();
        let mut got = self.got();
        got.now -= 1;
        let status = match down {
            None => {
                let key = parcel.headers.iter();
                let mut key = key.filter(|(name, _)| name == "idempotency-key");
                let (_, key) = key.next().expect("every task has a key");
                let key = key.to_str().expect("it is text").to_owned();
                *got.effects.entry(key).or_default() += 1;
                200
            }
            Some(Down::Refuses) => return Err(Lost::sent("it went away")),
            Some(Down::Answers(status)) => status,
        };
        Ok(Answer {
            status,
            retry_after: None,
            effect: None,
            body: Body::Whole(Bytes::from_static(b"{\"sent\":true}")),
        })
    }
}

/// A ledger, a queue that is pushed, and its target.
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) way: Way,
    pub(super) counts: Arc<Counts>,
    push: Arc<Push>,
    stop: watch::Sender<bool>,
    courier: Option<JoinHandle<()>>,
}

fn queue() -> Label {
    Label::new("mail").expect("a label")
}

impl World {
    pub(super) async fn new(way: Way, settings: QueueSettings) -> Self {
        let clock = Arc::new(Virtual(Instant::now()));
        let builder = Engine::builder().store(Arc::new(MemoryStore::new(clock)));
        let builder = builder.sweep_every(None).queue(queue(), settings);
        let engine = builder.start().await.expect("it starts");
        let breaker = Key::new("queue/mail").expect("a key");
        let push = Push {
            namespace: engine.namespace(),
            queue: queue(),
            url: Url::parse("http://target/").expect("a URL"),
            secret: None,
            timeout: Push::TIMEOUT,
            concurrency: Push::CONCURRENCY,
            breaker: Named::new(breaker, Settings::default()).expect("they are of use"),
        };
        Self {
            engine,
            way,
            counts: Arc::default(),
            push: Arc::new(push),
            stop: watch::channel(false).0,
            courier: None,
        }
    }

    pub(super) fn breaker(&self) -> semel::breaker::Breaker {
        let push = &self.push;
        self.engine.breaker_in(&push.namespace, &push.breaker)
    }

    pub(super) fn start(&mut self) {
        let desk = Desk::new(
            self.engine.clone(),
            Arc::clone(&self.push),
            self.way.clone(),
            Arc::clone(&self.counts),
            self.stop.subscribe(),
        );
        self.courier = Some(tokio::spawn(Courier::new(desk).run()));
    }

    /// Tells the courier to stop, and follows it to its end.
    pub(super) async fn stop(&mut self) {
        self.stop.send_replace(true);
        let courier = self.courier.take().expect("it was started");
        courier.await.expect("it does not panic");
    }

    pub(super) async fn submit(&self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let request = Request::new("mail", Key::new(&key).expect("a key")).input(&key);
            let submitted = self.engine.submit(request, Queueing::on(queue())).await;
            submitted.expect("it is taken");
        }
    }

    pub(super) async fn record(&self, key: &str) -> Operation {
        let key = Key::new(key).expect("a key");
        let record = self.engine.load(&self.push.namespace, &key).await;
        let record = record.expect("the store works").expect("it is there");
        record.operation().expect("it is an operation").clone()
    }

    pub(super) async fn state(&self, key: &str) -> StateKind {
        let now = self.engine.store().now();
        self.record(key).await.kind_at(now)
    }

    /// How often something was written to the log.
    pub(super) fn events(&self, event: Event) -> u64 {
        let tally = self.engine.tally();
        let found = tally.events().find(|(known, _)| *known == event);
        found.map_or(0, |(_, count)| count)
    }

    /// Waits in virtual time until all of these are settled in success.
    pub(super) async fn all_succeeded(&self, keys: &[String]) {
        let end = Instant::now() + 12 * HOUR;
        for key in keys {
            while self.state(key).await != StateKind::Succeeded {
                assert!(Instant::now() < end, "{key}: {:?}", self.record(key).await);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

pub(super) fn retrying() -> QueueSettings {
    QueueSettings {
        on_doubt: Some(OnDoubt::Retry),
        ..QueueSettings::default()
    }
}

pub(super) fn attempts(most: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(most)
}
