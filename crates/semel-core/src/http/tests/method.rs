use crate::http::method::{MethodKind, Protection, is_safe};
use crate::http::profile::Profile;
use crate::policy::{Class, OnDoubt};

const HELD: Protection = Protection {
    class: Class::Unsafe,
    on_doubt: None,
};

fn kind(profile: &Profile, method: &str) -> MethodKind {
    profile.method_kind(method, [])
}

#[test]
fn c012_a_request_with_a_key_is_protected_unless_its_method_is_safe() {
    for name in Profile::NAMES {
        let profile = Profile::named(name).unwrap();
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert!(is_safe(method));
            for has_key in [true, false] {
                let kind = kind(&profile, method);
                assert_eq!(profile.protection(kind, has_key), None, "{name}: {method}");
            }
        }
        for method in [
            "POST", "PUT", "PATCH", "DELETE", "post", "Patch", "pUT", "get", "Head", "LOCK",
            "MKCOL", "PURGE", "QUERY", "X",
        ] {
            let protection = profile.protection(kind(&profile, method), true);
            assert!(protection.is_some(), "{name}: {method}");
            if profile.class(method).is_none() {
                assert_eq!(protection, Some(HELD), "{name}: {method}");
            }
        }
    }
}

#[test]
fn c012_without_a_key_only_methods_of_the_profile_are_protected_in_any_case() {
    let profile = Profile::semel();
    for (method, expected) in [
        ("POST", Some(Class::Unsafe)),
        ("PUT", Some(Class::Idempotent)),
        ("post", Some(Class::Unsafe)),
        // For an upstream that reads methods as they are written, `put` may be anything.
        ("put", Some(Class::Unsafe)),
        ("LOCK", None),
        ("get", None),
        ("QUERY", None),
    ] {
        let protection = profile.protection(kind(&profile, method), false);
        assert_eq!(protection.map(|it| it.class), expected, "{method}");
    }
    let stripe = Profile::stripe();
    assert_eq!(stripe.protection(kind(&stripe, "PUT"), false), None);
}

#[test]
fn a_method_that_overrides_another_one_is_protected_as_unsafe() {
    let profile = Profile::semel();
    let of = |method, other: &str| profile.method_kind(method, [other.as_bytes()]);
    for (method, other, expected) in [
        ("GET", "DELETE", MethodKind::Disguised),
        ("GET", "delete", MethodKind::Disguised),
        ("GET", " PATCH ", MethodKind::Disguised),
        ("GET", "LOCK", MethodKind::Other),
        ("GET", "HEAD", MethodKind::Safe),
        ("GET", "GET", MethodKind::Safe),
        ("GET", "", MethodKind::Safe),
        ("POST", "LOCK", MethodKind::Disguised),
        ("POST", "GET", MethodKind::Protected(Class::Unsafe)),
        ("PUT", "PUT", MethodKind::Protected(Class::Idempotent)),
        // What would be repeated is a POST.
        ("PUT", "POST", MethodKind::Disguised),
        ("LOCK", "UNLOCK", MethodKind::Other),
    ] {
        assert_eq!(of(method, other), expected, "{method} as {other}");
    }
    let two = profile.method_kind("GET", [&b"HEAD"[..], b"POST"]);
    assert_eq!(two, MethodKind::Disguised);
}

/// A profile that sends doubts of completions again says nothing about requests to delete a file.
#[test]
fn doubts_of_methods_that_a_profile_does_not_list_are_held() {
    let llm = Profile::llm();
    let of = |method| llm.protection(kind(&llm, method), true).unwrap();
    assert_eq!(of("POST").on_doubt, Some(OnDoubt::Retry));
    assert_eq!(of("DELETE"), HELD);
    assert_eq!(of("post"), HELD);
}

#[test]
fn a_profile_that_lists_a_safe_method_protects_it() {
    let mut profile = Profile::semel();
    profile.methods.push(("GET".to_owned(), Class::Unsafe));
    let kind = kind(&profile, "GET");
    assert_eq!(kind, MethodKind::Protected(Class::Unsafe));
    assert!(profile.protection(kind, false).is_some());
}
