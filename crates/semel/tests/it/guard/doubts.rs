//! Requests whose answers are lost, and callers who leave.

use semel::core::http::{Lookup, Profile};
use semel::core::identity::Pointer;

use super::*;

#[tokio::test(start_paused = true)]
async fn c029_what_was_sent_and_not_answered_is_in_doubt() {
    for (step, status) in [
        (Step::Lost, 502),
        (Step::Never, 504),
        (Step::Answer(503, "down"), 503),
    ] {
        let (engine, shop) = (engine().await, Shop::default());
        let shop = shop.then(step);
        let guard = guard(&engine, &shop, rules());
        let first = ask(&guard, post(Some("k"), "{}")).await;
        assert_eq!(first.status, status);
        assert_eq!(first.header("x-should-retry"), Some("false"));
        match status {
            503 => assert_eq!((first.code(), first.body.as_str()), (None, "down")),
            _ => assert_eq!(first.code(), Some("in_doubt")),
        }
        for _ in 0..2 {
            let again = ask(&guard, post(Some("k"), "{}")).await;
            assert_eq!((again.status, again.code()), (409, Some("in_doubt")));
            assert_eq!(again.header("stripe-should-retry"), Some("false"));
        }
        assert_eq!(shop.sent(), 1);
    }
}

#[tokio::test]
async fn c030_what_was_not_sent_may_be_tried_again() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::NotSent).then(Step::Answer(201, "done"));
    let guard = guard(&engine, &shop, rules());
    let first = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((first.status, first.code()), (502, Some("not_sent")));
    assert!(first.header("retry-after").is_some());
    assert_eq!(ask(&guard, post(Some("k"), "{}")).await.body, "done");
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c054_who_leaves_changes_nothing() {
    let (engine, told) = (engine().await, Arc::new(Notify::new()));
    let shop = Shop::default().then(Step::Wait(Arc::clone(&told), "order 1"));
    let guard = guard(&engine, &shop, rules());
    {
        let leaving = ask(&guard, post(Some("k"), "{}"));
        tokio::pin!(leaving);
        while shop.sent() == 0 {
            tokio::select! {
                biased;
                _ = &mut leaving => panic!("there is no answer yet"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    told.notify_one();
    tokio::time::timeout(PATIENCE, guard.drained())
        .await
        .expect("it ends");
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((again.body.as_str(), again.is_replay()), ("order 1", true));
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn llm_what_only_costs_is_sent_again() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Lost)
        .then(Step::Answer(529, "overloaded"))
        .then(Step::Answer(200, "hello"));
    let rules = Rules {
        profile: Profile::llm(),
        ..rules()
    };
    let guard = guard(&engine, &shop, rules);
    let lost = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((lost.status, lost.header("x-should-retry")), (502, None));
    let overloaded = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(
        (overloaded.status, overloaded.header("x-should-retry")),
        (529, None)
    );
    assert_eq!(ask(&guard, post(Some("k"), "{}")).await.body, "hello");
    assert!(ask(&guard, post(Some("k"), "{}")).await.is_replay());
    assert_eq!(shop.sent(), 3);
}

#[tokio::test]
async fn acp_a_failure_of_the_server_is_tried_afresh() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Answer(500, "oh"))
        .then(Step::Answer(201, "done"));
    let rules = Rules {
        profile: Profile::acp(),
        ..rules()
    };
    let guard = guard(&engine, &shop, rules);
    assert_eq!(ask(&guard, post(Some("k"), "{}")).await.body, "oh");
    let done = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(
        (done.body.as_str(), done.header("idempotency-key")),
        ("done", Some("k"))
    );
    assert_eq!(ask(&guard, post(None, "{}")).await.status, 400);
}

#[tokio::test]
async fn stripe_a_failure_of_the_server_is_everybodys() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Answer(500, "oh"));
    let rules = Rules {
        profile: Profile::stripe(),
        ..rules()
    };
    let guard = guard(&engine, &shop, rules);
    for is_replay in [false, true] {
        let read = ask(&guard, post(Some("k"), "{}")).await;
        assert_eq!((read.status, read.is_replay()), (500, is_replay));
    }
    assert_eq!(ask(&guard, post(Some("k"), "[]")).await.status, 400);
}

/// What a doubt is looked up by.
fn looked_up() -> Rules {
    let mut rules = rules();
    // It cannot be looked up before its end.
    rules.lease = semel::Lease::new(semel::Lease::MIN).expect("it is one");
    rules.probe = Some(Lookup {
        path: "/orders?key={key}&own={upstream_key}".to_owned(),
        found: Some(Pointer::new("/items/0").expect("a pointer")),
        after: Duration::ZERO,
    });
    rules
}

#[tokio::test]
async fn c048_what_happened_is_found_and_not_done_again() {
    let (engine, shop) = (engine().await, Shop::default());
    let found = r#"{"items": [{"id": 7}]}"#;
    let shop = shop.then(Step::Lost).then(Step::Answer(200, found));
    let guard = guard(&engine, &shop, looked_up());
    assert_eq!(
        ask(&guard, post(Some("k"), "{}")).await.code(),
        Some("in_doubt")
    );
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((again.status, again.body.as_str()), (200, found));
    assert!(again.is_replay());
    let (path, _, _) = shop.last();
    assert!(path.starts_with("/orders?key=k&own=semel-"), "{path}");
    assert!(ask(&guard, post(Some("k"), "{}")).await.is_replay());
    assert_eq!(shop.sent(), 2);
}

#[tokio::test]
async fn c048_what_did_not_happen_is_done_then() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Lost)
        .then(Step::Answer(200, r#"{"items": []}"#))
        .then(Step::Answer(201, "done"));
    let guard = guard(&engine, &shop, looked_up());
    ask(&guard, post(Some("k"), "{}")).await;
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((again.body.as_str(), again.is_replay()), ("done", false));
    assert_eq!(shop.sent(), 3);
}

#[tokio::test]
async fn c048_what_cannot_be_told_stays_in_doubt() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = (0..8).fold(shop.then(Step::Lost), |shop, _| {
        shop.then(Step::Answer(500, "down"))
    });
    let guard = guard(&engine, &shop, looked_up());
    ask(&guard, post(Some("k"), "{}")).await;
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert!(
        matches!(again.code(), Some("in_doubt" | "in_flight")),
        "{again:?}"
    );
    let posts = shop.0.lock().expect("nobody panicked");
    let posts = posts.sent.iter().filter(|(_, _, body)| body == "{}");
    assert_eq!(posts.count(), 1, "nothing was sent again");
}
