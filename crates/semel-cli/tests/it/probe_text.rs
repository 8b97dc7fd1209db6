//! A store from before the ledger kept digests: it has texts of probes, which no command shows or runs.

use semel::core::Digest;

use super::harness::World;

/// Stands in every probe of the fixture.
const TEXT: &str = "fixture-probe-text";

/// The probe of the operation `doubted`.
const PROBE: &str = "grep -x fixture-probe-text posted.log";

/// Copies the fixture, which was made by:
///
/// ```text
/// semel run --key doubted --lease 1s --probe 'grep -x fixture-probe-text posted.log' -- sh -c 'kill -9 $$'
/// semel run --key probed --lease 1s --probe 'exit 1 # fixture-probe-text' -- sh -c "$SCRIPT"     # killed
/// semel run --key probed -- sh -c "$SCRIPT"     # the stored probe ran, and then the script
/// semel run --key unsure --lease 1s --probe 'exit 2 # fixture-probe-text' -- sh -c 'kill -9 $$'
/// semel run --key unsure -- sh -c 'kill -9 $$'     # the stored probe ran
/// ```
fn old_store() -> World {
    let world = World::new();
    std::fs::create_dir_all(world.path("data")).expect("it is made");
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/fixtures/probe-text.db"
    );
    let bytes = std::fs::read(fixture).expect("the fixture is there");
    let holds = bytes.windows(TEXT.len()).any(|it| it == TEXT.as_bytes());
    assert!(holds, "the fixture has the texts");
    std::fs::write(world.path("data/semel.db"), bytes).expect("it is written");
    world
}

#[test]
fn old_store_is_verified_and_shows_no_text_of_a_probe() {
    let world = old_store();
    let verified = world.semel(&["verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    for words in [
        &["show", "doubted", "--json"][..],
        &["show", "doubted"],
        &["list", "--json"],
        &["log", "--json"],
    ] {
        let shown = world.semel(words);
        assert_eq!(shown.code, 0, "{words:?}: {shown:?}");
        assert!(!shown.stdout.contains(TEXT), "{words:?}: {shown:?}");
    }
    let shown = world.semel(&["show", "doubted", "--json"]);
    let digest = Digest::of(PROBE.as_bytes()).hex();
    assert_eq!(shown.json()[0]["probe_digest"], digest);
}

#[test]
fn probe_of_an_old_store_is_run_only_by_a_call_that_brings_it() {
    let world = old_store();
    std::fs::write(world.path("posted.log"), format!("{TEXT}\n")).expect("it is written");
    let effect = ["--", "sh", "-c", "kill -9 $$"];
    let run = ["run", "--key", "doubted"];
    for flags in [&[][..], &["--probe", "true"]] {
        let ran = world.semel(&[&run, flags, &effect].concat());
        assert_eq!(ran.code, 120, "{flags:?}: {ran:?}");
    }
    let ran = world.semel(&["resolve", "doubted", "--probe", "--yes"]);
    assert_eq!(ran.code, 64, "{ran:?}");
    let ran = world.semel(&[&run[..], &["--probe", PROBE], &effect].concat());
    assert_eq!((ran.code, ran.stdout), (0, format!("{TEXT}\n")));
    let verified = world.semel(&["verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn copy_of_an_old_store_has_no_text_of_a_probe() {
    let world = old_store();
    let store = |name: &str| format!("sqlite:{}", world.path(name).display());
    let (from, to) = (store("data/semel.db"), store("new/semel.db"));
    std::fs::create_dir_all(world.path("new")).expect("it is made");
    let copied = world.semel(&["copy", "--quiet", "--from", &from, "--to", &to]);
    assert_eq!(copied.code, 0, "{copied:?}");
    let verified = world.semel(&["--store", &to, "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    for name in ["new/semel.db", "new/semel.db-wal"] {
        let bytes = std::fs::read(world.path(name)).unwrap_or_default();
        let holds = bytes.windows(TEXT.len()).any(|it| it == TEXT.as_bytes());
        assert!(!holds, "{name}");
    }
}
