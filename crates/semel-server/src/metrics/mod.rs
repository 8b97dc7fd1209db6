//! What the server counts, for Prometheus and those who read like it.
//!
//! Labels come from fixed sets: nothing that a caller writes becomes one.

mod histogram;
mod known;
mod proxied;
mod received;
mod saved;
mod standing;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use semel::Namespace;
use semel::core::ledger::{Event, StateKind};

use self::histogram::{Histogram, Read};
pub(crate) use self::proxied::Proxied;
use self::received::Received;
use self::standing::LastLooks;
pub(crate) use self::standing::doubt_since;
use self::text::Text;
use crate::http::{Server, codes};
use crate::{notify, push};

/// What begins are answered besides problems.
const DECISIONS: [&str; 3] = ["execute", "probe", "replay"];

/// The calls whose answers can be ones that were given before.
const CALLS: [&str; 3] = ["begin", "settle", "submit"];

/// The classes of status codes.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The route of a request that has none.
const NOWHERE: &str = "none";

/// Counts what happened.
#[derive(Debug)]
pub(crate) struct Counts {
    begins: Words,
    replays: Words,
    settlements: Words,
    leased: AtomicU64,
    routes: RwLock<BTreeMap<String, Arc<Route>>>,
    refused_tokens: AtomicU64,
    store: Histogram,
    store_failures: AtomicU64,
    connections: AtomicU64,
    notify: Arc<notify::Counts>,
    push: Arc<push::Counts>,
    proxied: OnceLock<Arc<Proxied>>,
    received: Received,
    seen: LastLooks,
}

/// Counts for each word of a fixed set.
#[derive(Debug)]
struct Words(Vec<(&'static str, AtomicU64)>);

impl Words {
    fn new(words: impl IntoIterator<Item = &'static str>) -> Self {
        let words = words.into_iter();
        Self(words.map(|word| (word, AtomicU64::new(0))).collect())
    }

    /// Counts a word; returns how many there are by now.
    fn add(&self, word: &str) -> u64 {
        let count = self.0.iter().find(|(known, _)| *known == word);
        count.map_or(0, |(_, count)| count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = self.0.iter();
        words.map(|(word, count)| (*word, count.load(Ordering::Relaxed)))
    }
}

/// Counts the requests of one route.
#[derive(Debug, Default)]
struct Route {
    classes: [AtomicU64; CLASSES.len()],
    took: Histogram,
}

/// Counts a connection as long as it is open.
#[derive(Debug)]
pub(crate) struct Connected(Server);

impl Drop for Connected {
    fn drop(&mut self) {
        let counts = self.0.counts();
        counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            begins: Words::new(DECISIONS.into_iter().chain(codes())),
            replays: Words::new(CALLS),
            settlements: Words::new(StateKind::OPERATIONS.map(StateKind::as_str)),
            leased: AtomicU64::new(0),
            routes: RwLock::default(),
            refused_tokens: AtomicU64::new(0),
            store: Histogram::default(),
            store_failures: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            notify: Arc::default(),
            push: Arc::default(),
            proxied: OnceLock::new(),
            received: Received::default(),
            seen: LastLooks::default(),
        }
    }

    /// Counts what is told.
    pub(crate) fn notify(&self) -> &Arc<notify::Counts> {
        &self.notify
    }

    /// Counts what is sent for push queues.
    pub(crate) fn push(&self) -> &Arc<push::Counts> {
        &self.push
    }

    /// Tells of the requests through a proxy as well, that of this process.
    pub(crate) fn beside(&self, proxied: Arc<Proxied>) {
        self.proxied.get_or_init(|| proxied);
    }

    /// Counts the webhooks.
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }

    /// Counts a begin by what it was answered.
    pub(crate) fn begun(&self, answer: &'static str) {
        self.begins.add(answer);
        if answer == "replay" {
            self.replayed("begin");
        }
    }

    /// Counts an answer that was given before.
    pub(crate) fn replayed(&self, call: &'static str) {
        self.replays.add(call);
    }

    pub(crate) fn settled(&self, state: StateKind) {
        self.settlements.add(state.as_str());
    }

    /// Counts tasks that were handed to a worker.
    pub(crate) fn leased(&self, tasks: usize) {
        self.leased.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// Counts a request by the pattern of its route.
    pub(crate) fn answered(&self, path: &str, status: u16, took: Duration) {
        let route = self.route(if path.is_empty() { NOWHERE } else { path });
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        route.classes[class].fetch_add(1, Ordering::Relaxed);
        route.took.add(took);
    }

    /// There are as many routes as the router has patterns.
    fn route(&self, path: &str) -> Arc<Route> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = routes.get(path) {
            return Arc::clone(route);
        }
        drop(routes);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(routes.entry(path.to_owned()).or_default())
    }

    /// Counts a call with a token that is not valid.
    pub(crate) fn refused_token(&self) {
        self.refused_tokens.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn store_took(&self, took: Duration) {
        self.store.add(took);
    }

    pub(crate) fn store_failed(&self) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connected(server: &Server) -> Connected {
        let counts = server.counts();
        counts.connections.fetch_add(1, Ordering::Relaxed);
        Connected(server.clone())
    }
}

/// Writes all metrics; what the store holds is counted in one namespace, or in all of them.
pub(crate) async fn text(server: &Server, namespace: Option<&Namespace>) -> String {
    let counts = server.counts();
    let standing = counts.seen.look(server, namespace).await;
    let mut text = Text::default();
    text.metric(&known::BUILD_INFO);
    let version = env!("CARGO_PKG_VERSION");
    text.sample(&known::BUILD_INFO, &[("version", version)], 1);
    calls(&mut text, server);
    requests(&mut text, counts);
    store(&mut text, server);
    text.one(&known::STORE_UP, u8::from(standing.is_some()));
    if let Some(standing) = standing {
        text.one(&known::DOUBTS_OPEN, standing.doubts);
        text.one(&known::DOUBT_AGE, standing.doubt_age.as_secs_f64());
        text.one(&known::DEAD, standing.dead);
        text.one(&known::QUEUE_DEPTH, standing.queued);
        text.one(&known::QUEUE_LAG, standing.queue_lag.as_secs_f64());
        text.each(&known::BREAKERS, "state", standing.breakers());
    }
    proxied::write(&mut text, counts.proxied.get().map(|proxied| &**proxied));
    received::write(&mut text, counts.received());
    let connections = counts.connections.load(Ordering::Relaxed);
    text.one(&known::CONNECTIONS, connections);
    text.one(&known::STREAMS, server.streams_open());
    let told = counts.notify();
    text.each(&known::NOTIFY_DELIVERIES, "channel", told.deliveries());
    text.each(&known::NOTIFY_FAILURES, "channel", told.failures());
    text.one(&known::NOTIFY_WAITING, told.waiting());
    let pushed = counts.push();
    text.each(&known::PUSH_DELIVERIES, "verdict", pushed.deliveries());
    text.one(&known::PUSH_UNDER_WAY, pushed.under_way());
    text.one(&known::PUSH_PROBES, pushed.probes());
    let spans = server.exporter().counts();
    text.each(&known::TRACE_SPANS, "outcome", spans);
    text.done()
}

/// What was asked of the ledger and what came of it.
fn calls(text: &mut Text, server: &Server) {
    let (counts, tally) = (server.counts(), server.engine().tally());
    text.each(&known::BEGINS, "answer", counts.begins.read());
    text.each(&known::REPLAYS, "call", counts.replays.read());
    saved::write(text, &server.engine().replayed_here());
    text.each(&known::SETTLEMENTS, "state", counts.settlements.read());
    let leased = counts.leased.load(Ordering::Relaxed);
    text.one(&known::TASKS_LEASED, leased);
    let written = |wanted| {
        let found = tally.events().find(|(event, _)| *event == wanted);
        found.map_or(0, |(_, count)| count)
    };
    text.one(&known::CONFLICTS, written(Event::Conflict));
    let fenced = tally.refusals().find(|(code, _)| *code == "fenced");
    text.one(&known::FENCED, fenced.map_or(0, |(_, count)| count));
    let events = tally.events();
    let events = events.map(|(event, count)| (event.as_str(), count));
    text.each(&known::EVENTS, "event", events);
    text.each(&known::REFUSALS, "code", tally.refusals());
}

fn requests(text: &mut Text, counts: &Counts) {
    let routes = counts.routes.read().unwrap_or_else(PoisonError::into_inner);
    text.metric(&known::REQUESTS);
    for (path, route) in &*routes {
        for (class, count) in CLASSES.iter().zip(&route.classes) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let labels = [("route", path.as_str()), ("status", class)];
                text.sample(&known::REQUESTS, &labels, count);
            }
        }
    }
    let refused = counts.refused_tokens.load(Ordering::Relaxed);
    text.one(&known::TOKENS_REFUSED, refused);
    text.metric(&known::REQUEST_SECONDS);
    for (path, route) in &*routes {
        let labels = [("route", path.as_str())];
        text.histogram(&known::REQUEST_SECONDS, &labels, &route.took.read());
    }
}

fn store(text: &mut Text, server: &Server) {
    let counts = server.counts();
    text.metric(&known::STORE_SECONDS);
    text.histogram(&known::STORE_SECONDS, &[], &counts.store.read());
    let failures = counts.store_failures.load(Ordering::Relaxed);
    text.one(&known::STORE_FAILURES, failures);
    if let Some(sizes) = server.engine().store().sizes() {
        text.metric(&known::STORE_GROUP_SIZE);
        text.histogram(&known::STORE_GROUP_SIZE, &[], &Read::of_sizes(sizes));
    }
}

#[cfg(test)]
mod tests;
