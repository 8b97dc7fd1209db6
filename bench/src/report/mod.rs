//! The result, for people and for programs.

pub(crate) mod mcp;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod queue;
pub(crate) mod serve;

use serde_json::json;

use crate::core::{Figures, Row};
use crate::curve::{self, Point};
use crate::engines::Name;

/// Rounds a figure for programs: more digits than these are noise.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

pub(crate) fn json(rows: &[Row]) -> String {
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
            "written_bytes_per_key": rounded(figures.written_bytes_per_key),
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "rows": rows }))
}

pub(crate) fn curve_json(points: &[Point]) -> String {
    let point = |point: &Point| {
        json!({
            "keys": point.keys,
            "callers": curve::CALLERS,
            "cycles_per_s": rounded(point.cycles_per_s),
            "empty_cycles_per_s": rounded(point.empty_cycles_per_s),
            "ratio": (point.ratio() * 1_000.0).round() / 1_000.0,
            "p50_us": rounded(point.p50_us),
            "p99_us": rounded(point.p99_us),
            "replays_per_s": rounded(point.replays_per_s),
            "disk_bytes_per_key": rounded(point.disk_bytes_per_key),
            "written_bytes_per_key": rounded(point.written_bytes_per_key),
        })
    };
    let points: Vec<_> = points.iter().map(point).collect();
    format!("{:#}\n", json!({ "curve": points }))
}

/// Lays lines of cells out in columns: the first to the left, the others to the right.
fn columns(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cell = |(column, cell): (usize, &String)| match column {
            0 => format!("{cell:<width$}", width = widths[0]),
            _ => format!("{cell:>width$}", width = widths[column]),
        };
        let cells: Vec<_> = line.iter().enumerate().map(cell).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Writes a whole number with its thousands apart.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
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
        "written B/key",
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
                figures.written_bytes_per_key,
            ]
            .map(thousands),
        );
        line
    }));
    let mut text = columns(&lines);
    let ratios = ratio_lines(rows);
    if ratios.len() > 1 {
        text.push('\n');
        text.push_str(&columns(&ratios));
    }
    let aims = aim_lines(rows);
    if aims.len() > 1 {
        text.push('\n');
        text.push_str(&columns(&aims));
    }
    text.push_str(&format!("\n{conditions}\n"));
    text
}

fn find(rows: &[Row], name: Name, callers: u32) -> Option<&Figures> {
    let row = rows
        .iter()
        .find(|row| row.name == name && row.callers == callers)?;
    Some(&row.figures)
}

/// Divides a figure of Semel by the same figure of a baseline.
fn ratio(rows: &[Row], callers: u32, baseline: Name, figure: fn(&Figures) -> f64) -> Option<f64> {
    let (ours, theirs) = (
        find(rows, Name::Semel, callers)?,
        find(rows, baseline, callers)?,
    );
    Some(figure(ours) / figure(theirs))
}

const CYCLES: fn(&Figures) -> f64 = |figures| figures.cycles_per_s;
const P50: fn(&Figures) -> f64 = |figures| figures.p50_us;
const P99: fn(&Figures) -> f64 = |figures| figures.p99_us;
const REPLAYS: fn(&Figures) -> f64 = |figures| figures.replays_per_s;

fn ratio_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&[
        "semel divided by",
        "callers",
        "cycles/s",
        "p50",
        "p99",
        "replays/s",
    ])];
    let ours = rows.iter().filter(|row| row.name == Name::Semel);
    for callers in ours.map(|row| row.callers) {
        for baseline in [Name::RawLog, Name::NaiveSqlite] {
            let figures = [CYCLES, P50, P99, REPLAYS]
                .map(|figure| ratio(rows, callers, baseline, figure))
                .into_iter()
                .collect::<Option<Vec<_>>>();
            let Some(figures) = figures else { continue };
            let mut line = vec![baseline.as_str().to_owned(), callers.to_string()];
            line.extend(figures.iter().map(|figure| format!("{figure:.2}")));
            lines.push(line);
        }
    }
    lines
}

/// Which side of an aim is the good one.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(self, reached: f64) -> bool {
        match self {
            Self::AtLeast(limit) => reached >= limit,
            Self::AtMost(limit) => reached <= limit,
        }
    }
}

/// The aims that were set for the ledger, beside what was reached.
fn aim_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let aims = [
        (
            "256 callers: cycles/s of raw-log's",
            Bound::AtLeast(0.5),
            ratio(rows, 256, Name::RawLog, CYCLES),
        ),
        (
            "64 callers: cycles/s of raw-log's",
            Bound::AtLeast(0.6),
            ratio(rows, 64, Name::RawLog, CYCLES),
        ),
        (
            "64 callers: cycles/s of naive-sqlite's",
            Bound::AtLeast(1.8),
            ratio(rows, 64, Name::NaiveSqlite, CYCLES),
        ),
        (
            "1 caller: p50 of raw-log's",
            Bound::AtMost(1.3),
            ratio(rows, 1, Name::RawLog, P50),
        ),
        (
            "64 callers: replays/s",
            Bound::AtLeast(200_000.0),
            find(rows, Name::Semel, 64).map(REPLAYS),
        ),
    ];
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    let reached = aims
        .into_iter()
        .filter_map(|(what, bound, reached)| Some((what, bound, reached?)));
    lines.extend(reached.map(|(what, bound, reached)| aim_line(what, bound, reached)));
    lines
}

/// An aim beside what was reached.
fn aim_line(what: &str, bound: Bound, reached: f64) -> Vec<String> {
    let (sign, limit) = match bound {
        Bound::AtLeast(limit) => ('≥', limit),
        Bound::AtMost(limit) => ('≤', limit),
    };
    let met = if bound.holds(reached) {
        "met"
    } else {
        "missed"
    };
    vec![
        what.to_owned(),
        format!("{sign} {}", figure(limit)),
        figure(reached),
        met.to_owned(),
    ]
}

fn figure(value: f64) -> String {
    if value < 1_000.0 {
        format!("{value:.2}")
    } else {
        thousands(value)
    }
}

pub(crate) fn curve_table(points: &[Point], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "keys",
        "cycles/s",
        "empty store's",
        "ratio",
        "p50 µs",
        "p99 µs",
        "replays/s",
        "disk B/key",
        "written B/key",
    ])];
    lines.extend(points.iter().map(|point| {
        let mut line = vec![
            point.keys.to_string(),
            thousands(point.cycles_per_s),
            thousands(point.empty_cycles_per_s),
            format!("{:.2}", point.ratio()),
        ];
        line.extend(
            [
                point.p50_us,
                point.p99_us,
                point.replays_per_s,
                point.disk_bytes_per_key,
                point.written_bytes_per_key,
            ]
            .map(thousands),
        );
        line
    }));
    let lowest = points
        .iter()
        .map(Point::ratio)
        .fold(f64::INFINITY, f64::min);
    let met = if Bound::AtLeast(0.5).holds(lowest) {
        "met"
    } else {
        "missed"
    };
    format!(
        "{}\n{} callers; lowest ratio {lowest:.2}, wanted ≥ 0.50: {met}\n{conditions}\n",
        columns(&lines),
        curve::CALLERS,
    )
}

#[cfg(test)]
mod tests;
