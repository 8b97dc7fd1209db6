use semel::core::identity::{InFlight, Pointer};
use semel::{Class, OnDoubt};

use crate::mcp::listed::with_repeat_argument;
use crate::mcp::{Annotations, Listed, ToolPolicy, UpstreamPolicy, Verify, Why};

const LIST: &str = r##"{"tools":[
    {"name":"charge","annotations":{"readOnlyHint":false,"idempotentHint":true},
     "inputSchema":{"type":"object","required":["amount","to"],"properties":{
        "idempotency_key":{"type":"string"},"amount":{"type":"number"},
        "meta":{"type":"object","properties":{"idempotency-key":{"type":["string","null"]}}},
        "request_id":{"type":"integer"},"clientToken":{}}}},
    {"name":"read","annotations":{"readOnlyHint":true,"idempotentHint":true},"inputSchema":{"type":"object"}},
    {"annotations":{}},
    {"name":"odd","annotations":{"readOnlyHint":"true"},"inputSchema":{"$ref":"#/$defs/x","required":["x"]}}
  ],"nextCursor":"c"}"##;

#[test]
fn what_a_server_lists_is_read() {
    let listed = Listed::read_all(LIST);
    let names: Vec<_> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["charge", "read", "odd"]);
    assert_eq!(
        listed[0].native_keys,
        ["/idempotency_key", "/meta/idempotency-key", "/clientToken"]
    );
    assert_eq!(
        listed[0].annotations,
        Annotations {
            read_only: false,
            idempotent: true
        }
    );
    assert_eq!(
        listed[2].annotations,
        Annotations::default(),
        "a hint is true or it is none"
    );
    assert_eq!(Listed::read_all("{}"), []);
}

#[test]
fn the_argument_for_a_second_one_is_added_where_it_is_asked_for() {
    let mut policy = UpstreamPolicy::default();
    let challenge = ToolPolicy {
        challenge: true,
        ..ToolPolicy::default()
    };
    policy.tools.insert("b".to_owned(), challenge);
    let list = r#"{ "tools":[{"name":"a","inputSchema":{"type":"object"}}, {"name":"b","inputSchema":{"properties":{"n":{"maximum":1E2}}}}],"x":1.0}"#;
    let schema = r#"{"type":"string","description":"Only when an answer says so: the key of the earlier call that is to be done once more."}"#;
    let expected = list.replace("1E2}}", &format!(r#"1E2}},"semel_repeat":{schema}}}"#));
    let asks = |name: &str| policy.tool(name).challenge;
    assert_eq!(with_repeat_argument(list, asks), expected);
    for list in ["{}", "5", r#"{"tools":[{"name":"b","inputSchema":true}]}"#] {
        assert_eq!(with_repeat_argument(list, asks), list);
    }
    assert_eq!(with_repeat_argument(LIST, |_| false), LIST);
}

#[test]
fn arguments_that_violate_the_input_schema_refute_a_call() {
    let listed = Listed::read_all(LIST);
    for (arguments, refuted) in [
        (
            Some(r#"{"amount":"not a number","to":null,"more":1}"#),
            true,
        ),
        (Some(r#"{"amount":1.5,"to":null,"more":1}"#), false),
        (Some(r#"{"amount":1}"#), true),
        (Some("{}"), true),
        (Some("[]"), true),
        (None, true),
    ] {
        assert_eq!(listed[0].refutes(arguments), refuted, "{arguments:?}");
    }
    assert!(!listed[1].refutes(None));
    let large = format!(
        r#"{{"name":"a","inputSchema":{{"required":["b"],"x":"{}"}}}}"#,
        "y".repeat(65_536)
    );
    let large = Listed::read(&large).expect("it has a name");
    assert_eq!(large.input_schema, None, "it is too large to be remembered");
    assert!(!large.refutes(None));
    assert!(
        !listed[2].refutes(None),
        "what stands beside a reference may not count"
    );
}

#[test]
fn a_class_comes_from_the_configuration_then_from_a_trusted_hint_then_from_the_default() {
    let read = Annotations {
        read_only: true,
        idempotent: true,
    };
    let again = Annotations {
        read_only: false,
        idempotent: true,
    };
    let nothing = Annotations::default();
    let mut policy = UpstreamPolicy::default();
    policy.tools.insert(
        "set".to_owned(),
        ToolPolicy {
            class: Some(Class::Unsafe),
            ..ToolPolicy::default()
        },
    );
    for hints in [None, Some(&read), Some(&again), Some(&nothing)] {
        assert_eq!(
            policy.class_of("x", hints),
            (Class::Unsafe, Why::Default),
            "not trusted"
        );
    }
    policy.trust_annotations = true;
    policy.default_class = Class::Idempotent;
    for (tool, hints, class, why) in [
        ("x", Some(&read), Class::Safe, Why::Annotation),
        ("x", Some(&again), Class::Idempotent, Why::Annotation),
        ("x", Some(&nothing), Class::Idempotent, Why::Default),
        ("x", None, Class::Idempotent, Why::Default),
        ("set", Some(&read), Class::Unsafe, Why::Config),
    ] {
        assert_eq!(
            policy.class_of(tool, hints),
            (class, why),
            "{tool} {hints:?}"
        );
    }
}

#[test]
fn a_doubt_is_looked_up_or_sent_again_where_that_is_possible() {
    let pointer = || Pointer::new("/key").unwrap();
    let verify = || Verify::new("find", "{}", Pointer::new("/id").unwrap(), None).unwrap();
    let plain = ToolPolicy::default();
    let pinned = ToolPolicy {
        inject: Some(pointer()),
        ..ToolPolicy::default()
    };
    let verified = ToolPolicy {
        verify: Some(verify()),
        ..pinned.clone()
    };
    let told = ToolPolicy {
        on_doubt: Some(OnDoubt::Hold),
        ..verified.clone()
    };
    for (policy, class, expected) in [
        (&plain, Class::Unsafe, OnDoubt::Hold),
        (&plain, Class::Idempotent, OnDoubt::Retry),
        (&pinned, Class::Unsafe, OnDoubt::Retry),
        (&verified, Class::Unsafe, OnDoubt::Probe),
        (&told, Class::Idempotent, OnDoubt::Hold),
    ] {
        assert_eq!(policy.on_doubt(class), expected);
    }
    assert_eq!(plain.in_flight(), InFlight::Join);
    let challenge = ToolPolicy {
        challenge: true,
        ..ToolPolicy::default()
    };
    assert_eq!(challenge.in_flight(), InFlight::Challenge);
}
