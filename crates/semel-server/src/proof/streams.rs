//! Connections on which many requests are answered at once (HTTP/2).
//!
//! What goes out and comes in is followed frame by frame: an answer is written with the last byte of its last frame,
//! and no sooner, however much else goes out while the peer's windows have no room for it. It is acknowledged when the
//! peer has taken everything up to there. Later requests prove nothing about earlier answers.
//!
//! A stream that is reset takes its answer back. A connection that is reset takes back what was not acknowledged, and
//! what was, if nothing was heard since: the peer's system took it, and perhaps nobody read it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use semel::core::identity::{CROSSING, Observation};
use tokio::time::Instant;

use super::callers::Place;
use super::frames::{Frames, NO_ERROR, Told};
use super::{Answer, Kind, Line, Proofs, Proved, Sight, Witness, locked};
use crate::socket::Look;

/// How many answers of a connection are kept after they were proved. Each holds a place at its doorway.
const PROVED_MAX: usize = 32;

/// A connection that answers many at once.
#[derive(Debug)]
pub(crate) struct Streams {
    proofs: Proofs,
    look: Look,
    /// Whether what is written may wait elsewhere than in the socket.
    is_encrypted: bool,
    state: Mutex<State>,
    is_listed: AtomicBool,
}

#[derive(Debug)]
struct State {
    outgoing: Frames,
    incoming: Frames,
    /// What is under way, by the numbers of the streams.
    exchanges: BTreeMap<u32, Exchange>,
    is_over: bool,
}

/// One request and its answer.
enum Exchange {
    /// It was let in.
    Waiting(Place),
    /// Its answer.
    Answered(Answer, Stage),
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
    /// Its last frame was written, and may wait in the encryption.
    Sealed,
    /// Its last byte was written.
    Written {
        /// How many bytes were, up to it.
        upto: u64,
    },
    /// The peer took all of it.
    Proved {
        since: Instant,
        /// Whether something was heard since.
        heard: bool,
    },
}

impl Proofs {
    /// Takes note of a new connection that answers many at once.
    pub(crate) fn streams(&self, look: Look, is_encrypted: bool) -> Arc<Streams> {
        Arc::new(Streams {
            proofs: self.clone(),
            look,
            is_encrypted,
            state: Mutex::new(State {
                outgoing: Frames::default(),
                incoming: Frames::of_client(),
                exchanges: BTreeMap::new(),
                is_over: false,
            }),
            is_listed: AtomicBool::default(),
        })
    }
}

impl Streams {
    /// Takes note that a request came on a stream.
    pub(crate) fn arrived(self: &Arc<Self>, stream: u32) -> Line {
        Line(Kind::Stream(Arc::clone(self), stream))
    }

    pub(super) fn admitted(&self, stream: u32, call: &Arc<dyn Witness>, about: u64) {
        let mut state = locked(&self.state);
        if state.is_over {
            drop(state);
            call.see(Observation::Closed);
            return;
        }
        let place = self.proofs.callers.enter(about, self.look.clone(), call);
        state.exchanges.insert(stream, Exchange::Waiting(place));
    }

    pub(super) fn begun(&self, stream: u32, mut answer: Answer) {
        let mut state = locked(&self.state);
        if state.is_over {
            drop(state);
            answer.call.see(Observation::NotWritten);
            return;
        }
        if let Some(Exchange::Waiting(place)) = state.exchanges.remove(&stream) {
            answer.place = Some(place);
        }
        let exchange = Exchange::Answered(answer, Stage::Begun);
        state.exchanges.insert(stream, exchange);
    }

    pub(super) fn ended(self: &Arc<Self>, stream: u32) {
        if let Some(Exchange::Answered(answer, stage @ Stage::Begun)) =
            locked(&self.state).exchanges.get_mut(&stream)
        {
            answer.place = None;
            *stage = Stage::Ended;
        }
        self.proofs.add(self);
    }

    /// Takes note that nobody wanted the rest of an answer, or that there was none.
    pub(super) fn abandoned(&self, stream: u32) {
        let exchange = locked(&self.state).exchanges.remove(&stream);
        if let Some(Exchange::Answered(answer, _)) = exchange {
            answer.call.see(Observation::NotWritten);
        }
    }
}

impl State {
    /// Takes note of what went out.
    fn wrote(&mut self, offered: &[IoSlice<'_>], mut count: usize, written: Option<u64>) {
        let Self {
            outgoing,
            exchanges,
            ..
        } = self;
        for piece in offered {
            let piece = &piece[..count.min(piece.len())];
            count -= piece.len();
            outgoing.take(piece, |told| match told {
                Told::Ended(stream) => match exchanges.get_mut(&stream) {
                    Some(Exchange::Answered(answer, stage)) => {
                        *stage = match written {
                            // The piece may have more behind it: the peer must take a little more for the proof.
                            Some(upto) => Stage::written(answer, upto),
                            None => Stage::Sealed,
                        };
                    }
                    // Nobody wants to know what becomes of its answer.
                    Some(Exchange::Waiting(_)) => drop(exchanges.remove(&stream)),
                    None => {}
                },
                Told::Reset { stream, .. } => {
                    // It was broken off here. After its end that only refuses the rest of the request.
                    let is_unfinished = matches!(
                        exchanges.get(&stream),
                        Some(
                            Exchange::Waiting(_)
                                | Exchange::Answered(_, Stage::Begun | Stage::Ended)
                        )
                    );
                    if is_unfinished
                        && let Some(Exchange::Answered(answer, _)) = exchanges.remove(&stream)
                    {
                        answer.call.see(Observation::NotWritten);
                    }
                }
            });
        }
    }

    /// Takes note of what came in.
    fn heard(&mut self, bytes: &[u8]) {
        let Self {
            incoming,
            exchanges,
            ..
        } = self;
        incoming.take(bytes, |told| match told {
            Told::Ended(_) => {}
            Told::Reset { stream, code } => {
                let is_whole = matches!(
                    exchanges.get(&stream),
                    Some(Exchange::Answered(
                        _,
                        Stage::Sealed | Stage::Written { .. } | Stage::Proved { .. }
                    ))
                );
                if is_whole && code == NO_ERROR {
                    // It has the answer, and keeps the rest of its request.
                    return;
                }
                match exchanges.remove(&stream) {
                    Some(Exchange::Waiting(place)) => place.see(Observation::Cancelled),
                    Some(Exchange::Answered(answer, _)) => answer.call.see(Observation::Cancelled),
                    None => {}
                }
            }
        });
        for exchange in exchanges.values_mut() {
            if let Exchange::Answered(_, Stage::Proved { heard, .. }) = exchange {
                *heard = true;
            }
        }
    }

    /// Forgets what was proved long enough ago.
    fn forget(&mut self, now: Instant) {
        let mut proved = 0;
        let mut is_kept = |exchange: &Exchange| match exchange {
            Exchange::Answered(_, Stage::Proved { since, .. }) => {
                proved += 1;
                proved <= PROVED_MAX && now.duration_since(*since) < CROSSING
            }
            Exchange::Answered(..) | Exchange::Waiting(_) => true,
        };
        // The newest first: of too many it is the oldest that go.
        let gone: Vec<u32> = self
            .exchanges
            .iter()
            .rev()
            .filter(|(_, exchange)| !is_kept(exchange))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in gone {
            self.exchanges.remove(&stream);
        }
    }
}

impl Stage {
    fn written(answer: &Answer, upto: u64) -> Self {
        answer.call.see(Observation::Written);
        Self::Written { upto }
    }
}

impl Sight for Streams {
    fn look(&self) -> Proved {
        let mut state = locked(&self.state);
        let is_written =
            |exchange: &Exchange| matches!(exchange, Exchange::Answered(_, Stage::Written { .. }));
        let taken = match state.exchanges.values().any(is_written) {
            true => self.look.taken(),
            false => None,
        };
        let mut proved = Proved::Over;
        let now = Instant::now();
        for exchange in state.exchanges.values_mut() {
            let Exchange::Answered(answer, stage) = exchange else {
                continue;
            };
            match *stage {
                Stage::Written { upto } if taken.is_some_and(|taken| taken >= upto) => {
                    answer.call.see(Observation::Acknowledged);
                    *stage = Stage::Proved {
                        since: now,
                        heard: false,
                    };
                    proved = Proved::NotYet;
                }
                // Nobody can tell.
                Stage::Written { .. } if taken.is_none() => {}
                // What is proved waits to be forgotten.
                Stage::Begun
                | Stage::Ended
                | Stage::Sealed
                | Stage::Written { .. }
                | Stage::Proved { .. } => proved = Proved::NotYet,
            }
        }
        state.forget(now);
        proved
    }

    fn given(&self, about: u64) -> Vec<Arc<dyn Witness>> {
        let state = locked(&self.state);
        let given = state
            .exchanges
            .values()
            .filter_map(|exchange| match exchange {
                Exchange::Answered(
                    answer,
                    Stage::Ended | Stage::Sealed | Stage::Written { .. },
                ) if answer.about == about => Some(Arc::clone(&answer.call)),
                Exchange::Answered(..) | Exchange::Waiting(_) => None,
            });
        given.collect()
    }

    fn written_by(
        &self,
        offered: &[IoSlice<'_>],
        write: &mut dyn FnMut() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut state = locked(&self.state);
        let written = write();
        if let Poll::Ready(Ok(count)) = written {
            let upto = (!self.is_encrypted).then(|| self.look.written());
            state.wrote(offered, count, upto);
        }
        written
    }

    fn flushed(&self) {
        let mut state = locked(&self.state);
        let mut upto = None;
        for exchange in state.exchanges.values_mut() {
            if let Exchange::Answered(answer, stage @ Stage::Sealed) = exchange {
                let upto = *upto.get_or_insert_with(|| self.look.written());
                *stage = Stage::written(answer, upto);
            }
        }
        drop(state);
        self.look();
    }

    fn is_settled(&self) -> bool {
        self.look();
        let state = locked(&self.state);
        let waits = |exchange: &Exchange| match exchange {
            Exchange::Answered(_, Stage::Ended | Stage::Sealed) => true,
            Exchange::Answered(_, Stage::Written { .. }) => self.look.taken().is_some(),
            Exchange::Answered(_, Stage::Begun | Stage::Proved { .. }) | Exchange::Waiting(_) => {
                false
            }
        };
        !state.exchanges.values().any(waits)
    }

    fn heard(&self, bytes: &[u8]) {
        locked(&self.state).heard(bytes);
    }

    fn over(&self, seen: Observation) {
        self.look();
        let exchanges = {
            let mut state = locked(&self.state);
            state.is_over = true;
            std::mem::take(&mut state.exchanges)
        };
        for exchange in exchanges.into_values() {
            match exchange {
                Exchange::Waiting(place) => place.see(seen),
                Exchange::Answered(answer, stage) => match stage {
                    Stage::Begun | Stage::Ended | Stage::Sealed => {
                        answer.call.see(Observation::NotWritten);
                    }
                    Stage::Written { .. } => answer.call.see(seen),
                    Stage::Proved { heard, .. } => {
                        if seen == Observation::Reset && !heard {
                            answer.call.see(seen);
                        }
                    }
                },
            }
        }
    }

    fn closed(&self) {
        let exchanges = {
            let mut state = locked(&self.state);
            state.is_over = true;
            std::mem::take(&mut state.exchanges)
        };
        for exchange in exchanges.into_values() {
            match exchange {
                // What answers it is dropped with the connection, and tells it.
                Exchange::Waiting(_) => {}
                Exchange::Answered(answer, Stage::Begun | Stage::Ended | Stage::Sealed) => {
                    answer.call.see(Observation::NotWritten);
                }
                Exchange::Answered(_, Stage::Written { .. } | Stage::Proved { .. }) => {}
            }
        }
    }

    fn is_listed(&self) -> &AtomicBool {
        &self.is_listed
    }
}
