//! Those who wait for their answers, and are asked whether they are still there.
//!
//! A client that gives up closes its connection and sends the same request on another. Which of the two is read first
//! is chance: so whoever judges a call asks the sockets of those who wait for the same, without reading from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use semel::core::identity::Observation;

use super::{Witness, locked};
use crate::socket::{Left, Look};

/// Those who wait, by what their calls are about.
#[derive(Clone, Debug, Default)]
pub(super) struct Callers(Arc<Mutex<Entered>>);

#[derive(Debug, Default)]
struct Entered {
    callers: HashMap<u64, Vec<Caller>>,
    /// How many were entered.
    count: u64,
}

struct Caller {
    number: u64,
    look: Look,
    /// Held weakly: whoever drops it last says by that that the caller has left.
    call: Weak<dyn Witness>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.number).finish()
    }
}

/// The place of somebody who waits; given up when it is dropped.
pub(super) struct Place {
    callers: Callers,
    about: u64,
    number: u64,
    call: Weak<dyn Witness>,
}

impl Callers {
    /// Takes note that somebody waits.
    pub(super) fn enter(&self, about: u64, look: Look, call: &Arc<dyn Witness>) -> Place {
        let mut entered = locked(&self.0);
        entered.count += 1;
        let number = entered.count;
        let call = Arc::downgrade(call);
        entered.callers.entry(about).or_default().push(Caller {
            number,
            look,
            call: Weak::clone(&call),
        });
        Place {
            callers: self.clone(),
            about,
            number,
            call,
        }
    }

    /// Asks those who wait for the same whether they are still there, and takes note of those who are not.
    pub(super) fn look(&self, about: u64) {
        let gone: Vec<_> = {
            let entered = locked(&self.0);
            let callers = entered.callers.get(&about).into_iter().flatten();
            callers
                .filter_map(|caller| Some((caller.look.left()?, caller.call.upgrade()?)))
                .collect()
        };
        for (left, call) in gone {
            call.see(match left {
                Left::Closed => Observation::Closed,
                Left::Reset => Observation::Reset,
            });
        }
    }
}

impl Place {
    /// Takes note of something that was seen of the one who waits.
    pub(super) fn see(&self, seen: Observation) {
        if let Some(call) = self.call.upgrade() {
            call.see(seen);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut entered = locked(&self.callers.0);
        let Some(callers) = entered.callers.get_mut(&self.about) else {
            return;
        };
        callers.retain(|caller| caller.number != self.number);
        if callers.is_empty() {
            entered.callers.remove(&self.about);
        }
    }
}
