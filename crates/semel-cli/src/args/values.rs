//! How single values are written: durations, effects, classes, exit codes.

use std::time::Duration;

use clap::ValueEnum;
use semel::core::ledger::StateKind;
use semel::{Class, Effect, Lease, OnDoubt, Retention, Timestamp};
use semel_server::Listen;

/// Reads a duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "`{text}` is not a duration; write a whole number and a unit: 500ms, 30s, 5m, 2h, 7d"
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let millis_each: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(millis_each)
        .filter(|millis| *millis <= DURATION_MAX_MS)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is too long; the limit is 100 years"))
}

/// Nothing that a person means lasts longer, and no sum of two overflows.
const DURATION_MAX_MS: u64 = 100 * 365 * 86_400_000;

/// Reads a duration that must not be zero.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a duration of zero makes no sense here".to_owned()),
        length => Ok(length),
    }
}

/// Reads a whole number.
pub(crate) fn number(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a whole number"))
}

/// Reads a whole number that must not be zero.
pub(crate) fn some_number(text: &str) -> Result<usize, String> {
    match number(text)? {
        0 => Err("zero makes no sense here".to_owned()),
        number => Ok(number),
    }
}

/// Reads the size of something that is read as a whole.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    size_within(text, SIZE_MAX, "64MiB")
}

/// Reads the size of something that is not kept in memory.
pub(crate) fn large_size(text: &str) -> Result<usize, String> {
    size_within(text, LARGE_SIZE_MAX, "1024GiB")
}

/// Reads a size: a whole number of bytes, or one and `KiB`, `MiB` or `GiB`.
fn size_within(text: &str, limit: usize, shown: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a size; write 4096, 512KiB or 2MiB");
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let each: usize = match unit {
        "" => 1,
        "KiB" => 1_024,
        "MiB" => 1_024 * 1_024,
        "GiB" => 1_024 * 1_024 * 1_024,
        _ => return Err(wrong()),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    let size = number.checked_mul(each).filter(|size| *size <= limit);
    match size {
        Some(0) => Err("a size of zero makes no sense here".to_owned()),
        Some(size) => Ok(size),
        None => Err(format!("`{text}` is too large; the limit is {shown}")),
    }
}

/// Longer than any disk should have to keep for one request.
const LARGE_SIZE_MAX: usize = 1_024 * 1_024 * 1_024 * 1_024;

/// Nothing that is read as a whole may be larger.
const SIZE_MAX: usize = 64 * 1_024 * 1_024;

/// Reads where to listen: `ADDRESS:PORT` or `unix:PATH`.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err("unix: needs a path, such as unix:/run/semel.sock".to_owned());
        }
        return Ok(Listen::Unix(path.into()));
    }
    let literal = text
        .strip_prefix("localhost:")
        .map(|port| format!("127.0.0.1:{port}"));
    let address = literal.as_deref().unwrap_or(text).parse();
    address.map(Listen::Tcp).map_err(|_| {
        format!(
            "`{text}` is not a place to listen at; write 127.0.0.1:7363, [::1]:7363 or unix:PATH"
        )
    })
}

/// Reads a lease.
pub(crate) fn lease(text: &str) -> Result<Lease, String> {
    Lease::new(duration(text)?).map_err(|error| error.to_string())
}

/// Reads a retention.
pub(crate) fn retention(text: &str) -> Result<Retention, String> {
    Retention::new(duration(text)?).map_err(|error| error.to_string())
}

/// Reads the effect of something that was done.
pub(crate) fn effect(text: &str) -> Result<Effect, String> {
    let known = [
        Effect::Created,
        Effect::Updated,
        Effect::Deleted,
        Effect::Noop,
    ];
    known
        .into_iter()
        .find(|effect| effect.as_str() == text)
        .ok_or_else(|| format!("`{text}` is not an effect; use created, updated, deleted or noop"))
}

/// Reads an exit code that a command can end with and that is not success.
pub(crate) fn failing_exit(text: &str) -> Result<u8, String> {
    match text.trim().parse() {
        Ok(0) => Err("0 is success and cannot mean `try again`".to_owned()),
        Ok(code) => Ok(code),
        Err(_) => Err(format!("`{text}` is not an exit code; use 1 to 255")),
    }
}

/// A point in time, or how long ago it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(length) => now.minus(length),
        }
    }
}

/// Reads a time: RFC 3339, or a duration, which means so long ago.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let at = text.parse().map(Moment::At);
    at.or_else(|_| duration(text).map(Moment::Ago)).map_err(|_| {
        format!(
            "`{text}` is not a time; write 2026-11-15T10:00:00Z, or how long ago: 30s, 5m, 2h, 7d"
        )
    })
}

/// See [`StateKind`]; a forgotten operation cannot be asked for, as it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateWord {
    /// Waits for an attempt
    Pending,
    /// An attempt holds it
    Running,
    /// Done, in success
    Succeeded,
    /// Done, in failure
    Failed,
    /// Nobody knows whether its effect happened
    Doubtful,
    /// Out of attempts, and not applied
    Dead,
    /// Settled, and past its retention
    Tombstone,
}

impl From<StateWord> for StateKind {
    fn from(word: StateWord) -> Self {
        match word {
            StateWord::Pending => Self::Pending,
            StateWord::Running => Self::Running,
            StateWord::Succeeded => Self::Succeeded,
            StateWord::Failed => Self::Failed,
            StateWord::Doubtful => Self::Doubtful,
            StateWord::Dead => Self::Dead,
            StateWord::Tombstone => Self::Tombstone,
        }
    }
}

/// See [`Class`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ClassWord {
    /// Only reads: it is run each time and not recorded
    Safe,
    /// Can be repeated without harm: a doubt is retried
    Idempotent,
    /// Must not be repeated: a doubt is held
    Unsafe,
}

impl From<ClassWord> for Class {
    fn from(word: ClassWord) -> Self {
        match word {
            ClassWord::Safe => Self::Safe,
            ClassWord::Idempotent => Self::Idempotent,
            ClassWord::Unsafe => Self::Unsafe,
        }
    }
}

/// See [`OnDoubt`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnDoubtWord {
    /// Waits for a person
    Hold,
    /// Runs again: at least once
    Retry,
    /// Asks the probe
    Probe,
}

impl From<OnDoubtWord> for OnDoubt {
    fn from(word: OnDoubtWord) -> Self {
        match word {
            OnDoubtWord::Hold => Self::Hold,
            OnDoubtWord::Retry => Self::Retry,
            OnDoubtWord::Probe => Self::Probe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "s",
            "5",
            "5 s",
            "-1s",
            "+1s",
            "1.5h",
            "1w",
            "5S",
            "٣s",
            "18446744073709551616ms",
            "18446744073709551615d",
            "36501d",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_moment_is_a_time_or_how_long_ago_it_was() {
        let noon = Timestamp(1_794_744_000_000_000);
        assert_eq!(moment("2026-11-15T12:00:00Z"), Ok(Moment::At(noon)));
        let hour = Duration::from_secs(3_600);
        assert_eq!(moment("1h"), Ok(Moment::Ago(hour)));
        assert_eq!(Moment::Ago(hour).from(noon), noon.minus(hour));
        for bad in ["", "yesterday", "2026-11-15", "1h ago", "-1h"] {
            assert!(moment(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn exit_codes_that_mean_try_again_are_failures() {
        assert_eq!(failing_exit("75"), Ok(75));
        for bad in ["0", "256", "-1", "x", ""] {
            assert!(failing_exit(bad).is_err(), "{bad:?}");
        }
    }
}
