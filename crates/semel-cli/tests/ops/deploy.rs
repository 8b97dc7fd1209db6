//! The files in `deploy/`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::server::World;

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the settings that are shown, with where they come from.
fn shown(world: &World, config: &str) -> Vec<serde_json::Value> {
    let mut command = world.command(&["config", "show", "--json", "--config", config]);
    let output = command.env_remove("SEMEL_STORE").output().expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("it is text");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect()
}

#[test]
fn the_example_has_every_setting_of_a_server_and_can_be_read() {
    let world = World::new();
    let example = text("deploy/semel.toml");
    // As it is, and with everything switched on that is only shown.
    let whole: String = example
        .lines()
        .map(|line| line.strip_prefix("#= ").unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let path = world.path("whole.toml");
    std::fs::write(&path, whole).expect("it can be written");
    let deployed = file("deploy/semel.toml");
    shown(&world, &deployed.display().to_string());
    let settings = shown(&world, &path.display().to_string());
    let of_servers = |name: &str| {
        let prefixes = ["serve.", "notify."];
        name == "auth" || name == "store" || prefixes.iter().any(|it| name.starts_with(it))
    };
    let unsaid: BTreeSet<_> = settings
        .iter()
        .filter(|setting| setting["origin"] == "default")
        .filter_map(|setting| setting["name"].as_str())
        .filter(|name| of_servers(name))
        .collect();
    assert!(unsaid.is_empty(), "{unsaid:?}");
}

#[test]
fn the_service_is_locked_up() {
    let unit = text("deploy/semel.service");
    for line in [
        "ExecStart=/usr/local/bin/semel --config /etc/semel/semel.toml serve",
        "DynamicUser=yes",
        "StateDirectory=semel",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        "CapabilityBoundingSet=",
        "LimitNOFILE=32768",
        "KillSignal=SIGTERM",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn the_container_has_no_root_and_names_no_registry() {
    let text = text("deploy/Containerfile");
    for line in text.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let image = line.split(' ').next().expect("it has an image");
        assert!(!image.contains('/') && !image.contains("latest"), "{image}");
    }
    let toolchain = std::fs::read_to_string(file("rust-toolchain.toml")).expect("it is there");
    let version = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    let version = version.expect("it is pinned");
    let short: Vec<_> = version.splitn(3, '.').take(2).collect();
    assert!(
        text.contains(&format!("FROM rust:{}", short.join("."))),
        "{version}"
    );
    let user = text.lines().find_map(|line| line.strip_prefix("USER "));
    let (user, group) = user
        .and_then(|user| user.split_once(':'))
        .expect("both are said");
    for number in [user, group] {
        // A name could be root's, as far as Kubernetes knows.
        assert!(
            number.parse::<u32>().is_ok_and(|number| number > 0),
            "{number}"
        );
    }
}

/// The whole repository is the context of the build.
#[test]
fn container_build_gets_neither_history_nor_builds_nor_stores() {
    let patterns = |path: &str| -> BTreeSet<String> {
        let text = text(path);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let ignored = patterns(".containerignore");
    assert_eq!(
        ignored,
        patterns(".dockerignore"),
        "Docker reads the other one"
    );
    for pattern in [".git", "target", "**/target", "**/*.db", "**/.env"] {
        assert!(ignored.contains(pattern), "{pattern}");
    }
    // What the build needs must not be left out.
    for needed in ["crates", "docs", "bench", "Cargo.toml", "Cargo.lock"] {
        assert!(
            !ignored.contains(needed) && file(needed).exists(),
            "{needed}"
        );
    }
}

/// A page that the unit names must be installed by the steps beside it.
#[test]
fn manual_that_the_unit_names_is_installed() {
    let unit = text("deploy/semel.service");
    assert!(unit.contains("Documentation=man:semel(1)"));
    let step = "semel man --out ";
    let readme = text("deploy/README.md");
    let directory = readme.lines().find_map(|line| line.strip_prefix(step));
    assert!(
        directory.is_some_and(|it| it.ends_with("/man/man1")),
        "{directory:?}"
    );
    let world = World::new();
    let out = world.path("man1");
    let made = world
        .command(&["man", "--out", &out.display().to_string()])
        .status();
    assert!(made.expect("it runs").success());
    assert!(out.join("semel.1").exists());
}
