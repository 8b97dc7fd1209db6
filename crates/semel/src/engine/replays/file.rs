//! Where it is kept what was saved: a small file beside the store that people can read.
//!
//! ```text
//! {"semel_saved":1,"lines":2}
//! {"door":"proxy","name":"https://api.example","calls":3,"micros":5250000,"money":{"USD":12345}}
//! {"door":"run","calls":1,"micros":120000}
//! ```
//!
//! Money is in millionths. Earlier versions kept two numbers in a file of their own, which is added in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::time::Duration;

use semel_core::{Currency, Label, Money};
use serde::{Deserialize, Serialize};

use super::sums::{SAVERS_MAX, Saved, Saver, Sums};
use crate::owned::OwnedDirectory;

/// The name of the file.
const NAME: &str = "saved";

/// What this version reads and writes. A file of a later one is left alone.
const VERSION: u32 = 1;

/// The most that is read: more than the longest names of as many savers as there may be.
const BYTES_MAX: u64 = 1024 * 1024;

#[derive(Deserialize, Serialize)]
struct Header {
    semel_saved: u32,
    /// What stands behind them is left from before.
    lines: usize,
}

#[derive(Deserialize, Serialize)]
struct Line {
    door: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    calls: u64,
    micros: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    money: BTreeMap<String, u64>,
}

/// Adds to what is kept in a directory.
pub(super) fn add(directory: &OwnedDirectory, sums: &Sums) -> io::Result<()> {
    let mut file = directory.open_file(NAME)?;
    file.lock()?;
    let mut all = parse(&text(&mut file)?)?;
    all.add_all(sums);
    let text = written(&all);
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Reads what is kept in a directory; what cannot be read is nothing.
pub(super) fn read(directory: &OwnedDirectory) -> Sums {
    let kept = || {
        let mut file = directory.read_file(NAME)?;
        file.lock_shared()?;
        parse(&text(&mut file)?)
    };
    let mut sums = kept().unwrap_or_default();
    if let Ok(earlier) = earlier(directory) {
        sums.add(&Saver::other(), &earlier);
    }
    sums
}

fn text(file: &mut File) -> io::Result<String> {
    let mut bytes = vec![];
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the lines. What is damaged is given up, so that counting goes on; what is newer is refused.
fn parse(text: &str) -> io::Result<Sums> {
    let mut sums = Sums::default();
    let mut lines = text.lines();
    let header = lines.next().map(serde_json::from_str::<Header>);
    let Some(Ok(header)) = header else {
        return Ok(sums);
    };
    if header.semel_saved > VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    for line in lines.take(header.lines.min(SAVERS_MAX)) {
        if let Some((by, saved)) = serde_json::from_str(line).ok().and_then(Line::read) {
            sums.add(&by, &saved);
        }
    }
    Ok(sums)
}

fn written(sums: &Sums) -> String {
    let header = Header {
        semel_saved: VERSION,
        lines: sums.iter().len(),
    };
    let header = serde_json::to_string(&header).expect("numbers are JSON");
    let lines = sums.iter().map(|(by, saved)| {
        let line = Line::of(by, saved);
        serde_json::to_string(&line).expect("numbers and texts are JSON")
    });
    let mut text = String::new();
    for line in std::iter::once(header).chain(lines) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

impl Line {
    fn of(by: &Saver, saved: &Saved) -> Self {
        let money = saved.money.iter();
        Self {
            door: by.door.to_string(),
            name: by.name.as_ref().map(Label::to_string),
            calls: saved.calls,
            micros: u64::try_from(saved.time.as_micros()).unwrap_or(u64::MAX),
            money: money
                .map(|(currency, money)| (currency.to_string(), money.0))
                .collect(),
        }
    }

    fn read(self) -> Option<(Saver, Saved)> {
        let name = self.name.as_deref().map(Label::new).transpose().ok()?;
        let by = Saver::new(Label::new(&self.door).ok()?, name);
        let money = self.money.into_iter();
        let money =
            money.map(|(currency, money)| Some((Currency::new(&currency).ok()?, Money(money))));
        let saved = Saved {
            calls: self.calls,
            time: Duration::from_micros(self.micros),
            money: money.collect::<Option<_>>()?,
        };
        Some((by, saved))
    }
}

/// Reads what earlier versions kept: how many, and how many microseconds.
fn earlier(directory: &OwnedDirectory) -> io::Result<Saved> {
    let mut file = directory.read_file("replays")?;
    file.lock_shared()?;
    let mut number = || {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes)?;
        io::Result::Ok(u64::from_le_bytes(bytes))
    };
    Ok(Saved {
        calls: number()?,
        time: Duration::from_micros(number()?),
        ..Saved::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::{Path, PathBuf};

    fn place(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    fn open(directory: &tempfile::TempDir) -> OwnedDirectory {
        let owner = crate::owned::FileOwner::this_process();
        OwnedDirectory::make(directory.path(), owner).expect("it is ours")
    }

    fn sums(lines: &[(&str, Option<&str>, u64)]) -> Sums {
        let mut sums = Sums::default();
        for (door, name, calls) in lines {
            let label = |text: &str| Label::new(text).expect("it is a label");
            let by = Saver::new(label(door), name.map(label));
            let dollar = Currency::new("USD").expect("it is one");
            let saved = Saved {
                calls: *calls,
                time: Duration::from_micros(7),
                money: [(dollar, Money(9))].into(),
            };
            sums.add(&by, &saved);
        }
        sums
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let all = sums(&[("proxy", Some("http://a \"b\""), 3), ("run", None, 1)]);
        add(&open(&directory), &all).expect("it is kept");
        assert_eq!(read(&open(&directory)), all);
        let text = std::fs::read_to_string(place(directory.path())).expect("it is text");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.starts_with("{\"semel_saved\":1,\"lines\":2}\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_left_behind_the_lines_counts_for_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let all = sums(&[("run", None, 1)]);
        let text = format!(
            "{}{}",
            written(&all),
            "{\"door\":\"x\",\"calls\":1,\"micros\":1}\n{\"do"
        );
        std::fs::write(place(directory.path()), text).expect("it is written");
        assert_eq!(read(&open(&directory)), all);
        add(&open(&directory), &all).expect("it is kept");
        assert_eq!(
            read(&open(&directory)),
            sums(&[("run", None, 1), ("run", None, 1)])
        );
    }

    #[test]
    fn what_earlier_versions_kept_is_added_in() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = [3_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
        std::fs::write(directory.path().join("replays"), old).expect("it is written");
        let earlier = Saved {
            calls: 3,
            time: Duration::from_micros(5),
            ..Saved::default()
        };
        let mut all = sums(&[("run", None, 1)]);
        add(&open(&directory), &all).expect("it is kept");
        all.add(&Saver::other(), &earlier);
        assert_eq!(read(&open(&directory)), all);
    }

    #[test]
    fn a_later_version_is_left_alone_and_damage_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let later = "{\"semel_saved\":2,\"lines\":0}\n";
        std::fs::write(place(directory.path()), later).expect("it is written");
        add(&open(&directory), &sums(&[("run", None, 1)])).expect_err("it is another's");
        let text = std::fs::read_to_string(place(directory.path())).expect("it is text");
        assert_eq!(text, later);
        std::fs::write(place(directory.path()), [0; 40]).expect("it is written");
        add(&open(&directory), &sums(&[("run", None, 1)])).expect("it is kept");
        assert_eq!(read(&open(&directory)), sums(&[("run", None, 1)]));
    }
}
