use proptest::prelude::*;
use semel::core::canonical;
use semel::core::identity::Pointer;

use super::wild;
use crate::mcp::edit::{self, EditError};

#[test]
fn values_are_found_by_their_members() {
    let json = " {\"a\" : {\"b/c\":[1 , 9007199254740993, {\"d\":-0}]}, \"\\u0065\": \"x\\/y\" } ";
    for (path, value) in [
        (&["a", "b/c", "1"][..], Some("9007199254740993")),
        (&["a", "b/c", "2", "d"], Some("-0")),
        (&["e"], Some("\"x\\/y\"")),
        (&["a", "b/c", "3"], None),
        (&["a", "b/c", "01"], None),
        (&["a", "b/c", "+1"], None),
        (&["a", "b/c", "-"], None),
        (&["a", "b"], None),
        (&["e", "f"], None),
        (&[], Some(json.trim())),
    ] {
        assert_eq!(edit::get(json, path), value, "{path:?}");
    }
    assert_eq!(edit::text(json, &["e"]).as_deref(), Some("x/y"));
    let pointer = Pointer::new("/a/b~1c/0").unwrap();
    assert_eq!(edit::get(json, pointer.tokens()), Some("1"));
}

#[test]
fn a_set_touches_one_value() {
    for (json, path, after) in [
        ("{}", &["a"][..], "{\"a\":1}"),
        ("{ }", &["a"], "{\"a\":1 }"),
        ("{ \"b\" : 1E2 }", &["a"], "{ \"b\" : 1E2,\"a\":1 }"),
        ("{ \"a\" : 1E2 , \"b\":2}", &["a"], "{ \"a\" : 1 , \"b\":2}"),
        (
            "{\"b\":2}",
            &["_meta", "x/y", "z"],
            "{\"b\":2,\"_meta\":{\"x/y\":{\"z\":1}}}",
        ),
        (
            "{\"_meta\":{\"p\":1.0}}",
            &["_meta", "q\"r"],
            "{\"_meta\":{\"p\":1.0,\"q\\\"r\":1}}",
        ),
        ("[[5 ,6]]", &["0", "1"], "[[5 ,1]]"),
    ] {
        assert_eq!(
            edit::set(json, path, "1").as_deref(),
            Ok(after),
            "{json} {path:?}"
        );
    }
}

#[test]
fn a_removal_takes_its_comma_along() {
    for (json, path, after) in [
        ("{\"a\":1}", &["a"][..], "{}"),
        ("{ \"a\" : 1 }", &["a"], "{  }"),
        ("{ \"a\" : 1 , \"b\" : 2 }", &["a"], "{ \"b\" : 2 }"),
        ("{ \"a\" : 1 , \"b\" : 2 }", &["b"], "{ \"a\" : 1 }"),
        (
            "{\"a\":\",\",\"b\":2,\"c\":3}",
            &["b"],
            "{\"a\":\",\",\"c\":3}",
        ),
        ("{\"a\":1}", &["b"], "{\"a\":1}"),
        (
            "{\"a\":{\"x\":0,\"y\":[7 , 8]}}",
            &["a", "y", "0"],
            "{\"a\":{\"x\":0,\"y\":[8]}}",
        ),
        ("{\"a\":[7]}", &["a", "0"], "{\"a\":[]}"),
    ] {
        assert_eq!(
            edit::remove(json, path).as_deref(),
            Ok(after),
            "{json} {path:?}"
        );
    }
}

#[test]
fn an_item_that_is_blanked_keeps_the_numbers_of_the_others() {
    let json = r#"{"a":[1,2,3],"b":4}"#;
    assert_eq!(
        edit::blank(json, &["a", "0"]).as_deref(),
        Ok(r#"{"a":[null,2,3],"b":4}"#)
    );
    assert_eq!(edit::blank(json, &["b"]).as_deref(), Ok(r#"{"a":[1,2,3]}"#));
    assert_eq!(edit::blank(json, &["c"]).as_deref(), Ok(json));
}

#[test]
fn an_item_is_appended() {
    for (json, after) in [
        ("{\"c\":[]}", "{\"c\":[{}]}"),
        ("{\"c\":[ ]}", "{\"c\":[{} ]}"),
        ("{\"c\":[ 1 ]}", "{\"c\":[ 1,{} ]}"),
        ("{\"d\":2}", "{\"d\":2,\"c\":[{}]}"),
    ] {
        assert_eq!(
            edit::push(json, &["c"], "{}").as_deref(),
            Ok(after),
            "{json}"
        );
    }
    assert_eq!(
        edit::push("{\"c\":1}", &["c"], "{}"),
        Err(EditError::NotArray)
    );
}

#[test]
fn what_cannot_be_changed_is_said() {
    let cases = [
        (
            "{\"a\":1}",
            &["a", "b"][..],
            EditError::NoMembers("b".to_owned()),
        ),
        (
            "{\"a\":null}",
            &["a", "b"],
            EditError::NoMembers("b".to_owned()),
        ),
        ("[1]", &["1"], EditError::NoItem("1".to_owned())),
        (
            "{\"a\":1,\"\\u0061\":2}",
            &["a"],
            EditError::Twice("a".to_owned()),
        ),
    ];
    for (json, path, error) in cases {
        assert_eq!(edit::set(json, path, "1"), Err(error), "{json}");
    }
    assert_eq!(edit::get("{\"a\":1,\"a\":2}", &["a"]), None);
}

#[test]
fn a_member_that_is_there_twice_is_found_however_deep() {
    for json in [
        r#"{"name":"a","name":"b"}"#,
        r#"{"arguments":{"a":[{"b":1,"\u0062":1}]}}"#,
        r#"{"_meta":{"x":{},"x":{}}}"#,
    ] {
        let error = edit::check(json);
        assert!(
            matches!(error, Err(canonical::Error::DuplicateMember { .. })),
            "{json}"
        );
    }
    assert_eq!(
        edit::check(r#"{"a":{"a":1},"b":[{"a":1},{"a":1}]}"#),
        Ok(())
    );
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(
        edit::check(&deep),
        Err(canonical::Error::TooDeep { .. })
    ));
}

proptest! {
    #[test]
    fn what_was_set_and_removed_again_left_no_trace(
        members in wild::unknown_members(),
        blank in wild::space(),
        value in wild::value(),
    ) {
        let json = if members.is_empty() {
            format!("{{{blank}}}")
        } else {
            format!("{{{}{blank}}}", members.join(","))
        };
        let set = edit::set(&json, &["_meta"], &value).unwrap();
        prop_assert_eq!(edit::get(&set, &["_meta"]), Some(value.as_str()));
        for n in 0..members.len() {
            let name = format!("xA{n}");
            prop_assert_eq!(edit::get(&set, &[&name]), edit::get(&json, &[&name]));
        }
        let back = edit::remove(&set, &["_meta"]).unwrap().into_owned();
        prop_assert_eq!(back, json);
    }

    #[test]
    fn each_member_can_be_removed_and_the_others_stay(members in wild::unknown_members()) {
        let json = format!("{{{}}}", members.join(","));
        for n in 0..members.len() {
            let without = edit::remove(&json, &[format!("xA{n}")]).unwrap().into_owned();
            let left = edit::members(&without).unwrap();
            let kept: Vec<_> = edit::members(&json).unwrap();
            let kept: Vec<_> = kept.into_iter().filter(|(name, _)| *name != format!("xA{n}")).collect();
            prop_assert_eq!(left, kept);
        }
    }
}
