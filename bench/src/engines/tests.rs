//! What every contender must do before its speed means anything.

use std::future::Future;

use super::*;
use crate::keys::Keys;

fn on_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

async fn remembers<C: Embedded>() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let contender = C::open(directory.path()).await.unwrap();
    let keys = Keys::new().unwrap();
    for _ in 0..20 {
        let number = keys.take();
        let cycle = contender.cycle(keys.key(number), keys.result(number));
        cycle.await.unwrap();
    }
    for number in 0..20 {
        let found = contender.replay(keys.key(number)).await.unwrap();
        assert_eq!(found.as_ref(), keys.result(number));
    }
    let again = contender.cycle(keys.key(3), keys.result(4)).await;
    assert!(again.is_err(), "a taken key was given away again");
    let found = contender.replay(keys.key(3)).await.unwrap();
    assert_eq!(found.as_ref(), keys.result(3));
}

#[test]
fn semel_remembers_results_and_refuses_duplicates() {
    on_runtime(remembers::<Semel>());
}

#[test]
fn the_raw_log_remembers_results_and_refuses_duplicates() {
    on_runtime(remembers::<RawLog>());
}

#[test]
fn the_naive_table_remembers_results_and_refuses_duplicates() {
    on_runtime(remembers::<NaiveSqlite>());
}

#[test]
fn engines_are_measured_in_their_usual_order() {
    assert_eq!(chosen(&[]), Name::ALL);
    assert_eq!(
        chosen(&[Name::NaiveSqlite, Name::Semel]),
        [Name::Semel, Name::NaiveSqlite]
    );
}

#[test]
fn names_on_the_command_line_are_those_of_the_report() {
    for name in Name::ALL {
        let value = name.to_possible_value().unwrap();
        assert_eq!(value.get_name(), name.as_str());
    }
}
