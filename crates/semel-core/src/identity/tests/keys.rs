use proptest::prelude::*;

use super::*;

/// Fixed for ever: a change here runs again what is stored under the old keys.
#[test]
fn ledger_keys_are_fixed_for_ever() {
    let order = br#"{"order_id":"7","amount":1}"#;
    let charge = Label::new("charge").unwrap();
    let pointer = Pointer::new("/order_id").unwrap();
    let business = BusinessKey::of(&charge, &[pointer], order)
        .unwrap()
        .unwrap();
    let explicit = |text: &str| ClientKey::Explicit(client(text));
    let call_id = |text: &str| ClientKey::CallId(client(text));
    let long = "a".repeat(300);
    let zeros = "0".repeat(64);
    let cases = [
        (explicit("order-7"), 1, "order-7"),
        (explicit("order-7"), 2, "order-7#2"),
        (explicit("a b/c~\"#"), 1, "a b/c~\"#"),
        (explicit("f:x"), 1, "f:x"),
        (
            explicit("order-7#2"),
            1,
            "99f191ec16498c7f1745f7d257d9a29408ebe92554b233047ee7fb3078631aba",
        ),
        (
            explicit("Grüße"),
            1,
            "f83e039796c6453a10f5519e39fd113901572316a1a8ea07cb525d2801dfd074",
        ),
        (
            explicit(&zeros),
            1,
            "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55",
        ),
        (
            explicit("call:x"),
            1,
            "ced73ed93a6c57a3b126ed0654aeffc1338030697885d2b541cf93b0fbdcd393",
        ),
        (
            explicit("f1:x"),
            3,
            "8c3d5fb36c35b14d3a7079e3e4ec38d36b4b59e0be5f677d014e17facb90c4d3#3",
        ),
        (
            explicit(" lead"),
            1,
            "e3e3c40cda282470d6ebacec8197e0c06c4334759eb8d5f8616be371fc1772bd",
        ),
        (
            explicit(&long),
            1,
            "9835fa6bf4e20a9b9ea812506302e98982721a6cf8d2cae67af57129bf21ae90",
        ),
        (call_id("toolu_01AbC"), 1, "call:toolu_01AbC"),
        (
            call_id("order-7#2"),
            1,
            "call:99f191ec16498c7f1745f7d257d9a29408ebe92554b233047ee7fb3078631aba",
        ),
        (
            ClientKey::Business(business),
            1,
            "business:[\"charge\",{\"/order_id\":\"7\"}]",
        ),
        (
            ClientKey::Fingerprint(fingerprint()),
            1,
            "f1:9af1016bb0a814108b68318866d3eac51dbffd5869dff42dd33e93036f8a36e2",
        ),
        (
            ClientKey::Fingerprint(fingerprint()),
            12,
            "f1:9af1016bb0a814108b68318866d3eac51dbffd5869dff42dd33e93036f8a36e2#12",
        ),
    ];
    for (client_key, occurrence, body) in cases {
        assert_eq!(
            key_of(&client_key, occurrence).as_str(),
            format!("mcp/29b267acff61476d/{body}")
        );
    }
    let anonymous = Scope {
        principal: None,
        conversation: None,
        ..scope()
    };
    assert_eq!(
        ledger_key(Door::Proxy, &anonymous, &explicit("k"), 1).as_str(),
        "proxy/656aa0a901c99b93/k"
    );
    assert_eq!(
        ledger_key(Door::Inbox, &anonymous, &explicit("k"), 0).as_str(),
        "inbox/656aa0a901c99b93/k"
    );
}

/// A tombstone has only its key left to be found by.
#[test]
fn a_ledger_key_tells_of_which_text_it_was_made() {
    let explicit = |text: &str| ClientKey::Explicit(client(text));
    let call_id = |text: &str| ClientKey::CallId(client(text));
    let zeros = "0".repeat(64);
    let long = "a".repeat(300);
    let shown = [explicit("order-7"), explicit("a/b#"), call_id("toolu_01")];
    let hidden = ["order-7#2", "call:x", "f1:x", "Grüße", &zeros, &long].map(explicit);
    for (client_key, is_shown) in
        (shown.iter().map(|key| (key, true))).chain(hidden.iter().map(|key| (key, false)))
    {
        let (ClientKey::Explicit(text) | ClientKey::CallId(text)) = client_key else {
            panic!("only texts are tried");
        };
        for occurrence in [1, 12] {
            let key = key_of(client_key, occurrence);
            assert!(is_made_from(&key, text.as_str()), "{key}");
            assert!(!is_made_from(&key, &format!("{text}x")), "{key}");
            let expected = is_shown.then_some(text.as_str());
            assert_eq!(client_text(&key), expected, "{key}");
            // The digest that stands for a text is not the text.
            let body = key.as_str().rsplit('/').next().unwrap_or_default();
            assert!(is_shown || !is_made_from(&key, body), "{key}");
        }
    }
    for other in [
        key_of(&ClientKey::Fingerprint(fingerprint()), 2),
        Key::new("order-7").unwrap(),
        Key::new("proxy/order-7").unwrap(),
        Key::new("queue/29b267acff61476d/order-7").unwrap(),
    ] {
        assert_eq!(client_text(&other), None, "{other}");
        assert!(!is_made_from(&other, "order-7"), "{other}");
    }
}

#[test]
fn no_two_scopes_share_their_bytes() {
    let of = |principal: Option<&str>, target: &str, conversation: Option<&str>| Scope {
        principal: principal.map(str::to_owned),
        target: target.to_owned(),
        conversation: conversation.map(str::to_owned),
    };
    let scopes = [
        of(Some("ab"), "c", Some("d")),
        of(Some("a"), "bc", Some("d")),
        of(Some("ab"), "cd", None),
        of(Some("ab"), "cd", Some("")),
        of(None, "abcd", None),
        of(Some(""), "abcd", None),
        of(None, "abc", Some("d")),
        of(Some("anonymous"), "c", Some("d")),
        of(None, "c", Some("d")),
        of(Some("a\0b"), "c", Some("d")),
        // A border that a part could write itself, and a part that is missing elsewhere.
        of(Some("a\u{1}b"), "c", Some("d")),
        of(Some("a"), "b\u{1}c", Some("d")),
        of(Some("c"), "d", None),
    ];
    for (i, left) in scopes.iter().enumerate() {
        assert_eq!(left.tag().len(), 16);
        for right in &scopes[i + 1..] {
            assert_ne!(left.tag(), right.tag(), "{left:?} {right:?}");
        }
    }
}

/// `mcp/`, sixteen digits and a slash leave 234 bytes for the rest, its number included.
#[test]
fn the_client_key_stays_readable_up_to_255_bytes_and_is_hashed_from_256_on() {
    for (length, occurrence, whole) in [
        (234, 1, 255),
        (235, 1, 21 + 64),
        (232, 2, 255),
        (233, 2, 21 + 64 + 2),
        (231, 10, 255),
        (232, 10, 21 + 64 + 3),
        (224 - 1, u32::MAX, 255),
        (224, u32::MAX, 21 + 64 + 11),
    ] {
        let text = "k".repeat(length);
        let key = key_of(&ClientKey::Explicit(client(&text)), occurrence);
        assert_eq!(key.as_str().len(), whole, "{length} #{occurrence}");
        assert_eq!(key.as_str().contains(&text), whole == 255);
    }
    let id = "k".repeat(229);
    let key = |id: &str| key_of(&ClientKey::CallId(client(id)), 1);
    assert_eq!(key(&id).as_str().len(), 255);
    assert_eq!(key(&format!("{id}k")).as_str().len(), 21 + 5 + 64);
}

#[test]
fn a_client_key_cannot_pass_for_another_ones_repeat_digest_or_derived_key() {
    let explicit = |text: &str, n| key_of(&ClientKey::Explicit(client(text)), n);
    let long = "x".repeat(300);
    let digest_of_long = explicit(&long, 1).as_str()[21..].to_owned();
    let fingerprint = nth(1).as_str()[21..].to_owned();
    let keys = [
        explicit("a", 1),
        explicit("a", 2),
        explicit("a#2", 1),
        explicit("a#2", 2),
        explicit("a#2#2", 1),
        explicit("a#02", 1),
        explicit("#2", 1),
        explicit(&long, 1),
        explicit(&digest_of_long, 1),
        explicit("x", 1),
        explicit("call:x", 1),
        key_of_id("x"),
        explicit(&format!("call:{long}"), 1),
        key_of_id(&long),
        key_of_id(&digest_of_long),
        nth(1),
        explicit(&fingerprint, 1),
        key_of_id(&fingerprint),
    ];
    for (i, left) in keys.iter().enumerate() {
        for right in &keys[i + 1..] {
            assert_ne!(left, right);
        }
    }
}

#[test]
fn a_client_text_has_1_to_1024_bytes() {
    assert!(matches!(
        ClientText::new(""),
        Err(crate::TextError::Empty { .. })
    ));
    assert!(ClientText::new(&"é".repeat(512)).is_ok());
    assert!(matches!(
        ClientText::new(&"k".repeat(1_025)),
        Err(crate::TextError::TooLong {
            bytes: 1_025,
            limit: 1_024,
            ..
        })
    ));
}

#[test]
fn what_no_door_has_made_has_no_source() {
    for text in [
        "order-7",
        "call:x",
        "f1:x",
        "mcp/order-7",
        "run/29b267acff61476d/order-7",
        "mcp/29b267acff61476D/order-7",
        "mcp/29b267acff61476/order-7",
    ] {
        assert_eq!(Source::of(&Key::new(text).unwrap()), None, "{text}");
    }
}

/// Texts that stand close to the borders of the rule.
fn tricky() -> impl Strategy<Value = String> {
    prop_oneof![
        "(call:|business:|f1:|f:|f22:)?[a-c#0-9]{1,4}(#[0-9]{0,2})?",
        "[ a#]{1,3}",
        "[0-9a-f]{64}",
        "[a-b]{220,240}(#[0-9]{1,2})?",
        "\\PC{1,8}",
    ]
}

fn any_client_key() -> impl Strategy<Value = ClientKey> {
    let business = |text: &str| {
        let mut input = br#"{"order_id":"#.to_vec();
        crate::canonical::write_string(&mut input, text);
        input.push(b'}');
        let pointer = Pointer::new("/order_id").unwrap();
        let key = BusinessKey::of(&Label::new("pay").unwrap(), &[pointer], &input);
        key.unwrap().unwrap()
    };
    (tricky(), 0..4).prop_map(move |(text, kind)| match kind {
        0 => ClientKey::Explicit(client(&text)),
        1 => ClientKey::CallId(client(&text)),
        2 => ClientKey::Business(business(&text)),
        _ => {
            let name = Label::new("pay").unwrap();
            let input = Input::Bytes(text.as_bytes());
            ClientKey::Fingerprint(Fingerprint::of(&name, input).unwrap())
        }
    })
}

proptest! {
    #[test]
    fn what_a_key_was_made_from_is_read_back(
        client_key in any_client_key(),
        door in prop_oneof![Just(Door::Mcp), Just(Door::Proxy), Just(Door::Inbox)],
        occurrence in prop_oneof![0..4_u32, Just(u32::MAX)],
    ) {
        let key = ledger_key(door, &scope(), &client_key, occurrence);
        prop_assert_eq!(Source::of(&key), Some(client_key.source()));
    }

    #[test]
    fn different_names_have_different_ledger_keys(
        left in any_client_key(),
        right in any_client_key(),
        m in prop_oneof![1..4_u32, Just(u32::MAX)],
        n in prop_oneof![1..4_u32, Just(u32::MAX)],
    ) {
        let same = (&left, m) == (&right, n);
        prop_assert_eq!(key_of(&left, m) == key_of(&right, n), same);
    }
}
