//! The calls that the gateway has in hand, found by those who cancel them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::desk::Call;
use crate::locked::locked;

/// How many calls there are before it is looked for the first time which of them are over.
const FEW: usize = 1_024;

/// Calls by whose they are and their ids, until they are over: as long as somebody may want to know what becomes of
/// their answers.
#[derive(Default)]
pub(super) struct Calls(Mutex<Found>);

#[derive(Default)]
struct Found {
    calls: HashMap<(String, String), Weak<dyn Call>>,
    many: usize,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calls({})", locked(&self.0).calls.len())
    }
}

impl Calls {
    pub(super) fn enter(&self, whose: String, id: String, call: &Arc<dyn Call>) {
        let mut found = locked(&self.0);
        if found.calls.len() >= found.many.max(FEW) {
            found.calls.retain(|_, call| call.strong_count() > 0);
            found.many = found.calls.len() * 2;
        }
        // Of two with one id the newer is found: the other was given up.
        found.calls.insert((whose, id), Arc::downgrade(call));
    }

    pub(super) fn find(&self, whose: &str, id: &str) -> Option<Arc<dyn Call>> {
        let key = (whose.to_owned(), id.to_owned());
        locked(&self.0).calls.get(&key).and_then(Weak::upgrade)
    }
}
