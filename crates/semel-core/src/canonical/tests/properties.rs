//! What must hold for values and bytes that nobody thought of.

use proptest::prelude::*;

use super::canonical;
use super::model::{self, Noise, Value};
use super::reader;
use crate::canonical::draft::utf16_order;
use crate::canonical::{Limits, canonicalize};

/// The output may be longer than the limit on the input.
const UNLIMITED: Limits = Limits {
    size: usize::MAX,
    depth: usize::MAX,
};

fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..80)
}

/// Makes text of JSON's own pieces, which is more often nearly JSON than random bytes are.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\"a\":",
        b"\"b\":0,",
        b"\\u",
        b"\\ud83d",
        b"\\ude02",
        b"\\n",
        b"0",
        b"1",
        b"-",
        b".",
        b"e",
        b"E+",
        b"999999",
        b"null",
        b"true",
        b"NaN",
        b" ",
        b"\n",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
        b"\xff",
        b"\x01",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

/// Checks whatever can be said about the result for any input.
fn check_any(input: &[u8]) -> Result<(), TestCaseError> {
    match canonicalize(input, &Limits::default()) {
        Ok(output) => {
            let text = str::from_utf8(&output).map_err(|_| TestCaseError::fail("not UTF-8"))?;
            prop_assert!(reader::read(text).is_ok(), "{:?}", reader::read(text));
            prop_assert_eq!(canonicalize(&output, &UNLIMITED), Ok(output.clone()));
        }
        Err(error) => prop_assert!(error.offset() <= input.len()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any(&input)?;
    }

    #[test]
    fn nearly_json_never_panics(input in soup()) {
        check_any(&input)?;
    }

    #[test]
    fn damaged_json_never_panics(
        value in model::value(),
        spelling in noise(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut input = value.spell(&mut Noise::new(spelling)).into_bytes();
        let at = at.index(input.len());
        if cut {
            input.truncate(at);
        } else if let Some(damaged) = input.get_mut(at) {
            *damaged = byte;
        }
        check_any(&input)?;
    }

    #[test]
    fn one_value_has_one_form_that_still_denotes_it(
        value in model::value(),
        spelling in noise(),
        other in noise(),
    ) {
        let first = canonical(&value.spell(&mut Noise::new(spelling)));
        let second = canonical(&value.spell(&mut Noise::new(other)));
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(reader::read(&first), Ok(value));
        prop_assert_eq!(canonical(&first), first);
    }

    #[test]
    fn values_share_bytes_exactly_if_they_are_equal(
        value in model::value(),
        changes in noise(),
        spelling in noise(),
    ) {
        let mut changed = value.clone();
        changed.tweak(&mut Noise::new(changes));
        let mut noise = Noise::new(spelling);
        let same = canonical(&value.spell(&mut noise)) == canonical(&changed.spell(&mut noise));
        prop_assert_eq!(same, value == changed, "{:?} {:?}", value, changed);
    }

    #[test]
    fn distinct_integers_have_distinct_bytes(
        digits in prop::collection::vec(0..10_u8, 1..=40),
        at in any::<prop::sample::Index>(),
        digit in 0..10_u8,
        negative in any::<bool>(),
    ) {
        let text = |digits: &[u8]| {
            let digits: String = digits.iter().map(u8::to_string).collect();
            let sign = if negative { "-" } else { "" };
            format!("{sign}1{digits}")
        };
        let mut changed = digits.clone();
        changed[at.index(digits.len())] = digit;
        let same = canonical(&text(&digits)) == canonical(&text(&changed));
        prop_assert_eq!(same, digits == changed);
    }

    #[test]
    fn numbers_keep_their_exact_value(number in model::number(), spelling in noise()) {
        let value = Value::Number(number);
        let text = canonical(&value.spell(&mut Noise::new(spelling)));
        prop_assert_eq!(reader::read(&text), Ok(value));
    }

    /// Compares every layout with the one that `ryu-js` gives.
    #[test]
    fn doubles_are_written_as_ecmascript_writes_them(double in prop::num::f64::ANY) {
        prop_assume!(double.is_finite());
        let mut buffer = ryu_js::Buffer::new();
        let expected = buffer.format_finite(double);
        prop_assert_eq!(canonical(&format!("{double:e}")), expected);
        prop_assert_eq!(canonical(&format!("{double}")), expected);
        if double.fract() != 0.0 {
            prop_assert_eq!(canonical(&format!("{double:.16e}")), expected);
        }
    }

    /// Fifteen digits and fewer skip the double, which must not show.
    #[test]
    fn short_decimals_are_written_as_ecmascript_writes_them(
        significand in 0..1_000_000_000_000_000_u64,
        shift in 0..15_u32,
        exponent in prop_oneof![-340..300_i32, -320..-300_i32, -30..10_i32],
    ) {
        let significand = significand / 10_u64.pow(shift);
        let text = format!("{significand}e{exponent}");
        let double: f64 = text.parse().expect("a number");
        prop_assume!(double.is_finite() && (significand == 0 || double != 0.0));
        let mut buffer = ryu_js::Buffer::new();
        prop_assert_eq!(canonical(&text), buffer.format_finite(double));
    }

    #[test]
    fn rounded_decimals_share_bytes_exactly_if_they_share_a_double(
        significand in 1_000_000_000_000_000_u64..100_000_000_000_000_000,
        difference in 0..20_u64,
        exponent in -320..-17_i32,
    ) {
        let texts = [significand, significand + difference].map(|s| format!("{s}e{exponent}"));
        let doubles = texts.each_ref().map(|text| text.parse::<f64>().expect("a number"));
        let [first, second] = texts.each_ref().map(|text| canonical(text));
        prop_assert_eq!(first == second, doubles[0].to_bits() == doubles[1].to_bits());
    }

    #[test]
    fn names_sort_as_their_utf16_does(a in model::text(), b in model::text()) {
        prop_assert_eq!(utf16_order(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
    }
}
