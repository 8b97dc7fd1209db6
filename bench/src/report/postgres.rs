//! The result of the measurements on PostgreSQL.

use serde_json::json;

use super::{Bound, aim_line, columns, head, rounded, thousands};
use crate::postgres::curve::{self, Point, Speed};
use crate::postgres::{Figures, Name, Row};

pub(crate) fn json(rows: &[Row], version: &str) -> String {
    let row = |row: &Row| {
        let figures = &row.figures;
        json!({
            "name": row.name.as_str(),
            "callers": row.callers,
            "cycles_per_s": rounded(figures.cycles_per_s),
            "p50_us": rounded(figures.p50_us),
            "p99_us": rounded(figures.p99_us),
            "replays_per_s": rounded(figures.replays_per_s),
            "disk_bytes_per_key": rounded(figures.disk_bytes_per_key),
            "wal_bytes_per_cycle": rounded(figures.log_bytes_per_cycle),
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "postgres": version, "rows": rows }))
}

pub(crate) fn table(rows: &[Row], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "engine",
        "callers",
        "cycles/s",
        "p50 µs",
        "p99 µs",
        "replays/s",
        "disk B/key",
        "WAL B/cycle",
    ])];
    lines.extend(rows.iter().map(|row| {
        let figures = &row.figures;
        let mut line = vec![row.name.as_str().to_owned(), row.callers.to_string()];
        line.extend(
            [
                figures.cycles_per_s,
                figures.p50_us,
                figures.p99_us,
                figures.replays_per_s,
                figures.disk_bytes_per_key,
                figures.log_bytes_per_cycle,
            ]
            .map(thousands),
        );
        line
    }));
    let mut text = columns(&lines);
    for more in [ratio_lines(rows), aim_lines(rows)] {
        if more.len() > 1 {
            text.push('\n');
            text.push_str(&columns(&more));
        }
    }
    text.push_str(&format!("\n{conditions}\n"));
    text
}

const CYCLES: fn(&Figures) -> f64 = |figures| figures.cycles_per_s;
const REPLAYS: fn(&Figures) -> f64 = |figures| figures.replays_per_s;

/// The figures that are compared, in the order of the columns.
const COMPARED: [fn(&Figures) -> f64; 6] = [
    CYCLES,
    |figures| figures.p50_us,
    |figures| figures.p99_us,
    REPLAYS,
    |figures| figures.disk_bytes_per_key,
    |figures| figures.log_bytes_per_cycle,
];

/// What is divided by what.
const PAIRS: [(Name, Name); 3] = [
    (Name::Semel, Name::Pgbench),
    (Name::Semel2Nodes, Name::Pgbench),
    (Name::Semel2Nodes, Name::Semel),
];

fn ratio(
    rows: &[Row],
    callers: u32,
    pair: (Name, Name),
    figure: fn(&Figures) -> f64,
) -> Option<f64> {
    let find = |name| {
        let mut rows = rows.iter();
        rows.find(|row| row.name == name && row.callers == callers)
    };
    let (above, below) = (find(pair.0)?, find(pair.1)?);
    Some(figure(&above.figures) / figure(&below.figures))
}

/// The numbers of callers, in the order in which they were measured.
fn callers(rows: &[Row]) -> Vec<u32> {
    let mut callers: Vec<_> = rows.iter().map(|row| row.callers).collect();
    callers.dedup();
    callers
}

fn ratio_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&[
        "ratio",
        "callers",
        "cycles/s",
        "p50",
        "p99",
        "replays/s",
        "disk",
        "WAL",
    ])];
    for callers in callers(rows) {
        for pair in PAIRS {
            let figures = COMPARED.map(|figure| ratio(rows, callers, pair, figure));
            let Some(figures) = figures.into_iter().collect::<Option<Vec<_>>>() else {
                continue;
            };
            let what = format!("{}/{}", pair.0.as_str(), pair.1.as_str());
            let mut line = vec![what, callers.to_string()];
            line.extend(figures.iter().map(|figure| format!("{figure:.2}")));
            lines.push(line);
        }
    }
    lines
}

/// The aims that were set for the ledger on PostgreSQL, beside what was reached.
fn aim_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let one = (Name::Semel, Name::Pgbench);
    let two = (Name::Semel2Nodes, Name::Semel);
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    let mut aim = |callers: u32, what: &str, least, pair, figure| {
        let reached = ratio(rows, callers, pair, figure);
        let plural = if callers == 1 { "caller" } else { "callers" };
        let what = format!("{callers} {plural}: {what}");
        lines.extend(reached.map(|reached| aim_line(&what, Bound::AtLeast(least), reached)));
    };
    for (callers, least) in [(1, 0.9), (64, 3.0), (256, 5.0)] {
        aim(callers, "cycles/s of pgbench's", least, one, CYCLES);
    }
    for callers in callers(rows) {
        aim(callers, "two nodes' cycles/s of one's", 1.0, two, CYCLES);
    }
    for callers in callers(rows) {
        aim(callers, "replays/s of pgbench's reads", 1.0, one, REPLAYS);
    }
    lines
}

pub(crate) fn curve_json(points: &[Point], version: &str) -> String {
    let speed = |speed: &Speed| {
        json!({
            "cycles_per_s": rounded(speed.cycles_per_s),
            "p99_us": rounded(speed.p99_us),
            "disk_bytes_per_key": rounded(speed.disk_bytes_per_key),
            "wal_bytes_per_cycle": rounded(speed.log_bytes_per_cycle),
        })
    };
    let point = |point: &Point| {
        json!({
            "keys": point.keys,
            "callers": curve::CALLERS,
            "pgbench": speed(&point.pgbench),
            "semel": speed(&point.semel),
        })
    };
    let curve: Vec<_> = points.iter().map(point).collect();
    let kept = kept(points).map(|share| (share * 1_000.0).round() / 1_000.0);
    format!(
        "{:#}\n",
        json!({
            "postgres": version,
            "curve": curve,
            "last_of_first": { "pgbench": kept[0], "semel": kept[1] },
        })
    )
}

/// What share of its first speed each has at the end: pgbench, then Semel.
fn kept(points: &[Point]) -> [f64; 2] {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return [1.0; 2];
    };
    [
        last.pgbench.cycles_per_s / first.pgbench.cycles_per_s,
        last.semel.cycles_per_s / first.semel.cycles_per_s,
    ]
}

pub(crate) fn curve_table(points: &[Point], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "engine",
        "keys",
        "cycles/s",
        "of its first",
        "of pgbench's",
        "p99 µs",
        "disk B/key",
        "WAL B/cycle",
    ])];
    for at in 0..points.len() {
        let point = &points[at];
        let [pgbench_kept, semel_kept] = kept(&points[..=at]);
        for (name, speed, kept) in [
            (Name::Pgbench, &point.pgbench, pgbench_kept),
            (Name::Semel, &point.semel, semel_kept),
        ] {
            lines.push(vec![
                name.as_str().to_owned(),
                point.keys.to_string(),
                thousands(speed.cycles_per_s),
                format!("{kept:.2}"),
                format!("{:.2}", speed.cycles_per_s / point.pgbench.cycles_per_s),
                thousands(speed.p99_us),
                thousands(speed.disk_bytes_per_key),
                thousands(speed.log_bytes_per_cycle),
            ]);
        }
    }
    let [pgbench, semel] = kept(points);
    format!(
        "{}\n{} callers; the last speed is {pgbench:.2} of the first for pgbench, {semel:.2} for semel\n{conditions}\n",
        columns(&lines),
        curve::CALLERS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: Name, callers: u32, cycles_per_s: f64) -> Row {
        let figures = Figures {
            cycles_per_s,
            p50_us: 1e6 / cycles_per_s,
            p99_us: 2e6 / cycles_per_s,
            replays_per_s: 10.0 * cycles_per_s,
            disk_bytes_per_key: 400.04,
            log_bytes_per_cycle: 1_234.56,
        };
        Row {
            name,
            callers,
            figures,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row(Name::Pgbench, 1, 1_000.0),
            row(Name::Semel, 1, 900.0),
            row(Name::Pgbench, 64, 2_000.0),
            row(Name::Semel, 64, 5_000.0),
            row(Name::Semel2Nodes, 64, 6_000.0),
        ]
    }

    #[test]
    fn json_has_one_object_per_engine_and_number_of_callers() {
        let parsed: serde_json::Value = serde_json::from_str(&json(&rows(), "15.1")).unwrap();
        assert_eq!(parsed["postgres"], "15.1");
        assert_eq!(parsed["rows"].as_array().unwrap().len(), 5);
        assert_eq!(
            parsed["rows"][4],
            serde_json::json!({
                "name": "semel-2-nodes",
                "callers": 64,
                "cycles_per_s": 6_000.0,
                "p50_us": 166.7,
                "p99_us": 333.3,
                "replays_per_s": 60_000.0,
                "disk_bytes_per_key": 400.0,
                "wal_bytes_per_cycle": 1_234.6,
            })
        );
    }

    #[test]
    fn ratios_are_those_of_rows_with_the_same_callers() {
        let lines = ratio_lines(&rows());
        let starts: Vec<_> = lines[1..].iter().map(|line| line[..3].join(" ")).collect();
        assert_eq!(
            starts,
            [
                "semel/pgbench 1 0.90",
                "semel/pgbench 64 2.50",
                "semel-2-nodes/pgbench 64 3.00",
                "semel-2-nodes/semel 64 1.20",
            ]
        );
    }

    #[test]
    fn aims_are_met_at_their_limit_and_left_out_without_figures() {
        let lines = aim_lines(&rows());
        let ends: Vec<_> = lines[1..]
            .iter()
            .map(|line| (line[0].as_str(), line[2].as_str(), line[3].as_str()))
            .collect();
        assert_eq!(
            ends,
            [
                ("1 caller: cycles/s of pgbench's", "0.90", "met"),
                ("64 callers: cycles/s of pgbench's", "2.50", "missed"),
                ("64 callers: two nodes' cycles/s of one's", "1.20", "met"),
                ("1 caller: replays/s of pgbench's reads", "0.90", "missed"),
                ("64 callers: replays/s of pgbench's reads", "2.50", "met"),
            ]
        );
        assert_eq!(aim_lines(&rows()[..1]).len(), 1);
    }

    #[test]
    fn the_curve_compares_each_with_its_own_start() {
        let speed = |cycles_per_s| Speed {
            cycles_per_s,
            p99_us: 1.0,
            disk_bytes_per_key: 2.0,
            log_bytes_per_cycle: 3.0,
        };
        let point = |keys, pgbench, semel| Point {
            keys,
            pgbench: speed(pgbench),
            semel: speed(semel),
        };
        let points = [point(0, 100.0, 400.0), point(10, 50.0, 300.0)];
        let text = curve_table(&points, "a quiet day");
        assert!(
            text.contains("0.50 of the first for pgbench, 0.75 for semel"),
            "{text}"
        );
        let last = text.lines().nth(4).unwrap();
        let words: Vec<_> = last.split_whitespace().collect();
        assert_eq!(words[..5], ["semel", "10", "300", "0.75", "6.00"]);
        let parsed: serde_json::Value = serde_json::from_str(&curve_json(&points, "15.1")).unwrap();
        assert_eq!(parsed["last_of_first"]["semel"], 0.75);
        assert_eq!(parsed["curve"][1]["pgbench"]["cycles_per_s"], 50.0);
    }
}
