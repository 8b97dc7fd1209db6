//! Whole numbers, as JSON has them: 1.0 is 1, and each has one meaning to everybody.

use std::fmt;
use std::num::NonZeroU32;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::problem::Problem;

/// The largest whole number that a double tells from its neighbours.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// The most attempts that can be asked for: what the description of the API says of a count.
const COUNT_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// A whole number from 0 to 2^63 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole(pub(crate) u64);

impl Whole {
    /// Reads it as a number of attempts.
    pub(crate) fn count(self, member: &str) -> Result<NonZeroU32, Problem> {
        let count = u32::try_from(self.0).ok().filter(|_| self.0 <= COUNT_MAX);
        let count = count.and_then(NonZeroU32::new);
        count.ok_or_else(|| Problem::input(format!("{member} is from 1 to {COUNT_MAX}")))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

/// A whole number from -2^63 to 2^63 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signed(pub(crate) i64);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SignedReader)
    }
}

struct SignedReader;

impl Visitor<'_> for SignedReader {
    type Value = Signed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Signed, E> {
        match i64::try_from(number) {
            Ok(number) => Ok(Signed(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Signed, E> {
        Ok(Signed(number))
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is whole and exact")]
    fn visit_f64<E: Error>(self, number: f64) -> Result<Signed, E> {
        if number.abs() <= EXACT_MAX && number.fract() == 0.0 {
            Ok(Signed(number as i64))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 9223372036854775807")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        match i64::try_from(number) {
            Ok(_) => Ok(Whole(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        match u64::try_from(number) {
            Ok(number) => Ok(Whole(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, positive and exact"
    )]
    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        if (0.0..=EXACT_MAX).contains(&number) && number.fract() == 0.0 {
            Ok(Whole(number as u64))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_in_many_ways() {
        let read = |text: &str| serde_json::from_str::<Whole>(text).ok().map(|it| it.0);
        for (text, number) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1.0", Some(1)),
            ("6e4", Some(60_000)),
            ("9223372036854775807", Some(9_223_372_036_854_775_807)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("1e300", None),
            ("-1", None),
            ("1.5", None),
            ("\"1\"", None),
            ("true", None),
            ("null", None),
        ] {
            assert_eq!(read(text), number, "{text}");
        }
    }

    #[test]
    fn a_number_below_zero_may_be_written_in_many_ways() {
        let read = |text: &str| serde_json::from_str::<Signed>(text).ok().map(|it| it.0);
        for (text, number) in [
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("-5", Some(-5)),
            ("-5.0", Some(-5)),
            ("1e2", Some(100)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("-1.5", None),
            ("\"1\"", None),
            ("null", None),
        ] {
            assert_eq!(read(text), number, "{text}");
        }
    }
}
