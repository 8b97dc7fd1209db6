//! Connections of HTTP/2, each of which carries many requests at a time.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::http::{Request, Response};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use semel::http::Body;
use tokio::sync::{Notify, mpsc};

use super::failure::{Failure, connection_broke, turned_away, words};
use super::task::Task;
use super::wire::{Gate, Look};
use crate::listener::Stream;
use crate::locked::locked;

/// The most requests on one connection, whatever its server allows: a lost packet holds up all of them.
const STREAMS_MAX: usize = 200;

/// The largest head of an answer, in bytes.
const HEAD_MAX: u32 = 256 * 1024;

/// How often a server is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);

/// How long a connection without requests is used again. It is pinged meanwhile, and a server that goes away says
/// which requests it has not looked at.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// All connections to one server.
#[derive(Debug, Default)]
pub(super) struct Trunks {
    all: Mutex<Vec<Arc<Trunk>>>,
    freed: Notify,
}

/// One connection. It is closed when nobody holds it any more.
#[derive(Debug)]
struct Trunk {
    sender: SendRequest<Body>,
    gate: Gate,
    /// How many requests there may be, as the server says.
    streams_max: AtomicUsize,
    streams: AtomicUsize,
    unused_since: Mutex<Instant>,
    task: Mutex<Option<Task>>,
}

/// The place of one request on a connection.
#[derive(Debug)]
pub(super) struct Track {
    trunk: Arc<Trunk>,
    trunks: Weak<Trunks>,
}

impl Trunks {
    /// Takes a place on a connection that has one.
    pub(super) fn place(self: &Arc<Self>) -> Option<Track> {
        let mut all = locked(&self.all);
        let closed: Vec<_> = all.extract_if(.., |trunk| !trunk.is_usable()).collect();
        let found = all.iter().find(|trunk| trunk.has_room());
        let track = found.map(|trunk| self.track(trunk));
        drop(all);
        drop(closed);
        track
    }

    /// Waits until there may be a place; begins to wait at once.
    pub(super) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.all).len()
    }

    /// Makes a connection of an open stream, and takes the first place on it.
    pub(super) async fn add(
        self: &Arc<Self>,
        stream: Box<dyn Stream>,
        gate: Gate,
    ) -> Result<Track, hyper::Error> {
        let (together, others) = mpsc::unbounded_channel();
        let (sender, connection) = Builder::new(Together(together))
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_MAX)
            .keep_alive_while_idle(true)
            .max_header_list_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let trunk = Arc::new(Trunk {
            sender,
            gate,
            streams_max: AtomicUsize::new(connection.current_max_send_streams()),
            streams: AtomicUsize::new(0),
            unused_since: Mutex::new(Instant::now()),
            task: Mutex::default(),
        });
        let tending = tend(
            connection,
            others,
            Arc::downgrade(&trunk),
            Arc::downgrade(self),
        );
        *locked(&trunk.task) = Some(Task::spawn(tending));
        let track = self.track(&trunk);
        locked(&self.all).push(trunk);
        Ok(track)
    }

    fn track(self: &Arc<Self>, trunk: &Arc<Trunk>) -> Track {
        trunk.streams.fetch_add(1, Ordering::AcqRel);
        Track {
            trunk: Arc::clone(trunk),
            trunks: Arc::downgrade(self),
        }
    }
}

impl Trunk {
    fn has_room(&self) -> bool {
        let streams_max = self.streams_max.load(Ordering::Acquire).min(STREAMS_MAX);
        self.streams.load(Ordering::Acquire) < streams_max
    }

    fn is_usable(&self) -> bool {
        if self.sender.is_closed() || self.gate.look() == Look::Closed {
            return false;
        }
        let unused = locked(&self.unused_since).elapsed();
        self.streams.load(Ordering::Acquire) > 0 || unused < IDLE_MAX
    }
}

impl Track {
    /// Sends a request and returns the head of its answer.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        let left = self.trunk.gate.left();
        let mut sender = self.trunk.sender.clone();
        let mut failed = match sender.try_send_request(request).await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let unsent = failed.take_message();
        let error = failed.into_error();
        let why = words(&error);
        Err(match unsent {
            Some(request) => Failure::GivenBack(Box::new(request), why),
            None if turned_away(&error) => Failure::NotSent(why),
            // Other requests may have left meanwhile. A gate is shut on a broken connection only: they all fail.
            None if connection_broke(&error) && self.trunk.gate.held_back_since(left) => {
                Failure::NotSent(why)
            }
            None => Failure::Lost(why),
        })
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        *locked(&self.trunk.unused_since) = Instant::now();
        self.trunk.streams.fetch_sub(1, Ordering::AcqRel);
        if let Some(trunks) = self.trunks.upgrade() {
            trunks.freed.notify_waiters();
        }
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets all that belongs to a connection run in one task.
///
/// That is more than thrift. Between the moment when a stream is queued and the one when its sender looks whether the
/// connection still stands, nothing can be written and no GOAWAY can be read: whoever learns of one then knows that
/// nothing of the stream has left.
#[derive(Clone)]
struct Together(mpsc::UnboundedSender<Work>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Together {
    fn execute(&self, work: F) {
        // When the connection's task is gone, so is everything that could be done.
        drop(self.0.send(Box::pin(work)));
    }
}

/// Drives a connection.
async fn tend(
    connection: Connection<TokioIo<Box<dyn Stream>>, Body, Together>,
    mut others: mpsc::UnboundedReceiver<Work>,
    trunk: Weak<Trunk>,
    trunks: Weak<Trunks>,
) {
    let mut connection = pin!(connection);
    let mut working = FuturesUnordered::new();
    let mut is_over = false;
    std::future::poll_fn(|context| {
        loop {
            // What goes wrong on it is told to whoever waits for an answer.
            is_over = is_over || connection.as_mut().poll(context).is_ready();
            let begun = take_all(&mut others, &mut working, context);
            while let Poll::Ready(Some(())) = working.poll_next_unpin(context) {}
            if !begun {
                break;
            }
        }
        if !is_over {
            learn(connection.current_max_send_streams(), &trunk, &trunks);
        }
        if is_over && working.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Takes over what is to be done; says whether there was something.
fn take_all(
    others: &mut mpsc::UnboundedReceiver<Work>,
    working: &mut FuturesUnordered<Work>,
    context: &mut Context<'_>,
) -> bool {
    let mut any = false;
    while let Poll::Ready(Some(work)) = others.poll_recv(context) {
        working.push(work);
        any = true;
    }
    any
}

/// Takes note of how many requests a server allows.
fn learn(streams_max: usize, trunk: &Weak<Trunk>, trunks: &Weak<Trunks>) {
    let Some(trunk) = trunk.upgrade() else { return };
    let before = trunk.streams_max.swap(streams_max, Ordering::AcqRel);
    if before < streams_max
        && let Some(trunks) = trunks.upgrade()
    {
        trunks.freed.notify_waiters();
    }
}
