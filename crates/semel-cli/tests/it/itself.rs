//! What the command says about itself: help, completions, the manual.

use std::path::{Path, PathBuf};

use crate::harness::World;

const VERBS: [&str; 22] = [
    "backup",
    "breaker",
    "cancel",
    "completions",
    "config",
    "copy",
    "doctor",
    "ensure",
    "forget",
    "inbox",
    "key",
    "list",
    "log",
    "man",
    "resolve",
    "restore",
    "retry",
    "run",
    "show",
    "stats",
    "token",
    "verify",
];

/// Compares with a stored text; SEMEL_BLESS=1 stores it instead.
#[track_caller]
fn check(name: &str, found: &str) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/help");
    let path = directory.join(format!("{name}.txt"));
    if std::env::var_os("SEMEL_BLESS").is_some() {
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        std::fs::write(&path, found).expect("a file can be written");
        return;
    }
    let stored = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; SEMEL_BLESS=1 makes it", path.display()));
    assert_eq!(found, stored, "{name}; SEMEL_BLESS=1 accepts the change");
}

#[test]
fn the_help_of_every_verb_is_as_written_down() {
    let world = World::new();
    let whole = world.semel(&["--help"]);
    assert_eq!((whole.code, whole.stderr.as_str()), (0, ""));
    check("semel", &whole.stdout);
    for verb in VERBS {
        let help = world.semel(&[verb, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(
            help.stdout.contains("\nExamples:\n  semel "),
            "{verb} has no examples"
        );
        check(verb, &help.stdout);
    }
    for (verb, inner) in [
        ("breaker", "list"),
        ("breaker", "open"),
        ("breaker", "close"),
        ("breaker", "reset"),
        ("config", "show"),
        ("inbox", "add"),
        ("inbox", "list"),
        ("inbox", "replay"),
        ("inbox", "test"),
        ("token", "create"),
        ("token", "list"),
        ("token", "revoke"),
    ] {
        let help = world.semel(&[verb, inner, "--help"]);
        check(&format!("{verb}-{inner}"), &help.stdout);
    }
}

#[test]
fn no_verb_at_all_is_answered_with_the_help() {
    let world = World::new();
    let ran = world.semel(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (64, ""));
    assert!(
        ran.stderr
            .starts_with("Makes what agents do happen once\n\nUsage: semel ")
    );
    let ran = world.semel(&["lits"]);
    assert_eq!(ran.code, 64);
    assert!(ran.stderr.contains("'list'"), "{}", ran.stderr);
}

#[test]
fn completions_are_written_for_each_shell_without_a_home() {
    let world = World::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let mut command = world.command(&["completions", shell]);
        command.env_remove("HOME").env_remove("SEMEL_STORE");
        let ran = world.run(&mut command);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        assert!(ran.stdout.contains("doubt-limit"), "{shell}");
    }
    assert_eq!(world.semel(&["completions", "tcsh"]).code, 64);
}

#[test]
fn the_manual_is_one_page_or_all_of_them() {
    let world = World::new();
    let mut command = world.command(&["man"]);
    let ran = world.run(command.env_remove("HOME").env_remove("SEMEL_STORE"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(
        ran.stdout
            .contains(".SH NAME\nsemel \\- Makes what agents do happen once")
    );
    let out = world.path("share/man/man1");
    let directory = out.to_str().expect("it is text");
    world.semel(&["man", "--out", directory]).expect(0, "", "");
    for verb in VERBS {
        assert!(
            Path::new(&out).join(format!("semel-{verb}.1")).exists(),
            "{verb}"
        );
    }
    std::fs::write(world.path("file"), "").expect("a file can be written");
    let ran = world.semel(&["man", "--out", "file/below"]);
    assert_eq!(ran.code, 64, "{}", ran.stderr);
}
