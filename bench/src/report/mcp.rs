//! The result of the run through the MCP gateway.

use serde_json::json;

use super::{Bound, aim_line, columns, head, rounded, thousands};
use crate::mcp::{Figures, Row, Way};

pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let figures = &row.figures;
        json!({
            "way": row.way.as_str(),
            "in_flight": row.callers,
            "calls_per_s": rounded(figures.calls_per_s),
            "p50_us": rounded(figures.p50_us),
            "p99_us": rounded(figures.p99_us),
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "rows": rows }))
}

pub(crate) fn table(rows: &[Row], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "way",
        "in flight",
        "calls/s",
        "beside",
        "ratio",
        "p50 µs",
        "added",
        "p99 µs",
        "added",
    ])];
    lines.extend(rows.iter().map(|row| {
        let figures = &row.figures;
        let mut line = vec![
            row.way.as_str().to_owned(),
            row.callers.to_string(),
            thousands(figures.calls_per_s),
        ];
        match beside(rows, row) {
            Some((name, beside)) => line.extend([
                name.to_owned(),
                format!("{:.2}", figures.calls_per_s / beside.calls_per_s),
                thousands(figures.p50_us),
                signed(figures.p50_us - beside.p50_us),
                thousands(figures.p99_us),
                signed(figures.p99_us - beside.p99_us),
            ]),
            None => line.extend([
                String::new(),
                String::new(),
                thousands(figures.p50_us),
                String::new(),
                thousands(figures.p99_us),
                String::new(),
            ]),
        }
        line
    }));
    let mut text = columns(&lines);
    let aims = aim_lines(rows);
    if aims.len() > 1 {
        text.push('\n');
        text.push_str(&columns(&aims));
    }
    text.push_str(&format!("\n{conditions}\n"));
    text
}

fn signed(value: f64) -> String {
    format!("{value:+.0}")
}

fn find(rows: &[Row], way: Way, callers: u32) -> Option<&Figures> {
    let row = rows
        .iter()
        .find(|row| (row.way, row.callers) == (way, callers))?;
    Some(&row.figures)
}

/// Returns the faster one of the plain proxies.
fn proxy(rows: &[Row], callers: u32) -> Option<(&'static str, &Figures)> {
    let found = [Way::NpmProxy, Way::PypiProxy]
        .into_iter()
        .filter_map(|way| Some((way.as_str(), find(rows, way, callers)?)));
    found.max_by(|(_, one), (_, other)| one.calls_per_s.total_cmp(&other.calls_per_s))
}

/// What a way is measured beside: the server itself where it can be, else the faster one of the proxies.
fn beside<'a>(rows: &'a [Row], row: &Row) -> Option<(&'static str, &'a Figures)> {
    match row.way {
        Way::Read | Way::Effect | Way::Keyed => {
            let direct = find(rows, Way::Direct, row.callers)?;
            Some((Way::Direct.as_str(), direct))
        }
        Way::HttpRead | Way::HttpEffect => proxy(rows, row.callers),
        Way::Engine => {
            let raw = find(rows, Way::RawLog, row.callers)?;
            Some((Way::RawLog.as_str(), raw))
        }
        Way::RawLog | Way::Direct | Way::NpmProxy | Way::PypiProxy => None,
    }
}

/// The aims that were set for the gateway, beside what was reached.
fn aim_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let added = |way| {
        let (ours, direct) = (find(rows, way, 1)?, find(rows, Way::Direct, 1)?);
        Some((ours.p50_us - direct.p50_us) / 1_000.0)
    };
    let beyond = |way| {
        let commits = find(rows, Way::RawLog, 1)?;
        Some(added(way)? - commits.p50_us / 1_000.0)
    };
    let mut aims = vec![
        (
            "1 in flight: ms that a read adds".to_owned(),
            Bound::AtMost(0.3),
            added(Way::Read),
        ),
        (
            "1 in flight: ms that an effect adds to two commits".to_owned(),
            Bound::AtMost(0.3),
            beyond(Way::Effect),
        ),
        (
            "1 in flight: the same with keys".to_owned(),
            Bound::AtMost(0.3),
            beyond(Way::Keyed),
        ),
    ];
    let reads = rows.iter().filter(|row| row.way == Way::HttpRead);
    aims.extend(reads.map(|row| {
        let plain = proxy(rows, row.callers);
        (
            format!("{} in flight: reads/s of a plain proxy's", row.callers),
            Bound::AtLeast(5.0),
            plain.map(|(_, plain)| row.figures.calls_per_s / plain.calls_per_s),
        )
    }));
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    for (what, bound, reached) in aims {
        if let Some(reached) = reached {
            lines.push(aim_line(&what, bound, reached));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, calls_per_s: f64, p50_us: f64) -> Row {
        let figures = Figures {
            calls_per_s,
            p50_us,
            p99_us: 2.0 * p50_us,
        };
        Row {
            way,
            callers: 1,
            figures,
        }
    }

    #[test]
    fn aims_are_judged_beside_the_right_rows() {
        let rows = [
            row(Way::RawLog, 4_000.0, 250.0),
            row(Way::Direct, 50_000.0, 20.0),
            row(Way::Read, 10_000.0, 100.0),
            row(Way::Effect, 1_500.0, 620.0),
            row(Way::HttpRead, 9_000.0, 110.0),
            row(Way::NpmProxy, 2_000.0, 500.0),
            row(Way::PypiProxy, 300.0, 3_000.0),
        ];
        let text = table(&rows, "quiet");
        let line = |what: &str| {
            let line = text.lines().find(|line| line.contains(what));
            line.unwrap_or_else(|| panic!("no {what} in:\n{text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(line("a read adds").ends_with("≤ 0.30 0.08 met"));
        assert!(line("an effect adds").ends_with("≤ 0.30 0.35 missed"));
        assert!(line("a plain proxy").ends_with("≥ 5.00 4.50 missed"));
        assert!(!text.contains("with keys"), "it was not measured:\n{text}");
        assert!(line("http-read").contains("npm-proxy 4.50"));
        assert!(text.ends_with("\nquiet\n"));
    }
}
