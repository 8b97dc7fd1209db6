//! Strings, the order of members, whitespace and nesting.

use super::canonical;
use crate::canonical::draft::utf16_order;
use crate::canonical::{Error, Limits, canonicalize, write_string};

#[test]
fn bare_values_are_documents() {
    for text in ["null", "true", "false", "0", "\"\"", "[]", "{}", "\"a\""] {
        assert_eq!(canonical(text), text);
    }
    assert_eq!(canonical(" \t\r\n null \t\r\n "), "null");
    assert_eq!(canonical(" [ \n] "), "[]");
    assert_eq!(canonical(" { \n} "), "{}");
}

#[test]
fn escapes_have_one_form() {
    assert_eq!(
        canonical(r#""\u0008\u0009\u000a\u000c\u000d\u0022\u005c\u002f""#),
        r#""\b\t\n\f\r\"\\/""#
    );
    assert_eq!(canonical(r#""\b\t\n\f\r\"\\\/""#), r#""\b\t\n\f\r\"\\/""#);
    assert_eq!(
        canonical(r#""\u0000\u000B\u001f""#),
        r#""\u0000\u000b\u001f""#
    );
    assert_eq!(
        canonical(r#""\u007F\u0041\u00E9\u00e9""#),
        "\"\u{7f}A\u{e9}\u{e9}\""
    );
    assert_eq!(
        canonical(r#""\uD83D\uDE02\ud83d\ude02""#),
        "\"\u{1f602}\u{1f602}\""
    );
    assert_eq!(
        canonical(r#""\udbff\udfff\ud800\udc00""#),
        "\"\u{10ffff}\u{10000}\""
    );
    // Line separators end a line in old JavaScript; JSON does not mind them.
    assert_eq!(
        canonical(r#""\u2028\uFEFF\uffff""#),
        "\"\u{2028}\u{feff}\u{ffff}\""
    );
    // A text that looks like an escape is not one.
    assert_eq!(canonical(r#""\\u0041""#), r#""\\u0041""#);
}

#[test]
fn write_string_agrees_with_canonicalize() {
    for code in (0..=0x10_ffff)
        .filter_map(char::from_u32)
        .step_by(7)
        .chain('\0'..'\u{100}')
    {
        let mut written = Vec::new();
        write_string(&mut written, &format!("<{code}>"));
        let read = canonicalize(&written, &Limits::default());
        assert_eq!(read.as_ref(), Ok(&written), "U+{:04X}", u32::from(code));
    }
    let mut out = b"before".to_vec();
    write_string(&mut out, "a\"\u{1f}\\\n/\u{e9}");
    assert_eq!(out, "before\"a\\\"\\u001f\\\\\\n/\u{e9}\"".as_bytes());
}

#[test]
fn members_sort_by_utf16_code_units() {
    // In code points U+FFFF comes before U+10000; in UTF-16 it comes after.
    let names = [
        "",
        "\u{1}",
        "A",
        "AA",
        "B",
        "a",
        "\u{7f}",
        "\u{80}",
        "\u{7ff}",
        "\u{800}",
        "\u{d7ff}",
        "\u{10000}",
        "\u{10000}a",
        "\u{10ffff}",
        "\u{e000}",
        "\u{e000}a",
        "\u{f8ff}",
        "\u{ffff}",
    ];
    for (i, a) in names.iter().enumerate() {
        for (j, b) in names.iter().enumerate() {
            assert_eq!(utf16_order(a, b), i.cmp(&j), "{a:?} {b:?}");
            assert_eq!(
                a.encode_utf16().cmp(b.encode_utf16()),
                i.cmp(&j),
                "{a:?} {b:?}"
            );
        }
    }
    let object = |names: &mut dyn Iterator<Item = &&str>| {
        let mut out = Vec::new();
        for name in names {
            out.push(if out.is_empty() { b'{' } else { b',' });
            write_string(&mut out, name);
            out.extend_from_slice(b":0");
        }
        out.push(b'}');
        String::from_utf8(out).expect("built from text")
    };
    assert_eq!(
        canonical(&object(&mut names.iter().rev())),
        object(&mut names.iter())
    );
}

#[test]
fn nested_objects_are_put_in_order_within_objects_put_in_order() {
    assert_eq!(
        canonical(
            r#"[{"b":{"z":[{"y":1,"x":2}],"a":{}},"a":[{"d":3,"c":4},{"e":5}]},{"g":6,"f":7}]"#
        ),
        r#"[{"a":[{"c":4,"d":3},{"e":5}],"b":{"a":{},"z":[{"x":2,"y":1}]}},{"f":7,"g":6}]"#
    );
    // An unsorted object within a sorted one, and the reverse.
    assert_eq!(
        canonical(r#"{"a":{"d":0,"c":0},"b":0}"#),
        r#"{"a":{"c":0,"d":0},"b":0}"#
    );
    assert_eq!(
        canonical(r#"{"b":{"c":0,"d":0},"a":0}"#),
        r#"{"a":0,"b":{"c":0,"d":0}}"#
    );
    assert_eq!(
        canonical(r#"{"c":0,"b":{},"a":[]}"#),
        r#"{"a":[],"b":{},"c":0}"#
    );
}

#[test]
fn nesting_is_accepted_up_to_the_limit() {
    let limits = Limits::default();
    assert_eq!(limits.depth, 128);
    for (open, close) in [("[", "]"), (r#"{"":"#, "}")] {
        let nested = |depth: usize, inner: &str| {
            format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
        };
        let deepest = nested(128, "0");
        assert_eq!(canonical(&deepest), deepest);
        assert_eq!(
            canonicalize(nested(129, "0").as_bytes(), &limits),
            Err(Error::TooDeep {
                offset: 128 * open.len(),
                limit: 128
            })
        );
    }
    let flat = Limits { depth: 0, ..limits };
    assert_eq!(canonicalize(b" 1 ", &flat), Ok(b"1".to_vec()));
    assert_eq!(
        canonicalize(b" []", &flat),
        Err(Error::TooDeep {
            offset: 1,
            limit: 0
        })
    );
    // Depth counts what is open, not what was.
    let siblings = format!("[{}[]]", "[],".repeat(1000));
    let shallow = Limits { depth: 2, ..limits };
    assert_eq!(
        canonicalize(siblings.as_bytes(), &shallow),
        Ok(siblings.clone().into_bytes())
    );
}

#[test]
fn a_million_brackets_neither_pass_nor_overflow_the_stack() {
    let brackets = "[".repeat(1_000_000);
    assert_eq!(
        canonicalize(brackets.as_bytes(), &Limits::default()),
        Err(Error::TooDeep {
            offset: 128,
            limit: 128
        })
    );
    let unlimited = Limits {
        size: usize::MAX,
        depth: usize::MAX,
    };
    assert_eq!(
        canonicalize(brackets.as_bytes(), &unlimited),
        Err(Error::UnexpectedEnd { offset: 1_000_000 })
    );
    let closed = brackets + &"]".repeat(1_000_000);
    assert_eq!(
        canonicalize(closed.as_bytes(), &unlimited).as_deref(),
        Ok(closed.as_bytes())
    );
}

/// Moving each object's text when it closes would copy some 400 GB here.
#[test]
fn deep_unsorted_objects_take_linear_time() {
    const DEPTH: usize = 200_000;
    let unlimited = Limits {
        size: usize::MAX,
        depth: usize::MAX,
    };
    let padding = format!(r#""{}""#, "x".repeat(1_000_000));
    let input = format!(
        "{}{padding}{}",
        r#"{"b":1,"a":"#.repeat(DEPTH),
        "}".repeat(DEPTH)
    );
    let expected = format!(
        "{}{padding}{}",
        r#"{"a":"#.repeat(DEPTH),
        r#","b":1}"#.repeat(DEPTH)
    );
    let output = canonicalize(input.as_bytes(), &unlimited);
    assert!(output.as_deref() == Ok(expected.as_bytes()));
}

#[test]
fn size_is_accepted_up_to_the_limit() {
    let limits = Limits::default();
    assert_eq!(limits.size, 1_048_576);
    let largest = format!("1{}", " ".repeat(limits.size - 1));
    assert_eq!(canonical(&largest), "1");
    assert_eq!(
        canonicalize((largest + " ").as_bytes(), &limits),
        Err(Error::TooLarge {
            size: 1_048_577,
            limit: 1_048_576
        })
    );
}
