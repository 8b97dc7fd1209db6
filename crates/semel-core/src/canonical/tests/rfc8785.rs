//! The vectors published with RFC 8785: its examples, its appendix B, and the files of its test
//! suite. Characters outside ASCII are written as Rust escapes, so that no editor changes them.

use super::{canonical, refusal};
use crate::canonical::Error;

#[test]
fn c070_section_3_2_2_primitive_types() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50,
                    2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"#,
        r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        "\"string\":\"\u{20ac}$",
        r#"\u000f\nA'B\"\\\\\"/"}"#,
    );
    assert_eq!(canonical(input), expected);
}

#[test]
fn c070_section_3_2_3_members_sort_by_utf16() {
    let input = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let expected = concat!(
        r#"{"\r":"Carriage Return","1":"One","#,
        "\"\u{80}\":\"Control\",",
        "\"\u{f6}\":\"Latin Small Letter O With Diaeresis\",",
        "\"\u{20ac}\":\"Euro Sign\",",
        "\"\u{1f600}\":\"Emoji: Grinning Face\",",
        "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    );
    assert_eq!(canonical(input), expected);
}

#[test]
fn c070_section_3_2_4_bytes() {
    let input = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
        "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
    let expected = "\
        7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 \
        75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72 73 22 3a \
        5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 \
        65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 \
        5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30 \
        30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d";
    let bytes: Vec<String> = canonical(input)
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(bytes.join(" "), expected);
}

/// Appendix B: the bits of a double and the text it has.
const APPENDIX_B: [(u64, &str); 24] = [
    (0x0000_0000_0000_0000, "0"),
    (0x8000_0000_0000_0000, "0"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x8000_0000_0000_0001, "-5e-324"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
    (0x4340_0000_0000_0000, "9007199254740992"),
    (0xc340_0000_0000_0000, "-9007199254740992"),
    (0x4430_0000_0000_0000, "295147905179352830000"),
    (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
    (0x44b5_2d02_c7e1_4af6, "1e+23"),
    (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
    (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
    (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
    (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
    (0x41b3_de43_5555_5553, "333333333.3333332"),
    (0x41b3_de43_5555_5554, "333333333.33333325"),
    (0x41b3_de43_5555_5555, "333333333.3333333"),
    (0x41b3_de43_5555_5556, "333333333.3333334"),
    (0x41b3_de43_5555_5557, "333333333.33333343"),
    (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
];

#[test]
fn c070_appendix_b_numbers() {
    for (bits, expected) in APPENDIX_B {
        let double = f64::from_bits(bits);
        // The shortest digits of the double, with an exponent and without.
        assert_eq!(canonical(&format!("{double:e}")), expected, "{bits:x}");
        assert_eq!(canonical(&format!("{double}")), expected, "{bits:x}");
        assert_eq!(canonical(expected), expected, "{bits:x}");
        // Seventeen digits, as writers that do not look for the shortest print them.
        if double.fract() != 0.0 {
            assert_eq!(canonical(&format!("{double:.16e}")), expected, "{bits:x}");
        }
    }
    for text in ["NaN", "Infinity", "-Infinity"] {
        assert_eq!(refusal(text), Error::NotFinite { offset: 0 });
    }
}

#[test]
fn c070_suite_arrays() {
    let input = r#"[
      56,
      {
        "d": true,
        "10": null,
        "1": [ ]
      }
    ]"#;
    assert_eq!(canonical(input), r#"[56,{"1":[],"10":null,"d":true}]"#);
}

#[test]
fn c070_suite_french() {
    let input = "{
      \"peach\": \"This sorting order\",
      \"p\u{e9}ch\u{e9}\": \"is wrong according to French\",
      \"p\u{ea}che\": \"but canonicalization MUST\",
      \"sin\":   \"ignore locale\"
    }";
    let expected = concat!(
        r#"{"peach":"This sorting order","#,
        "\"p\u{e9}ch\u{e9}\":\"is wrong according to French\",",
        "\"p\u{ea}che\":\"but canonicalization MUST\",",
        r#""sin":"ignore locale"}"#,
    );
    assert_eq!(canonical(input), expected);
}

#[test]
fn c070_suite_structures() {
    let input = r#"{
      "1": {"f": {"f": "hi","F": 5} ,"\n": 56.0},
      "10": { },
      "": "empty",
      "a": { },
      "111": [ {"e": "yes","E": "no" } ],
      "A": { }
    }"#;
    let expected = concat!(
        r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"#,
        r#""111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
    );
    assert_eq!(canonical(input), expected);
}

#[test]
fn c070_suite_unicode_is_not_normalised() {
    let decomposed = r#"{"Unnormalized Unicode":"A\u030a"}"#;
    let composed = r#"{"Unnormalized Unicode":"\u00c5"}"#;
    assert_eq!(
        canonical(decomposed),
        "{\"Unnormalized Unicode\":\"A\u{30a}\"}"
    );
    assert_ne!(canonical(decomposed), canonical(composed));
}

#[test]
fn c070_suite_values() {
    let input = r#"{
      "numbers": [1E30, 4.50, 333333333.33333329, 2e-3, 0.000000000000000000000000001],
      "escaping": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let expected = concat!(
        "{\"escaping\":\"\u{20ac}$",
        r#"\u000f\nA'B\"\\\\\"/","literals":[null,true,false],"#,
        r#""numbers":[1e+30,4.5,333333333.3333333,0.002,1e-27]}"#,
    );
    assert_eq!(canonical(input), expected);
}

#[test]
fn c070_suite_weird() {
    let input = r#"{
      "\u20ac": "Euro Sign",
      "\r": "Carriage Return",
      "\u000a": "Newline",
      "1": "One",
      "\u0080": "Control\u007f",
      "\ud83d\ude02": "Smiley",
      "\u00f6": "Latin Small Letter O With Diaeresis",
      "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "</script>": "Browser Challenge"
    }"#;
    let expected = concat!(
        r#"{"\n":"Newline","\r":"Carriage Return","1":"One","</script>":"Browser Challenge","#,
        "\"\u{80}\":\"Control\u{7f}\",",
        "\"\u{f6}\":\"Latin Small Letter O With Diaeresis\",",
        "\"\u{20ac}\":\"Euro Sign\",",
        "\"\u{1f602}\":\"Smiley\",",
        "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    );
    assert_eq!(canonical(input), expected);
}
