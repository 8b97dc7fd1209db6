use core::time::Duration;

use crate::http::dated::{is_forgotten, made_at, read_date, remembered};
use crate::http::profile::Profile;
use crate::ledger::TOMBSTONE_KEPT;
use crate::time::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn c090_what_is_older_than_anything_kept_is_forgotten() {
    let now: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
    let of = |name| remembered(&Profile::named(name).unwrap(), DAY * 30);
    for name in ["semel", "ietf", "ucp", "llm"] {
        assert_eq!(of(name), DAY * 30 + TOMBSTONE_KEPT, "{name}");
    }
    for name in ["stripe", "acp"] {
        assert_eq!(of(name), DAY * 30, "{name}");
    }
    assert_eq!(remembered(&Profile::semel(), Duration::MAX), Duration::MAX);
    for (age, forgotten) in [
        (Duration::ZERO, false),
        (DAY, false),
        (DAY * 30 - Duration::from_micros(1), false),
        // At the very end of its time a sweep may have come first.
        (DAY * 30, true),
        (DAY * 400, true),
    ] {
        assert_eq!(
            is_forgotten(now.minus(age), DAY * 30, now),
            forgotten,
            "{age:?}"
        );
    }
    // A clock that is ahead makes nobody old.
    assert!(!is_forgotten(now.plus(DAY), DAY * 30, now));
}

#[test]
fn c090_a_uuid_of_version_7_says_when_it_was_made() {
    // The example of RFC 9562, appendix A.6.
    let made: Timestamp = "2022-02-22T19:22:22Z".parse().unwrap();
    for key in [
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
    ] {
        assert_eq!(made_at(key), Some(made), "{key}");
    }
    for other in [
        "",
        "order-7",
        "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-78c4-dc0c0c07398f",
        "017f22e279b07cc398c4dc0c0c07398f",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f0",
        "017f22e2-79b0-7cc3-98c4_dc0c0c07398f",
        "+17f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-98c4-dc0c0c0739\u{e9}",
    ] {
        assert_eq!(made_at(other), None, "{other}");
    }
}

#[test]
fn c090_dates_are_read_as_http_writes_them() {
    let expected: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
    assert_eq!(read_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(expected));
    let leap: Timestamp = "2024-02-29T23:59:59Z".parse().unwrap();
    assert_eq!(read_date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(leap));
    for wrong in [
        "",
        "now",
        "1994-11-06T08:49:37Z",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Son, 06 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994  08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, +6 Nov 1994 08:49:37 GMT",
    ] {
        assert_eq!(read_date(wrong), None, "{wrong}");
    }
}
