use super::*;

fn row(name: Name, callers: u32, cycles_per_s: f64, p50_us: f64) -> Row {
    let figures = Figures {
        cycles_per_s,
        p50_us,
        p99_us: 2.0 * p50_us,
        replays_per_s: 10.0 * cycles_per_s,
        disk_bytes_per_key: 400.04,
        written_bytes_per_key: 1_234.56,
    };
    Row {
        name,
        callers,
        figures,
    }
}

fn rows() -> Vec<Row> {
    vec![
        row(Name::Semel, 64, 30_000.0, 900.0),
        row(Name::RawLog, 64, 40_000.0, 600.0),
        row(Name::NaiveSqlite, 64, 20_000.0, 1_800.0),
        row(Name::Semel, 1, 1_000.0, 650.0),
        row(Name::RawLog, 1, 1_600.0, 500.0),
        row(Name::NaiveSqlite, 1, 1_000.0, 650.0),
    ]
}

#[test]
fn json_has_one_object_per_engine_and_number_of_callers() {
    let text = json(&rows());
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = parsed["rows"].as_array().unwrap();
    assert_eq!(found.len(), 6);
    assert_eq!(parsed.as_object().unwrap().len(), 1);
    assert_eq!(
        found[1],
        serde_json::json!({
            "name": "raw-log",
            "callers": 64,
            "cycles_per_s": 40_000.0,
            "p50_us": 600.0,
            "p99_us": 1_200.0,
            "replays_per_s": 400_000.0,
            "disk_bytes_per_key": 400.0,
            "written_bytes_per_key": 1_234.6,
        })
    );
}

#[test]
fn ratios_divide_semel_by_each_baseline() {
    let lines = ratio_lines(&rows());
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[1], ["raw-log", "64", "0.75", "1.50", "1.50", "0.75"]);
    assert_eq!(
        lines[2],
        ["naive-sqlite", "64", "1.50", "0.50", "0.50", "1.50"]
    );
    assert_eq!(lines[3][..4], ["raw-log", "1", "0.62", "1.30"]);
}

#[test]
fn ratios_without_their_baseline_are_left_out() {
    let only = [row(Name::Semel, 64, 1.0, 1.0)];
    assert_eq!(ratio_lines(&only).len(), 1);
    assert_eq!(aim_lines(&only).len(), 2, "replays need no baseline");
}

#[test]
fn aims_are_met_at_their_limit_and_missed_beyond_it() {
    let lines = aim_lines(&rows());
    let ends: Vec<_> = lines[1..]
        .iter()
        .map(|line| (line[0].as_str(), line[2].as_str(), line[3].as_str()))
        .collect();
    assert_eq!(
        ends,
        [
            ("64 callers: cycles/s of raw-log's", "0.75", "met"),
            ("64 callers: cycles/s of naive-sqlite's", "1.50", "missed"),
            ("1 caller: p50 of raw-log's", "1.30", "met"),
            ("64 callers: replays/s", "300,000", "met"),
        ]
    );
    let slower = [
        row(Name::Semel, 1, 1.0, 651.0),
        row(Name::RawLog, 1, 1.0, 500.0),
    ];
    assert_eq!(aim_lines(&slower)[1][3], "missed");
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let lines = [head(&["a", "µs"]), head(&["long", "1,234"])];
    assert_eq!(columns(&lines), "a        µs\nlong  1,234\n");
}

#[test]
fn thousands_are_kept_apart() {
    for (value, text) in [
        (0.4, "0"),
        (999.0, "999"),
        (1_000.0, "1,000"),
        (1_234_567.0, "1,234,567"),
    ] {
        assert_eq!(thousands(value), text);
    }
}

#[test]
fn the_curve_names_its_lowest_ratio() {
    let point = |keys, cycles_per_s| Point {
        keys,
        cycles_per_s,
        empty_cycles_per_s: 100.0,
        p50_us: 1.0,
        p99_us: 2.0,
        replays_per_s: 3.0,
        disk_bytes_per_key: 4.0,
        written_bytes_per_key: 5.0,
    };
    let points = [point(0, 100.0), point(10, 49.0), point(20, 60.0)];
    let text = curve_table(&points, "a quiet day");
    assert!(
        text.contains("lowest ratio 0.49, wanted ≥ 0.50: missed"),
        "{text}"
    );
    let parsed: serde_json::Value = serde_json::from_str(&curve_json(&points)).unwrap();
    assert_eq!(parsed["curve"][1]["ratio"], 0.49);
}
