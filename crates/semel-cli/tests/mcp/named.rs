//! Servers that the settings name.

use crate::desk::Era;
use crate::market::Market;
use crate::setup::Carrier;

#[test]
fn all_servers_are_inspected() {
    let market = Market::new(Carrier::Stdio, Era::Modern);
    let world = market.bank.world();
    let shown = world.semel(&["mcp", "inspect", "--json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let tools = shown.json();
    let of = |server: &str| tools.iter().filter(|it| it["server"] == server).count();
    assert_eq!((of("bank"), of("shop"), tools.len()), (5, 6, 11));
    let shown = world.semel(&["mcp", "inspect", "--write", "tools.toml"]);
    assert!(shown.stdout.starts_with("SERVER  TOOL"), "{shown:?}");
    let written = std::fs::read_to_string(world.path("tools.toml")).expect("it is there");
    assert!(
        written.contains("[mcp.servers.shop.tools.\"charge\"]"),
        "{written}"
    );
}

#[test]
fn servers_that_are_not_well_named_are_refused_without_their_secrets() {
    let market = Market::new(Carrier::Stdio, Era::Modern);
    let world = market.bank.world();
    for (table, message) in [
        (
            "[mcp.servers.\"a b\"]\nurl = \"http://h/\"",
            "1 to 32 letters",
        ),
        (
            "[mcp.servers.a]\ncommand = \"c\"\nurl = \"http://h/\"",
            "one or the other",
        ),
        ("[mcp.servers.a]", "neither `command` nor `url`"),
        (
            "[mcp.servers.a]\ncomand = \"s3cret\"",
            "did you mean `command`?",
        ),
        (
            "[mcp.servers.a]\ncommand = [\"s3cret\"]",
            "must be a string",
        ),
        (
            "[mcp.servers.a]\ncommand = \"c\"\nenv = { T = [\"s3cret\"] }",
            "`env.T` must be a string",
        ),
        (
            "[mcp.servers.a]\nurl = \"http://h/\"\nheaders = { A = \"s3cret\\n\" }",
            "no header has",
        ),
        (
            "[mcp.servers.a]\nurl = \"http://h/\"\nheaders = { Host = \"s3cret\" }",
            "the gateway itself",
        ),
        (
            "[mcp.servers.a]\nurl = \"http://u:s3cret@h/\"",
            "do not go into the address",
        ),
        (
            "[mcp.servers.a.tools.t]\nclas = \"safe\"\n[mcp.servers.a]\nurl = \"http://h/\"",
            "mcp.servers.a.tools.t: unknown",
        ),
        (
            "[mcp.server.a]\nurl = \"s3cret\"",
            "did you mean `mcp.servers`?",
        ),
    ] {
        std::fs::write(world.path("semel.toml"), table).expect("it can be written");
        let refused = world.semel(&["mcp"]);
        assert_eq!(refused.code, 64, "{table}: {refused:?}");
        assert!(refused.stderr.contains(message), "{table}: {refused:?}");
        assert!(!refused.stderr.contains("s3cret"), "{table}: {refused:?}");
    }
    std::fs::write(world.path("semel.toml"), market.bank_table()).expect("it can be written");
    let shown = world.semel(&["config", "show"]);
    assert!(!shown.stdout.contains("FIXTURE_TOOLS"), "{shown:?}");
    let both = [market.bank_table(), market.shop_table()].join("\n");
    std::fs::write(world.path("semel.toml"), both).expect("it can be written");
    let refused = world.semel(&["mcp", "--name", "x"]);
    assert!(
        refused.stderr.contains("--name is for one server"),
        "{refused:?}"
    );
    std::fs::write(world.path("semel.toml"), "").expect("it can be written");
    let refused = world.semel(&["mcp"]);
    assert!(refused.stderr.contains("[mcp.servers.NAME]"), "{refused:?}");
}
