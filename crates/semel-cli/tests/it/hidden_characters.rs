//! Names with characters that a terminal hides or shows elsewhere: they are escaped wherever they are written.

use crate::harness::World;

/// Reverses what follows, ends that, and shows nothing at all.
const HIDDEN: [char; 5] = ['\u{202e}', '\u{2069}', '\u{61c}', '\u{200b}', '\u{e0041}'];

#[test]
fn hidden_characters_of_a_name_are_escaped_in_every_output() {
    let world = World::new();
    let hidden: String = HIDDEN.iter().collect();
    let name = format!("pay{hidden}yap");
    let words = ["run", "--key", "k", "--name", &name, "--", "false"];
    assert_eq!(world.semel(&words).code, 1);
    let raw = |text: &str| text.contains(HIDDEN);
    for words in [
        &["list"][..],
        &["list", "--name", &name],
        &["show", "k"],
        &["log"],
        &["stats"],
        &["retry", "k", "--dry-run"],
        &["forget", "k", "--dry-run"],
        &["list", "--state", &name],
        &["show", &name],
        &["run", "--key", "k", "--name", &name, "--", "true"],
    ] {
        for json in [&[][..], &["--json"]] {
            let ran = world.semel(&[words, json].concat());
            assert!(!raw(&ran.stdout) && !raw(&ran.stderr), "{words:?}: {ran:?}");
        }
    }
    let listed = world.semel(&["list"]).stdout;
    assert!(listed.contains("pay\\u{202e}"), "{listed}");
    // In JSON it is another spelling of the same name.
    let record = world.semel(&["show", "k", "--json"]).json().remove(0);
    assert_eq!(record["name"], name.as_str());
}
