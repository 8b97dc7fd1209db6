//! Proof of receipt: what a connection tells about the answers that went out on it.
//!
//! - An answer's last byte was **written** when the connection took it and has nothing more to write of it.
//! - It was **acknowledged** when the peer has taken everything up to there. That is looked at before everything else
//!   that is read, so that an acknowledgement that came together with a close counts before it.
//! - Its caller **went on** when something more is read on a connection that answers one request after the other.
//! - A close or reset that is read, or an answer that was not written whole, is told as such.
//!
//! [`turns`] has the rules for connections that answer in turn (HTTP/1), [`streams`] those for many answers at once
//! (HTTP/2). A request that was let in and has no answer yet is [watched](callers), too.
//!
//! Whoever judges a call looks first at the connections whose answers to the same wait for their proof
//! ([`Proofs::settle`]). Between calls a task looks at all of them, less and less often.

mod body;
mod callers;
mod frames;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod turns;

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use semel::core::identity::Observation;
use tokio::time::{Instant, sleep};

pub(crate) use self::frames::PREFACE;
pub(crate) use self::stream::Watched;
pub(crate) use self::streams::Streams;
pub(crate) use self::turns::Turns;

use self::body::Given;
use self::callers::{Callers, Place};
use crate::locked::locked;

/// The first pause between two looks; each further one is twice as long.
const LOOK_FIRST: Duration = Duration::from_millis(1);

/// The longest pause between two looks.
const LOOK_LAST: Duration = Duration::from_millis(500);

/// How long a call waits for the proof that the answer to an identical one before it was received: peers put their
/// acknowledgements off for a moment (Linux: 40 ms), in the hope of something to send with them.
const PROOF_WAIT: Duration = Duration::from_millis(60);

/// The longest pause between two looks meanwhile.
const PROOF_LOOK: Duration = Duration::from_millis(5);

/// Whoever wants to know what became of an answer.
pub(crate) trait Witness: Send + Sync {
    /// Takes note of something that was seen.
    fn see(&self, seen: Observation);
}

/// A connection, as it is seen where its bytes pass.
trait Sight: fmt::Debug + Send + Sync {
    /// Looks whether the peer has taken what was written.
    fn look(&self) -> Proved;

    /// Returns the calls about this whose answers were given and not proved.
    fn given(&self, about: u64) -> Vec<Arc<dyn Witness>>;

    /// Writes what is offered, and takes note of what that ends.
    ///
    /// The caller may have an answer before the write returns, and its next call may be judged by another thread:
    /// whoever looks meanwhile waits for the write.
    fn written_by(
        &self,
        offered: &[IoSlice<'_>],
        write: &mut dyn FnMut() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>>;

    /// Takes note that nothing waits to be written.
    fn flushed(&self);

    /// Says whether it is known by now what became of all that was given.
    fn is_settled(&self) -> bool;

    /// Takes note that something was read.
    fn heard(&self, bytes: &[u8]);

    /// Takes note that the peer is gone, in good order or not.
    fn over(&self, seen: Observation);

    /// Takes note that nothing more is written or read; the last look was had.
    fn closed(&self);

    /// Says whether it is among those that are looked at; only whoever holds the list may ask.
    fn is_listed(&self) -> &AtomicBool;
}

/// Whether an answer waits for its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proved {
    NotYet,
    /// It is proved, or there is nothing to prove, or nobody can.
    Over,
}

/// The answers that wait for their proof, and the callers who wait for answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proofs {
    waiting: Arc<Mutex<Waiting>>,
    callers: Callers,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: Vec<Weak<dyn Sight>>,
    /// Whether a task looks at them.
    is_watched: bool,
    /// Whether one was added since the task looked last.
    is_new: bool,
}

impl Proofs {
    /// Looks at everything that waits for a proof: whoever got an answer by now is known to have it afterwards.
    pub(crate) fn look(&self) {
        // Held meanwhile: whoever looks at the same time must not pass by what is being looked at.
        locked(&self.waiting).connections.retain(|connection| {
            let Some(connection) = connection.upgrade() else {
                return false;
            };
            let waits = connection.look() == Proved::NotYet;
            connection.is_listed().store(waits, Ordering::Relaxed);
            waits
        });
    }

    /// Finds out what there is to know about identical calls before one is judged.
    ///
    /// Those who wait are asked whether they are still there: their retry may be read before their close. Then it waits
    /// a moment for the proofs of answers to the same call that were given by now. Whoever got one and calls again from
    /// elsewhere wants another effect, and must not be judged before its acknowledgement is here.
    pub(crate) async fn settle(&self, about: u64) {
        let deadline = Instant::now() + PROOF_WAIT;
        let mut pause = LOOK_FIRST;
        self.callers.look(about);
        // The others have no say in it: looking at each of them would make a call the dearer the more there are.
        let mut given: Vec<_> = {
            let waiting = locked(&self.waiting);
            let connections = waiting.connections.iter().filter_map(Weak::upgrade);
            connections
                .map(|connection| (connection.given(about), connection))
                .filter(|(calls, _)| !calls.is_empty())
                .collect()
        };
        loop {
            given.retain(|(calls, connection)| {
                let can_be_proved = connection.look() == Proved::NotYet;
                let still = connection.given(about);
                let is_there =
                    |call: &Arc<dyn Witness>| still.iter().any(|it| Arc::ptr_eq(it, call));
                can_be_proved && calls.iter().any(is_there)
            });
            if given.is_empty() || Instant::now() >= deadline {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PROOF_LOOK);
        }
    }

    fn add<S: Sight + 'static>(&self, connection: &Arc<S>) {
        let mut waiting = locked(&self.waiting);
        waiting.is_new = true;
        if !connection.is_listed().swap(true, Ordering::Relaxed) {
            let connection: Arc<dyn Sight> = Arc::<S>::clone(connection);
            waiting.connections.push(Arc::downgrade(&connection));
        }
        if !std::mem::replace(&mut waiting.is_watched, true) {
            tokio::spawn(self.clone().watch());
        }
    }

    /// Looks until nothing waits any more.
    async fn watch(self) {
        let mut pause = LOOK_FIRST;
        loop {
            sleep(pause).await;
            self.look();
            let mut waiting = locked(&self.waiting);
            if waiting.connections.is_empty() {
                waiting.is_watched = false;
                return;
            }
            pause = if std::mem::take(&mut waiting.is_new) {
                LOOK_FIRST
            } else {
                (pause * 2).min(LOOK_LAST)
            };
        }
    }
}

/// The way back to one caller. It is among the extensions of every request.
#[derive(Clone, Debug)]
pub(crate) struct Line(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Turn(Arc<Turns>),
    Stream(Arc<Streams>, u32),
}

impl Line {
    /// Takes note that the request was let in: until its answer begins, what is seen of its caller is told.
    pub(crate) fn admitted(&self, call: &Arc<dyn Witness>, about: u64) {
        match &self.0 {
            Kind::Turn(turns) => turns.admitted(call, about),
            Kind::Stream(streams, stream) => streams.admitted(*stream, call, about),
        }
    }

    /// Makes the body of the answer to the request one that tells what becomes of it. `about` is the same for
    /// identical calls.
    pub(crate) fn watched(&self, body: Body, call: Arc<dyn Witness>, about: u64) -> Body {
        let answer = Answer {
            call,
            about,
            place: None,
        };
        match &self.0 {
            Kind::Turn(turns) => turns.begun(answer),
            Kind::Stream(streams, stream) => streams.begun(*stream, answer),
        }
        let is_over = body.is_end_stream();
        if is_over {
            self.ended();
        }
        Body::new(Given::new(body, Some(self.clone()).filter(|_| !is_over)))
    }

    /// Takes note that the answer's body came to its end.
    fn ended(&self) {
        match &self.0 {
            Kind::Turn(turns) => turns.ended(),
            Kind::Stream(streams, stream) => streams.ended(*stream),
        }
    }

    /// Takes note that nobody wanted the rest of the answer, or that there was none.
    fn abandoned(&self) {
        match &self.0 {
            Kind::Turn(turns) => turns.over(Observation::NotWritten),
            Kind::Stream(streams, stream) => streams.abandoned(*stream),
        }
    }
}

/// An answer, and who wants to know what becomes of it.
struct Answer {
    call: Arc<dyn Witness>,
    /// What it answers: the same for identical calls.
    about: u64,
    /// Where its caller is looked for, as long as more of it is to come.
    place: Option<Place>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.about).finish()
    }
}
