//! How often something may happen: a period's worth at once, and then one after the other.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

/// So many in each period: `100/s`, `10/m`, `5/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    period: Duration,
}

/// The text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate is a count from 1 to 1000000 and a period, as in 100/s, 10/m or 5/h")]
pub struct RateError;

impl Rate {
    /// Beyond it, counting costs more than what is counted.
    const COUNT_MAX: u32 = 1_000_000;

    const PERIODS: [(&'static str, Duration); 3] = [
        ("s", Duration::from_secs(1)),
        ("m", Duration::from_secs(60)),
        ("h", Duration::from_secs(3_600)),
    ];

    /// So many each second.
    ///
    /// # Errors
    /// Refuses none, and more than a million.
    pub fn per_second(count: u32) -> Result<Self, RateError> {
        Self::new(count, Duration::from_secs(1))
    }

    fn new(count: u32, period: Duration) -> Result<Self, RateError> {
        let count = NonZeroU32::new(count).filter(|count| count.get() <= Self::COUNT_MAX);
        let count = count.ok_or(RateError)?;
        Ok(Self { count, period })
    }

    /// The time from one to the next, where they come evenly.
    fn step(self) -> Duration {
        self.period / self.count.get()
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, unit) = text.split_once('/').ok_or(RateError)?;
        let period = Self::PERIODS.iter().find(|(name, _)| *name == unit);
        let (_, period) = period.ok_or(RateError)?;
        // A sign would be read as part of the number.
        if !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RateError);
        }
        Self::new(count.parse().map_err(|_| RateError)?, *period)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Self::PERIODS
            .iter()
            .find(|(_, period)| *period == self.period);
        write!(f, "{}/{}", self.count, unit.map_or("s", |(name, _)| name))
    }
}

/// Keeps to a rate. Times are counted from any fixed moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When all that was let through would have come, one after the other.
    due: Duration,
}

impl Pace {
    /// Lets one through now, or says how long to wait.
    ///
    /// # Errors
    /// The time until one more may come; then nothing is counted.
    pub fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let wait = self.wait(rate, now);
        if wait.is_zero() {
            self.reserve(rate, now);
            return Ok(());
        }
        Err(wait)
    }

    /// Lets one through, now or later: returns how long it has to wait for its turn.
    pub fn reserve(&mut self, rate: Rate, now: Duration) -> Duration {
        let wait = self.wait(rate, now);
        self.due = self.due.max(now) + rate.step();
        wait
    }

    /// As [`Pace::reserve`], with nothing early: returns how long to wait after the one before.
    pub fn evenly(&mut self, rate: Rate, now: Duration) -> Duration {
        let wait = self.due.saturating_sub(now);
        self.due = self.due.max(now) + rate.step();
        wait
    }

    /// Says how long the next one has to wait: a period's worth may come early.
    #[must_use]
    pub fn wait(&self, rate: Rate, now: Duration) -> Duration {
        let early = rate.period.saturating_sub(rate.step());
        self.due.saturating_sub(now).saturating_sub(early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in ["100/s", "10/m", "5/h", "1000000/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "5",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1/d",
            "1000001/s",
            "1/s ",
            "4294967297/s",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }

    #[test]
    fn a_periods_worth_comes_at_once_and_then_one_after_the_other() {
        let rate: Rate = "4/s".parse().unwrap();
        let mut pace = Pace::default();
        let ms = Duration::from_millis;
        let begun = ms(70_000);
        for _ in 0..4 {
            assert_eq!(pace.take(rate, begun), Ok(()));
        }
        assert_eq!(pace.take(rate, begun), Err(ms(250)));
        assert_eq!(pace.take(rate, begun + ms(249)), Err(ms(1)));
        assert_eq!(pace.take(rate, begun + ms(250)), Ok(()));
        assert_eq!(pace.take(rate, begun + ms(250)), Err(ms(250)));
        // After a rest there is a period's worth again, and no more.
        let later = begun + ms(60_000);
        let taken = (0..10).filter(|_| pace.take(rate, later).is_ok());
        assert_eq!(taken.count(), 4);
    }

    #[test]
    fn those_who_reserve_come_one_after_the_other() {
        let rate: Rate = "2/s".parse().unwrap();
        let mut pace = Pace::default();
        let now = Duration::from_secs(9);
        let waits: Vec<_> = (0..5)
            .map(|_| pace.reserve(rate, now).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 500, 1_000, 1_500]);
        let mut pace = Pace::default();
        let waits: Vec<_> = (0..3).map(|_| pace.evenly(rate, now).as_millis()).collect();
        assert_eq!(waits, [0, 500, 1_000]);
    }
}
