//! What is kept, for whom and for how long.

use semel::core::http::{AfterExpiry, Profile};
use semel::core::redact::{OutputRule, Redactor};
use semel::{Namespace, Retention, Timestamp};
use semel_testkit::conformance::{Bed, ManualClock, SqliteBed};

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A store whose time is set by hand.
fn bed() -> (SqliteBed, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (SqliteBed::new(&clock), clock)
}

fn kept_for(length: Duration) -> Rules {
    Rules {
        retention: Retention::new(length).expect("it is one"),
        ..rules()
    }
}

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    let value = value.parse().expect("a value");
    request.headers_mut().append(name, value);
    request
}

fn problem(read: &Read) -> serde_json::Value {
    serde_json::from_str(&read.body).unwrap_or_else(|_| panic!("{read:?}"))
}

#[tokio::test]
async fn c033_a_refusal_is_named_by_what_leads_nowhere() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Answer(201, "one")).then(Step::Lost);
    let guard = guard(&engine, &shop, rules());
    ask(&guard, post(Some("k"), "{}")).await;
    ask(&guard, post(Some("lost"), "{}")).await;
    for (request, code) in [
        (post(Some("k"), "[]"), "key_reused"),
        (post(Some("lost"), "{}"), "in_doubt"),
        (post(Some("a b"), "{}"), "invalid_key"),
    ] {
        let read = ask(&guard, request).await;
        let said = problem(&read);
        assert_eq!(said["type"], format!("urn:semel:error:{code}"));
        assert_eq!(said["code"], code);
        assert_eq!(said["status"], read.status);
    }
}

#[tokio::test]
async fn c064_what_the_rules_name_is_not_stored() {
    let (bed, _) = bed();
    let rule = OutputRule::new("/card/number").expect("a rule");
    let redactor = Redactor::default().outputs([rule]);
    let builder = Engine::builder().store(bed.open().await).redactor(redactor);
    let engine = builder.sweep_every(None).start().await.expect("it starts");
    let whole = r#"{"id": 7, "card": {"number": "4242"}}"#;
    let rest = r#"{"id": 7, "card": {"number": "[redacted]"}}"#;
    let (streams, say) = {
        let (say, pieces) = mpsc::channel(16);
        (Step::Stream(pieces), say)
    };
    let shop = Shop::default()
        .then(Step::Headers(
            201,
            &[("content-type", "application/json")],
            whole,
        ))
        .then(streams);
    let guard = guard(&engine, &shop, rules());
    let first = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(first.body, whole, "who asked first gets what came");
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((again.status, again.body.as_str()), (201, rest));
    assert_eq!(again.header("content-type"), Some("application/json"));
    assert!(again.is_replay());
    say.send(Ok(whole)).await.expect("it is listened to");
    drop(say);
    assert_eq!(ask(&guard, post(Some("s"), "{}")).await.body, whole);
    assert_eq!(ask(&guard, post(Some("s"), "{}")).await.body, rest);
    let query = semel::store::Query {
        limit: 10,
        ..semel::store::Query::default()
    };
    let records = engine.list(query).await;
    let records = records.expect("they are listed").items;
    assert_eq!(records.len(), 2);
    for record in records {
        let operation = record.record.operation().expect("it is one");
        let stored = engine
            .payload(&Namespace::default(), &operation.spec.key)
            .await;
        let stored = stored.expect("it loads").expect("it is there");
        assert!(!String::from_utf8_lossy(&stored).contains("4242"));
    }
}

/// Sweeps as a node does now and then.
async fn sweep(engine: &Engine) {
    engine.sweep().await.expect("it sweeps");
}

#[tokio::test]
async fn c064_c089_answers_go_before_what_stands_for_them() {
    let (bed, clock) = bed();
    let engine = engine_on(bed.open().await).await;
    let shop = Shop::default().then(Step::Answer(201, "order 1"));
    let guard = guard(&engine, &shop, kept_for(DAY));
    ask(&guard, post(Some("k"), "{}")).await;
    for days in [2, 100, 300] {
        clock.advance(DAY * days);
        sweep(&engine).await;
        clock.advance(HOUR);
        sweep(&engine).await;
        if days < 300 {
            let again = ask(&guard, post(Some("k"), "{}")).await;
            assert_eq!((again.status, again.code()), (410, Some("expired")));
            let other = ask(&guard, post(Some("k"), "[]")).await;
            assert_eq!(other.code(), Some("key_reused"), "what it was for is known");
        }
    }
    // After a year nobody remembers.
    let shop = shop.then(Step::Answer(201, "order 2"));
    assert_eq!(ask(&guard, post(Some("k"), "{}")).await.body, "order 2");
    assert_eq!(shop.sent(), 2);
}

#[tokio::test]
async fn c088_at_the_end_of_its_time_an_answer_is_given_or_refused() {
    for fresh in [false, true] {
        let (bed, clock) = bed();
        let engine = engine_on(bed.open().await).await;
        let shop = Shop::default()
            .then(Step::Answer(201, "order"))
            .then(Step::Answer(201, "order"));
        let mut rules = kept_for(HOUR * 10);
        if fresh {
            rules.profile.refusals.expired = AfterExpiry::Fresh;
        }
        let guard = guard(&engine, &shop, rules);
        ask(&guard, post(Some("k"), "{}")).await;
        let instant = Duration::from_micros(1);
        let mut seen = Vec::new();
        // Up to its last moment, at it and after it, with a sweep at each.
        for step in [
            HOUR * 9,
            HOUR - instant,
            instant,
            instant,
            HOUR - instant,
            HOUR,
        ] {
            clock.advance(step);
            sweep(&engine).await;
            let read = ask(&guard, post(Some("k"), "{}")).await;
            match (read.status, read.is_replay()) {
                (201, is_replay) => {
                    assert_eq!(read.body, "order");
                    seen.push(if is_replay { "replay" } else { "fresh" });
                }
                (410, false) if !fresh => seen.push("gone"),
                _ => panic!("{read:?}"),
            }
        }
        let after = if fresh {
            ["fresh", "replay", "replay", "replay"]
        } else {
            ["gone"; 4]
        };
        assert_eq!(seen, [&["replay"; 2][..], &after].concat());
        assert_eq!(shop.sent(), 1 + usize::from(fresh));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c091_a_sweep_beside_replays_leaves_nothing_half() {
    const MANY: usize = 200;
    let (bed, clock) = bed();
    let engine = engine_on(bed.open().await).await;
    let body: &'static str = "x".repeat(2_000).leak();
    let shop = (0..MANY).fold(Shop::default(), |shop, _| {
        shop.then(Step::Answer(201, body))
    });
    let shop = shop.then(Step::Lost);
    let guard = guard(&engine, &shop, kept_for(HOUR));
    let name = |number: usize| format!("k-{number}");
    for number in 0..MANY {
        ask(&guard, post(Some(&name(number)), "{}")).await;
    }
    ask(&guard, post(Some("lost"), "{}")).await;
    sweep(&engine).await;
    clock.advance(HOUR * 3);
    sweep(&engine).await;
    clock.advance(HOUR * 2);
    let sweeping = tokio::spawn({
        let engine = engine_on(bed.open().await).await;
        async move { while engine.sweep().await.expect("it sweeps").unfinished {} }
    });
    let asking: Vec<_> = (0..MANY)
        .map(|number| {
            let guard = guard.clone();
            tokio::spawn(async move {
                let mut gone = false;
                while !gone {
                    let read = ask(&guard, post(Some(&name(number)), "{}")).await;
                    gone = read.status == 410;
                    let is_whole = read.is_replay() && read.status == 201 && read.body == body;
                    // It may change while it is read; then it is read again.
                    let changed = read.code() == Some("store_unavailable");
                    assert!(gone || is_whole || changed, "{read:?}");
                }
            })
        })
        .collect();
    sweeping.await.expect("it ends");
    for asked in asking {
        let ended = tokio::time::timeout(PATIENCE, asked).await;
        ended.expect("it is buried").expect("nothing is half");
    }
    assert_eq!(
        ask(&guard, post(Some("lost"), "{}")).await.code(),
        Some("in_doubt")
    );
    assert_eq!(shop.sent(), MANY + 1);
}

#[tokio::test]
async fn c084_who_cannot_read_the_coding_is_told_so() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Headers(
        201,
        &[("content-encoding", "br"), ("vary", "accept-encoding")],
        "coded",
    ));
    let guard = guard(&engine, &shop, rules());
    let asked = |accepted: &str| with(post(Some("k"), "{}"), "accept-encoding", accepted);
    let first = ask(&guard, asked("gzip, br")).await;
    assert_eq!((first.status, first.body.as_str()), (201, "coded"));
    for accepted in ["br", "gzip, br;q=0.5", "*"] {
        let again = ask(&guard, asked(accepted)).await;
        assert_eq!(
            (again.body.as_str(), again.is_replay()),
            ("coded", true),
            "{accepted}"
        );
        assert_eq!(again.header("content-encoding"), Some("br"));
    }
    // Who says nothing takes what there is.
    assert!(ask(&guard, post(Some("k"), "{}")).await.is_replay());
    for accepted in ["gzip", "identity", "br;q=0", ""] {
        let refused = ask(&guard, asked(accepted)).await;
        assert_eq!(
            (refused.status, refused.code()),
            (406, Some("not_acceptable")),
            "{accepted}"
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert!(!refused.is_replay());
        let said = problem(&refused);
        assert_eq!(said["original_status"], 201);
        assert_eq!(
            said["hint"],
            "send the same request with `Accept-Encoding: br`"
        );
        let dry = with(asked(accepted), "semel-dry-run", "?1");
        let would = ask(&guard, dry).await;
        assert_eq!(problem(&would)["code"], "not_acceptable", "{would:?}");
    }
    assert_eq!(shop.sent(), 1, "it is not done again for that");
}

/// It must not count as one who has the answer: without a key, the next who asks would be taken for one who wants another
/// effect.
#[tokio::test]
async fn c084_who_cannot_read_the_coding_does_not_have_the_answer() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Headers(201, &[("content-encoding", "br")], "coded"));
    let guard = guard(&engine, &shop, rules());
    let asked = |accepted: &str| {
        let request = with(post(Some("k"), "{}"), "accept-encoding", accepted);
        guard.handle(request, Caller::default())
    };
    for (accepted, status, has_answer) in
        [("br", 201, true), ("gzip", 406, false), ("br", 201, true)]
    {
        let answer = asked(accepted).await;
        assert_eq!(answer.response.status(), status, "{accepted}");
        assert_eq!(answer.seat.is_some(), has_answer, "{accepted}");
    }
}

#[tokio::test]
async fn c084_an_answer_that_nobody_asked_to_be_coded_is_everybodys() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Headers(201, &[("content-encoding", "br")], "coded"));
    let guard = guard(&engine, &shop, rules());
    let asked = || with(post(Some("k"), "{}"), "accept-encoding", "identity");
    for is_replay in [false, true] {
        let read = ask(&guard, asked()).await;
        assert_eq!((read.body.as_str(), read.is_replay()), ("coded", is_replay));
    }
}

#[tokio::test]
async fn c084_who_joins_a_stream_must_be_able_to_read_it() {
    let engine = engine().await;
    let (say, pieces) = mpsc::channel(16);
    let headers = &[("content-encoding", "br")];
    let shop = Shop::default().then(Step::Coded(headers, pieces));
    let guard = guard(&engine, &shop, rules());
    let asked = |accepted: &str| with(post(Some("k"), "{}"), "accept-encoding", accepted);
    let first = guard.handle(asked("br"), Caller::default()).await.response;
    say.send(Ok("coded")).await.expect("it is listened to");
    let joined = ask(&guard, asked("gzip")).await;
    assert_eq!(joined.code(), Some("not_acceptable"));
    drop(say);
    assert_eq!(read(first).await.body, "coded");
    assert!(ask(&guard, asked("br")).await.is_replay());
}

/// Writes a time as HTTP does.
fn http_date(at: Timestamp) -> String {
    let at = at.to_string();
    let (date, time) = at.split_once('T').expect("a date and a time");
    let parts: Vec<_> = date.split('-').collect();
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month = months[parts[1].parse::<usize>().expect("a month") - 1];
    // Which day of the week it was is not looked at.
    format!("Mon, {} {month} {} {} GMT", parts[2], parts[0], &time[..8])
}

#[tokio::test]
async fn c090_what_was_first_sent_before_anything_was_kept_is_refused() {
    for (profile, forgotten) in [(Profile::semel(), DAY * 395), (Profile::stripe(), DAY * 30)] {
        let (bed, _) = bed();
        let engine = engine_on(bed.open().await).await;
        let shop = Shop::default()
            .then(Step::Answer(201, "one"))
            .then(Step::Answer(201, "two"));
        let rules = Rules {
            profile,
            key_headers: vec![
                http::HeaderName::from_static("repeatability-request-id"),
                semel::http::IDEMPOTENCY_KEY,
            ],
            ..rules()
        };
        let guard = guard(&engine, &shop, rules);
        let now = engine.store().now();
        let asked = |key: &str, age: Duration| {
            let request = with(post(None, "{}"), "repeatability-request-id", key);
            with(
                request,
                "repeatability-first-sent",
                &http_date(now.minus(age)),
            )
        };
        let young = forgotten - DAY;
        assert_eq!(ask(&guard, asked("young", young)).await.body, "one");
        assert!(ask(&guard, asked("young", young)).await.is_replay());
        let refused = ask(&guard, asked("old", forgotten + DAY)).await;
        assert_eq!(
            (refused.status, refused.code()),
            (412, Some("expired")),
            "{refused:?}"
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        let dry = with(asked("old", forgotten + DAY), "semel-dry-run", "?1");
        assert_eq!(problem(&ask(&guard, dry).await)["status"], 412);
        assert_eq!(shop.sent(), 1, "nothing is done");
        // What is known of it is told, however old it says that it is.
        assert!(ask(&guard, asked("young", forgotten * 2)).await.is_replay());
        for wrong in ["yesterday", "2020-01-01T00:00:00Z", ""] {
            let request = with(post(Some("w"), "{}"), "repeatability-first-sent", wrong);
            let read = ask(&guard, request).await;
            assert_eq!(
                (read.status, read.code()),
                (400, Some("invalid_input")),
                "{wrong}"
            );
        }
        let twice = with(
            asked("t", young),
            "repeatability-first-sent",
            &http_date(now),
        );
        assert_eq!(ask(&guard, twice).await.status, 400);
        // A key says nothing of its age where nobody wants to know.
        let old = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
        assert_eq!(ask(&guard, post(Some(old), "{}")).await.body, "two");
    }
}

#[tokio::test]
async fn c090_a_key_that_was_made_before_anything_was_kept_is_refused() {
    let (bed, _) = bed();
    let engine = engine_on(bed.open().await).await;
    let shop = Shop::default()
        .then(Step::Answer(201, "one"))
        .then(Step::Answer(201, "two"));
    let rules = Rules {
        dated_keys: true,
        ..rules()
    };
    let guard = guard(&engine, &shop, rules);
    let made = |at: Timestamp| {
        let millis = format!("{:012x}", at.0 / 1_000);
        format!("{}-{}-7cc3-98c4-dc0c0c07398f", &millis[..8], &millis[8..])
    };
    let now = engine.store().now();
    let old = ask(&guard, post(Some(&made(now.minus(DAY * 396))), "{}")).await;
    assert_eq!((old.status, old.code()), (412, Some("expired")), "{old:?}");
    assert_eq!(shop.sent(), 0);
    let young = made(now.minus(DAY));
    assert_eq!(ask(&guard, post(Some(&young), "{}")).await.body, "one");
    assert!(ask(&guard, post(Some(&young), "{}")).await.is_replay());
    assert_eq!(ask(&guard, post(Some("no-date"), "{}")).await.body, "two");
}

#[tokio::test]
async fn c092_how_long_answers_are_kept_can_be_asked_for() {
    for (profile, remembered) in [(Profile::semel(), DAY * 367), (Profile::acp(), DAY * 2)] {
        let (engine, shop) = (engine().await, Shop::default());
        let shop = shop.then(Step::Answer(201, "one"));
        let rules = Rules {
            profile,
            ..kept_for(DAY * 2)
        };
        let guard = guard(&engine, &shop, rules);
        let dry = || with(post(Some("k"), "{}"), "semel-dry-run", "?1");
        for would in ["execute", "replay"] {
            let said = problem(&ask(&guard, dry()).await);
            assert_eq!(said["would"], would);
            assert_eq!(said["kept_seconds"], (DAY * 2).as_secs());
            assert_eq!(said["remembered_seconds"], remembered.as_secs());
            if would == "execute" {
                ask(&guard, post(Some("k"), "{}")).await;
            }
        }
        assert_eq!(shop.sent(), 1);
    }
}
