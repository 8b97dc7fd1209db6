//! Standard output that takes nothing.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::samples::world;

const VERBS: [&[&str]; 12] = [
    &["list"],
    &["list", "--json"],
    &["show", "order-1"],
    &["show", "order-1", "--json"],
    &["log"],
    &["stats"],
    &["doctor"],
    &["config", "show"],
    &["completions", "bash"],
    &["man"],
    &["resolve", "order-3", "--done", "--dry-run"],
    &["retry", "order-2", "--dry-run"],
];

#[test]
fn a_reader_that_went_away_is_no_error() {
    let world = world();
    for args in VERBS {
        let (reader, writer) = std::io::pipe().expect("there are pipes");
        drop(reader);
        let mut command = world.command(args);
        let output = command.stdout(writer).stderr(Stdio::piped()).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("semel: "), "{args:?}: {said}");
    }
}

#[test]
fn a_decision_is_made_although_nobody_reads_the_receipt() {
    let world = world();
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let mut command = world.command(&["resolve", "order-3", "--not-done"]);
    let status = command.stdout(writer).status().expect("it runs");
    assert_eq!(status.code(), Some(0));
    let record = world.semel(&["show", "order-3", "--json"]).json().remove(0);
    assert_eq!(record["state"], "pending");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let world = world();
    let full = OpenOptions::new().write(true).open("/dev/full");
    let Ok(full) = full else {
        // Only Linux has it.
        return;
    };
    for args in VERBS {
        let full = full.try_clone().expect("it can be shared");
        let mut command = world.command(args);
        let output = command.stdout(full).stderr(Stdio::piped()).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(
            said.contains("semel: standard output cannot be written: "),
            "{args:?}: {said}"
        );
    }
}
