//! What the engine does, on memory and on SQLite, in virtual time.

mod actions;
mod breakers;
mod cancelled;
mod children;
mod copies;
mod faults;
mod holders;
mod leases;
mod lists;
mod notes;
mod operators;
mod probes;
mod queues;
mod redaction;
mod settled;
pub(crate) mod store;
mod sweeps;
mod tokens;
mod verified;
mod views;
mod waits;
mod world;

/// Runs each test on both stores; time is virtual in both.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::engine::world::World::memory()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::engine::world::World::sqlite()).await;
            })*
        }
    };
}
use on_both_stores;
