//! Secrets: never shown, and changed while the server runs.

use semel::core::webhook::Scheme;

use crate::server::{Server, wait_until};
use crate::setup::{SECRETS, Sender, knowing, start, stored, world};

#[test]
fn no_secret_is_ever_shown() {
    let world = world();
    let mut command = knowing(&world, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("SEMEL_SERVE_LOG", "trace"));
    let mut shown = vec![];
    for sender in ["standard", "stripe", "github", "slack", "shop"].map(Sender::new) {
        let body = sender.body("evt_1");
        shown.push(format!("{:?}", sender.deliver(&server, "evt_1")));
        shown.push(format!("{:?}", sender.deliver(&server, "evt_1")));
        let wrong = server.ask(sender.signed("evt_1", &body).body(b"x"));
        shown.push(format!("{wrong:?}"));
    }
    shown.push(format!("{:?}", server.get("/metrics")));
    shown.push(format!("{:?}", server.get("/openapi.json")));
    shown.push(server.said());
    for words in [
        &["inbox", "list"][..],
        &["inbox", "list", "--json"],
        &["config", "show", "--json"],
        &["doctor", "--json"],
        &["list", "--json"],
        &["log", "--json"],
        &[
            "inbox",
            "add",
            "x",
            "--scheme",
            "stripe",
            "--queue",
            "q",
            "--secret-env",
            "STRIPE",
        ],
        &["inbox", "replay", "stripe", "evt_1"],
    ] {
        let ran = world.run(&mut knowing(&world, words));
        assert_eq!(ran.code, 0, "{ran:?}");
        shown.push(format!("{ran:?}"));
    }
    for (_, secret) in SECRETS {
        let part = secret.strip_prefix("whsec_").unwrap_or(secret);
        for text in &shown {
            assert!(!text.contains(part), "{text}");
        }
    }
}

/// A wrong secret is said without showing it.
#[test]
fn what_is_no_secret_is_refused_without_showing_it() {
    let world = world();
    let text = "[inbox.a]\nscheme = \"stripe\"\nqueue = \"q\"\nsecrets = [\"hush-inline-1\"]";
    std::fs::write(world.path("semel.toml"), text).expect("it can be written");
    let ran = world.semel(&["inbox", "list"]);
    assert_eq!(ran.code, 64);
    assert!(
        ran.stderr.contains("a secret itself does not belong here"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("hush"), "{ran:?}");
    for (scheme, value, said) in [
        ("standard", "hush-not-base64", "whsec_"),
        ("standard", "whpk_hushhush", "asymmetric"),
        ("github", "hush", "at least 8 bytes"),
    ] {
        let text =
            format!("[inbox.a]\nscheme = \"{scheme}\"\nqueue = \"q\"\nsecrets = [\"env:A\"]");
        std::fs::write(world.path("semel.toml"), text).expect("it can be written");
        let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
        let server = Server::spawn(command.env("A", value));
        let log = said_of(&server, "inbox.a: secrets: env:A: ");
        assert!(
            log.contains(said) && !server.said().contains("hush"),
            "{log}"
        );
        let listed = world.run(world.command(&["inbox", "list"]).env("A", value));
        assert!(listed.stderr.contains(said), "{listed:?}");
        assert!(!format!("{listed:?}").contains("hush"), "{listed:?}");
    }
    let server = Server::start(&world);
    said_of(&server, "inbox.a: secrets: env:A: it is not set");
}

/// Returns the line of the log that begins so.
#[track_caller]
fn said_of(server: &Server, begins: &str) -> String {
    let line = server.wait_for_line(|line| {
        let message = line["message"].as_str()?;
        message.starts_with(begins).then(|| message.to_owned())
    });
    line.expect("it is said")
}

/// What no server could use is found out before it is written down.
#[test]
fn bad_secrets_are_refused_by_add_and_leave_nothing_behind() {
    let world = crate::harness::World::new();
    let long = "x".repeat(1_025);
    let cases: [(&str, &str, &str, &str); 8] = [
        ("empty", "stripe", "", "at least 8 bytes"),
        ("newline", "stripe", "\n", "at least 8 bytes"),
        ("return", "github", "\r\n", "at least 8 bytes"),
        ("short", "slack", "1234567\n", "at least 8 bytes"),
        ("long", "github", &long, "at most 1024 bytes"),
        ("lines", "stripe", "hush-line-1\nhush-line-2\n", "one line"),
        ("plain", "standard", "hush-not-base64", "whsec_"),
        ("half", "standard", "whpk_hushhush", "asymmetric"),
    ];
    for (name, scheme, text, said) in cases {
        std::fs::write(world.path(name), text).expect("it can be written");
        let add = ["inbox", "add", "a", "--scheme", scheme, "--queue", "q"];
        let file = world.semel(&[&add[..], &["--secret-file", name]].concat());
        let mut variable = world.command(&[&add[..], &["--secret-env", "SECRET"]].concat());
        let variable = world.run(variable.env("SECRET", text.lines().next().unwrap_or_default()));
        for ran in [&file, &variable] {
            if name == "lines" && ran.stderr == variable.stderr {
                // One of its lines is a secret.
                std::fs::remove_file(world.path("semel.toml")).expect("it was added");
                continue;
            }
            assert_eq!(ran.code, 64, "{name}: {ran:?}");
            assert!(ran.stderr.contains("hint: "), "{name}: {ran:?}");
            assert!(!format!("{ran:?}").contains("hush"), "{name}: {ran:?}");
        }
        assert!(file.stderr.contains(said), "{name}: {file:?}");
        assert!(!world.path("semel.toml").exists(), "{name}");
    }
    let missing = world.semel(&[
        "inbox",
        "add",
        "a",
        "--scheme",
        "stripe",
        "--queue",
        "q",
        "--secret-file",
        "nowhere",
    ]);
    assert_eq!(missing.code, 64, "{missing:?}");
    assert!(!world.path("semel.toml").exists());
}

/// A server with nine good sources must not stand still for the tenth.
#[test]
fn bad_secret_disables_only_its_source() {
    let world = crate::harness::World::new();
    let write =
        |name: &str, text: &str| std::fs::write(world.path(name), text).expect("it can be written");
    write("good", "a-good-secret\n");
    write("bad", "\n");
    let source = |name: &str| {
        format!(
            "[inbox.{name}]\nscheme = \"stripe\"\nqueue = \"work\"\nsecrets = [\"file:{name}\"]\n"
        )
    };
    write(
        "semel.toml",
        &format!("{}{}", source("good"), source("bad")),
    );
    let server = Server::start(&world);
    said_of(&server, "inbox.bad: secrets: file:");
    let [good, bad] =
        ["good", "bad"].map(|name| Sender::with(name, Scheme::Stripe, "a-good-secret"));
    good.deliver(&server, "evt_1").expect(202);
    bad.deliver(&server, "evt_1").problem(401, "unauthorized");
    let listed = world.semel(&["inbox", "list", "--json"]).json();
    let problem = |name: &str| {
        let source = listed.iter().find(|source| source["name"] == name);
        source.expect("it is listed")["problem"].clone()
    };
    assert!(problem("good").is_null(), "{listed:?}");
    let said = problem("bad");
    assert!(
        said.as_str()
            .is_some_and(|it| it.contains("at least 8 bytes")),
        "{said}"
    );
    let doctor = world.semel(&["doctor", "--json"]).json().remove(0);
    let check = doctor["checks"]
        .as_array()
        .expect("there are checks")
        .iter();
    let check = check.clone().find(|check| check["name"] == "inbox");
    assert_eq!(check.expect("it looks")["status"], "warn", "{doctor}");
    // Once the secret is there, its source takes deliveries without a restart.
    write("bad", "a-good-secret\n");
    wait_until("it counts", || bad.deliver(&server, "evt_1").status == 202);
}

/// With a dot in the id, the signed bytes could be read as another id, time and body.
#[test]
fn standard_webhooks_with_a_dot_in_their_id_are_refused() {
    let world = world();
    let server = start(&world);
    let sender = Sender::new("standard");
    sender.deliver(&server, "msg_1").expect(202);
    for id in ["msg.1", "msg_1.", ".msg_1", "msg_1.1700000000"] {
        sender.deliver(&server, id).problem(401, "unauthorized");
    }
    assert_eq!(stored(&world).1, 1);
}

/// The settings name secrets: no umask may let others change them, or keep the server from reading them.
#[test]
fn settings_file_is_made_with_one_mode_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;

    for umask in ["000", "022", "077"] {
        let world = crate::harness::World::new();
        let prepared = world.command(&[
            "inbox",
            "add",
            "a",
            "--scheme",
            "stripe",
            "--queue",
            "q",
            "--secret-env",
            "A",
        ]);
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "umask $0; exec \"$@\"", umask])
            .arg(prepared.get_program())
            .args(prepared.get_args())
            .env_clear()
            .envs(
                prepared
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(world.path(""));
        let ran = world.run(&mut command);
        assert_eq!(ran.code, 0, "{ran:?}");
        let file = std::fs::metadata(world.path("semel.toml")).expect("it was made");
        assert_eq!(file.permissions().mode() & 0o7777, 0o644, "{umask}");
    }
}

/// The sender's secret is replaced: both count for a while, then the new one only. The server runs on.
#[test]
fn secrets_are_rotated_while_the_server_runs() {
    let world = world();
    let write =
        |name: &str, text: &str| std::fs::write(world.path(name), text).expect("it can be written");
    let settings = |files: &str| {
        write(
            "semel.toml",
            &format!(
                "[inbox.stripe]\nscheme = \"stripe\"\nqueue = \"work\"\nsecrets = [{files}]\n"
            ),
        );
    };
    write("old", "an-old-secret\n");
    write("new", "a-new-secret\n");
    settings(r#""file:old""#);
    let server = start(&world);
    let [old, new] =
        ["an-old-secret", "a-new-secret"].map(|it| Sender::with("stripe", Scheme::Stripe, it));
    old.deliver(&server, "evt_1").expect(202);
    new.deliver(&server, "evt_1").problem(401, "unauthorized");
    settings(r#""file:old", "file:new""#);
    wait_until("both count", || new.deliver(&server, "evt_1").status == 200);
    old.deliver(&server, "evt_1").expect(200);
    settings(r#""file:new""#);
    wait_until("the old one counts no more", || {
        old.deliver(&server, "evt_1").status == 401
    });
    // A file that is replaced counts, too.
    write("new", "an-old-secret");
    wait_until("the file is read again", || {
        old.deliver(&server, "evt_1").status == 200
    });
    new.deliver(&server, "evt_1").problem(401, "unauthorized");
    // A secret that is taken away counts no more, and that is said.
    std::fs::remove_file(world.path("new")).expect("it is there");
    wait_until("it counts no more", || {
        old.deliver(&server, "evt_1").status == 401
    });
    let said = server.wait_for_line(|line| {
        let message = line["message"].as_str()?;
        message
            .starts_with("inbox.stripe: secrets: file:")
            .then_some(())
    });
    assert!(said.is_some());
    write("new", "a-new-secret");
    wait_until("it is there again", || {
        new.deliver(&server, "evt_1").status == 200
    });
    // Settings that cannot be read change nothing.
    write("semel.toml", "[inbox.stripe]\nscheme = 7\n");
    let said = server.wait_for_line(|line| {
        let message = line["message"].as_str()?;
        message
            .contains("the settings of the inbox stay as they were")
            .then_some(())
    });
    assert!(said.is_some());
    new.deliver(&server, "evt_1").expect(200);
    assert_eq!(stored(&world).1, 1);
}

/// One source whose secret is not there takes nothing from the others.
#[test]
fn each_source_stands_for_itself() {
    let world = world();
    let write =
        |name: &str, text: &str| std::fs::write(world.path(name), text).expect("it can be written");
    let source = |name: &str, secrets: &str| {
        format!("[inbox.{name}]\nscheme = \"stripe\"\nqueue = \"work\"\nsecrets = [{secrets}]\n")
    };
    write("one", "the-first-secret");
    write("semel.toml", &source("a", r#""file:one""#));
    let server = start(&world);
    let [first, second] =
        ["the-first-secret", "the-second-secret"].map(|it| Sender::with("a", Scheme::Stripe, it));
    first.deliver(&server, "evt_1").expect(202);
    let sources = [
        source("a", r#""file:one", "file:gone""#),
        source("broken", r#""env:SEMEL_TEST_NOT_THERE""#),
        source("late", r#""file:one""#),
    ];
    write("semel.toml", &sources.concat());
    let late = Sender::with("late", Scheme::Stripe, "the-first-secret");
    wait_until("the new source is there", || {
        late.deliver(&server, "evt_1").status == 202
    });
    // Of two secrets the one that can be read counts.
    first.deliver(&server, "evt_1").expect(200);
    let broken = Sender::with("broken", Scheme::Stripe, "something-else");
    broken
        .deliver(&server, "evt_1")
        .problem(401, "unauthorized");
    write("one", "the-second-secret");
    wait_until("the file is read again", || {
        second.deliver(&server, "evt_1").status == 200
    });
    first.deliver(&server, "evt_1").problem(401, "unauthorized");
    assert!(server.said().contains("SEMEL_TEST_NOT_THERE"));
}
