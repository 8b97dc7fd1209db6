//! The rule for numbers, case by case.

use super::{canonical, refusal};
use crate::canonical::{Error, MAX_EXPONENT};

/// Checks that all spellings give the one text.
fn check(expected: &str, spellings: &[&str]) {
    for spelling in spellings {
        assert_eq!(canonical(spelling), expected, "{spelling}");
    }
    assert_eq!(canonical(expected), expected, "its own canonical form");
}

#[test]
fn equal_values_agree_in_every_spelling() {
    check(
        "1",
        &["1.0", "1e0", "1E0", "10e-1", "0.1e1", "0.01E+2", "1.000e-0"],
    );
    check("-1", &["-1.0", "-1e0", "-10e-1"]);
    check(
        "100",
        &[
            "1e2",
            "1E+2",
            "1000e-1",
            "0.1e3",
            "1e00000000000000000000000000002",
        ],
    );
    check("0.5", &["0.50", "5e-1", "50E-2"]);
    check("19.99", &["1999e-2", "19.990", "0.1999e2"]);
    check("1e+400", &["1e400", "10e399", "1.0e400", "0.0001e404"]);
    check(
        "12345678901234567890",
        &["1.234567890123456789e19", "1234567890123456789e1"],
    );
    check(
        "1.23456789012345678901e+400",
        &["123456789012345678901e380"],
    );
}

#[test]
fn zero_is_one_value() {
    check("0", &["-0", "0.0", "-0.000", "0e5", "-0E-7", "0.00e+12"]);
    // Zero whatever its exponent, even one that fits no integer type.
    check(
        "0",
        &[
            "0e1000001",
            "0e-99999999999999999999999999",
            "-0.0e99999999999999999999",
        ],
    );
}

#[test]
fn layout_changes_at_21_digits_and_six_zeros() {
    check("100000000000000000000", &["1e20"]);
    check("123456789012345678901", &["1.23456789012345678901e20"]);
    check("1e+21", &["1000000000000000000000"]);
    check("1.234567890123456789012e+21", &["1234567890123456789012"]);
    check("0.000001", &["1e-6"]);
    check("1e-7", &["0.0000001"]);
    check("0.0000012345", &["1.2345e-6"]);
    check("1.2345e-7", &["0.00000012345"]);
}

#[test]
fn integers_beyond_2_pow_53_differ_in_the_last_digit() {
    let edge: i128 = 1 << 53;
    for centre in [
        edge,
        -edge,
        1 << 54,
        1 << 63,
        1 << 64,
        1 << 68,
        10_i128.pow(18),
    ] {
        for offset in -3..=3 {
            let text = (centre + offset).to_string();
            assert_eq!(canonical(&text), text);
            assert_ne!(
                canonical(&text),
                canonical(&(centre + offset + 1).to_string())
            );
        }
    }
    check(
        "9007199254740993",
        &["9007199254740993.0", "9.007199254740993e15"],
    );
    // Beyond 21 digits the text has an exponent, and all its digits.
    let long = "1234567890123456789012345678901234567890";
    let next = "1234567890123456789012345678901234567891";
    check("1.23456789012345678901234567890123456789e+39", &[long]);
    check("1.234567890123456789012345678901234567891e+39", &[next]);
}

/// RFC 8785 would write both as the double that they are nearest to.
#[test]
fn an_integer_is_kept_although_a_double_prints_it_shorter() {
    check("295147905179352825856", &["2.95147905179352825856e20"]);
    check("295147905179352830000", &["2.9514790517935283e20"]);
    check("9.9999999999999992e+22", &["99999999999999992000000"]);
    check("1e+23", &["100000000000000000000000"]);
}

#[test]
fn non_integers_of_up_to_17_digits_are_doubles() {
    check(
        "333333333.3333333",
        &["333333333.33333329", "333333333.33333331"],
    );
    check("0.1", &["0.10000000000000001", "0.10000000000000000"]);
    check(
        "8.000000000000002",
        &["8.000000000000001", "8.0000000000000018"],
    );
    check("-0.3", &["-0.29999999999999999"]);
    check("0.30000000000000004", &["3.0000000000000004e-1"]);
}

#[test]
fn non_integers_of_more_digits_are_exact() {
    check("0.100000000000000001", &["1.00000000000000001e-1"]);
    check("0.100000000000000002", &["0.1000000000000000020"]);
    // The double nearest to 0.1, written out.
    check(
        "0.1000000000000000055511151231257827021181583404541015625",
        &["1000000000000000055511151231257827021181583404541015625e-55"],
    );
    check("3.141592653589793238462643383279", &[]);
    check("12345678901234567890.5", &["123456789012345678905e-1"]);
    check(
        "1.2345678901234567890125e+21",
        &["1234567890123456789012.5"],
    );
    // Exactly a double, though RFC 8785 writes that double with one digit less.
    check("1424953923781206.25", &["142495392378120625e-2"]);
}

#[test]
fn a_non_integer_never_becomes_an_integer() {
    check("0.99999999999999999", &["9.9999999999999999e-1"]);
    check("4503599627370497.7", &["45035996273704977e-1"]);
    check("9007199254740993.5", &["9.0071992547409935e15"]);
    check("-2e-324", &["-0.2e-323"]);
    check("1e-400", &["0.1e-399"]);
}

#[test]
fn the_smallest_and_largest_doubles() {
    check("5e-324", &["4.9406564584124654e-324", "4.9e-324", "3e-324"]);
    check("1e-323", &["9.8813129168249309e-324", "1.2e-323"]);
    check("2.2250738585072014e-308", &["22250738585072014e-324"]);
    check("2.225073858507201e-308", &["2.2250738585072009e-308"]);
    check("1.7976931348623157e+308", &["17976931348623157e292"]);
    check("1.7976931348623159e+308", &["1.7976931348623159e308"]);
    check("2e+308", &["20e307"]);
}

#[test]
fn exponents_end_at_the_bound_in_every_spelling() {
    assert_eq!(MAX_EXPONENT, 1_000_000);
    check("1e+1000000", &["10e999999", "0.1e1000001", "1000e999997"]);
    check("-1.5e-1000000", &["-15e-1000001", "-0.15e-999999"]);
    check("9.99e+1000000", &["999e999998"]);
    for text in [
        "1e1000001",
        "10e1000000",
        "1e-1000001",
        "0.1e-1000000",
        "1e999999999999",
        "-1e9223372036854775807",
        "1e9223372036854775808",
        "1e-9223372036854775808",
        "0.1e-9223372036854775809",
        // 2^64 + 1, which wraps around to 1.
        "1e18446744073709551617",
        "1.5e99999999999999999999999999999999999999",
        "1.5e-99999999999999999999999999999999999999",
    ] {
        assert_eq!(
            refusal(text),
            Error::NumberOutOfRange { offset: 0 },
            "{text}"
        );
    }
    assert_eq!(
        refusal("[1, 2e1000001]"),
        Error::NumberOutOfRange { offset: 4 }
    );
}

#[test]
fn many_digits_cost_no_more_than_their_length() {
    let zeros = "0".repeat(500_000);
    // The shift by the digits and the exponent's shift cancel out.
    assert_eq!(canonical(&format!("1{zeros}e-500000")), "1");
    assert_eq!(canonical(&format!("0.{zeros}1e500001")), "1");
    assert_eq!(canonical(&format!("0.{zeros}15e500000")), "0.15");
    assert_eq!(canonical(&format!("1{zeros}")), "1e+500000");
    assert_eq!(canonical(&format!("-0.{zeros}")), "0");
    let nines = "9".repeat(1_000_001);
    assert_eq!(
        canonical(&nines),
        format!("9.{}e+1000000", "9".repeat(1_000_000))
    );
    assert_eq!(refusal(nines + "9"), Error::NumberOutOfRange { offset: 0 });
}
