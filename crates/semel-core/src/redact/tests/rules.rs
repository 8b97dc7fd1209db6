//! What each rule hides, and what it leaves.

use std::borrow::Cow;
use std::sync::Arc;

use super::samples::{ANNOUNCED, ORDINARY, keys};
use super::{text, with_outputs, with_patterns};
use crate::ledger::{Command, Fence, Order, Resolution, Resolve, Settle, Spec, Submit, Version};
use crate::redact::{
    OutputRule, OutputRuleError, Pattern, PatternError, REDACTED, Redactor, member,
};
use crate::{AttemptId, Class, Digest, Fingerprint, Key, Label, Namespace, Note, Policy, Verdict};

/// Values that are hidden because of what announces them.
const VALUES: [&str; 4] = [
    "hunter2pass",
    "Tr0ub4dor&3",
    "c29tZTpzZWNyZXQ=",
    "pä55wörd-of-mine",
];

#[test]
fn keys_are_told_by_how_they_are_written() {
    for key in keys() {
        for around in [
            "{}",
            "failed with {}: no",
            "(\"{}\")",
            "a={}&b",
            "x\\n{}",
            "q%3D{}",
        ] {
            let found = text(&around.replace("{}", &key));
            assert_eq!(found, around.replace("{}", REDACTED), "{key}");
        }
    }
}

#[test]
fn what_is_announced_as_a_secret_is_hidden() {
    for announced in ANNOUNCED {
        for value in VALUES {
            // An ampersand or a slash ends what is not quoted in a URL.
            if value.contains('&') && !announced.contains("'{}'") && !announced.contains("\"{}\"") {
                continue;
            }
            let found = text(&announced.replace("{}", value));
            assert!(found.contains(REDACTED), "{announced}: {found}");
            assert!(!found.contains(value), "{announced}: {found}");
        }
    }
}

#[test]
fn what_stands_around_a_secret_stays() {
    for (before, after) in [
        ("token=a1, user=bob", "token=[redacted], user=bob"),
        ("Pwd=a1;Database=x", "Pwd=[redacted];Database=x"),
        ("?api_key=a1&page=2", "?api_key=[redacted]&page=2"),
        ("a://me:p/w@x@db:5/o?s=t", "a://me:[redacted]@db:5/o?s=t"),
        ("a --password b -v", "a --password [redacted] -v"),
        (
            "{\"password\":\"a\\\"b\",\"id\":7}",
            "{\"password\":\"[redacted]\",\"id\":7}",
        ),
        ("-H 'Cookie: a=b; c=d' -v", "-H 'Cookie: [redacted]' -v"),
        (
            "Authorization: Bearer a\nHost: b",
            "Authorization: [redacted]\nHost: b",
        ),
        ("token: Bearer abc123 x", "token: [redacted] x"),
        (
            "password: -----BEGIN PRIVATE KEY----- a -----END PRIVATE KEY-----, b",
            "password: [redacted], b",
        ),
        ("password=a[redacted]b", "password=[redacted]"),
        ("password=[redacted]", "password=[redacted]"),
    ] {
        assert_eq!(text(before), after);
    }
}

#[test]
fn ordinary_texts_are_untouched() {
    for ordinary in ORDINARY {
        assert_eq!(text(ordinary), ordinary);
        assert!(matches!(
            Redactor::default().text(ordinary),
            Cow::Borrowed(_)
        ));
    }
}

#[test]
fn a_redactor_that_is_off_changes_nothing() {
    let off = Redactor::off()
        .patterns([Pattern::new("acme_*").expect("a pattern")])
        .outputs([OutputRule::new("/a").expect("a rule")]);
    assert_eq!(off.text("password=a acme_1"), "password=a acme_1");
    assert_eq!(off.output(b"{\"a\":1}"), None);
    assert_eq!(off.arguments(["--password", "a"]), ["--password", "a"]);
    assert_eq!(
        off.headers([("cookie", "a")]),
        [("cookie", Cow::Borrowed("a"))]
    );
}

#[test]
fn the_users_patterns_hide_what_they_match() {
    for (pattern, before, after) in [
        (
            "acme_*",
            "with acme_1-2.3, and acme_",
            "with [redacted], and [redacted]",
        ),
        ("*@acme.test", "to bob@acme.test now", "to [redacted] now"),
        ("cust-*-id", "cust-7-id cust-8-i", "[redacted] cust-8-i"),
        ("cust-**-id*", "cust-7-idx", "[redacted]"),
        (
            "plain",
            "explaining plainly",
            "ex[redacted]ing [redacted]ly",
        ),
        ("überall*", "überall überallß", "[redacted] [redacted]"),
        ("dact", "[redacted] dact", "[redacted] [redacted]"),
    ] {
        assert_eq!(with_patterns(&[pattern]).text(before), after, "{pattern}");
    }
    assert_eq!(Pattern::new("*ab*"), Err(PatternError::TooShort));
    let long = "a".repeat(257);
    assert_eq!(
        Pattern::new(&long),
        Err(PatternError::TooLong { bytes: 257 })
    );
}

#[test]
fn a_pattern_and_a_name_hide_a_secret_together() {
    let redactor = with_patterns(&["acme_12"]);
    assert_eq!(
        redactor.text("password=acme_12-rest"),
        "password=[redacted]"
    );
}

#[test]
fn arguments_are_hidden_as_whole_words() {
    for (words, shown) in [
        (
            &["x", "--password", "my own words"] as &[&str],
            &["x", "--password", REDACTED] as &[&str],
        ),
        (&["--token", "to"], &["--token", REDACTED]),
        (&["--token", "--json"], &["--token", "--json"]),
        (&["--password=a b'c\"d&e"], &["--password=[redacted]"]),
        (
            &["DB_PASSWORD=a;b", "sh"],
            &["DB_PASSWORD=[redacted]", "sh"],
        ),
        (&["curl", "-u", "me:pw"], &["curl", "-u", "me:[redacted]"]),
        (&["docker", "-u", "1:2"], &["docker", "-u", "1:2"]),
        (
            &["-H", "Authorization: Bearer a"],
            &["-H", "Authorization: [redacted]"],
        ),
        (
            &["sh", "-c", "x --password a"],
            &["sh", "-c", "x --password [redacted]"],
        ),
        (&["--amount", "100", ""], &["--amount", "100", ""]),
    ] {
        assert_eq!(Redactor::default().arguments(words.iter().copied()), shown);
    }
}

#[test]
fn of_headers_that_are_not_known_to_be_harmless_the_name_is_kept() {
    let redactor = Redactor::default()
        .allow_headers(["X-Shop"])
        .expect("it is a name");
    let kept = redactor.headers([
        ("Content-Type", "text/plain"),
        ("Authorization", "Bearer a"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("x-shop", "7"),
        ("User-Agent", "a token=b1"),
    ]);
    let kept: Vec<_> = kept.iter().map(|(name, value)| (*name, &**value)).collect();
    assert_eq!(
        kept,
        [
            ("Content-Type", "text/plain"),
            ("Authorization", REDACTED),
            ("X-Forwarded-For", REDACTED),
            ("x-shop", "7"),
            ("User-Agent", "a token=[redacted]"),
        ]
    );
    for bad in ["", "a b", "a:b", "é"] {
        assert!(Redactor::default().allow_headers([bad]).is_err(), "{bad}");
    }
}

#[test]
fn answers_lose_what_a_rule_names_and_no_other_byte() {
    for (rule, before, after) in [
        (
            "/card/number",
            r#"{ "card": {"number": "4", "y": 1.50}, "n":2 }"#,
            r#"{ "card": {"number": "[redacted]", "y": 1.50}, "n":2 }"#,
        ),
        (
            "/a/*/t",
            r#"{"a":[{"t":1},{"u":2},{"t":[3]}]}"#,
            r#"{"a":[{"t":"[redacted]"},{"u":2},{"t":"[redacted]"}]}"#,
        ),
        ("/1", "[1, {}, 3]", "[1, \"[redacted]\", 3]"),
        (
            "/a",
            r#"{"a":1,"\u0061":{"b":"}"}}"#,
            r#"{"a":"[redacted]","\u0061":"[redacted]"}"#,
        ),
        ("/a~1b", r#"{"a\/b":null}"#, r#"{"a\/b":"[redacted]"}"#),
        (
            "/*",
            r#"{"a":1,"b":2}"#,
            r#"{"a":"[redacted]","b":"[redacted]"}"#,
        ),
        ("", " 7\n", " \"[redacted]\"\n"),
        ("/a", r#"{"a":"[redacted]"}"#, r#"{"a":"[redacted]"}"#),
    ] {
        let redactor = with_outputs(&[rule]);
        let found = redactor
            .output(before.as_bytes())
            .expect("something is named");
        assert_eq!(String::from_utf8(found.clone()).expect("it is text"), after);
        assert_eq!(redactor.output(&found).as_deref(), Some(&*found));
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let found = with_outputs(&["/a"]).output(deep.as_bytes());
    assert_eq!(found.as_deref(), Some(&b"{\"a\":\"[redacted]\"}"[..]));
}

#[test]
fn what_no_rule_names_stays_exact() {
    let redactor = with_outputs(&["/card/number", "/list/0"]);
    for json in [
        r#"{"number":"4"}"#,
        r#"{"card":[1]}"#,
        r#"{"card":"number"}"#,
        "{}",
        "[]",
        "7",
        "\"a\"",
        r#"{"list":[]}"#,
        r#"{"password":"a"}"#,
        // No JSON, or not to its end.
        "",
        "{",
        "{\"card\":{\"number\":1}",
        "{\"card\":{\"number\":1}} x",
        "[1,]",
        "{\"card\"}",
        "}",
    ] {
        assert_eq!(redactor.output(json.as_bytes()), None, "{json}");
    }
    assert_eq!(redactor.output(b"{\"card\":{\"number\":\"\xff\"}}"), None);
    assert_eq!(
        Redactor::default().output(b"{\"card\":{\"number\":1}}"),
        None
    );
}

#[test]
fn a_rule_that_cannot_name_anything_is_refused() {
    assert!(matches!(
        OutputRule::new("card"),
        Err(OutputRuleError::Pointer(_))
    ));
    assert!(matches!(
        OutputRule::new("/~2"),
        Err(OutputRuleError::Pointer(_))
    ));
    let deep = "/a".repeat(65);
    assert_eq!(
        OutputRule::new(&deep),
        Err(OutputRuleError::TooDeep { depth: 65 })
    );
}

#[test]
fn a_member_is_found_where_it_stands() {
    let json = br#"{"a": [1], "b":"x"}"#;
    assert_eq!(member(json, "a").map(|at| &json[at]), Some(&b"[1]"[..]));
    assert_eq!(member(json, "b").map(|at| &json[at]), Some(&b"\"x\""[..]));
    assert_eq!(member(json, "c"), None);
    assert_eq!(member(b"[1]", "0"), Some(1..2));
}

fn note(text: &str) -> Option<Note> {
    Note::from_lossy(text)
}

fn label(text: &str) -> Label {
    Label::new(text).expect("a test's label is valid")
}

#[test]
fn a_note_that_was_cut_hides_what_is_left_of_a_key() {
    for key in keys().iter().filter(|key| !key.starts_with('-')) {
        // What is left of the beginning alone says nothing.
        let body = key.find(['4', 'Q']).expect("every key has a body");
        for left in body + 1..body + 6 {
            let start = Note::MAX_BYTES - left;
            let long = format!("{} {key}", "x".repeat(start - 1));
            let note = note(&long).expect("something is left");
            let found = Redactor::default().note(&note).expect("something is left");
            let hidden = found.as_str().split_once(' ').expect("it has two words").1;
            assert!(REDACTED.starts_with(hidden), "{key} {left}: {hidden}");
        }
    }
}

#[test]
fn commands_lose_the_secrets_that_people_would_read() {
    let redactor = Redactor::default();
    let secret = "lost: password=hunter2";
    let hidden = "lost: password=[redacted]";
    let settle = |verdict| {
        Command::Settle(Settle {
            attempt: AttemptId::from_random(1),
            fence: Fence(1),
            verdict,
        })
    };
    let order = |text: &str| Order {
        version: Version(3),
        by: label(text),
        note: note(text),
    };
    let spec = |text: &str| {
        Arc::new(Spec {
            namespace: Namespace::default(),
            key: Key::new("password=key").expect("the key is valid"),
            client_key: note("password=client"),
            name: label("password=name"),
            fingerprint: Fingerprint(Digest([1; 32])),
            policy: Policy::direct(Class::Unsafe),
            door: Some(label(text)),
            principal: Some(label(text)),
            parent: None,
            occurrence: 1,
            probe_digest: Some(Digest::of(b"password=probe")),
        })
    };
    let both = |make: &dyn Fn(&str) -> Command| {
        assert_eq!(*redactor.command(&make(secret)), make(hidden));
        let plain = make("lost");
        assert!(matches!(redactor.command(&plain), Cow::Borrowed(_)));
    };
    both(&|text| settle(Verdict::Unknown { error: note(text) }));
    both(&|text| {
        let error = note(text);
        settle(Verdict::NotDone {
            retry_after: None,
            reject: true,
            error,
        })
    });
    both(&|text| Command::Retry(order(text)));
    both(&|text| Command::Cancel(order(text)));
    both(&|text| Command::Forget(order(text)));
    both(&|text| {
        let resolution = Resolution::NotDone;
        Command::Resolve(Resolve {
            order: order(text),
            resolution,
        })
    });
    both(&|text| {
        let (queue, run_at) = (Some(label("password=queue")), None);
        Command::Submit(Submit {
            task: None,
            spec: spec(text),
            queue,
            run_at,
        })
    });
}
