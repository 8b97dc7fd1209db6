//! The client at our standard input and output.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::core::identity::Observation;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::answer;
use super::gateway::{Gateway, InHand, Session};
use super::http::cancelled;
use super::http::desk::{Asked, Call as _, Desk as _};
use super::lines::{Line, Lines};
use super::message::{Kind, Message};
use super::say;
use super::upstream::{Headers, WAITING_MAX};
use crate::proof::Witness as _;

/// The most answers whose receipt is still to be proved.
const UNPROVED_MAX: usize = 1_024;

/// The pauses after which it is looked whether the client has read an answer; the next message or the
/// end of the conversation tells otherwise.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(2),
];

/// Says how many bytes of what was written wait to be read; `None` where that cannot be known.
pub(crate) type Unread = Arc<dyn Fn() -> Option<usize> + Send + Sync>;

/// A client that speaks in lines.
pub(crate) struct Stdio {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    out: mpsc::Sender<Out>,
    calls: Arc<Calls>,
}

/// How much is written at once: what a pipe holds.
const BATCH_MAX: usize = 64 * 1024;

/// The calls of this client that the gateway has in hand, and those that were answered.
#[derive(Default)]
struct Calls {
    open: Mutex<HashMap<String, Arc<InHand>>>,
    answered: Mutex<Answered>,
    /// Says that there are answers whose receipt is to be proved.
    flushed: Notify,
}

/// The calls that were answered, the oldest first.
#[derive(Default)]
struct Answered {
    calls: VecDeque<Arc<InHand>>,
    /// How many of them, from the oldest on, are written whole; the others are about to be.
    written: usize,
}

/// Something to be written.
enum Out {
    Message(Message),
    /// The answer to a call.
    Answer(Message, Arc<InHand>),
}

/// Serves a client until it closes its output or `stop` is done; then calls that act are followed to
/// their end for at most `drain`, and the server is ended by `end`.
pub(crate) async fn serve<R, W>(
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    unasked: mpsc::Receiver<Message>,
    (input, output, unread): (R, W, Unread),
    stop: impl Future<Output = ()>,
    drain: Duration,
    end: impl Future<Output = ()>,
) where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, waiting) = mpsc::channel(WAITING_MAX);
    let calls = Arc::new(Calls::default());
    let mut writing = tokio::spawn(write(output, waiting, unasked, Arc::clone(&calls)));
    let looking = tokio::spawn(look(Arc::clone(&calls), Arc::clone(&unread)));
    let mut client = Stdio {
        gateway,
        session,
        out,
        calls: Arc::clone(&calls),
    };
    let mut lines = Lines::new(input);
    let mut answering = JoinSet::new();
    tokio::select! {
        () = client.read(&mut lines, &mut answering) => {}
        () = stop => {}
    }
    // Whoever closed its side may still read, but nothing proves it any more; what runs is followed to its end.
    calls.closed();
    let over = async { while answering.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, over).await.is_err() {
        tracing::warn!("some calls had no answer yet when the gateway ended");
    }
    answering.shutdown().await;
    // What was only passed on is answered until the server has ended.
    end.await;
    drop(client);
    // It ends once nothing is left to be written, unless nobody reads.
    if tokio::time::timeout(drain, &mut writing).await.is_err() {
        tracing::warn!("the client did not read what it was sent");
        writing.abort();
    }
    looking.abort();
    calls.prove(&unread);
    for call in locked(&calls.answered).take() {
        // It changes nothing where the receipt is proved.
        call.see(Observation::Closed);
    }
}

impl Stdio {
    async fn read<R: AsyncRead + Unpin>(
        &mut self,
        lines: &mut Lines<R>,
        answering: &mut JoinSet<()>,
    ) {
        loop {
            match lines.next().await {
                Ok(Some(Line::Message(message))) => self.take(message, answering).await,
                Ok(Some(Line::Noise(noise))) => {
                    self.say(answer::malformed(noise.id.as_deref(), &noise.why))
                        .await;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the client cannot be read");
                    return;
                }
            }
            while answering.try_join_next().is_some() {}
        }
    }

    async fn take(&mut self, message: Message, answering: &mut JoinSet<()>) {
        if self.gateway.overhear(&self.session, &message) {
            return self.calls.went_on();
        }
        if let Some(id) = cancelled(&message) {
            let open = locked(&self.calls.open).get(&id).cloned();
            if let Some(call) = open {
                call.see(Observation::Cancelled);
                if !call.forwards_cancel() {
                    return;
                }
            } else {
                self.calls.retract(&id);
            }
        } else {
            // It reads what it is sent, and goes on.
            self.calls.went_on();
        }
        if !self.gateway.takes(&message) {
            return self.pass(message).await;
        }
        let Some(id) = message.id().map(str::to_owned) else {
            return self.pass(message).await;
        };
        if locked(&self.calls.open).contains_key(&id) {
            return self.say(say::twice(&id)).await;
        }
        let asked = Asked {
            headers: Headers::default(),
            principal: None,
            asides: None,
        };
        let call = self.gateway.take(&self.session, message, asked);
        locked(&self.calls.open).insert(id.clone(), Arc::clone(&call));
        let (out, calls) = (self.out.clone(), Arc::clone(&self.calls));
        answering.spawn(async move {
            let answered = call.answer().await;
            locked(&calls.open).remove(&id);
            // A client that cancelled wants no answer; it would be one that nobody asked for.
            if !call.is_cancelled() {
                drop(out.send(Out::Answer(answered.message, call)).await);
            }
        });
    }

    async fn pass(&self, message: Message) {
        let sent = self
            .session
            .upstream
            .tell(&message, &Headers::default())
            .await;
        let Err(lost) = sent else { return };
        match (message.kind(), message.id()) {
            (Kind::Request { .. }, Some(id)) => self.say(say::server_gone(id, &lost.0)).await,
            _ => tracing::warn!("a message could not be passed on: {lost}"),
        }
    }

    async fn say(&self, message: Message) {
        // Nobody reads any more.
        drop(self.out.send(Out::Message(message)).await);
    }
}

impl Calls {
    /// Takes note that the client sent something after it was answered.
    fn went_on(&self) {
        for call in locked(&self.answered).take() {
            call.see(Observation::WentOn);
        }
    }

    /// Takes note that the client cancelled what it was answered already.
    fn retract(&self, id: &str) {
        let retracted = locked(&self.answered).remove(|call| call.id() == id);
        if let Some(call) = retracted {
            call.see(Observation::Cancelled);
        }
    }

    /// Takes note that a call is about to be answered.
    fn answering(&self, call: Arc<InHand>) {
        call.see(Observation::Written);
        let mut answered = locked(&self.answered);
        if answered.calls.len() == UNPROVED_MAX {
            answered.remove(|_| true);
        }
        answered.calls.push_back(call);
    }

    /// Takes note that everything was written that was to be.
    fn wrote(&self) {
        let mut answered = locked(&self.answered);
        answered.written = answered.calls.len();
        if answered.written > 0 {
            self.flushed.notify_one();
        }
    }

    /// Takes note that the client closed its side before these were answered.
    fn closed(&self) {
        for call in locked(&self.open).values() {
            call.see(Observation::Closed);
        }
    }

    /// Takes note of those that the client has read, if nothing waits to be read; returns whether that was so.
    fn prove(&self, unread: &Unread) -> Option<bool> {
        // Before it is asked: what is written meanwhile is not proved by it.
        let written: Vec<_> = {
            let answered = locked(&self.answered);
            answered
                .calls
                .iter()
                .take(answered.written)
                .cloned()
                .collect()
        };
        let is_read = unread()? == 0;
        if is_read {
            // They stay: a cancel that comes after all takes it back.
            for call in written {
                call.see(Observation::Acknowledged);
            }
        }
        Some(is_read)
    }
}

impl Answered {
    fn take(&mut self) -> VecDeque<Arc<InHand>> {
        self.written = 0;
        std::mem::take(&mut self.calls)
    }

    /// Takes out the first one that is meant.
    fn remove(&mut self, is_meant: impl FnMut(&Arc<InHand>) -> bool) -> Option<Arc<InHand>> {
        let at = self.calls.iter().position(is_meant)?;
        if at < self.written {
            self.written -= 1;
        }
        self.calls.remove(at)
    }
}

/// Writes what is to be written, in order; what is there together goes out together.
async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut waiting: mpsc::Receiver<Out>,
    mut unasked: mpsc::Receiver<Message>,
    calls: Arc<Calls>,
) {
    let mut batch = Batch::default();
    loop {
        let first = tokio::select! {
            out = waiting.recv() => out,
            Some(message) = unasked.recv() => Some(Out::Message(message)),
        };
        let is_over = first.is_none();
        if let Some(first) = first {
            batch.add(first, &calls);
        }
        while batch.bytes.len() < BATCH_MAX {
            if let Ok(out) = waiting.try_recv() {
                batch.add(out, &calls);
            } else if let Ok(message) = unasked.try_recv() {
                batch.add(Out::Message(message), &calls);
            } else {
                break;
            }
        }
        let mut written = 0;
        match batch.write(&mut output, &mut written).await {
            Ok(()) => calls.wrote(),
            Err(error) => {
                tracing::warn!(%error, "the client cannot be written to");
                for (_, call) in batch.ends.iter().filter(|(end, _)| *end > written) {
                    call.see(Observation::NotWritten);
                }
            }
        }
        batch.clear();
        if is_over && unasked.is_empty() {
            return;
        }
    }
}

/// What is written at once.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The calls that are answered in it, and where their answers end.
    ends: Vec<(usize, Arc<InHand>)>,
}

impl Batch {
    fn add(&mut self, out: Out, calls: &Calls) {
        let (message, call) = match out {
            Out::Message(message) => (message, None),
            Out::Answer(message, call) => (message, Some(call)),
        };
        self.bytes.extend_from_slice(message.bytes());
        self.bytes.push(b'\n');
        if let Some(call) = call {
            // Before it is: a client is quick to answer, and its next message is the proof of this one.
            calls.answering(Arc::clone(&call));
            self.ends.push((self.bytes.len(), call));
        }
    }

    /// Writes all of it, and says how much of it was written, whatever happens.
    async fn write<W: AsyncWrite + Unpin>(
        &self,
        output: &mut W,
        written: &mut usize,
    ) -> std::io::Result<()> {
        while *written < self.bytes.len() {
            match output.write(&self.bytes[*written..]).await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                count => *written += count,
            }
        }
        output.flush().await
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
        // What one large message needed is not kept for the small ones.
        self.bytes.shrink_to(BATCH_MAX);
    }
}

/// Looks now and then whether the client has read what was written.
async fn look(calls: Arc<Calls>, unread: Unread) {
    loop {
        calls.flushed.notified().await;
        for pause in LOOKS {
            tokio::time::sleep(pause).await;
            match calls.prove(&unread) {
                Some(true) => break,
                Some(false) => {}
                None => return,
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
