//! Proof of receipt: what a connection tells about the answers that went out on it.
//!
//! HTTP/1 answers one request after the other, so whatever is seen belongs to the newest answer. In order:
//!
//! - Its last byte was **written** when the connection is flushed after the answer's body ended.
//! - It was **acknowledged** when the socket holds nothing more that the peer has not taken. That is looked at before
//!   everything else that is read, so that an acknowledgement that came together with a close counts before it.
//! - Its caller **went on** when something is read on the connection after that.
//! - A close or reset that is read, or an answer that was not written whole, is told as such.
//!
//! [`Proofs::look`] looks at all connections whose newest answer waits for its proof: whoever judges a call does that
//! first. Between calls a task looks, less and less often.

mod body;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use semel::core::identity::Observation;
use tokio::time::{Instant, sleep};

pub(crate) use self::stream::Watched;

use self::body::Given;
use crate::locked::locked;
use crate::socket::Look;

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

/// The answers that wait for their proof.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proofs(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<Weak<Inner>>,
    /// Whether a task looks at them.
    is_watched: bool,
    /// Whether one was added since the task looked last.
    is_new: bool,
}

impl Proofs {
    /// Makes the line of a new connection.
    pub(crate) fn line(&self, look: Look, is_encrypted: bool) -> Line {
        Line(Arc::new(Inner {
            proofs: self.clone(),
            look,
            is_encrypted,
            newest: Mutex::default(),
        }))
    }

    /// Looks at everything that waits for a proof: whoever got an answer by now is known to have it afterwards.
    pub(crate) fn look(&self) {
        // Held meanwhile: whoever looks at the same time must not pass by what is being looked at.
        locked(&self.0).lines.retain(|line| {
            let line = line.upgrade();
            line.is_some_and(|line| line.look() == Proved::NotYet)
        });
    }

    /// Waits a moment for the proofs of answers to the same call that were given by now. Whoever got one and calls again
    /// from elsewhere wants another effect, and must not be judged before its acknowledgement is here.
    pub(crate) async fn settle(&self, about: u64) {
        let deadline = Instant::now() + PROOF_WAIT;
        let mut pause = LOOK_FIRST;
        self.look();
        let mut given: Vec<_> = {
            let waiting = locked(&self.0);
            let lines = waiting.lines.iter().filter_map(Weak::upgrade);
            lines
                .filter_map(|line| Some((line.given(about)?, line)))
                .collect()
        };
        while !given.is_empty() && Instant::now() < deadline {
            sleep(pause).await;
            pause = (pause * 2).min(PROOF_LOOK);
            given.retain(|(call, line)| {
                let is_newest = line
                    .given(about)
                    .is_some_and(|newest| Arc::ptr_eq(&newest, call));
                is_newest && line.look() == Proved::NotYet
            });
        }
    }

    fn add(&self, line: Weak<Inner>) {
        let mut waiting = locked(&self.0);
        waiting.lines.push(line);
        waiting.is_new = true;
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
            let mut waiting = locked(&self.0);
            if waiting.lines.is_empty() {
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

/// One connection, as the calls on it see it. It is among the extensions of every request.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    proofs: Proofs,
    look: Look,
    /// Whether what is written may wait elsewhere than in the socket.
    is_encrypted: bool,
    newest: Mutex<Option<Answer>>,
}

/// The newest answer on a connection.
struct Answer {
    call: Arc<dyn Witness>,
    /// What it answers: the same for identical calls.
    about: u64,
    stage: Stage,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.stage).finish()
    }
}

/// How far an answer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// More of it is to come.
    Begun,
    /// All of it was handed over; some may wait to be written.
    Ended,
    /// Its last byte was written.
    Written {
        /// Whether the caller had sent more by then, which proves nothing.
        overtaken: bool,
    },
    /// The peer took all of it.
    Proved,
}

/// Whether an answer waits for its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proved {
    NotYet,
    /// It is proved, or there is nothing to prove, or nobody can.
    Over,
}

impl Line {
    /// Makes the body of the answer to the newest request one that tells what becomes of it. `about` is the same for
    /// identical calls.
    pub(crate) fn watched(&self, body: Body, call: Arc<dyn Witness>, about: u64) -> Body {
        let stage = Stage::Begun;
        *locked(&self.0.newest) = Some(Answer { call, about, stage });
        let is_over = body.is_end_stream();
        if is_over {
            self.ended();
        }
        Body::new(Given::new(body, Some(self.clone()).filter(|_| !is_over)))
    }

    /// Takes note that a request came: what is seen from now on is not about the answer before it.
    pub(crate) fn arrived(&self) {
        self.0.look();
        *locked(&self.0.newest) = None;
    }

    /// Takes note that the answer's body came to its end.
    fn ended(&self) {
        if let Some(answer) = locked(&self.0.newest).as_mut()
            && answer.stage == Stage::Begun
        {
            answer.stage = Stage::Ended;
        }
        self.0.proofs.add(Arc::downgrade(&self.0));
    }

    /// Writes what is offered, and takes note if that was the rest of an answer.
    ///
    /// The caller may have the answer before the write returns, and its next call may be judged by another thread:
    /// whoever looks meanwhile waits for the write. HTTP/1 offers everything that it has, so that what was taken whole
    /// once the body had ended was all. Encryption has room of its own, and its answers are written when it is empty.
    fn written_by(
        &self,
        offered: usize,
        write: impl FnOnce() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut newest = locked(&self.0.newest);
        let ending = newest
            .as_mut()
            .filter(|answer| answer.stage == Stage::Ended && !self.0.is_encrypted);
        let Some(answer) = ending else {
            drop(newest);
            return write();
        };
        let written = write();
        if matches!(written, Poll::Ready(Ok(count)) if count == offered) {
            self.0.written(answer);
        }
        written
    }

    /// Takes note that nothing waits to be written.
    fn flushed(&self) {
        if let Some(answer) = locked(&self.0.newest).as_mut()
            && answer.stage == Stage::Ended
        {
            self.0.written(answer);
        }
        self.0.look();
    }

    /// Takes note that something was read.
    fn heard(&self) {
        if let Some(answer) = locked(&self.0.newest).as_mut()
            && answer.stage == (Stage::Written { overtaken: false })
        {
            answer.stage = Stage::Proved;
            answer.call.see(Observation::WentOn);
        }
    }

    /// Takes note that the caller is gone, in good order or not.
    fn over(&self, seen: Observation) {
        self.0.look();
        let Some(answer) = locked(&self.0.newest).take() else {
            return;
        };
        match answer.stage {
            Stage::Begun | Stage::Ended => answer.call.see(Observation::NotWritten),
            Stage::Written { .. } | Stage::Proved => answer.call.see(seen),
        }
    }

    /// Takes note that nothing more is written or read; the last look was had.
    fn closed(&self) {
        let answer = locked(&self.0.newest).take();
        if let Some(answer) = answer
            && matches!(answer.stage, Stage::Begun | Stage::Ended)
        {
            answer.call.see(Observation::NotWritten);
        }
    }

    /// Looks whether the peer has taken the newest answer.
    fn look(&self) {
        self.0.look();
    }

    /// Says whether it is known by now what became of the newest answer.
    fn is_settled(&self) -> bool {
        self.0.look() == Proved::Over
    }
}

impl Inner {
    /// Returns the call of the newest answer, if all of it was given and it is about this.
    fn given(&self, about: u64) -> Option<Arc<dyn Witness>> {
        let newest = locked(&self.newest);
        let answer = newest.as_ref().filter(|answer| {
            answer.about == about && !matches!(answer.stage, Stage::Begun | Stage::Proved)
        });
        answer.map(|answer| Arc::clone(&answer.call))
    }

    fn written(&self, answer: &mut Answer) {
        let overtaken = self.look.has_sent();
        answer.stage = Stage::Written { overtaken };
        answer.call.see(Observation::Written);
    }

    fn look(&self) -> Proved {
        let mut newest = locked(&self.newest);
        let Some(answer) = newest.as_mut() else {
            return Proved::Over;
        };
        match answer.stage {
            Stage::Written { .. } => {}
            Stage::Begun | Stage::Ended => return Proved::NotYet,
            Stage::Proved => return Proved::Over,
        }
        match self.look.untaken() {
            Some(0) => {
                answer.stage = Stage::Proved;
                answer.call.see(Observation::Acknowledged);
                Proved::Over
            }
            Some(_) => Proved::NotYet,
            None => Proved::Over,
        }
    }
}
