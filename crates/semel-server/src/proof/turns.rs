//! Connections that answer one request after the other: whatever is seen belongs to the newest.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use semel::core::identity::Observation;

use super::callers::Place;
use super::{Answer, Kind, Line, Proofs, Proved, Sight, Witness, locked};
use crate::socket::Look;

/// A connection that answers in turn.
#[derive(Debug)]
pub(crate) struct Turns {
    proofs: Proofs,
    look: Look,
    /// Whether what is written may wait elsewhere than in the socket.
    is_encrypted: bool,
    turn: Mutex<Turn>,
    is_listed: AtomicBool,
}

/// The newest request.
#[derive(Default)]
enum Turn {
    /// Nobody wants to know.
    #[default]
    Unwatched,
    /// It was let in.
    Waiting(Place),
    /// Its answer.
    Answered(Answer, Stage),
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwatched => f.write_str("Unwatched"),
            Self::Waiting(_) => f.write_str("Waiting"),
            Self::Answered(_, stage) => f.debug_tuple("Answered").field(stage).finish(),
        }
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

impl Proofs {
    /// Takes note of a new connection that answers in turn.
    pub(crate) fn turns(&self, look: Look, is_encrypted: bool) -> Arc<Turns> {
        Arc::new(Turns {
            proofs: self.clone(),
            look,
            is_encrypted,
            turn: Mutex::default(),
            is_listed: AtomicBool::default(),
        })
    }
}

impl Turns {
    /// Takes note that a request came: what is seen from now on is not about the one before it.
    pub(crate) fn arrived(self: &Arc<Self>) -> Line {
        self.look();
        *locked(&self.turn) = Turn::Unwatched;
        Line(Kind::Turn(Arc::clone(self)))
    }

    pub(super) fn admitted(&self, call: &Arc<dyn Witness>, about: u64) {
        let place = self.proofs.callers.enter(about, self.look.clone(), call);
        *locked(&self.turn) = Turn::Waiting(place);
    }

    pub(super) fn begun(&self, mut answer: Answer) {
        let mut turn = locked(&self.turn);
        if let Turn::Waiting(place) = std::mem::take(&mut *turn) {
            answer.place = Some(place);
        }
        *turn = Turn::Answered(answer, Stage::Begun);
    }

    pub(super) fn ended(self: &Arc<Self>) {
        if let Turn::Answered(answer, stage @ Stage::Begun) = &mut *locked(&self.turn) {
            answer.place = None;
            *stage = Stage::Ended;
        }
        self.proofs.add(self);
    }

    fn written(&self, answer: &Answer, stage: &mut Stage) {
        let overtaken = self.look.has_sent();
        *stage = Stage::Written { overtaken };
        answer.call.see(Observation::Written);
    }
}

impl Sight for Turns {
    fn look(&self) -> Proved {
        let mut turn = locked(&self.turn);
        let Turn::Answered(answer, stage) = &mut *turn else {
            return Proved::Over;
        };
        match stage {
            Stage::Written { .. } => {}
            Stage::Begun | Stage::Ended => return Proved::NotYet,
            Stage::Proved => return Proved::Over,
        }
        match self.look.untaken() {
            Some(0) => {
                *stage = Stage::Proved;
                answer.call.see(Observation::Acknowledged);
                Proved::Over
            }
            Some(_) => Proved::NotYet,
            None => Proved::Over,
        }
    }

    fn given(&self, about: u64) -> Vec<Arc<dyn Witness>> {
        match &*locked(&self.turn) {
            Turn::Answered(answer, Stage::Ended | Stage::Written { .. })
                if answer.about == about =>
            {
                vec![Arc::clone(&answer.call)]
            }
            Turn::Answered(..) | Turn::Waiting(_) | Turn::Unwatched => vec![],
        }
    }

    /// HTTP/1 offers everything that it has, so that what was taken whole once the body had ended was all. Encryption
    /// has room of its own, and its answers are written when it is empty.
    fn written_by(
        &self,
        offered: &[IoSlice<'_>],
        write: &mut dyn FnMut() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut turn = locked(&self.turn);
        let Turn::Answered(answer, stage @ Stage::Ended) = &mut *turn else {
            drop(turn);
            return write();
        };
        if self.is_encrypted {
            drop(turn);
            return write();
        }
        let written = write();
        let offered: usize = offered.iter().map(|piece| piece.len()).sum();
        if matches!(written, Poll::Ready(Ok(count)) if count == offered) {
            self.written(answer, stage);
        }
        written
    }

    fn flushed(&self) {
        if let Turn::Answered(answer, stage @ Stage::Ended) = &mut *locked(&self.turn) {
            self.written(answer, stage);
        }
        self.look();
    }

    fn is_settled(&self) -> bool {
        self.look() == Proved::Over
    }

    fn heard(&self, _: &[u8]) {
        if let Turn::Answered(answer, stage @ Stage::Written { overtaken: false }) =
            &mut *locked(&self.turn)
        {
            *stage = Stage::Proved;
            answer.call.see(Observation::WentOn);
        }
    }

    fn over(&self, seen: Observation) {
        self.look();
        let turn = std::mem::take(&mut *locked(&self.turn));
        match turn {
            Turn::Unwatched => {}
            Turn::Waiting(place) => place.see(seen),
            Turn::Answered(answer, Stage::Begun | Stage::Ended) => {
                answer.call.see(Observation::NotWritten);
            }
            Turn::Answered(answer, Stage::Written { .. } | Stage::Proved) => answer.call.see(seen),
        }
    }

    fn closed(&self) {
        let turn = std::mem::take(&mut *locked(&self.turn));
        match turn {
            Turn::Answered(answer, Stage::Begun | Stage::Ended) => {
                answer.call.see(Observation::NotWritten);
            }
            // What answers whoever waits is dropped with the connection, and tells it.
            Turn::Waiting(_)
            | Turn::Answered(_, Stage::Written { .. } | Stage::Proved)
            | Turn::Unwatched => {}
        }
    }

    fn is_listed(&self) -> &AtomicBool {
        &self.is_listed
    }
}
