//! Columns that align.

use anstyle::Style;

use crate::visible;

/// A column is not made wider than this for the sake of one long cell, which is then followed by
/// the next one without being cut.
const WIDTH_MAX: usize = 40;

/// A text and how it looks on a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: visible::value(&text.to_string()).into_owned(),
            style: Style::new(),
        }
    }
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            text: visible::value(&text.into()).into_owned(),
            style,
        }
    }
}

/// Lays rows out in lines; the last column is not padded.
pub(crate) fn lines<const N: usize>(rows: &[[Cell; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            let length = cell.text.chars().count();
            *width = (*width).max(length.min(WIDTH_MAX));
        }
    }
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line<const N: usize>(row: &[Cell; N], widths: &[usize; N]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        if !line.is_empty() {
            line.push_str("  ");
        }
        let Cell { text, style } = cell;
        let pad = width.saturating_sub(text.chars().count());
        line.push_str(&format!("{style}{text}{style:#}{:pad$}", ""));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_nothing_is_cut() {
        let long = "k".repeat(60);
        let rows = [
            ["a".into(), "b".into(), "c".into()],
            ["wide".into(), Cell::from(&long), Cell::from("")],
            ["é".into(), "x".into(), "end".into()],
        ];
        let expected = [
            format!("a     b{}  c", " ".repeat(39)),
            format!("wide  {long}"),
            format!("é     x{}  end", " ".repeat(39)),
        ];
        assert_eq!(lines(&rows), expected);
    }
}
