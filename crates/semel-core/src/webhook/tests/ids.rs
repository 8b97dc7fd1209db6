//! Which operation a delivery is.

use core::num::NonZeroU32;

use proptest::prelude::*;

use super::super::*;
use crate::identity::{client_text, inbox_key, inbox_repeat, is_made_from};
use crate::text::{Key, SourceName};

const BODY: &[u8] = br#"{"id":"evt_1","amount":100}"#;

fn verified(id: Option<&str>) -> Verified {
    Verified {
        id: id.map(|id| id.as_bytes().to_vec()),
        at: None,
    }
}

fn find(from: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<String, Refusal> {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let headers = &headers;
    let from = IdFrom::parse(from).unwrap();
    let found = from.find(&Delivery { headers, body }, &verified(None));
    found.map(|id| id.to_string())
}

fn no_id(place: &str) -> Result<String, Refusal> {
    let place = place.to_owned();
    Err(Refusal::NoId { place })
}

fn source(name: &str) -> SourceName {
    SourceName::new(name).unwrap()
}

fn repeat(key: &str, number: u32) -> Option<Key> {
    let number = NonZeroU32::new(number).unwrap();
    inbox_repeat(&Key::new(key).unwrap(), number)
}

fn key(name: &str, id: &[u8]) -> String {
    let id = SenderId::new(id).unwrap();
    inbox_key(&source(name), &id).as_str().to_owned()
}

#[test]
fn an_id_is_where_the_settings_say() {
    let found = |text: &str| Ok(text.to_owned());
    let delivery = [("X-GitHub-Delivery", "72d3162e")];
    assert_eq!(
        find("header:x-github-delivery", &delivery, b""),
        found("72d3162e")
    );
    assert_eq!(
        find("header:X-Other", &delivery, b""),
        no_id("header:x-other")
    );
    let empty = [("x-other", "")];
    assert_eq!(find("header:X-Other", &empty, b""), no_id("header:x-other"));
    let twice = [delivery[0], delivery[0]];
    assert!(find("header:x-github-delivery", &twice, b"").is_err());
    assert_eq!(find("/id", &[], BODY), found("evt_1"));
    assert_eq!(find("/amount", &[], BODY), found("100"));
    assert_eq!(
        find("/a/1/b", &[], br#"{"a":[0,{"b":"x\n\"y"}]}"#),
        found("x\n\"y")
    );
    for body in [
        &br#"{"other":"evt_1"}"#[..],
        br#"{"id":""}"#,
        br#"{"id":null}"#,
        br#"{"id":true}"#,
        br#"{"id":{"a":1}}"#,
        br#"{"id":["evt_1"]}"#,
    ] {
        assert_eq!(find("/id", &[], body), no_id("/id"));
    }
    for body in [&b"id=evt_1"[..], b"", br#"{"id":"a","id":"b"}"#] {
        assert!(matches!(
            find("/id", &[], body),
            Err(Refusal::NotJson { .. })
        ));
    }
    let digest = "sha256:020e93fc3ea265129c32ad5fb2cd7a479110276e218c0d9e915f52cb9994c701";
    assert_eq!(find("body", &[], BODY), found(digest));
    assert_eq!(find("signed", &[], BODY), no_id("signed"));
    let from = IdFrom::Signed;
    let delivery = Delivery {
        headers: &[("webhook-id", b"other")],
        body: BODY,
    };
    let id = from.find(&delivery, &verified(Some("msg_1")));
    assert_eq!(id, Ok(SenderId::new(b"msg_1").unwrap()));
}

/// Both parts count, and neither reaches into the other.
#[test]
fn a_cloud_event_is_its_source_and_its_id() {
    let binary = |source: &str, id: &str| {
        let headers = [
            ("ce-source", source),
            ("CE-Id", id),
            ("ce-specversion", "1.0"),
        ];
        find("cloudevents", &headers, b"anything")
    };
    let structured = |body: &str| {
        let headers = [(
            "Content-Type",
            "Application/CloudEvents+JSON; charset=utf-8",
        )];
        find("cloudevents", &headers, body.as_bytes())
    };
    let expected = Ok(r#"["/orders","A-1"]"#.to_owned());
    assert_eq!(binary("/orders", "A-1"), expected);
    assert_eq!(
        structured(r#"{"id":"A-1","source":"/orders","data":{}}"#),
        expected
    );
    for ((a, b), (c, d)) in [
        (("a", "1"), ("b", "1")),
        (("a:b", "c"), ("a", "b:c")),
        ((r#"a","b"#, "c"), ("a", r#"b","c"#)),
        (("a/b", "c"), ("a", "b/c")),
    ] {
        assert_ne!(binary(a, b), binary(c, d));
        assert!(binary(a, b).is_ok() && binary(c, d).is_ok());
    }
    // Values in headers may be coded.
    assert_eq!(
        binary("/caf%C3%A9", "100%25"),
        Ok(r#"["/café","100%"]"#.to_owned())
    );
    assert_eq!(binary("%zz%", "%4"), Ok(r#"["%zz%","%4"]"#.to_owned()));
    assert!(binary("%FF", "1").is_ok_and(|id| id != r#"["%FF","1"]"#));
    assert_eq!(binary("", "A-1"), no_id("the CloudEvent's source"));
    assert_eq!(binary("/orders", ""), no_id("the CloudEvent's id"));
    assert_eq!(
        structured(r#"{"id":"A-1"}"#),
        no_id("the CloudEvent's source")
    );
    assert_eq!(
        structured(r#"{"id":7,"source":"a"}"#),
        no_id("the CloudEvent's id")
    );
    assert!(matches!(structured("x"), Err(Refusal::NotJson { .. })));
    let batch = [("content-type", "application/cloudevents-batch+json")];
    assert_eq!(find("cloudevents", &batch, b"[]"), Err(Refusal::Batch));
}

#[test]
fn places_of_ids_are_read_back_as_they_are_written() {
    for text in [
        "signed",
        "header:x-event-id",
        "/event/id",
        "/a~1b",
        "cloudevents",
        "body",
    ] {
        assert_eq!(IdFrom::parse(text).unwrap().to_string(), text);
    }
    for text in ["", "id", "header", "Body", "#/id"] {
        assert_eq!(IdFrom::parse(text), Err(IdFromError::Unknown), "{text}");
    }
    for text in ["header:", "header:a b", "header:a:b", "header:é"] {
        assert_eq!(IdFrom::parse(text), Err(IdFromError::Header), "{text}");
    }
    assert!(matches!(
        IdFrom::parse("/a~2"),
        Err(IdFromError::Pointer(_))
    ));
    for (scheme, id) in [
        (Scheme::Standard, Some("signed")),
        (Scheme::Stripe, Some("/id")),
        (Scheme::Github, Some("header:x-github-delivery")),
        (Scheme::Slack, Some("/event_id")),
        (Scheme::None, None),
    ] {
        assert_eq!(scheme.usual_id().map(|id| id.to_string()).as_deref(), id);
    }
}

#[test]
fn keys_of_webhooks_are_fixed_for_ever() {
    for (id, expected) in [
        (&b"evt_1"[..], "inbox/stripe/evt_1"),
        (b"a/b c", "inbox/stripe/a/b c"),
        (br#"["/orders","A-1"]"#, r#"inbox/stripe/["/orders","A-1"]"#),
        (
            "Grüße".as_bytes(),
            "inbox/stripe/f83e039796c6453a10f5519e39fd113901572316a1a8ea07cb525d2801dfd074",
        ),
        (
            &[b'a'; 300],
            "inbox/stripe/9835fa6bf4e20a9b9ea812506302e98982721a6cf8d2cae67af57129bf21ae90",
        ),
        (
            b"evt_1#2",
            "inbox/stripe/63bdb8251e7d56dc3344325a1b127c1cee446865f470ac8866385492de4e86e6",
        ),
        (
            b"\xff\xfe",
            "inbox/stripe/b3d510ef04275ca8e698e5b3cbb0ece3949ef9252f0cdc839e9ee347409a2209",
        ),
    ] {
        assert_eq!(key("stripe", id), expected);
    }
    for (key, number, expected) in [
        ("inbox/stripe/evt_1", 2, Some("inbox/stripe/evt_1#2")),
        ("inbox/stripe/evt_1#2", 3, Some("inbox/stripe/evt_1#3")),
        ("inbox/stripe/a/b", 12, Some("inbox/stripe/a/b#12")),
        ("order-7", 2, None),
        ("mcp/29b267acff61476d/order-7", 2, None),
    ] {
        let key = repeat(key, number);
        assert_eq!(key.as_ref().map(Key::as_str), expected);
    }
    let long = format!("inbox/stripe/{}", "a".repeat(242));
    let expected =
        "inbox/stripe/8fded59c427b2e6809c810915aaca9635732a1decc4ba2ac8e0a1d90fc1092c9#2";
    assert_eq!(repeat(&long, 2).unwrap().as_str(), expected);
    // The longest id that stands for itself, and one more.
    let room = 255 - "inbox/stripe/".len();
    assert_eq!(key("stripe", &vec![b'a'; room]).len(), 255);
    assert_eq!(
        key("stripe", &vec![b'a'; room + 1]).len(),
        "inbox/stripe/".len() + 64
    );
    assert_eq!(SenderId::new(b""), None);
}

#[test]
fn a_source_is_a_wall_between_keys() {
    assert_ne!(key("a", b"b"), key("b", b"b"));
    for name in ["", "a/b", "a b", "a.b", "é", &"a".repeat(65)] {
        assert!(SourceName::new(name).is_err(), "{name}");
    }
    let longest = "a".repeat(64);
    assert_ne!(key(&longest, b"x"), key(&longest[1..], b"x"));
}

/// A tombstone has only its key left to be found by.
#[test]
fn a_key_tells_of_which_id_it_was_made() {
    for (id, is_shown) in [
        ("evt_1", true),
        ("a/b", true),
        ("Grüße", false),
        ("evt_1#2", false),
        ("call:evt_1", false),
        ("f1:evt_1", false),
    ] {
        let sender = SenderId::new(id.as_bytes()).unwrap();
        let key = inbox_key(&source("stripe"), &sender);
        for key in [repeat(key.as_str(), 3).unwrap(), key] {
            assert!(is_made_from(&key, id), "{key}");
            assert!(!is_made_from(&key, "evt_2"), "{key}");
            assert_eq!(client_text(&key), is_shown.then_some(id), "{key}");
        }
    }
}

proptest! {
    #[test]
    fn two_ids_never_share_a_key(
        a in prop_oneof!["[ -~]{1,80}", "\\PC{1,80}", "[0-9a-f]{64}", "x#[0-9]{1,3}", "f1:[a-z]{1,3}"],
        b in prop_oneof!["[ -~]{1,80}", "\\PC{1,80}", "[0-9a-f]{64}", "x#[0-9]{1,3}", "f1:[a-z]{1,3}"],
        n in 1..4_u32,
        m in 1..4_u32,
    ) {
        let of = |id: &str, number| {
            let id = SenderId::new(id.as_bytes()).unwrap();
            let key = inbox_key(&source("stripe"), &id);
            if number == 1 { key } else { repeat(key.as_str(), number).unwrap() }
        };
        prop_assert_eq!(of(&a, n) == of(&b, m), a == b && n == m);
    }
}

#[test]
fn an_id_that_is_there_twice_is_none_and_says_nothing_of_the_sender() {
    let twice = [("x-event", "1"), ("X-Event", "2")];
    let events = [("ce-source", "a"), ("ce-id", "1"), ("ce-id", "2")];
    for (from, headers) in [("header:X-Event", &twice[..]), ("cloudevents", &events)] {
        let refusal = find(from, headers, BODY).unwrap_err();
        assert!(matches!(refusal, Refusal::RepeatedId { .. }), "{refusal:?}");
        assert_eq!((refusal.is_unproven(), refusal.as_str()), (false, "no_id"));
    }
}
