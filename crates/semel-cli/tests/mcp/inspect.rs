//! `semel mcp inspect`: what a server's tools are, and how each would be treated.

use std::fs;

use serde_json::{Value, json};

use crate::desk::{Desk, Era, Remote};
use crate::harness::Ran;
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};

const TABLE: &str = "\
TOOL       CLASS   WHY      SERVER SAYS  OWN KEY
charge     unsafe  default  -            -
slow       unsafe  default  -            -
balance    unsafe  default  safe         -
set_label  unsafe  default  idempotent   -
pay        unsafe  default  -            /idempotency_key
decline    unsafe  default  -            -
flaky      unsafe  default  -            -
later      unsafe  default  -            -
ask        unsafe  default  -            -
fail       unsafe  default  -            -
lookup     unsafe  default  safe         -
route      unsafe  default  -            -
";

fn inspect(desk: &Desk, flags: &[&str], server: &[String]) -> Ran {
    let mut words = vec!["mcp", "inspect"];
    words.extend(flags);
    words.extend(server.iter().map(String::as_str));
    let mut command = desk.world().command(&words);
    desk.furnish(&mut command);
    desk.world().run(&mut command)
}

fn child(desk: &Desk) -> Vec<String> {
    let mut words = vec!["--".to_owned()];
    words.extend(desk.words());
    words
}

#[test]
fn a_servers_tools_are_listed_whatever_it_speaks_and_none_is_called() {
    for era in ["legacy", "modern", "both"] {
        let desk = Desk::with(&[("FIXTURE_ERA", era)]);
        inspect(&desk, &[], &child(&desk)).expect(0, TABLE, "");
        let remote = Remote::start(&desk);
        let server = ["--upstream".to_owned(), remote.url()];
        inspect(&desk, &[], &server).expect(0, TABLE, "");
        assert_eq!(desk.received_of("tools/call"), 0, "{era}");
        assert!(!desk.world().path("data").exists(), "no ledger is needed");
    }
}

#[test]
fn programs_get_a_tool_per_line_and_settings_count() {
    let desk = Desk::new();
    let toml = "[mcp]\ntrust_annotations = \"on\"\n[mcp.tools.slow]\nclass = \"idempotent\"\n";
    fs::write(desk.world().path("semel.toml"), toml).expect("it can be written");
    let ran = inspect(&desk, &["--json"], &child(&desk));
    let lines = ran.json();
    let tool = |name: &str| -> &Value {
        let mut named = lines.iter().filter(|line| line["name"] == name);
        named.next().expect("it is listed")
    };
    assert_eq!(lines.len(), TABLE.lines().count() - 1);
    assert_eq!(
        tool("pay"),
        &json!({"name": "pay", "class": "unsafe", "why": "default", "annotated": null,
                "native_keys": ["/idempotency_key"]})
    );
    for (name, class, why) in [
        ("balance", "safe", "annotation"),
        ("set_label", "idempotent", "annotation"),
        ("slow", "idempotent", "config"),
        ("charge", "unsafe", "default"),
    ] {
        let found = tool(name);
        assert_eq!(
            (&found["class"], &found["why"]),
            (&json!(class), &json!(why))
        );
    }
}

#[test]
fn settings_to_begin_with_are_settings() {
    let desk = Desk::new();
    let ran = inspect(&desk, &["--write", "semel.toml"], &child(&desk));
    ran.expect(0, TABLE, "");
    let path = desk.world().path("semel.toml");
    let written = fs::read_to_string(&path).expect("it is there");
    for lines in [
        "[mcp.tools.\"charge\"]\nclass = \"unsafe\"\n",
        "[mcp.tools.\"balance\"]\n# class = \"safe\"\n",
        "[mcp.tools.\"pay\"]\nclass = \"unsafe\"\n# inject = \"/idempotency_key\"\n",
    ] {
        assert!(written.contains(lines), "{lines}: {written}");
    }
    // What is there is not written over.
    let ran = inspect(&desk, &["--write", "semel.toml"], &child(&desk));
    ran.expect(
        64,
        "",
        "semel: semel.toml cannot be written: File exists (os error 17)\n\
         hint: settings that are there are not touched: name another file\n",
    );
    assert_eq!(fs::read_to_string(&path).expect("it is there"), written);
    // With every # taken away they are what the server says of itself.
    let believed = written.replace("\n# class", "\nclass");
    let believed = believed.replace("\n# inject", "\ninject");
    fs::write(&path, believed).expect("it can be written");
    let setup = Setup::on(
        desk,
        Way::Gateway(Carrier::Stdio),
        Carrier::Stdio,
        Era::Modern,
    );
    let mut client = setup.client();
    client.call("balance", &json!({}));
    assert_eq!(setup.records().len(), 0, "it is safe");
    let heard = client.call("charge", &order());
    assert_eq!(
        told(&heard),
        Told::Outcome("charge 1".to_owned()),
        "{heard:?}"
    );
    assert_eq!(setup.records().len(), 1);
}

#[test]
fn a_server_that_fails_is_told() {
    let desk = Desk::new();
    for (server, why) in [
        (
            &["--", "sh", "-c", "read line; exit 3"][..],
            "the server ended with exit code 3",
        ),
        (&["--", "/nowhere/server"], "No such file or directory"),
        (
            &["--upstream", "http://127.0.0.1:9/mcp"],
            "Connection refused",
        ),
    ] {
        let server: Vec<_> = server.iter().map(|&word| word.to_owned()).collect();
        let ran = inspect(&desk, &["--write", "semel.toml"], &server);
        assert_ne!(ran.code, 0, "{server:?}");
        assert_eq!(ran.stdout, "", "{server:?}");
        assert!(
            ran.stderr
                .starts_with("semel: the server cannot be inspected: "),
            "{server:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains(why), "{server:?}: {}", ran.stderr);
        assert!(!desk.world().path("semel.toml").exists(), "{server:?}");
    }
    let ran = inspect(&desk, &[], &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (64, ""), "{ran:?}");
}
