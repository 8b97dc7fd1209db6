//! The page that says which test covers which point of the checklist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many points there are.
const POINTS: usize = 97;

/// How many of them may have no test.
const UNTESTED_MAX: usize = 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the numbers in the name of a test: `c015_c016_x` has two.
fn numbers(name: &str) -> Vec<usize> {
    let words = name.split('_');
    let numbers = words.map_while(|word| {
        let digits = word.strip_prefix('c').filter(|digits| digits.len() == 3)?;
        digits.parse().ok()
    });
    numbers.collect()
}

/// Finds the tests of a directory that have numbers.
fn find(directory: &Path, tests: &mut BTreeMap<usize, BTreeSet<String>>) {
    let entries = std::fs::read_dir(directory).expect("it can be read");
    for entry in entries {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            find(&path, tests);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).expect("it is text");
            let lines = text.lines().map(str::trim_start);
            let names = lines.filter_map(|line| {
                let plain = line
                    .strip_prefix("async fn ")
                    .or_else(|| line.strip_prefix("fn "))?;
                plain.split('(').next()
            });
            for name in names {
                for number in numbers(name) {
                    tests.entry(number).or_default().insert(name.to_owned());
                }
            }
        }
    }
}

/// Every row names all tests of its number and no other, and few have none.
#[test]
fn c096_every_point_is_listed_with_its_tests() {
    let mut tests = BTreeMap::new();
    find(&root().join("crates"), &mut tests);
    let page = std::fs::read_to_string(root().join("docs/conformance.md"));
    let page = page.expect("the page is there");
    let mut untested = vec![];
    for number in 1..=POINTS {
        let start = format!("| {number} | ");
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        let [row] = rows[..] else {
            panic!("{number} has {} rows", rows.len());
        };
        let quoted = row.split('`').skip(1).step_by(2);
        let named: BTreeSet<String> = quoted
            .filter(|name| !numbers(name).is_empty())
            .map(str::to_owned)
            .collect();
        let there = tests.remove(&number).unwrap_or_default();
        assert_eq!(named, there, "{number}: what is named is not what there is");
        if there.is_empty() {
            untested.push(number);
            let column = row.trim_end_matches('|').trim_end().rsplit(" | ").next();
            let why = column.unwrap_or_default();
            assert!(why.len() > 20, "{number} has no test and no reason: {row}");
        }
    }
    assert!(untested.len() <= UNTESTED_MAX, "{untested:?}");
    let (said, _) = page.split_once("## The list").expect("it has two parts");
    for number in [28, 35, 66, 76] {
        assert!(said.contains(&format!("**{number}**")), "{number} differs");
    }
}
