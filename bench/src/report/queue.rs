//! The result of the run with queues.

use serde_json::json;

use super::{Bound, aim_line, columns, head, rounded, thousands};
use crate::queue::pending::Point;
use crate::queue::{Figures, Idle, Name, Row, Rows, idle};

pub(crate) fn json(rows: &Rows) -> String {
    let loaded = |row: &Row| {
        let figures = &row.figures;
        json!({
            "name": row.name.as_str(),
            "workers": row.workers,
            "tasks_per_s": rounded(figures.tasks_per_s),
            "start_p50_us": rounded(figures.p50_us),
            "start_p99_us": rounded(figures.p99_us),
        })
    };
    let idle = |(name, idle): &(Name, Idle)| {
        json!({
            "name": name.as_str(),
            "workers": idle::WORKERS,
            "start_p50_us": rounded(idle.p50_us),
            "start_p99_us": rounded(idle.p99_us),
            "commits_p50_us": rounded(idle.commits_p50_us),
            "commits_p99_us": rounded(idle.commits_p99_us),
            "beyond_p50_us": rounded(beyond(idle)[0]),
            "beyond_p99_us": rounded(beyond(idle)[1]),
        })
    };
    let loaded: Vec<_> = rows.loaded.iter().map(loaded).collect();
    let idle: Vec<_> = rows.idle.iter().map(idle).collect();
    format!("{:#}\n", json!({ "rows": loaded, "idle": idle }))
}

/// What a start takes beyond the commits, at both percentiles.
fn beyond(idle: &Idle) -> [f64; 2] {
    [
        idle.p50_us - idle.commits_p50_us,
        idle.p99_us - idle.commits_p99_us,
    ]
}

pub(crate) fn table(rows: &Rows, conditions: &str) -> String {
    let tables = [
        loaded_lines(&rows.loaded),
        ratio_lines(&rows.loaded),
        idle_lines(&rows.idle),
        aim_lines(rows),
    ];
    let mut text = String::new();
    for lines in tables.into_iter().filter(|lines| lines.len() > 1) {
        text.push_str(&columns(&lines));
        text.push('\n');
    }
    text.push_str(&format!("{conditions}\n"));
    text
}

fn loaded_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&[
        "queue",
        "workers",
        "tasks/s",
        "to start: p50 µs",
        "p99 µs",
    ])];
    lines.extend(rows.iter().map(|row| {
        let figures = &row.figures;
        let mut line = vec![row.name.as_str().to_owned(), row.workers.to_string()];
        line.extend([figures.tasks_per_s, figures.p50_us, figures.p99_us].map(thousands));
        line
    }));
    lines
}

fn idle_lines(rows: &[(Name, Idle)]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&[
        "idle queue",
        "to start: p50 µs",
        "p99 µs",
        "commits: p50 µs",
        "p99 µs",
        "beyond: p50 µs",
        "p99 µs",
    ])];
    lines.extend(rows.iter().map(|(name, idle)| {
        let mut line = vec![name.as_str().to_owned()];
        let figures = [
            idle.p50_us,
            idle.p99_us,
            idle.commits_p50_us,
            idle.commits_p99_us,
        ];
        line.extend(figures.map(thousands));
        line.extend(beyond(idle).map(|figure| format!("{figure:.0}")));
        line
    }));
    lines
}

/// What is divided by what.
const PAIRS: [(Name, Name); 4] = [
    (Name::SemelSqlite, Name::RedisStreams),
    (Name::SemelSqlite, Name::SkipLocked),
    (Name::SemelPostgres, Name::RedisStreams),
    (Name::SemelPostgres, Name::SkipLocked),
];

/// The figures that are compared, in the order of the columns.
const COMPARED: [fn(&Figures) -> f64; 3] = [
    |figures| figures.tasks_per_s,
    |figures| figures.p50_us,
    |figures| figures.p99_us,
];

/// The numbers of workers, in the order in which they were measured.
fn workers(rows: &[Row]) -> Vec<u32> {
    let mut workers: Vec<_> = rows.iter().map(|row| row.workers).collect();
    workers.dedup();
    workers
}

fn ratios(rows: &[Row], workers: u32, pair: (Name, Name)) -> Option<[f64; 3]> {
    let find = |name| {
        let mut rows = rows.iter();
        rows.find(|row| (row.name, row.workers) == (name, workers))
    };
    let (above, below) = (find(pair.0)?, find(pair.1)?);
    Some(COMPARED.map(|figure| figure(&above.figures) / figure(&below.figures)))
}

fn ratio_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&["ratio", "workers", "tasks/s", "p50", "p99"])];
    for workers in workers(rows) {
        for pair in PAIRS {
            let Some(ratios) = ratios(rows, workers, pair) else {
                continue;
            };
            let what = format!("{}/{}", pair.0.as_str(), pair.1.as_str());
            let mut line = vec![what, workers.to_string()];
            line.extend(ratios.map(|ratio| format!("{ratio:.2}")));
            lines.push(line);
        }
    }
    lines
}

/// The aims that were set for queues, beside what was reached.
fn aim_lines(rows: &Rows) -> Vec<Vec<String>> {
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    for workers in [8, 64] {
        for pair in PAIRS {
            if let Some([tasks, ..]) = ratios(&rows.loaded, workers, pair) {
                let (ours, theirs) = (pair.0.as_str(), pair.1.as_str());
                let what = format!("{workers} workers: tasks/s of {ours} of {theirs}'s");
                lines.push(aim_line(&what, Bound::AtLeast(1.0), tasks));
            }
        }
    }
    for name in [Name::SemelSqlite, Name::SemelPostgres] {
        let Some((_, idle)) = rows.idle.iter().find(|(of, _)| *of == name) else {
            continue;
        };
        for (percentile, micros) in ["p50", "p99"].into_iter().zip(beyond(idle)) {
            let what = format!(
                "idle: ms to a start beyond the commits, {percentile} of {}",
                name.as_str()
            );
            lines.push(aim_line(&what, Bound::AtMost(2.0), micros / 1_000.0));
        }
    }
    lines
}

/// What a lease takes at the end, divided by what it took at first, at both percentiles.
fn grown(points: &[Point], name: Name) -> Option<[f64; 2]> {
    let mut of = points.iter().filter(|point| point.name == name);
    let first = of.next()?;
    let last = of.next_back().unwrap_or(first);
    Some([last.p50_us / first.p50_us, last.p99_us / first.p99_us])
}

pub(crate) fn pending_json(points: &[Point]) -> String {
    let point = |point: &Point| {
        json!({
            "name": point.name.as_str(),
            "waiting": point.waiting,
            "lease_p50_us": rounded(point.p50_us),
            "lease_p99_us": rounded(point.p99_us),
            "filled_per_s": rounded(point.filled_per_s),
        })
    };
    let pending: Vec<_> = points.iter().map(point).collect();
    let grown: serde_json::Map<_, _> = Name::ALL
        .into_iter()
        .filter_map(|name| {
            let [p50, p99] = grown(points, name)?.map(|ratio| (ratio * 100.0).round() / 100.0);
            Some((name.as_str().to_owned(), json!({ "p50": p50, "p99": p99 })))
        })
        .collect();
    format!(
        "{:#}\n",
        json!({ "pending": pending, "last_of_first": grown })
    )
}

pub(crate) fn pending_table(points: &[Point], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "queue",
        "tasks that wait",
        "lease: p50 µs",
        "p99 µs",
        "filled/s",
        "p50 of its first",
        "p99",
    ])];
    for (at, point) in points.iter().enumerate() {
        let mut line = vec![
            point.name.as_str().to_owned(),
            point.waiting.to_string(),
            thousands(point.p50_us),
            thousands(point.p99_us),
            thousands(point.filled_per_s),
        ];
        let grown = grown(&points[..=at], point.name);
        line.extend(
            grown
                .into_iter()
                .flatten()
                .map(|ratio| format!("{ratio:.2}")),
        );
        lines.push(line);
    }
    format!("{}\n{conditions}\n", columns(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: Name, workers: u32, tasks_per_s: f64) -> Row {
        let figures = Figures {
            tasks_per_s,
            p50_us: 1e6 / tasks_per_s,
            p99_us: 2e6 / tasks_per_s,
        };
        Row {
            name,
            workers,
            figures,
        }
    }

    fn rows() -> Rows {
        let idle = |p50_us| Idle {
            p50_us,
            p99_us: 4.0 * p50_us,
            commits_p50_us: 500.0,
            commits_p99_us: 900.0,
        };
        Rows {
            loaded: vec![
                row(Name::SemelSqlite, 1, 900.0),
                row(Name::RedisStreams, 1, 1_000.0),
                row(Name::SemelSqlite, 8, 3_000.0),
                row(Name::SemelPostgres, 8, 1_200.0),
                row(Name::SkipLocked, 8, 1_000.0),
                row(Name::RedisStreams, 8, 4_000.0),
            ],
            idle: vec![
                (Name::SemelSqlite, idle(700.0)),
                (Name::RedisStreams, idle(300.0)),
            ],
        }
    }

    fn words(lines: &[Vec<String>]) -> Vec<String> {
        lines[1..].iter().map(|line| line.join(" ")).collect()
    }

    #[test]
    fn ratios_are_those_of_rows_with_the_same_workers() {
        assert_eq!(
            words(&ratio_lines(&rows().loaded)),
            [
                "semel-sqlite/redis-streams 1 0.90 1.11 1.11",
                "semel-sqlite/redis-streams 8 0.75 1.33 1.33",
                "semel-sqlite/skip-locked 8 3.00 0.33 0.33",
                "semel-postgres/redis-streams 8 0.30 3.33 3.33",
                "semel-postgres/skip-locked 8 1.20 0.83 0.83",
            ]
        );
    }

    #[test]
    fn aims_are_judged_where_there_are_figures() {
        assert_eq!(
            words(&aim_lines(&rows())),
            [
                "8 workers: tasks/s of semel-sqlite of redis-streams's ≥ 1.00 0.75 missed",
                "8 workers: tasks/s of semel-sqlite of skip-locked's ≥ 1.00 3.00 met",
                "8 workers: tasks/s of semel-postgres of redis-streams's ≥ 1.00 0.30 missed",
                "8 workers: tasks/s of semel-postgres of skip-locked's ≥ 1.00 1.20 met",
                "idle: ms to a start beyond the commits, p50 of semel-sqlite ≤ 2.00 0.20 met",
                "idle: ms to a start beyond the commits, p99 of semel-sqlite ≤ 2.00 1.90 met",
            ]
        );
        assert_eq!(aim_lines(&Rows::default()).len(), 1);
    }

    #[test]
    fn json_and_table_say_the_same() {
        let parsed: serde_json::Value = serde_json::from_str(&json(&rows())).unwrap();
        assert_eq!(parsed["rows"].as_array().unwrap().len(), 6);
        assert_eq!(parsed["idle"][0]["beyond_p50_us"], 200.0);
        assert_eq!(parsed["idle"][1]["beyond_p50_us"], -200.0);
        let text = table(&rows(), "a quiet day");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let idle = "redis-streams 300 1,200 500 900 -200 300";
        assert!(text.lines().any(|line| words(line) == idle), "{text}");
        assert!(text.ends_with("\na quiet day\n"), "{text}");
    }

    #[test]
    fn leases_are_compared_with_the_first_of_the_same_queue() {
        let point = |name, waiting, p50_us| Point {
            name,
            waiting,
            p50_us,
            p99_us: 3.0 * p50_us,
            filled_per_s: 1_000.0,
        };
        let points = [
            point(Name::SemelSqlite, 10, 100.0),
            point(Name::SemelSqlite, 100, 110.0),
            point(Name::SkipLocked, 10, 200.0),
            point(Name::SkipLocked, 100, 400.0),
        ];
        let parsed: serde_json::Value = serde_json::from_str(&pending_json(&points)).unwrap();
        assert_eq!(parsed["last_of_first"]["semel-sqlite"]["p50"], 1.1);
        assert_eq!(parsed["last_of_first"]["skip-locked"]["p99"], 2.0);
        let text = pending_table(&points, "a quiet day");
        let last = text.lines().nth(4).unwrap();
        assert!(last.ends_with("2.00  2.00"), "{text}");
    }
}
