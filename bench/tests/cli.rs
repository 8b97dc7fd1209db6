//! The program as a shell sees it: small runs, whole output, no figure is judged.

use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_semel-bench"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs with the build's own directory as the disk.
fn core(arguments: &[&str]) -> Output {
    on_disk("core", env!("CARGO_TARGET_TMPDIR"), arguments)
}

fn on_disk(command: &str, directory: &str, arguments: &[&str]) -> Output {
    let output = bench(&[&[command, "--dir", directory], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.is_empty(), "progress is for terminals: {errors}");
    output
}

#[test]
fn core_prints_one_row_per_engine_and_number_of_callers() {
    let output = core(&[
        "--json",
        "--seconds",
        "0.05",
        "--rounds",
        "1",
        "--callers",
        "1,4",
    ]);
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["callers"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected =
        [1, 4].map(|callers| ["semel", "raw-log", "naive-sqlite"].map(|name| (name, callers)));
    assert_eq!(names, expected.concat());
    for row in rows {
        for figure in [
            "cycles_per_s",
            "p50_us",
            "p99_us",
            "replays_per_s",
            "disk_bytes_per_key",
            "written_bytes_per_key",
        ] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

#[test]
fn core_prints_tables_for_people() {
    let output = core(&["--seconds", "0.05", "--rounds", "1", "--callers", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "cycles/s",
        "semel divided by",
        "1 caller: p50 of raw-log's",
        "others used",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn the_curve_ends_with_the_wanted_number_of_keys() {
    let output = core(&["--json", "--seconds", "0.05", "--keys", "2000"]);
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = parsed["curve"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(points[1]["keys"], 2_000);
    assert!(points[1]["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn nothing_is_left_behind() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments = [
        "core",
        "--dir",
        path,
        "--seconds",
        "0.05",
        "--rounds",
        "1",
        "--callers",
        "1",
    ];
    assert!(bench(&arguments).status.success());
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn postgres_prints_one_row_per_engine_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The server's user must be able to pass.
    let passable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), passable).unwrap();
    let path = directory.path().to_str().unwrap();
    let short = ["--json", "--seconds", "0.05"];
    let once = ["--rounds", "1", "--callers", "1,2"];
    let output = on_disk("postgres", path, &[&short[..], &once].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["pgbench", "semel", "pgbench", "semel", "semel-2-nodes"]
    );
    for row in rows {
        for figure in [
            "cycles_per_s",
            "p50_us",
            "p99_us",
            "replays_per_s",
            "disk_bytes_per_key",
            "wal_bytes_per_cycle",
        ] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_postgres_curve_ends_with_the_wanted_number_of_keys() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let arguments = ["--json", "--seconds", "0.05", "--keys", "500"];
    let output = on_disk("postgres", directory, &arguments);
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = parsed["curve"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(points[1]["keys"], 500);
    for name in ["pgbench", "semel"] {
        assert!(parsed["last_of_first"][name].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_missing_server_is_an_error_with_its_name() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let output = bench(&["postgres", "--dir", directory, "--programs", directory]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("initdb is not installed"), "{errors}");
    assert!(errors.contains("hint:"), "{errors}");
}

#[test]
fn mcp_prints_one_row_per_way_and_number_of_calls() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let short = ["--json", "--seconds", "0.05", "--rounds", "1"];
    let some = ["--callers", "1,16", "--only", "direct,raw-log,engine"];
    let output = on_disk("mcp", directory, &[&short[..], &some].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["way"].as_str().unwrap(),
                row["in_flight"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [1, 16].map(|calls| ["raw-log", "engine", "direct"].map(|way| (way, calls)));
    assert_eq!(names, expected.concat());
    for row in rows {
        for figure in ["calls_per_s", "p50_us", "p99_us"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

#[test]
fn a_missing_gateway_is_an_error_with_its_name() {
    for way in ["read", "http-read"] {
        let output = bench(&["mcp", "--semel", "/nowhere/semel", "--only", way]);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("/nowhere/semel"), "{errors}");
        assert!(errors.contains("hint:"), "{errors}");
    }
}

#[test]
fn proxy_prints_one_row_per_way_and_number_of_connections() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let short = ["--json", "--seconds", "0.05", "--rounds", "1"];
    let some = ["--callers", "1,4", "--only", "stream,post,get,claim"];
    let output = on_disk("proxy", directory, &[&short[..], &some].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["way"].as_str().unwrap(),
                row["connections"].as_u64().unwrap(),
            )
        })
        .collect();
    let ways = ["claim", "get", "post", "stream"];
    let expected = [1, 4].map(|connections| ways.map(|way| (way, connections)));
    assert_eq!(names, expected.concat());
    for row in rows {
        for figure in ["requests_per_s", "p50_us", "p99_us"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

#[test]
fn what_the_proxy_is_measured_with_is_named_where_it_is_missing() {
    for (option, missing, way) in [
        ("--nginx", "/nowhere/nginx", "nginx-get"),
        ("--semel", "/nowhere/semel", "semel-get"),
        ("--semel", "/nowhere/semel", "serve"),
    ] {
        let output = bench(&["proxy", option, missing, "--only", way]);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(missing), "{errors}");
        assert!(errors.contains("hint:"), "{errors}");
    }
}

/// Where Debian has what the queue is measured beside.
const REDIS: &str = "/usr/bin/redis-server";

#[test]
fn queue_prints_one_row_per_queue_and_number_of_workers_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The server's user must be able to pass.
    let passable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), passable).unwrap();
    let path = directory.path().to_str().unwrap();
    let names = [
        "semel-sqlite",
        "semel-postgres",
        "skip-locked",
        "redis-streams",
    ];
    let is_there = Path::new(REDIS).exists();
    assert!(is_there, "{REDIS} is missing: ./test installs it");
    let only = names.join(",");
    let short = ["--json", "--seconds", "0.05", "--rounds", "1"];
    let some = ["--workers", "1,3", "--only", &only];
    let output = on_disk("queue", path, &[&short[..], &some].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = parsed["rows"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["workers"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [1, 3].map(|workers| names.iter().map(move |name| (*name, workers)));
    let expected: Vec<_> = expected.into_iter().flatten().collect();
    assert_eq!(found, expected);
    for row in rows {
        for figure in ["tasks_per_s", "start_p50_us", "start_p99_us"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
    let idle = parsed["idle"].as_array().unwrap();
    let found: Vec<_> = idle
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(found, names);
    for row in idle {
        for figure in ["start_p50_us", "start_p99_us", "commits_p50_us"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn leases_are_measured_while_queues_fill() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let output = on_disk("queue", directory, &["--json", "--pending", "300"]);
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = parsed["pending"].as_array().unwrap();
    let names: Vec<_> = points
        .iter()
        .map(|point| point["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["semel-sqlite", "semel-postgres", "skip-locked"]);
    for point in points {
        assert_eq!(point["waiting"], 300);
        assert!(point["lease_p50_us"].as_f64().unwrap() > 0.0, "{point}");
    }
}

#[test]
fn a_missing_redis_is_an_error_with_its_name() {
    let output = bench(&["queue", "--redis", "/nowhere/redis-server"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("/nowhere/redis-server"), "{errors}");
    assert!(errors.contains("hint:"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_command_lines_exit_64() {
    for wrong in [
        ["core", "--callers", "0"],
        ["core", "--seconds", "never"],
        ["core", "--only", "redis"],
        ["core", "--keys", "-1"],
        ["postgres", "--only", "naive-sqlite"],
        ["postgres", "--callers", "281"],
        ["mcp", "--callers", "257"],
        ["mcp", "--only", "raw-table"],
        ["proxy", "--callers", "257"],
        ["proxy", "--only", "apache-get"],
        ["queue", "--workers", "129"],
        ["queue", "--only", "rabbit"],
        ["queue", "--pending", "0"],
        ["cores", "--json", "--json"],
    ] {
        let output = bench(&wrong);
        assert_eq!(output.status.code(), Some(64), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(bench(&["--help"]).status.code(), Some(0));
}

#[test]
fn an_unusable_directory_is_an_error_with_its_name() {
    if Path::new("/proc/version").exists() {
        let output = bench(&["core", "--dir", "/proc/version/below"]);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("/proc/version/below"), "{errors}");
    }
}
