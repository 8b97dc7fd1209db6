//! Those who want tasks of a line: they are served together.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use semel_core::Namespace;
use tokio::sync::oneshot;

use super::take::{Take, Taken};
use super::turn::{Line, Turn};
use crate::error::Result;
use crate::store::WAITING_MAX;

/// What a worker of this process wants of a line.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) namespace: Namespace,
    pub(super) take: Take,
    answer: oneshot::Sender<Result<Vec<Taken>>>,
}

impl Ask {
    pub(super) fn new(
        namespace: &Namespace,
        take: &Take,
    ) -> (Self, oneshot::Receiver<Result<Vec<Taken>>>) {
        let (answer, answered) = oneshot::channel();
        let ask = Self {
            namespace: namespace.clone(),
            take: take.clone(),
            answer,
        };
        (ask, answered)
    }

    /// How many tasks it gets, at most.
    pub(super) fn max(&self) -> usize {
        self.take.max.clamp(1, WAITING_MAX)
    }

    /// Tells what came of it. Tasks for somebody who has gone are dropped, which gives them back.
    pub(super) fn tell(self, answer: Result<Vec<Taken>>) {
        drop(self.answer.send(answer));
    }

    /// Says whether one look serves both: they want the same, but how many, and how long they wait for it.
    fn is_like(&self, other: &Self) -> bool {
        let like = Take {
            max: self.take.max,
            wait: self.take.wait,
            ..other.take.clone()
        };
        self.namespace == other.namespace && self.take == like
    }
}

/// Those who ask, in their order, and the turn while nobody has it.
#[derive(Debug)]
pub(super) struct Asked {
    asks: VecDeque<Ask>,
    turn: Option<Turn>,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            asks: VecDeque::new(),
            turn: Some(Turn::default()),
        }
    }
}

impl Asked {
    /// Takes those out whom one look serves: the first one and those who want the same.
    fn together(&mut self) -> Vec<Ask> {
        let Some(first) = self.asks.pop_front() else {
            return vec![];
        };
        let mut wanted = first.max();
        let mut together = vec![first];
        for ask in std::mem::take(&mut self.asks) {
            if wanted + ask.max() <= WAITING_MAX && ask.is_like(&together[0]) {
                wanted += ask.max();
                together.push(ask);
            } else {
                self.asks.push_back(ask);
            }
        }
        together
    }
}

/// The turn in the hands of one who serves all who ask. Dropping it gives it back; whoever is not served by then asks
/// again.
#[derive(Debug)]
pub(super) struct MyTurn {
    line: Arc<Line>,
    turn: Turn,
}

impl MyTurn {
    /// Asks, and gets the turn if nobody has it.
    pub(super) fn ask(line: &Arc<Line>, ask: Ask) -> Option<Self> {
        let mut asked = line.asked();
        asked.asks.push_back(ask);
        let turn = asked.turn.take()?;
        drop(asked);
        Some(Self {
            line: Arc::clone(line),
            turn,
        })
    }

    /// Says whether somebody waits to be served.
    pub(super) fn is_asked(&self) -> bool {
        !self.line.asked().asks.is_empty()
    }

    /// Returns those who are served next.
    pub(super) fn next(&self) -> Vec<Ask> {
        self.line.asked().together()
    }

    /// Leaves these for the next time, before all others.
    pub(super) fn leave(&self, asks: impl DoubleEndedIterator<Item = Ask>) {
        let mut asked = self.line.asked();
        for ask in asks.rev() {
            asked.asks.push_front(ask);
        }
    }
}

impl Deref for MyTurn {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        &self.turn
    }
}

impl DerefMut for MyTurn {
    fn deref_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}

impl Drop for MyTurn {
    fn drop(&mut self) {
        let mut asked = self.line.asked();
        asked.turn = Some(std::mem::take(&mut self.turn));
        let unserved = std::mem::take(&mut asked.asks);
        drop(asked);
        drop(unserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::{Label, Lease};
    use std::time::Duration;

    fn take(max: usize) -> Take {
        Take {
            max,
            ..Take::one(Label::new("mails").unwrap())
        }
    }

    fn ask(line: &Arc<Line>, take: &Take) -> (Option<MyTurn>, Receiver) {
        let (ask, answered) = Ask::new(&Namespace::default(), take);
        (MyTurn::ask(line, ask), answered)
    }

    type Receiver = oneshot::Receiver<Result<Vec<Taken>>>;

    fn maxima(asks: &[Ask]) -> Vec<usize> {
        asks.iter().map(Ask::max).collect()
    }

    #[test]
    fn those_who_want_the_same_are_served_together_up_to_one_look() {
        let line = Arc::new(Line::default());
        let mut waits = take(3);
        waits.wait = Duration::from_secs(1);
        let mut other = take(4);
        other.lease = Lease::new(Lease::MAX).unwrap();
        let all = [take(1), take(250), waits, other, take(5), take(0)];
        let (turns, _answers): (Vec<_>, Vec<_>) = all.iter().map(|take| ask(&line, take)).unzip();
        let mut turns = turns.into_iter();
        let turn = turns.next().flatten().unwrap();
        assert!(turns.all(|turn| turn.is_none()), "one has it");
        assert_eq!(maxima(&turn.next()), [1, 250, 3, 1]);
        assert_eq!(maxima(&turn.next()), [4], "it wants another lease");
        let left = turn.next();
        assert_eq!(maxima(&left), [5]);
        assert!(!turn.is_asked());
        turn.leave(left.into_iter());
        assert!(turn.is_asked());
    }

    #[test]
    fn a_turn_that_ends_is_given_back_and_whoever_was_not_served_hears_of_it() {
        let line = Arc::new(Line::default());
        let (turn, _first) = ask(&line, &take(1));
        let (none, mut second) = ask(&line, &take(1));
        assert!(none.is_none());
        let mut turn = turn.unwrap();
        turn.lane = 7;
        drop(turn);
        let closed = oneshot::error::TryRecvError::Closed;
        assert_eq!(second.try_recv().unwrap_err(), closed);
        let (turn, _third) = ask(&line, &take(1));
        let turn = turn.unwrap();
        assert_eq!(turn.lane, 7);
        assert_eq!(turn.next().len(), 1);
    }
}
