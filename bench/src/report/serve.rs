//! The result of the run over HTTP.

use serde_json::json;

use super::{Bound, aim_line, columns, head, rounded, thousands};
use crate::serve::{Figures, Moment, Place, Row, Way};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let figures = &row.figures;
        json!({
            "store": row.place.as_str(),
            "way": row.way.as_str(),
            "callers": row.callers,
            "cycles_per_s": rounded(figures.cycles_per_s),
            "p50_us": rounded(figures.p50_us),
            "p99_us": rounded(figures.p99_us),
            "replays_per_s": rounded(figures.replays_per_s),
            "replay_p50_us": rounded(figures.replay_p50_us),
            "replay_p99_us": rounded(figures.replay_p99_us),
            "idle_bytes": figures.idle_bytes,
            "bytes": figures.bytes,
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "rows": rows }))
}

pub(crate) fn table(rows: &[Row], conditions: &str) -> String {
    let mut lines = vec![head(&[
        "store",
        "way",
        "callers",
        "cycles/s",
        "of in-process",
        "p50 µs",
        "p99 µs",
        "replays/s",
        "of in-process",
        "p50 µs",
        "p99 µs",
        "memory MiB",
    ])];
    lines.extend(rows.iter().map(|row| {
        let figures = &row.figures;
        let beside = find(rows, row.place, Way::InProcess, row.callers);
        let of = |figure: fn(&Figures) -> f64| {
            beside.map_or_else(String::new, |beside| {
                format!("{:.2}", figure(figures) / figure(beside))
            })
        };
        vec![
            row.place.as_str().to_owned(),
            row.way.as_str().to_owned(),
            row.callers.to_string(),
            thousands(figures.cycles_per_s),
            of(|figures| figures.cycles_per_s),
            thousands(figures.p50_us),
            thousands(figures.p99_us),
            thousands(figures.replays_per_s),
            of(|figures| figures.replays_per_s),
            thousands(figures.replay_p50_us),
            thousands(figures.replay_p99_us),
            thousands(figures.bytes / MIB),
        ]
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

fn find(rows: &[Row], place: Place, way: Way, callers: u32) -> Option<&Figures> {
    let row = rows
        .iter()
        .find(|row| (row.place, row.way, row.callers) == (place, way, callers))?;
    Some(&row.figures)
}

/// The aims that were set for the server, beside what was reached.
fn aim_lines(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![head(&["aim", "wanted", "reached", ""])];
    for place in [Place::Sqlite, Place::Postgres] {
        let share = |way| {
            let (ours, theirs) = (
                find(rows, place, way, 64)?,
                find(rows, place, Way::InProcess, 64)?,
            );
            Some(ours.cycles_per_s / theirs.cycles_per_s)
        };
        let added = || {
            let (ours, theirs) = (
                find(rows, place, Way::Http, 1)?,
                find(rows, place, Way::InProcess, 1)?,
            );
            Some((ours.p50_us - theirs.p50_us) / 1_000.0)
        };
        let idle = find(rows, place, Way::Http, 1).map(|figures| figures.idle_bytes / MIB);
        let aims = [
            (
                "64 connections: cycles/s of in-process",
                Bound::AtLeast(0.25),
                share(Way::Http),
            ),
            (
                "64 connections, arrays: of in-process",
                Bound::AtLeast(0.6),
                share(Way::HttpBatch),
            ),
            (
                "1 connection: ms added to a cycle",
                Bound::AtMost(0.3),
                added(),
            ),
            ("idle memory, MiB", Bound::AtMost(60.0), idle),
        ];
        for (what, bound, reached) in aims {
            if let Some(reached) = reached {
                lines.push(aim_line(
                    &format!("{}: {what}", place.as_str()),
                    bound,
                    reached,
                ));
            }
        }
    }
    lines
}

pub(crate) fn memory_json(moments: &[Moment]) -> String {
    let moment = |moment: &Moment| {
        json!({
            "seconds": moment.seconds,
            "bytes": moment.bytes,
            "cycles_per_s": rounded(moment.cycles_per_s),
        })
    };
    let moments: Vec<_> = moments.iter().map(moment).collect();
    format!("{:#}\n", json!({ "memory": moments }))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of one process are far below 2^52"
)]
pub(crate) fn memory_table(moments: &[Moment], conditions: &str) -> String {
    let mut lines = vec![head(&["seconds", "memory MiB", "cycles/s"])];
    lines.extend(moments.iter().map(|moment| {
        vec![
            moment.seconds.to_string(),
            thousands(moment.bytes as f64 / MIB),
            thousands(moment.cycles_per_s),
        ]
    }));
    format!("{}\n{conditions}\n", columns(&lines))
}
