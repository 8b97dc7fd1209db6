//! The client at our standard input and output.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
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
use crate::auth::ANONYMOUS;
use crate::locked::locked;
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

/// What can be seen of a client beside what it says.
pub(crate) trait Sight: fmt::Debug + Send + Sync {
    /// Returns how many bytes of what was written wait to be read; `None` where that cannot be known.
    fn unread(&self) -> Option<u64>;

    /// Says whether it has closed its side, read to there or not.
    fn is_closed(&self) -> bool;
}

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
struct Calls {
    open: Mutex<HashMap<String, Arc<InHand>>>,
    /// Those whose receipt is to be proved, the oldest first, and where their answers end in all that is written.
    answered: Mutex<VecDeque<(u64, Arc<InHand>)>>,
    /// How many bytes were written. Held while some are: what the client has read is told from it.
    written: Mutex<u64>,
    /// Says that there are answers whose receipt is to be proved.
    flushed: Notify,
    sight: Arc<dyn Sight>,
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
    (input, output, sight): (R, W, Arc<dyn Sight>),
    stop: impl Future<Output = ()>,
    drain: Duration,
    end: impl Future<Output = ()>,
) where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, waiting) = mpsc::channel(WAITING_MAX);
    let calls = Arc::new(Calls::new(sight));
    let mut writing = tokio::spawn(write(output, waiting, unasked, Arc::clone(&calls)));
    let looking = tokio::spawn(look(Arc::clone(&calls)));
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
    calls.prove(Observation::Acknowledged);
    for (_, call) in locked(&calls.answered).drain(..) {
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
            namespace: self.gateway.namespace(),
            scope: ANONYMOUS,
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
    fn new(sight: Arc<dyn Sight>) -> Self {
        Self {
            open: Mutex::default(),
            answered: Mutex::default(),
            written: Mutex::default(),
            flushed: Notify::new(),
            sight,
        }
    }

    /// Takes note that the client sent something, after what it had read by then.
    fn went_on(&self) {
        let proved = match self.prove(Observation::WentOn) {
            Some(read) => read,
            // Nobody can tell what it has read: it is believed to read what it is sent.
            None => {
                let written = *locked(&self.written);
                self.see_until(written, Observation::WentOn);
                written
            }
        };
        locked(&self.answered).retain(|(end, _)| *end > proved);
    }

    /// Takes note that the client cancelled what it was answered already.
    fn retract(&self, id: &str) {
        let mut answered = locked(&self.answered);
        let at = answered.iter().position(|(_, call)| call.id() == id);
        if let Some((_, call)) = at.and_then(|at| answered.remove(at)) {
            call.see(Observation::Cancelled);
        }
    }

    /// Takes note that a call is about to be answered, and where its answer will end.
    fn answering(&self, end: u64, call: Arc<InHand>) {
        if self.sight.is_closed() {
            // Whether it reads on or not, it has given the call up: it left before there was an answer.
            call.see(Observation::Closed);
        }
        call.see(Observation::Written);
        let mut answered = locked(&self.answered);
        if answered.len() == UNPROVED_MAX {
            answered.pop_front();
        }
        answered.push_back((end, call));
    }

    /// Takes note that the client closed its side before these were answered.
    fn closed(&self) {
        for call in locked(&self.open).values() {
            call.see(Observation::Closed);
        }
    }

    /// Takes note of those answers that the client has read whole; returns how far it has read all that was
    /// written, `None` where nobody can tell.
    fn prove(&self, proof: Observation) -> Option<u64> {
        let read = {
            let written = locked(&self.written);
            written.saturating_sub(self.sight.unread()?)
        };
        self.see_until(read, proof);
        Some(read)
    }

    /// They stay: a cancel that comes after all takes it back.
    fn see_until(&self, read: u64, proof: Observation) {
        for (_, call) in locked(&self.answered)
            .iter()
            .take_while(|(end, _)| *end <= read)
        {
            call.see(proof);
        }
    }

    fn last_answer(&self) -> Option<u64> {
        locked(&self.answered).back().map(|(end, _)| *end)
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
        match batch.write(&mut output, &calls).await {
            Ok(()) => calls.flushed.notify_one(),
            Err(error) => {
                tracing::warn!(%error, "the client cannot be written to");
                let written = *locked(&calls.written);
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
    /// Where it begins in all that is written.
    start: u64,
    bytes: Vec<u8>,
    /// The calls that are answered in it, and where their answers end.
    ends: Vec<(u64, Arc<InHand>)>,
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
            let end = self.start + self.bytes.len() as u64;
            // Before it is: a client is quick to answer, and its next message is the proof of this one.
            calls.answering(end, Arc::clone(&call));
            self.ends.push((end, call));
        }
    }

    /// Writes all of it, and counts what is written, whatever happens.
    async fn write<W: AsyncWrite + Unpin>(
        &self,
        output: &mut W,
        calls: &Calls,
    ) -> std::io::Result<()> {
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            let count = poll_fn(|context| {
                // The client may have read it before we hear that it is written.
                let mut written = locked(&calls.written);
                let count = ready!(Pin::new(&mut *output).poll_write(context, rest))?;
                *written += count as u64;
                Poll::Ready(std::io::Result::Ok(count))
            });
            match count.await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        output.flush().await
    }

    fn clear(&mut self) {
        self.start += self.bytes.len() as u64;
        self.ends.clear();
        self.bytes.clear();
        // What one large message needed is not kept for the small ones.
        self.bytes.shrink_to(BATCH_MAX);
    }
}

/// Looks now and then whether the client has read what was written.
async fn look(calls: Arc<Calls>) {
    loop {
        calls.flushed.notified().await;
        let Some(last) = calls.last_answer() else {
            continue;
        };
        for pause in LOOKS {
            tokio::time::sleep(pause).await;
            match calls.prove(Observation::Acknowledged) {
                Some(read) if read >= last => break,
                Some(_) => {}
                None => return,
            }
        }
    }
}
