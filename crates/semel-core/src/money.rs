//! Money: whole millionths of a currency unit, so that sums are exact.

use core::fmt;

/// An amount, in millionths of a currency unit. Sums stop at the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(pub u64);

/// Three letters that name a currency, as in `USD`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

/// Says why a text is no amount or no currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// It is no number.
    #[error("an amount is a number from 0 to {}", Money::PRICE_MAX)]
    Number,
    /// It is finer than what is counted.
    #[error("an amount has at most six decimals")]
    TooFine,
    /// It is no currency.
    #[error("a currency has three capital letters, as in `USD`")]
    Currency,
}

impl Money {
    /// Millionths in one unit.
    pub const UNIT: u64 = 1_000_000;

    /// The highest price, in units: beyond what anything costs, and far from where sums stop.
    pub const PRICE_MAX: u64 = 1_000_000;

    /// Reads a price as people write it, as in `2.50`.
    ///
    /// # Errors
    /// Says why it is none.
    pub fn price(text: &str) -> Result<Self, MoneyError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |text: &str| {
            let mut bytes = text.bytes();
            !text.is_empty() && bytes.all(|byte| byte.is_ascii_digit())
        };
        if !is_digits(whole) || !is_digits(decimals) {
            return Err(MoneyError::Number);
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 6 {
            return Err(MoneyError::TooFine);
        }
        let whole: u64 = whole.parse().map_err(|_| MoneyError::Number)?;
        let millionths: u64 = format!("{decimals:0<6}").parse().unwrap_or(0);
        let price = whole
            .checked_mul(Self::UNIT)
            .and_then(|whole| whole.checked_add(millionths));
        price
            .filter(|price| *price <= Self::PRICE_MAX * Self::UNIT)
            .map(Self)
            .ok_or(MoneyError::Number)
    }

    /// Returns the sum of two amounts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / Self::UNIT, self.0 % Self::UNIT)
    }
}

impl Currency {
    /// Reads a currency.
    ///
    /// # Errors
    /// Refuses what has not three capital letters.
    pub fn new(text: &str) -> Result<Self, MoneyError> {
        let letters: [u8; 3] = text
            .as_bytes()
            .try_into()
            .map_err(|_| MoneyError::Currency)?;
        let is_one = letters.iter().all(u8::is_ascii_uppercase);
        is_one.then_some(Self(letters)).ok_or(MoneyError::Currency)
    }

    /// Returns the letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_exactly() {
        for (text, price) in [
            ("0", Ok(0)),
            ("0.01", Ok(10_000)),
            ("2.50", Ok(2_500_000)),
            ("2.5", Ok(2_500_000)),
            ("0.000001", Ok(1)),
            ("0.0000010", Ok(1)),
            ("0.0000001", Err(MoneyError::TooFine)),
            ("10", Ok(10_000_000)),
            ("1000000", Ok(1_000_000_000_000)),
            ("1000000.000001", Err(MoneyError::Number)),
            ("99999999999999999999", Err(MoneyError::Number)),
            ("-1", Err(MoneyError::Number)),
            ("-0", Err(MoneyError::Number)),
            ("+1", Err(MoneyError::Number)),
            ("1.", Err(MoneyError::Number)),
            (".5", Err(MoneyError::Number)),
            ("1e3", Err(MoneyError::Number)),
            ("NaN", Err(MoneyError::Number)),
            ("inf", Err(MoneyError::Number)),
            ("", Err(MoneyError::Number)),
        ] {
            assert_eq!(Money::price(text), price.map(Money), "{text}");
        }
    }

    #[test]
    fn amounts_are_written_with_all_their_decimals() {
        for (amount, text) in [
            (0, "0.000000"),
            (1, "0.000001"),
            (123_456, "0.123456"),
            (12_000_000, "12.000000"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(Money(amount).to_string(), text);
        }
        assert_eq!(Money(u64::MAX).plus(Money(1)), Money(u64::MAX));
    }

    #[test]
    fn a_currency_has_three_capital_letters() {
        assert_eq!(Currency::new("EUR").unwrap().as_str(), "EUR");
        for text in ["", "usd", "US", "USDT", "U D", "€\u{0}"] {
            assert_eq!(Currency::new(text), Err(MoneyError::Currency), "{text}");
        }
    }
}
