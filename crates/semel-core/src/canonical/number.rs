//! Reads numbers as exact decimals and writes them in canonical form.
//!
//! The rule for numbers and the argument that it is injective are in the [module](super) docs.

use super::Error;

/// The largest exponent of a number, of either sign, written with one digit before the point.
///
/// `1e1000000` is read and `1e1000001` refused, in every spelling; so is `1e-1000001`.
pub const MAX_EXPONENT: i64 = 1_000_000;

/// The most significant digits that a non-integer may have to be taken for a double.
///
/// Seventeen always suffice to tell one double from another, so writers print up to that many; more
/// say something that a double does not hold.
const DOUBLE_DIGITS: i64 = 17;

/// ECMAScript writes a number without an exponent while its point is at most this far from its
/// first digit.
const PLAIN_DIGITS: i64 = 21;

/// A number literal, as spelled.
pub(super) struct Number<'a> {
    negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    /// The exponent, saturated: one that does not fit is out of range all the same, as no input
    /// has enough digits to bring it back.
    exponent: Option<i64>,
}

/// A magnitude that is not zero: 0.DIGITS × 10^`point`.
///
/// The digits are those of `head` followed by those of `tail`; neither the first nor the last of
/// them is zero. So there is one list of digits and one `point` for each value.
struct Decimal<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    point: i64,
}

/// Tells whether text begins with a name for a number that is not finite.
pub(super) fn is_not_finite(text: &[u8]) -> bool {
    text.starts_with(b"NaN") || text.starts_with(b"Infinity")
}

/// Reads the number that `text` begins with, and gives its length; `offset` is its place in the
/// input, for errors.
pub(super) fn scan(text: &[u8], offset: usize) -> Result<(Number<'_>, usize), Error> {
    let missing_digit = |rest: &[u8]| Error::InvalidNumber {
        offset: offset + (text.len() - rest.len()),
    };
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if is_not_finite(rest) {
        return Err(Error::NotFinite { offset });
    }
    let (integer, mut rest) = split_digits(rest);
    match integer {
        [] => return Err(missing_digit(rest)),
        [b'0', _, ..] => {
            return Err(Error::LeadingZero {
                offset: offset + usize::from(negative),
            });
        }
        [_, ..] => {}
    }
    let mut fraction: &[u8] = &[];
    if let [b'.', after @ ..] = rest {
        (fraction, rest) = split_digits(after);
        if fraction.is_empty() {
            return Err(missing_digit(rest));
        }
    }
    let mut exponent = None;
    if let [b'e' | b'E', after @ ..] = rest {
        let (sign, after) = match after {
            [b'-', after @ ..] => (-1, after),
            [b'+', after @ ..] => (1, after),
            _ => (1, after),
        };
        let digits;
        (digits, rest) = split_digits(after);
        if digits.is_empty() {
            return Err(missing_digit(rest));
        }
        let magnitude = digits.iter().fold(0_i64, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(i64::from(digit_value(*digit)))
        });
        exponent = Some(sign * magnitude);
    }
    let number = Number {
        negative,
        integer,
        fraction,
        exponent,
    };
    Ok((number, text.len() - rest.len()))
}

/// Splits off the decimal digits that `text` begins with.
fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at_checked(length).unwrap_or((text, &[]))
}

/// Gives the value of an ASCII digit, which its low four bits hold.
fn digit_value(digit: u8) -> u8 {
    digit & 0x0F
}

impl Number<'_> {
    /// Appends the canonical text; `offset` is the number's place in the input, for errors.
    pub(super) fn write(&self, out: &mut Vec<u8>, offset: usize) -> Result<(), Error> {
        let Some(decimal) = self.decimal() else {
            // Zero has no sign here: -0 equals 0.
            out.push(b'0');
            return Ok(());
        };
        if decimal.exponent().saturating_abs() > MAX_EXPONENT {
            return Err(Error::NumberOutOfRange { offset });
        }
        if self.negative {
            out.push(b'-');
        }
        if self.is_plain() {
            out.extend_from_slice(self.integer);
        } else if let Some(double) = decimal.as_double() {
            out.extend_from_slice(ryu_js::Buffer::new().format_finite(double).as_bytes());
        } else {
            decimal.write(out);
        }
        Ok(())
    }

    /// Tells whether the literal already is the canonical text: an integer without point or
    /// exponent, and short enough for ECMAScript to need none. Most numbers are.
    fn is_plain(&self) -> bool {
        self.fraction.is_empty() && self.exponent.is_none() && length(self.integer) <= PLAIN_DIGITS
    }

    /// Gives the magnitude, or nothing for zero.
    fn decimal(&self) -> Option<Decimal<'_>> {
        let mut head = strip_leading_zeros(self.integer);
        let mut tail = self.fraction;
        let mut point = length(head);
        if head.is_empty() {
            tail = strip_leading_zeros(tail);
            point = length(tail) - length(self.fraction);
        }
        tail = strip_trailing_zeros(tail);
        if tail.is_empty() {
            head = strip_trailing_zeros(head);
        }
        if head.is_empty() && tail.is_empty() {
            return None;
        }
        Some(Decimal {
            head,
            tail,
            point: point.saturating_add(self.exponent.unwrap_or(0)),
        })
    }
}

impl Decimal<'_> {
    /// Gives the exponent for one digit before the point.
    fn exponent(&self) -> i64 {
        self.point.saturating_sub(1)
    }

    fn is_integer(&self) -> bool {
        self.point >= self.digit_count()
    }

    fn digit_count(&self) -> i64 {
        length(self.head).saturating_add(length(self.tail))
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.head.iter().chain(self.tail).copied()
    }

    /// Gives the double to write in place of the exact value, if the rule says so and it may
    /// differ from it.
    fn as_double(&self) -> Option<f64> {
        let count = self.digit_count();
        if self.is_integer() || count > DOUBLE_DIGITS {
            return None;
        }
        // A decimal of so few digits comes back from a normal double as it was, and no shorter
        // one does: writing it exactly gives the same text without the detour.
        if count <= i64::from(f64::DIGITS) && self.exponent() >= i64::from(f64::MIN_10_EXP) {
            return None;
        }
        let significand = self.digits().fold(0_u64, |value, digit| {
            value * 10 + u64::from(digit_value(digit))
        });
        let double: f64 = format!("{significand}e{}", self.point - count)
            .parse()
            .ok()?;
        (double.fract() != 0.0).then_some(double)
    }

    /// Appends the exact value in ECMAScript's layout (Number::toString, radix 10).
    fn write(&self, out: &mut Vec<u8>) {
        let count = self.digit_count();
        let point = self.point;
        if point > 0 && point <= PLAIN_DIGITS {
            let before = usize::try_from(point).unwrap_or(usize::MAX);
            out.extend(self.digits().take(before));
            if count > point {
                out.push(b'.');
                out.extend(self.digits().skip(before));
            } else {
                write_zeros(out, point - count);
            }
        } else if point > -6 && point <= 0 {
            out.extend_from_slice(b"0.");
            write_zeros(out, -point);
            out.extend(self.digits());
        } else {
            out.extend(self.digits().take(1));
            if count > 1 {
                out.push(b'.');
                out.extend(self.digits().skip(1));
            }
            // `{:+}` writes the sign in front of a positive exponent, as ECMAScript does.
            out.extend_from_slice(format!("e{:+}", self.exponent()).as_bytes());
        }
    }
}

fn write_zeros(out: &mut Vec<u8>, count: i64) {
    out.extend((0..count).map(|_| b'0'));
}

/// Gives a slice's length as the type that exponents have; no slice is longer than that.
fn length(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

fn strip_leading_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

fn strip_trailing_zeros(mut digits: &[u8]) -> &[u8] {
    while let [rest @ .., b'0'] = digits {
        digits = rest;
    }
    digits
}
