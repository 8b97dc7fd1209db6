//! Spans of requests, sent to a collector (OTLP over HTTP, as JSON).
//!
//! A span names the hash of a key, never the key. What cannot be sent is dropped and counted: a collector that
//! is slow or gone costs callers nothing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::Method;
use semel::core::KeyHash;
use semel::trace::Trace;
use semel::{Key, Namespace, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::outbound::Outbound;

/// How many spans may wait to be sent.
const WAITING_MAX: usize = 4_096;

/// How many spans are sent together.
const BATCH_MAX: usize = 512;

/// How long spans wait for others to be sent with.
const PAUSE: Duration = Duration::from_secs(1);

/// What a request was about, as far as it was about one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    calls: u32,
    hash: Option<KeyHash>,
    decision: Option<&'static str>,
}

tokio::task_local! {
    static ABOUT: RefCell<About>;
}

/// Does the work of a request and finds out what it was about.
pub(crate) async fn watched<F: Future>(work: F) -> (F::Output, About) {
    let work = async {
        let done = work.await;
        (done, ABOUT.with(|about| *about.borrow()))
    };
    ABOUT.scope(RefCell::default(), work).await
}

/// Says which operation a call is about.
pub(crate) fn about(namespace: &Namespace, key: &Key) {
    // Calls that nobody watches are about nothing.
    let _unwatched = ABOUT.try_with(|about| {
        let mut about = about.borrow_mut();
        about.calls += 1;
        about.hash = Some(KeyHash::of(namespace, key));
    });
}

/// Says what a begin was answered.
pub(crate) fn decided(answer: &'static str) {
    let _unwatched = ABOUT.try_with(|about| about.borrow_mut().decision = Some(answer));
}

/// What one request was.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) trace: Trace,
    pub(crate) method: Method,
    pub(crate) route: String,
    pub(crate) status: u16,
    pub(crate) ended: Timestamp,
    pub(crate) took: Duration,
    pub(crate) about: About,
}

/// Takes spans and has them sent.
#[derive(Debug, Default)]
pub(crate) struct Exporter {
    queue: OnceLock<mpsc::Sender<Span>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// The sending that is under way.
#[derive(Debug)]
pub(crate) struct Exporting {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Returns where spans are sent to, if anywhere.
pub(crate) fn destination(config: &Config) -> Result<Option<Outbound>, String> {
    config.otlp.clone().map(Outbound::new).transpose()
}

impl Exporter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts to send.
    pub(crate) fn start(&self, to: Outbound) -> Exporting {
        let (queue, spans) = mpsc::channel(WAITING_MAX);
        self.queue.get_or_init(|| queue);
        let (finish, finished) = oneshot::channel();
        let counts = Arc::clone(&self.counts);
        let task = tokio::spawn(send_all(to, spans, finished, counts));
        Exporting { finish, task }
    }

    /// Takes a span, unless its caller said that its trace is not recorded.
    pub(crate) fn add(&self, span: impl FnOnce() -> Span, trace: Trace) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        if trace.is_recorded() && queue.try_send(span()).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 2] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("exported", read(&self.counts.exported)),
            ("dropped", read(&self.counts.dropped)),
        ]
    }
}

impl Exporting {
    /// Sends what still waits.
    pub(crate) async fn finish(self) {
        // One that broke down sends nothing any more.
        let _broken = self.finish.send(());
        drop(self.task.await);
    }
}

async fn send_all(
    to: Outbound,
    mut spans: mpsc::Receiver<Span>,
    mut finished: oneshot::Receiver<()>,
    counts: Arc<Counts>,
) {
    let mut is_last = false;
    while !is_last {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = &mut finished => is_last = true,
        }
        loop {
            let mut batch = vec![];
            while batch.len() < BATCH_MAX
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                break;
            }
            send(&to, &batch, &counts).await;
        }
    }
}

async fn send(to: &Outbound, batch: &[Span], counts: &Counts) {
    let size = batch.len() as u64;
    let body = written(batch).to_string();
    let problem = match to.post(&[], body.into()).await {
        Ok(status) if status.is_success() => {
            counts.exported.fetch_add(size, Ordering::Relaxed);
            return;
        }
        Ok(status) => status.to_string(),
        Err(lost) => lost.error,
    };
    counts.dropped.fetch_add(size, Ordering::Relaxed);
    tracing::debug!(problem, size, "spans could not be sent");
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn written(batch: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<_> = batch.iter().map(Span::written).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "semel"), text("service.version", version)]},
        "scopeSpans": [{"scope": {"name": "semel", "version": version}, "spans": spans}],
    }]})
}

impl Span {
    fn written(&self) -> Value {
        /// A span of a server that answers somebody.
        const SERVER: u8 = 2;
        const FAILED: u8 = 2;
        let nanos = |at: Timestamp| (i128::from(at.0) * 1_000).to_string();
        let mut attributes = vec![
            text("http.request.method", self.method.as_str()),
            text("http.route", &self.route),
            json!({"key": "http.response.status_code", "value": {"intValue": self.status.to_string()}}),
        ];
        let about = &self.about;
        match about.hash {
            Some(hash) if about.calls == 1 => {
                attributes.push(text("semel.key_hash", &hash.0.hex()));
                attributes.extend(about.decision.map(|word| text("semel.decision", word)));
            }
            Some(_) | None => {
                let calls = about.calls.to_string();
                attributes.push(json!({"key": "semel.calls", "value": {"intValue": calls}}));
            }
        }
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace.id()),
            "spanId": format!("{:016x}", self.trace.span()),
            "name": format!("{} {}", self.method, self.route),
            "kind": SERVER,
            "startTimeUnixNano": nanos(self.ended.minus(self.took)),
            "endTimeUnixNano": nanos(self.ended),
            "attributes": attributes,
        });
        if let Some(parent) = self.trace.parent() {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if self.status >= 500 {
            span["status"] = json!({"code": FAILED});
        }
        span
    }
}
