//! `semel config`

use serde_json::json;

use crate::harness::World;

#[test]
fn every_setting_is_shown_with_where_it_came_from() {
    let world = World::new();
    let file = world.path("semel.toml");
    std::fs::write(&file, "token = 'secret'\n[run]\nlease = '5s'").expect("it can be written");
    let ran = world.semel(&["--namespace", "shop", "config", "show", "--json"]);
    let seen: Vec<_> = ran
        .json()
        .iter()
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
            row("run.retention", "30d", "default"),
            row("doctor.doubt_limit", "1h", "default"),
        ]
    );
    // Neither is a secret shown to people.
    let ran = world.semel(&["config", "show", "--store", "sqlite:a.db"]);
    ran.expect(
        0,
        "\
SETTING             VALUE        FROM             ENVIRONMENT               ABOUT
store               sqlite:a.db  flag --store     SEMEL_STORE               where the ledger is
namespace           default      default          SEMEL_NAMESPACE           the wall behind which keys live
token               (set)        file semel.toml  SEMEL_TOKEN               the token for a remote store
run.lease           5s           file semel.toml  SEMEL_RUN_LEASE           how long a wrapper may be silent before its attempt is in doubt
run.wait            30s          default          SEMEL_RUN_WAIT            how long to wait for the same operation running elsewhere
run.retention       30d          default          SEMEL_RUN_RETENTION       how long answers are kept
doctor.doubt_limit  1h           default          SEMEL_DOCTOR_DOUBT_LIMIT  how old a doubt may be before `doctor` finds fault with it
",
        "",
    );
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
