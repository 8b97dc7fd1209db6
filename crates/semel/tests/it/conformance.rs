//! The conformance suite on the stores of this crate.

use std::sync::Arc;

use semel_testkit::conformance::hand::{complete, spec};
use semel_testkit::conformance::{self, Bed, ManualClock, MemoryBed, SqliteBed};
use semel_testkit::pgbouncer::BouncedBed;
use semel_testkit::postgres::{PartitionedBed, PostgresBed};

fn memory() -> Arc<dyn Bed> {
    Arc::new(MemoryBed::new(&Arc::new(ManualClock::default())))
}

fn sqlite() -> Arc<dyn Bed> {
    Arc::new(SqliteBed::new(&Arc::new(ManualClock::default())))
}

fn postgres() -> Arc<dyn Bed> {
    Arc::new(PostgresBed::new(&Arc::new(ManualClock::default())))
}

fn partitioned() -> Arc<dyn Bed> {
    Arc::new(PartitionedBed::new(&Arc::new(ManualClock::default())))
}

fn bounced() -> Arc<dyn Bed> {
    Arc::new(BouncedBed::new(&Arc::new(ManualClock::default())))
}

macro_rules! conforms {
    ($($group:ident),*) => {
        $(mod $group {
            use super::{bounced, conformance, memory, partitioned, postgres, sqlite};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                conformance::run(conformance::$group::CASES, memory).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_sqlite() {
                conformance::run(conformance::$group::CASES, sqlite).await;
            }

            /// A runtime of one thread must not block, so its writes go by the writer's thread.
            #[tokio::test]
            async fn in_sqlite_by_its_writer_thread() {
                conformance::run(conformance::$group::CASES, sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_postgres() {
                conformance::run(conformance::$group::CASES, postgres).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_partitioned_postgres() {
                conformance::run(conformance::$group::CASES, partitioned).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_postgres_behind_pgbouncer() {
                conformance::run(conformance::$group::CASES, bounced).await;
            }
        })*
    };
}

macro_rules! conforms_from_afar {
    ($($group:ident),*) => {
        mod remote {
            use super::{conformance, memory, sqlite};
            use std::sync::Arc;

            use semel_testkit::conformance::Bed;
            use semel_testkit::remote::RemoteBed;

            fn served_memory() -> Arc<dyn Bed> {
                Arc::new(RemoteBed::new(memory()))
            }

            fn served_sqlite() -> Arc<dyn Bed> {
                Arc::new(RemoteBed::new(sqlite()))
            }

            $(mod $group {
                use super::{conformance, served_memory, served_sqlite};

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn over_memory() {
                    conformance::run(conformance::$group::BEHAVIOUR, served_memory).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn over_sqlite() {
                    conformance::run(conformance::$group::BEHAVIOUR, served_sqlite).await;
                }
            })*
        }
    };
}

conforms_from_afar![
    commits, payloads, lists, logs, crowds, handles, kin, lines, breakers
];

conforms![
    commits,
    payloads,
    lists,
    logs,
    crowds,
    handles,
    removal,
    tokens,
    principal_keys,
    kin,
    lines,
    breakers
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_payloads_are_stored_compressed() {
    const SIZE: usize = 1_000_000;
    let bed = SqliteBed::new(&Arc::new(ManualClock::default()));
    let store = bed.open().await;
    complete(&*store, &spec("order-7"), &vec![b'x'; SIZE]).await;
    let directory = bed.path();
    let directory = directory.parent().expect("a file lies in a directory");
    let entries = std::fs::read_dir(directory).expect("it lists");
    let sizes = entries.map(|entry| entry.and_then(|it| it.metadata()).map(|it| it.len()));
    // The index of the write-ahead log alone takes 32 KiB.
    let stored: u64 = sizes.map(|size| size.expect("it has a size")).sum();
    assert!(stored < SIZE as u64 / 2, "{stored} bytes");
}
