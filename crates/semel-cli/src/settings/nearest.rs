//! Which name was probably meant.

use crate::failure::Failure;

/// Beyond one slip of the finger in so many letters it was another word.
const LETTERS_PER_SLIP: usize = 3;

/// Returns the name that is nearest to what was written, if one is near.
pub(crate) fn nearest<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = written.chars().count() / LETTERS_PER_SLIP;
    names
        .into_iter()
        .map(|name| (slips(written, name), name))
        .filter(|(slips, _)| *slips <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// Refuses a table with members that nobody knows; `what` has the known ones.
pub(super) fn only(
    value: &toml::Value,
    known: &[&str],
    what: &str,
    wrong: &dyn Fn(String) -> Failure,
) -> Result<(), Failure> {
    let Some(members) = value.as_table() else {
        let found = value.type_str();
        return Err(wrong(format!("it must be a table; it is a {found}")));
    };
    let stranger = members.keys().find(|name| !known.contains(&name.as_str()));
    let Some(stranger) = stranger else {
        return Ok(());
    };
    let unknown = wrong(format!("unknown setting `{stranger}`"));
    Err(match nearest(stranger, known.iter().copied()) {
        Some(near) => unknown.hint(format!("did you mean `{near}`?")),
        None => unknown.hint(format!("{what} has {}", known.join(", "))),
    })
}

/// Counts the characters to insert, remove, replace or swap with their neighbour, row by row.
fn slips(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_forgiven_and_another_word_is_not() {
        let names = ["store", "namespace", "run.lease"];
        assert_eq!(nearest("stroe", names), Some("store"));
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("stor", names), Some("store"));
        assert_eq!(nearest("run.leese", names), Some("run.lease"));
        assert_eq!(nearest("namespace", names), Some("namespace"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(slips("", "abc"), 3);
        assert_eq!(slips("kitten", "sitting"), 3);
    }
}
