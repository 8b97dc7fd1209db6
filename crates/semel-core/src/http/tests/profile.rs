use crate::http::profile::Profile;
use crate::http::status::{Meaning, Statuses, is_well, parse_range};
use crate::policy::Class;

#[test]
fn every_profile_has_its_name() {
    for name in Profile::NAMES {
        assert_eq!(Profile::named(name).unwrap().name, name);
    }
    assert_eq!(Profile::named("other"), None);
}

#[test]
fn c028_what_is_refused_for_its_form_releases_the_key() {
    let statuses = Profile::semel().statuses;
    for status in [400, 401, 403, 405, 411, 413, 414, 415, 422, 425, 429, 431] {
        assert_eq!(statuses.meaning(status), Meaning::Release, "{status}");
    }
    for status in [200, 201, 204, 301, 304, 402, 404, 409, 410, 451] {
        assert_eq!(statuses.meaning(status), Meaning::Outcome, "{status}");
    }
    for status in [408, 500, 502, 503, 504, 529, 599] {
        assert_eq!(statuses.meaning(status), Meaning::Doubt, "{status}");
    }
}

#[test]
fn c029_a_failure_of_the_server_is_what_the_profile_says() {
    let of = |name| Profile::named(name).unwrap().statuses.meaning(500);
    assert_eq!(of("semel"), Meaning::Doubt);
    assert_eq!(of("ietf"), Meaning::Doubt);
    assert_eq!(of("stripe"), Meaning::Outcome);
    assert_eq!(of("acp"), Meaning::Release);
    assert_eq!(of("ucp"), Meaning::Doubt);
    assert_eq!(of("square"), Meaning::Release);
    assert_eq!(of("llm"), Meaning::Release);
}

#[test]
fn c027_too_many_requests_are_never_an_outcome() {
    for name in Profile::NAMES {
        let statuses = Profile::named(name).unwrap().statuses;
        for status in [408, 425, 429] {
            assert_ne!(
                statuses.meaning(status),
                Meaning::Outcome,
                "{name}: {status}"
            );
        }
    }
}

#[test]
fn c012_methods_that_read_pass() {
    for name in Profile::NAMES {
        let profile = Profile::named(name).unwrap();
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "post"] {
            assert_eq!(profile.class(method), None, "{name}: {method}");
        }
        assert_eq!(profile.class("POST"), Some(Class::Unsafe));
    }
    assert_eq!(Profile::semel().class("PUT"), Some(Class::Idempotent));
    assert_eq!(Profile::ucp().class("PUT"), Some(Class::Unsafe));
}

#[test]
fn ranges_of_statuses_are_read() {
    assert_eq!(parse_range("429"), Some(429..=429));
    assert_eq!(parse_range("5xx"), Some(500..=599));
    assert_eq!(parse_range("500-503"), Some(500..=503));
    for wrong in [
        "", "99", "600", "0xx", "6xx", "503-500", "+429", "4x", "400-", "a",
    ] {
        assert_eq!(parse_range(wrong), None, "{wrong}");
    }
    let table =
        Statuses::new([(200..=299, Meaning::Outcome)]).with([(202..=202, Meaning::Release)]);
    assert_eq!(table.meaning(202), Meaning::Release);
    assert_eq!(table.meaning(200), Meaning::Outcome);
    assert_eq!(table.meaning(300), Meaning::Doubt);
}

#[test]
fn a_target_is_well_that_answers_whatever_it_thinks_of_the_request() {
    for status in [200, 204, 301, 400, 401, 404, 408, 409, 428, 430, 451, 499] {
        assert!(is_well(status), "{status}");
    }
    for status in [429, 500, 502, 503, 504, 529, 599] {
        assert!(!is_well(status), "{status}");
    }
}
