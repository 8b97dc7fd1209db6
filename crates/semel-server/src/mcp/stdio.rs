//! The client at our standard input and output.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::core::identity::Observation;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
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

/// The calls of this client that the gateway has in hand, and those that were answered.
#[derive(Default)]
struct Calls {
    open: Mutex<HashMap<String, Arc<InHand>>>,
    written: Mutex<Vec<Arc<InHand>>>,
}

/// Something to be written.
enum Out {
    Message(Message),
    /// The answer to a call.
    Answer(Message, Arc<InHand>),
}

/// Serves a client until it closes its output or `stop` is done; then calls that act are followed to
/// their end for at most `drain`.
pub(crate) async fn serve<R, W>(
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    mut unasked: mpsc::Receiver<Message>,
    (input, output, unread): (R, W, Unread),
    stop: impl Future<Output = ()>,
    drain: Duration,
) where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, waiting) = mpsc::channel(WAITING_MAX);
    let calls = Arc::new(Calls::default());
    let writing = tokio::spawn(write(
        output,
        waiting,
        Arc::clone(&calls),
        Arc::clone(&unread),
    ));
    let passing = tokio::spawn({
        let out = out.clone();
        async move {
            while let Some(message) = unasked.recv().await {
                if out.send(Out::Message(message)).await.is_err() {
                    return;
                }
            }
        }
    });
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
    passing.abort();
    drop(client);
    // It ends once nothing is left to be written.
    drop(writing.await);
    let seen = if unread().is_some_and(|bytes| bytes == 0) {
        Observation::Acknowledged
    } else {
        Observation::Closed
    };
    for call in locked(&calls.written).drain(..) {
        call.see(seen);
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
        for call in locked(&self.written).drain(..) {
            call.see(Observation::WentOn);
        }
    }

    /// Takes note that the client cancelled what it was answered already.
    fn retract(&self, id: &str) {
        let mut written = locked(&self.written);
        if let Some(at) = written.iter().position(|call| call.id() == id) {
            written.remove(at).see(Observation::Cancelled);
        }
    }

    fn answered(&self, call: Arc<InHand>) {
        call.see(Observation::Written);
        let mut written = locked(&self.written);
        if written.len() == UNPROVED_MAX {
            written.remove(0);
        }
        written.push(call);
    }

    /// Takes note that the client closed its side before these were answered.
    fn closed(&self) {
        for call in locked(&self.open).values() {
            call.see(Observation::Closed);
        }
    }

    /// Takes note that the client has read everything that was written.
    fn acknowledged(&self) {
        // They stay: a cancel that comes after all takes it back.
        for call in locked(&self.written).iter() {
            call.see(Observation::Acknowledged);
        }
    }
}

/// Writes what is to be written, in order.
async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut waiting: mpsc::Receiver<Out>,
    calls: Arc<Calls>,
    unread: Unread,
) {
    while let Some(out) = waiting.recv().await {
        let (message, call) = match out {
            Out::Message(message) => (message, None),
            Out::Answer(message, call) => (message, Some(call)),
        };
        let mut line = message.bytes().to_vec();
        line.push(b'\n');
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Some(call) = &call {
            // Before it is: a client is quick to answer, and its next message is the proof of this one.
            calls.answered(Arc::clone(call));
        }
        match (written.await, call) {
            (Ok(()), Some(_)) => {
                tokio::spawn(look(Arc::clone(&calls), Arc::clone(&unread)));
            }
            (Ok(()), None) => {}
            (Err(_), Some(call)) => call.see(Observation::NotWritten),
            (Err(error), None) => tracing::warn!(%error, "the client cannot be written to"),
        }
    }
}

/// Looks now and then whether the client has read what was written.
async fn look(calls: Arc<Calls>, unread: Unread) {
    for pause in LOOKS {
        tokio::time::sleep(pause).await;
        match unread() {
            Some(0) => return calls.acknowledged(),
            Some(_) => {}
            None => return,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
