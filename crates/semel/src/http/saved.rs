//! What is saved by an answer that is given again, or that somebody joins.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::Frame;
use semel_core::http::{Price, Usage};
use semel_core::identity::Door;
use semel_core::{Currency, Key, Label, Money, Namespace};
use tokio::runtime::Handle;

use super::BodyError;
use super::guard::Inner;
use super::live::Reader;
use super::stored::Head;
use crate::engine::{Engine, Saved, Saver, took};
use crate::receipt::Receipt;

/// Says what answers of an upstream are counted for.
pub(super) fn saver(engine: &Engine, target: &str) -> Saver {
    let door = Label::new(Door::Proxy.as_str()).expect("it is a word");
    let name = Label::new(&target[..target.floor_char_boundary(Label::MAX_BYTES)]);
    let name = name.ok().map(|name| engine.redactor().label(&name));
    Saver::new(door, name)
}

impl Inner {
    /// Counts an answer that is given from the ledger.
    pub(super) fn count_replay(&self, receipt: &Receipt) {
        let stored = receipt.payload.as_deref().unwrap_or_default();
        let saved = match Head::read(stored) {
            Some((head, start)) => {
                let took = match (receipt.started_at, receipt.settled_at) {
                    (Some(started), Some(settled)) => settled.since(started),
                    (Some(_) | None, _) => Duration::ZERO,
                };
                Saved::call(took, self.cost(&head, &stored[start..]))
            }
            // Somebody looked it up or decided it.
            None => Saved::call(Duration::ZERO, None),
        };
        self.doorway.engine().count_saved(&self.saver, &saved);
    }

    /// Counts an answer that somebody joined, and that is stored by now. What cannot be read is not counted.
    async fn count_join(&self, namespace: &Namespace, key: &Key) -> crate::Result<()> {
        let engine = self.doorway.engine();
        let Some(record) = engine.load(namespace, key).await? else {
            return Ok(());
        };
        let stored = match self.rules.price {
            Some(_) => engine.payload(namespace, key).await?,
            None => None,
        };
        let stored = stored.unwrap_or_default();
        let money =
            Head::read(&stored).and_then(|(head, start)| self.cost(&head, &stored[start..]));
        engine.count_saved(&self.saver, &Saved::call(took(&record), money));
        Ok(())
    }

    /// Returns what an answer cost. One that is no success costs nothing, and of one that was not kept it is
    /// known that it was a call.
    fn cost(&self, head: &Head, stored: &[u8]) -> Option<(Currency, Money)> {
        let price = self.rules.price.as_ref();
        let price = price.filter(|_| head.status.is_success())?;
        Some((price.currency, cost(price, head, stored)))
    }
}

fn cost(price: &Price, head: &Head, stored: &[u8]) -> Money {
    let text = |name: HeaderName| value(&head.headers, name);
    let body = head.body(stored).unwrap_or_default();
    let usage = Usage::read(
        text(header::CONTENT_TYPE),
        text(header::CONTENT_ENCODING),
        &body,
    );
    price.of(&usage)
}

fn value(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The rest of an answer that somebody joined: at its end, it is counted.
pub(super) struct Joined {
    reader: Reader,
    counting: Option<Counting>,
}

struct Counting {
    inner: Arc<Inner>,
    namespace: Namespace,
    key: Key,
    runtime: Handle,
}

impl Joined {
    pub(super) fn new(
        inner: &Arc<Inner>,
        namespace: &Namespace,
        key: &Key,
        reader: Reader,
    ) -> Self {
        let counting = Counting {
            inner: Arc::clone(inner),
            namespace: namespace.clone(),
            key: key.clone(),
            // Whoever reads it may not be within the runtime.
            runtime: Handle::current(),
        };
        Self {
            reader,
            counting: Some(counting),
        }
    }
}

impl Counting {
    fn start(self) {
        let Self {
            inner,
            namespace,
            key,
            runtime,
        } = self;
        // Whoever waits for the end of everything waits for this as well.
        let place = inner.place().ok();
        runtime.spawn(async move {
            // A count may be lost, as after a crash.
            drop(inner.count_join(&namespace, &key).await);
            drop(place);
        });
    }
}

impl http_body::Body for Joined {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.reader).poll_frame(context));
        // A client that stops at the last event does not wait for the end behind it.
        if self.reader.has_all()
            && let Some(counting) = self.counting.take()
        {
            counting.start();
        }
        Poll::Ready(frame)
    }
}
