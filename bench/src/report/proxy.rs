//! The result of the run through the proxy.

use serde_json::json;

use super::{Bound, aim_line, columns, head, rounded, thousands};
use crate::proxy::{Figures, Row, Way};

pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let figures = &row.figures;
        json!({
            "way": row.way.as_str(),
            "connections": row.callers,
            "requests_per_s": rounded(figures.requests_per_s),
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
        "connections",
        "requests/s",
        "p50 µs",
        "p99 µs",
        "beside",
        "requests/s",
        "p50",
        "p99",
    ])];
    lines.extend(rows.iter().map(|row| {
        let figures = &row.figures;
        let mut line = vec![row.way.as_str().to_owned(), row.callers.to_string()];
        let own = [figures.requests_per_s, figures.p50_us, figures.p99_us];
        line.extend(own.map(thousands));
        if let Some((way, beside)) = beside(rows, row) {
            line.push(way.as_str().to_owned());
            let theirs = [beside.requests_per_s, beside.p50_us, beside.p99_us];
            let both = own.into_iter().zip(theirs);
            line.extend(both.map(|(ours, theirs)| format!("{:.2}", ours / theirs)));
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

fn find(rows: &[Row], way: Way, callers: u32) -> Option<&Figures> {
    let row = rows
        .iter()
        .find(|row| (row.way, row.callers) == (way, callers))?;
    Some(&row.figures)
}

/// What a way is measured beside, where that was measured too.
fn beside<'a>(rows: &'a [Row], row: &Row) -> Option<(Way, &'a Figures)> {
    let way = match row.way {
        Way::NginxGet => Way::Get,
        Way::SemelGet => Way::NginxGet,
        Way::NginxPost => Way::Post,
        Way::SemelKeyed | Way::SemelKeyless => Way::Serve,
        Way::SemelReplay => Way::NginxPost,
        Way::NginxStream => Way::Stream,
        Way::SemelStream => Way::NginxStream,
        Way::Claim | Way::Serve | Way::Get | Way::Post | Way::Stream => return None,
    };
    Some((way, find(rows, way, row.callers)?))
}

/// The aims that were set for the proxy, beside what was reached.
fn aim_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    let mut all: Vec<_> = rows.iter().map(|row| row.callers).collect();
    all.dedup();
    for callers in all {
        let at = |way| find(rows, way, callers);
        let ratio = |ours, theirs, figure: fn(&Figures) -> f64| {
            let (ours, theirs) = (at(ours)?, at(theirs)?);
            Some(figure(ours) / figure(theirs))
        };
        let delay = || {
            let (ours, bare) = (at(Way::SemelStream)?, at(Way::Stream)?);
            let claim = at(Way::Claim)?;
            Some((ours.p50_us - bare.p50_us - claim.p50_us) / 1_000.0)
        };
        let aims = [
            (
                "p50 of a GET of nginx's",
                Bound::AtMost(1.5),
                ratio(Way::SemelGet, Way::NginxGet, |it| it.p50_us),
            ),
            (
                "p99 of a GET of nginx's",
                Bound::AtMost(1.5),
                ratio(Way::SemelGet, Way::NginxGet, |it| it.p99_us),
            ),
            (
                "keyed POSTs/s of serve's cycles/s",
                Bound::AtLeast(0.8),
                ratio(Way::SemelKeyed, Way::Serve, |it| it.requests_per_s),
            ),
            (
                "ms to a stream's first event beyond the claim",
                Bound::AtMost(1.0),
                delay(),
            ),
        ];
        for (what, bound, reached) in aims {
            if let Some(reached) = reached {
                let noun = if callers == 1 {
                    "connection"
                } else {
                    "connections"
                };
                lines.push(aim_line(
                    &format!("{callers} {noun}: {what}"),
                    bound,
                    reached,
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, requests_per_s: f64, p50_us: f64) -> Row {
        let figures = Figures {
            requests_per_s,
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
            row(Way::Claim, 3_000.0, 250.0),
            row(Way::Serve, 1_000.0, 900.0),
            row(Way::Get, 20_000.0, 50.0),
            row(Way::NginxGet, 10_000.0, 100.0),
            row(Way::SemelGet, 8_000.0, 151.0),
            row(Way::SemelKeyed, 810.0, 1_100.0),
            row(Way::Stream, 90.0, 60.0),
            row(Way::SemelStream, 80.0, 1_300.0),
        ];
        let text = table(&rows, "quiet");
        let line = |what: &str| {
            let line = text.lines().find(|line| line.contains(what));
            line.unwrap_or_else(|| panic!("no {what} in:\n{text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(line("p50 of a GET").ends_with("≤ 1.50 1.51 missed"));
        assert!(line("p99 of a GET").ends_with("≤ 1.50 1.51 missed"));
        assert!(line("keyed POSTs").ends_with("≥ 0.80 0.81 met"));
        assert!(line("first event").ends_with("≤ 1.00 0.99 met"));
        assert!(line("semel-get").ends_with("nginx-get 0.80 1.51 1.51"));
        assert!(
            line("semel-stream").ends_with("2,600"),
            "nginx's was not measured"
        );
        assert!(text.ends_with("\nquiet\n"));
    }

    #[test]
    fn what_was_not_measured_is_no_aim() {
        let rows = [row(Way::SemelGet, 1.0, 1.0), row(Way::Claim, 1.0, 1.0)];
        assert_eq!(aim_lines(&rows).len(), 1);
    }
}
