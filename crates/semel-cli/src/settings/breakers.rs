//! `[breakers.NAME]`: when a breaker opens, and for how long.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use semel::Key;
use semel::breaker::{Settings as Thresholds, Target};
use serde::Deserialize;

use super::Settings;
use super::nearest::only;
use crate::args::values;
use crate::failure::Failure;

/// The members of a breaker's table.
const MEMBERS: [&str; 6] = [
    "failure_rate",
    "minimum",
    "window",
    "failures",
    "cool_down",
    "cool_down_max",
];

/// The breakers that a file names.
pub(super) type Breakers = BTreeMap<String, Target>;

/// A breaker as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    failure_rate: Option<f64>,
    minimum: Option<NonZeroU32>,
    window: Option<String>,
    failures: Option<u32>,
    cool_down: Option<String>,
    cool_down_max: Option<String>,
}

/// Reads `[breakers]`.
pub(super) fn breakers(path: &Path, tables: &toml::Table) -> Result<Breakers, Failure> {
    let mut read = Breakers::new();
    for (name, value) in tables {
        let file = path.display();
        let wrong = |text: String| Failure::input(format!("{file}: breakers.{name}: {text}"));
        only(value, &MEMBERS, "a breaker", &wrong)?;
        let written: Result<Written, _> = value.clone().try_into();
        let written = written.map_err(|error| wrong(error.message().to_owned()))?;
        read.insert(name.clone(), written.read(name).map_err(wrong)?);
    }
    Ok(read)
}

/// Returns the breaker of a name; one that no file names has the usual thresholds.
pub(super) fn named(name: &str, breakers: &Breakers) -> Result<Target, String> {
    if let Some(target) = breakers.get(name) {
        return Ok(target.clone());
    }
    Written::default().read(name)
}

impl Written {
    fn read(self, name: &str) -> Result<Target, String> {
        let usual = Thresholds::default();
        let length = |member: &str, text: Option<&String>, usual| match text {
            None => Ok(usual),
            Some(text) => {
                let read = values::some_duration(text);
                read.map_err(|error| format!("{member}: {error}"))
            }
        };
        let cool_down = length("cool_down", self.cool_down.as_ref(), usual.cool_down)?;
        let thresholds = Thresholds {
            failure_permille: match self.failure_rate {
                None => usual.failure_permille,
                Some(rate) => permille(rate)?,
            },
            minimum: self.minimum.unwrap_or(usual.minimum),
            window: length("window", self.window.as_ref(), usual.window)?,
            // Zero leaves it to the rate.
            failures: self.failures.map_or(usual.failures, NonZeroU32::new),
            cool_down,
            cool_down_max: length(
                "cool_down_max",
                self.cool_down_max.as_ref(),
                usual.cool_down_max.max(cool_down),
            )?,
        };
        let name = Key::new(name).map_err(|error| format!("its name: {error}"))?;
        Target::new(name, thresholds).map_err(|error| error.to_string())
    }
}

fn permille(rate: f64) -> Result<u16, String> {
    if !(rate > 0.0 && rate <= 1.0) {
        return Err("failure_rate: it is above 0 and at most 1".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 1,000"
    )]
    let permille = (rate * 1_000.0).round() as u16;
    Ok(permille.max(1))
}

impl Settings {
    /// Returns the breaker of a name.
    pub(crate) fn breaker(&self, name: &str) -> Result<Target, Failure> {
        named(name, &self.breakers).map_err(|error| Failure::input(format!("{name}: {error}")))
    }
}
