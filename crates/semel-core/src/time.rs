//! Points in time and the two kinds of duration that must never be mixed up.

use core::fmt;
use core::time::Duration;

/// Marks a point in time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns this time moved later by `duration`, stopping at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns this time moved earlier by `duration`, stopping at the beginning of time.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Returns how much later this time is than `earlier`; zero when it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let micros = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_micros(u64::try_from(micros.max(0)).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows the time as RFC 3339 in UTC with milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.div_euclid(1_000);
        let days = millis.div_euclid(86_400_000);
        let of_day = millis.rem_euclid(86_400_000);
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            of_day / 3_600_000,
            of_day / 60_000 % 60,
            of_day / 1_000 % 60,
            of_day % 1_000
        )
    }
}

/// Turns days since 1970-01-01 into a date of the proleptic Gregorian calendar.
///
/// Counts in eras of 400 years that begin on 1 March, so that the leap day is the last of its year.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    const FROM_MARCH_OF_YEAR_ZERO: i64 = 719_468;
    let shifted = days + FROM_MARCH_OF_YEAR_ZERO;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Counts the days from 1970-01-01 to a date: the way back of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_PER_ERA: i64 = 146_097;
    const FROM_MARCH_OF_YEAR_ZERO: i64 = 719_468;
    let from_march = year - i64::from(month <= 2);
    let (era, year_of_era) = (from_march.div_euclid(400), from_march.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - FROM_MARCH_OF_YEAR_ZERO
}

/// Says that a text is not a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time is written as in RFC 3339: 2026-11-15T10:00:00Z")]
pub struct TimeError;

/// Reads a time as RFC 3339 writes it; digits beyond microseconds are dropped.
impl core::str::FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text).ok_or(TimeError)
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, b'-', [4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, b':', [2, 2, 2])?;
    let (micros, zone) = fraction(rest)?;
    let days = days_from_civil(year, month, day);
    // A date that does not exist comes back as another one; a leap second counts as the next one.
    let exists = civil_from_days(days) == (year, month, day);
    if !exists || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_seconds(zone)?;
    Some(Timestamp(seconds * 1_000_000 + micros))
}

/// Reads three numbers of fixed widths with a sign between them.
fn numbers(text: &str, between: u8, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.as_bytes().split(|byte| *byte == between);
    let mut found = [0; 3];
    for (slot, width) in found.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *slot = digits(part)?;
    }
    parts.next().is_none().then_some(found)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |sum: i64, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + i64::from(byte - b'0'))
    })
}

/// Reads a fraction of a second, if there is one, and returns what follows it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (fraction, zone) = rest.split_at(end);
    if fraction.is_empty() {
        return None;
    }
    let micros = fraction.bytes().chain(core::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    Some((micros, zone))
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (digits(hours.as_bytes())?, digits(minutes.as_bytes())?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Says why a duration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The lease is outside what a ledger can keep.
    #[error("a lease lasts from 1 second to 24 hours")]
    Lease,
    /// The retention is zero or overflows.
    #[error("a retention lasts from 1 second to 100 years")]
    Retention,
}

/// Limits how long an attempt may act without saying that it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(Duration);

impl Lease {
    /// The shortest lease: below it, a slow disk alone would end attempts.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest lease: beyond it, a crash would hide its doubt for more than a day.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// The lease that is used when none is given.
    pub const DEFAULT: Self = Self(Duration::from_secs(60));

    /// Makes a lease of this length.
    ///
    /// # Errors
    /// Refuses a length outside [`Lease::MIN`] to [`Lease::MAX`].
    pub fn new(length: Duration) -> Result<Self, DurationError> {
        if (Self::MIN..=Self::MAX).contains(&length) {
            Ok(Self(length))
        } else {
            Err(DurationError::Lease)
        }
    }

    /// Returns the length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

/// Limits how long the payload of a settled operation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention(Duration);

impl Retention {
    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    /// The retention that is used when none is given: 30 days.
    pub const DEFAULT: Self = Self(Duration::from_secs(30 * 24 * 60 * 60));

    /// Makes a retention of this length.
    ///
    /// # Errors
    /// Refuses zero, fractions of a second and anything beyond 100 years.
    pub fn new(length: Duration) -> Result<Self, DurationError> {
        if (Self::MIN..=Self::MAX).contains(&length) {
            Ok(Self(length))
        } else {
            Err(DurationError::Retention)
        }
    }

    /// Returns the length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_as_rfc_3339_with_milliseconds() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_794_736_800_123_456, "2026-11-15T10:00:00.123Z"),
            (4_107_542_399_999_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(Timestamp(micros).to_string(), text);
        }
    }

    #[test]
    fn a_time_reads_back_from_its_text() {
        for micros in [0, -1_000, 951_782_400_000_000, 4_107_542_400_000_000] {
            let time = Timestamp(micros);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        for (text, micros) in [
            ("2026-11-15T10:00:00Z", 1_794_736_800_000_000),
            ("2026-11-15t12:30:00.5+02:30", 1_794_736_800_500_000),
            ("2026-11-14 23:00:00-11:00", 1_794_736_800_000_000),
            ("2026-11-15T10:00:00.1234567Z", 1_794_736_800_123_456),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp(micros)), "{text}");
        }
        for bad in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T10:00:00",
            "2026-11-15T10:00Z",
            "2026-02-29T10:00:00Z",
            "2026-13-01T10:00:00Z",
            "2026-00-01T10:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T10:60:00Z",
            "2026-11-15T10:00:61Z",
            "2026-11-15T10:00:00.Z",
            "2026-11-15T10:00:00+0100",
            "2026-11-15T10:00:00+24:00",
            "2026-11-15T10:00:00Z ",
            "2026-11-15T10:00:00.1",
            "+026-11-15T10:00:00Z",
            "2026-1-015T10:00:00Z",
            "202\u{e9}-11-15T10:00:00Z",
        ] {
            assert_eq!(bad.parse::<Timestamp>(), Err(TimeError), "{bad:?}");
        }
    }

    #[test]
    fn time_stops_at_its_ends_instead_of_wrapping() {
        assert_eq!(
            Timestamp(i64::MAX).plus(Duration::from_secs(1)),
            Timestamp(i64::MAX)
        );
        assert_eq!(
            Timestamp(i64::MIN).minus(Duration::MAX),
            Timestamp(i64::MIN)
        );
        assert_eq!(
            Timestamp(i64::MIN).since(Timestamp(i64::MAX)),
            Duration::ZERO
        );
        assert_eq!(
            Timestamp(i64::MAX).since(Timestamp(i64::MIN)),
            Duration::from_micros(u64::MAX)
        );
    }

    #[test]
    fn zero_and_overflowing_durations_are_refused() {
        for bad in [
            Duration::ZERO,
            Duration::from_millis(999),
            Duration::from_secs(86_401),
        ] {
            assert_eq!(Lease::new(bad), Err(DurationError::Lease));
        }
        for bad in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            assert_eq!(Retention::new(bad), Err(DurationError::Retention));
        }
        assert!(Lease::new(Lease::MIN).is_ok() && Lease::new(Lease::MAX).is_ok());
    }
}
