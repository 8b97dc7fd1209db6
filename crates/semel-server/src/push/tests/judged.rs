//! What an answer means, case by case.

use std::time::Duration;

use axum::body::Bytes;
use semel::{Effect, Timestamp};

use crate::outbound::Lost;
use crate::push::judge::{Judged, Verdict, judge};
use crate::push::transport::{Answer, Body};

fn now() -> Timestamp {
    "1994-11-06T08:49:37Z".parse().expect("it is a time")
}

fn answer(status: u16, body: &[u8]) -> Answer {
    Answer {
        status,
        retry_after: None,
        effect: None,
        body: Body::Whole(Bytes::copy_from_slice(body)),
    }
}

fn judged(answer: Answer) -> Judged {
    judge(Ok(answer), true, now())
}

fn done(answer: Answer) -> (bool, Effect, Option<String>) {
    match judged(answer).verdict {
        Verdict::Done { ok, effect, data } => {
            let data = data.map(|data| String::from_utf8(data).expect("JSON is text"));
            (ok, effect, data)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_target_answers_is_the_result() {
    for (status, body, effect, data) in [
        (
            200,
            &b"{\"id\": 42}"[..],
            Effect::Updated,
            Some("{\"id\": 42}"),
        ),
        (201, b"", Effect::Created, None),
        (204, b"", Effect::Updated, None),
        (
            200,
            b"{\"effect\":\"noop\"}",
            Effect::Noop,
            Some("{\"effect\":\"noop\"}"),
        ),
        // A dry run is none of what can have happened, and no word of ours neither.
        (
            200,
            b"{\"effect\":\"would_create\"}",
            Effect::Updated,
            Some("{\"effect\":\"would_create\"}"),
        ),
        (
            200,
            b"{\"effect\":7}",
            Effect::Updated,
            Some("{\"effect\":7}"),
        ),
        (
            200,
            b"fine \"so far\"",
            Effect::Updated,
            Some("\"fine \\\"so far\\\"\""),
        ),
        (
            200,
            b"\xff\x00",
            Effect::Updated,
            Some("{\"base64\":\"/wA=\"}"),
        ),
        // Digits that a double does not have are kept.
        (
            200,
            b"12345678901234567890123",
            Effect::Updated,
            Some("12345678901234567890123"),
        ),
    ] {
        let expected = (true, effect, data.map(str::to_owned));
        assert_eq!(done(answer(status, body)), expected, "{body:?}");
    }
    let said = Answer {
        effect: Some("deleted".to_owned()),
        ..answer(200, b"{\"effect\":\"created\"}")
    };
    assert_eq!(done(said).1, Effect::Deleted);
    let long = Answer {
        body: Body::TooLong,
        ..answer(200, b"")
    };
    assert_eq!(done(long), (true, Effect::Updated, None));
}

#[test]
fn a_failure_keeps_its_status() {
    for (status, body, data) in [
        (
            404,
            &b"{\"why\": 1}"[..],
            "{\"body\":{\"why\": 1},\"status\":404}",
        ),
        (410, b"", "{\"body\":null,\"status\":410}"),
        (302, b"go\n", "{\"body\":\"go\\n\",\"status\":302}"),
    ] {
        let expected = (false, Effect::Unknown, Some(data.to_owned()));
        assert_eq!(done(answer(status, body)), expected);
    }
}

#[test]
fn whoever_turns_a_task_away_says_when_to_come_again() {
    let soon = Duration::from_secs(60);
    for (status, field, wait) in [
        (429, Some("60"), Some(soon)),
        (425, Some("Sun, 06 Nov 1994 08:50:37 GMT"), Some(soon)),
        (429, Some("soon"), None),
        (429, None, None),
        (400, None, None),
    ] {
        let turned_away = Answer {
            retry_after: field.map(str::to_owned),
            ..answer(status, b"")
        };
        match judged(turned_away).verdict {
            Verdict::NotDone { wait: said, error } => {
                assert_eq!(said, wait, "{status} {field:?}");
                assert!(error.contains(&status.to_string()), "{error}");
            }
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[test]
fn the_breaker_hears_of_what_shows_that_the_target_is_in_trouble() {
    let cut = Answer {
        body: Body::Cut("it ended".to_owned()),
        ..answer(200, b"")
    };
    let unsent = || Err(Lost::unsent("nobody is there"));
    let sent = || Err(Lost::sent("it went away"));
    for (sent, verdict, is_well) in [
        (Ok(answer(200, b"")), "done", true),
        (Ok(answer(404, b"")), "done", true),
        (Ok(answer(400, b"")), "not_done", true),
        (Ok(answer(425, b"")), "not_done", true),
        (Ok(answer(429, b"")), "not_done", false),
        (unsent(), "not_done", false),
        (Ok(answer(408, b"")), "unknown", true),
        (Ok(answer(500, b"")), "unknown", false),
        (Ok(answer(503, b"")), "unknown", false),
        (Ok(cut), "unknown", false),
        (sent(), "unknown", false),
    ] {
        let case = format!("{sent:?}");
        let judged = judge(sent, true, now());
        let word = match judged.verdict {
            Verdict::Done { .. } => "done",
            Verdict::NotDone { .. } => "not_done",
            Verdict::Unknown { .. } => "unknown",
        };
        assert_eq!((word, judged.is_well), (verdict, is_well), "{case}");
    }
}

#[test]
fn a_conflict_with_an_earlier_attempt_is_no_answer() {
    let conflict = || Ok(answer(409, b""));
    let verdict = judge(conflict(), false, now()).verdict;
    assert!(matches!(verdict, Verdict::Unknown { .. }), "{verdict:?}");
    let verdict = judge(conflict(), true, now()).verdict;
    assert!(
        matches!(verdict, Verdict::Done { ok: false, .. }),
        "{verdict:?}"
    );
}
