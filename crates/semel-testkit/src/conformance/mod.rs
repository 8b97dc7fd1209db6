//! The conformance suite: what every store must do, asked of it through its trait only.
//!
//! A case is an async function over a [`Bed`], which makes one store and opens it again and again.
//! Cases are grouped by what they are about; [`run`] runs a group, each case on a store of its own.

mod bed;
pub mod breakers;
mod clock;
pub mod commits;
pub mod crowds;
pub mod hand;
pub mod handles;
pub mod kin;
pub mod lines;
pub mod lists;
pub mod logs;
pub mod payloads;
pub mod principal_keys;
pub mod removal;
pub mod tokens;

use std::fmt;
use std::sync::Arc;

use semel::store::Pending;

pub use bed::{Bed, MemoryBed, SqliteBed, scratch};
pub use clock::{ManualClock, START};

/// One thing that a store must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// What it must do, in words.
    pub name: &'static str,
    /// Asks it of a fresh store, and panics when it does something else.
    pub run: fn(Arc<dyn Bed>) -> Pending<'static, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Lists the cases of a file. They are private there, so that the compiler names one that was
/// left out. Those of `behaviour` ask for commands and look; the others commit what the rules decided
/// here, or do what only the machine of the store does.
macro_rules! cases {
    (behaviour: [$($name:ident),* $(,)?], storage: [$($other:ident),* $(,)?] $(,)?) => {
        /// The cases of this group.
        pub const CASES: &[$crate::conformance::Case] =
            &[$($crate::conformance::case!($name),)* $($crate::conformance::case!($other)),*];

        /// Those that a remote engine passes, too.
        pub const BEHAVIOUR: &[$crate::conformance::Case] = &[$($crate::conformance::case!($name)),*];
    };
    ($($name:ident),* $(,)?) => {
        /// The cases of this group.
        pub const CASES: &[$crate::conformance::Case] = &[$($crate::conformance::case!($name)),*];
    };
}

macro_rules! case {
    ($name:ident) => {
        $crate::conformance::Case {
            name: stringify!($name),
            run: |bed| Box::pin($name(bed)),
        }
    };
}
use {case, cases};

/// Runs a group of cases to its end, each on a fresh store.
///
/// # Panics
/// With the names of the cases that failed.
pub async fn run(cases: &[Case], fresh: impl Fn() -> Arc<dyn Bed>) {
    let mut failed = vec![];
    for case in cases {
        // In a task of its own, so that one that panics does not hide the others.
        if tokio::spawn((case.run)(fresh())).await.is_err() {
            failed.push(case.name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases failed: {failed:?}",
        failed.len(),
        cases.len()
    );
}
