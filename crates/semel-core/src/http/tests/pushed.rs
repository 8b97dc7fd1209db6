use core::time::Duration;

use crate::http::{Pushed, pushed, read_retry_after};
use crate::queue::RETRY_AFTER_MAX;
use crate::time::Timestamp;

#[test]
fn a_status_says_what_became_of_a_task() {
    use Pushed::{Failed, NotDone, Succeeded, Unknown};
    for (statuses, first, later) in [
        (&[200, 201, 202, 204, 299][..], Succeeded, Succeeded),
        (&[425, 429], NotDone, NotDone),
        (
            &[400, 401, 403, 405, 411, 413, 414, 415, 422, 431],
            NotDone,
            NotDone,
        ),
        (&[408, 500, 502, 503, 504, 599], Unknown, Unknown),
        (&[100, 101, 600, 999], Unknown, Unknown),
        // An earlier attempt may still be at work under the same key.
        (&[409], Failed, Unknown),
        (
            &[301, 302, 307, 308, 402, 404, 406, 410, 412, 451],
            Failed,
            Failed,
        ),
    ] {
        for status in statuses {
            assert_eq!(pushed(*status, true), first, "{status}");
            assert_eq!(pushed(*status, false), later, "{status}, later");
        }
    }
}

#[test]
fn nobody_is_waited_for_without_an_end() {
    let now: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
    let seconds = Duration::from_secs;
    for (text, wait) in [
        ("0", Some(seconds(0))),
        ("120", Some(seconds(120))),
        (" 7\t", Some(seconds(7))),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(seconds(60))),
        ("Sun, 06 Nov 1994 08:49:36 GMT", Some(seconds(0))),
        ("Mon, 06 Nov 2094 08:49:37 GMT", Some(RETRY_AFTER_MAX)),
        ("604801", Some(RETRY_AFTER_MAX)),
        ("99999999999999999999999", Some(RETRY_AFTER_MAX)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("1, 2", None),
    ] {
        assert_eq!(read_retry_after(text, now), wait, "{text}");
    }
}
