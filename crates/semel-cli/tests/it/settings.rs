//! `semel config`

use serde_json::json;

use crate::harness::World;

#[test]
fn every_setting_is_shown_with_where_it_came_from() {
    let world = World::new();
    let file = world.path("semel.toml");
    let text = "token = 'hush-7'\n[run]\nlease = '5s'\n[serve]\nstreams = 7\nhosts = ['a', 'b']";
    std::fs::write(&file, text).expect("it can be written");
    let ran = world.semel(&["--namespace", "shop", "config", "show", "--json"]);
    let seen: Vec<_> = ran
        .json()
        .iter()
        .filter(|line| line["origin"] != "default" || line["name"] == "run.wait")
        .map(|line| {
            (
                line["name"].clone(),
                line["value"].clone(),
                line["origin"].clone(),
            )
        })
        .collect();
    let row = |name, value, origin| (json!(name), json!(value), json!(origin));
    assert_eq!(
        seen,
        [
            row(
                "store",
                "sqlite:DIR/data/semel.db",
                "environment SEMEL_STORE"
            ),
            row("namespace", "shop", "flag --namespace"),
            row("token", "(set)", "file semel.toml"),
            row("run.lease", "5s", "file semel.toml"),
            row("run.wait", "30s", "default"),
            row("serve.hosts", r#"["a","b"]"#, "file semel.toml"),
            row("serve.streams", "7", "file semel.toml"),
        ]
    );
    // Neither is a secret shown to people.
    let ran = world.semel(&["config", "show", "--store", "sqlite:a.db"]);
    let shown = &ran.stdout;
    let lines: Vec<_> = shown.lines().map(|line| line.split("  ").next()).collect();
    assert_eq!(lines[..3], ["SETTING", "store", "namespace"].map(Some));
    assert!(!shown.contains("hush-7"), "{shown}");
}

#[test]
fn a_setting_that_is_not_set_is_null() {
    let ran = World::new().semel(&["config", "show", "--json"]);
    let token = &ran.json()[2];
    assert_eq!(
        (&token["name"], &token["value"]),
        (&json!("token"), &json!(null))
    );
    assert_eq!(token["env"], "SEMEL_TOKEN");
    assert_eq!(token["about"], "the token for a remote store");
}
