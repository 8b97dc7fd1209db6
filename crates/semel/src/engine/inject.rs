//! Faults on purpose, so that users can test their own steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use semel_core::ledger::Command;

use crate::error::Result;
use crate::store::StoreError;

/// Where a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The claim.
    Begin,
    /// The renewal of a lease.
    Renew,
    /// The report of an outcome.
    Settle,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The command never reaches the store.
    Refuse,
    /// The command is carried out, and its reply is lost.
    LoseReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Planned {
    Fault(Fault),
    Repeat,
}

/// The faults that are planned.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: Mutex<BTreeMap<(Point, Planned), u32>>,
}

impl Faults {
    pub(crate) fn plan_error(&self, point: Point, fault: Fault, times: u32) {
        self.plan(point, Planned::Fault(fault), times);
    }

    pub(crate) fn plan_repeat(&self, point: Point, times: u32) {
        self.plan(point, Planned::Repeat, times);
    }

    fn plan(&self, point: Point, planned: Planned, times: u32) {
        let mut all = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((point, planned)).or_default() += times;
    }

    /// Takes one planned fault, if there is one for this command.
    fn take(&self, command: &Command, planned: Planned) -> bool {
        let point = match command {
            Command::Begin(_) => Point::Begin,
            Command::Renew(_) => Point::Renew,
            Command::Settle(_) => Point::Settle,
            Command::Submit(_)
            | Command::Expire(_)
            | Command::Resolve(_)
            | Command::Retry(_)
            | Command::Cancel(_)
            | Command::Forget(_)
            | Command::Bury(_)
            | Command::Drop(_)
            | Command::Deliver(_)
            | Command::Adopt(_)
            | Command::Breaker(_) => return false,
        };
        let mut all = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return false;
        }
        let Some(left) = all.get_mut(&(point, planned)) else {
            return false;
        };
        *left -= 1;
        if *left == 0 {
            all.remove(&(point, planned));
        }
        true
    }

    pub(crate) fn before(&self, command: &Command) -> Result<()> {
        if self.take(command, Planned::Fault(Fault::Refuse)) {
            return Err(StoreError::Unavailable("a fault was injected".to_owned()).into());
        }
        Ok(())
    }

    pub(crate) fn repeats(&self, command: &Command) -> bool {
        self.take(command, Planned::Repeat)
    }

    pub(crate) fn after(&self, command: &Command) -> Result<()> {
        if self.take(command, Planned::Fault(Fault::LoseReply)) {
            return Err(StoreError::Unknown("a fault was injected".to_owned()).into());
        }
        Ok(())
    }
}
