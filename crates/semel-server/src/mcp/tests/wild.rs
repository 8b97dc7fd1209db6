//! JSON as nobody would write it and everybody may send it.

use proptest::prelude::*;

/// White space as JSON allows it.
pub(super) fn space() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        2 => Just(" ".to_owned()),
        1 => "[ \t\r\n]{1,4}",
    ]
}

/// Numbers in odd spellings, some beyond every machine type.
pub(super) fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,3})\\.[0-9]{1,30}",
        "-?[1-9]\\.?0[eE][+-]?0{0,3}[1-9]{1,4}",
        Just("-0".to_owned()),
        Just("1E400".to_owned()),
        Just("9007199254740993".to_owned()),
    ]
    .prop_filter("a point wants a digit on either side", |text| {
        serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
    })
}

/// Strings with every kind of escape, quotes included.
pub(super) fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z/{}\\[\\],: ]{0,6}",
        Just("\\u0041".to_owned()),
        Just("\\/".to_owned()),
        Just("\\\"".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\ud83d\\ude02".to_owned()),
        Just("\\n".to_owned()),
        Just("é€😂".to_owned()),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// Any value; members may be there twice.
pub(super) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        number(),
        string(),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let item = (space(), inner.clone(), space())
            .prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (space(), string(), space(), space(), inner, space()).prop_map(
            |(before, name, colon, value_before, value, after)| {
                format!("{before}{name}{colon}:{value_before}{value}{after}")
            },
        );
        let list = |item: BoxedStrategy<String>, open: char, close: char| {
            (space(), prop::collection::vec(item, 0..4)).prop_map(move |(blank, items)| {
                if items.is_empty() {
                    format!("{open}{blank}{close}")
                } else {
                    format!("{open}{}{close}", items.join(","))
                }
            })
        };
        prop_oneof![list(item.boxed(), '[', ']'), list(member.boxed(), '{', '}'),]
    })
}

/// Members of an object, each with a name of its own that begins with `x`.
pub(super) fn unknown_members() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((value(), space(), space()), 0..4).prop_map(|values| {
        let numbered = values.into_iter().enumerate();
        numbered
            .map(|(n, (value, before, after))| format!("{before}\"x\\u0041{n}\"{after}:{value}"))
            .collect()
    })
}
