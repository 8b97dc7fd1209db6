//! Requests that are answered: once from the upstream, then from the ledger.

use super::*;

#[tokio::test]
async fn c015_c016_c017_the_first_answer_is_everybodys() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Headers(
        201,
        &[
            ("location", "/orders/1"),
            ("set-cookie", "a=b"),
            ("link", "<x>"),
            ("link", "<y>"),
        ],
        "order 1",
    ));
    let guard = guard(&engine, &shop, rules());
    let first = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((first.status, first.body.as_str()), (201, "order 1"));
    assert_eq!(first.header("set-cookie"), Some("a=b"));
    assert!(!first.is_replay());
    let again = ask(&guard, post(Some("\"k\""), " {} ")).await;
    assert_eq!((again.status, again.body.as_str()), (201, "order 1"));
    assert_eq!(again.header("location"), Some("/orders/1"));
    assert_eq!(again.headers.get_all("link").iter().count(), 2);
    assert_eq!(again.header("set-cookie"), None);
    assert!(again.is_replay());
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c021_c023_c024_a_key_is_for_one_request() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Answer(200, "one"))
        .then(Step::Answer(200, "two"));
    let guard = guard(&engine, &shop, rules());
    assert_eq!(ask(&guard, post(Some("k"), "1")).await.body, "one");
    let other = ask(&guard, post(Some("k"), "2")).await;
    assert_eq!((other.status, other.code()), (422, Some("key_reused")));
    assert_eq!(other.header("x-should-retry"), Some("false"));
    let mut elsewhere = post(Some("k"), "1");
    *elsewhere.uri_mut() = "/orders?x=1".parse().expect("a path");
    assert_eq!(ask(&guard, elsewhere).await.status, 422);
    assert_eq!(ask(&guard, post(Some("k"), "1")).await.body, "one");
    assert_eq!(ask(&guard, post(Some("l"), "1")).await.body, "two");
    assert_eq!(shop.sent(), 2);
}

#[tokio::test]
async fn c018_c019_a_hundred_at_once_are_one() {
    let (engine, told) = (engine().await, Arc::new(Notify::new()));
    let shop = Shop::default().then(Step::Wait(Arc::clone(&told), "order 1"));
    let guard = guard(&engine, &shop, rules());
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let guard = guard.clone();
            tokio::spawn(async move { ask(&guard, post(Some("k"), "{}")).await })
        })
        .collect();
    told.notify_one();
    let mut replays = 0;
    for asked in asking {
        let read = asked.await.expect("nobody panics");
        assert_eq!((read.status, read.body.as_str()), (201, "order 1"));
        replays += usize::from(read.is_replay());
    }
    assert_eq!((shop.sent(), replays), (1, 99));
}

#[tokio::test(start_paused = true)]
async fn c020_c022_who_waits_too_long_is_told_to_come_again() {
    let (engine, told) = (engine().await, Arc::new(Notify::new()));
    let shop = Shop::default().then(Step::Wait(Arc::clone(&told), "order 1"));
    let guard = guard(&engine, &shop, rules());
    let first = tokio::spawn({
        let guard = guard.clone();
        async move { ask(&guard, post(Some("k"), "{}")).await }
    });
    while shop.sent() == 0 {
        tokio::task::yield_now().await;
    }
    let late = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((late.status, late.code()), (409, Some("in_flight")));
    assert!(late.header("retry-after").is_some());
    assert_eq!(late.header("x-should-retry"), None);
    assert!(late.body.contains("\"retryable\":true"), "{}", late.body);
    assert_eq!(ask(&guard, post(Some("k"), "[]")).await.status, 422);
    told.notify_one();
    assert_eq!(first.await.expect("nobody panics").body, "order 1");
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c026_c027_c028_what_releases_the_key_lets_the_next_one_try() {
    for status in [400, 401, 403, 405, 411, 413, 414, 415, 422, 425, 429, 431] {
        let (engine, shop) = (engine().await, Shop::default());
        let shop = shop
            .then(Step::Answer(status, "no"))
            .then(Step::Answer(200, "yes"));
        let guard = guard(&engine, &shop, rules());
        let first = ask(&guard, post(Some("k"), "{}")).await;
        assert_eq!((first.status, first.body.as_str()), (status, "no"));
        assert_eq!(first.code(), None, "it is the upstream's");
        let second = ask(&guard, post(Some("k"), "{}")).await;
        assert_eq!(second.body, "yes", "{status}");
        assert!(!second.is_replay());
    }
    for status in [200, 204, 302, 402, 404, 409] {
        let (engine, shop) = (engine().await, Shop::default());
        let shop = shop.then(Step::Answer(status, ""));
        let guard = guard(&engine, &shop, rules());
        for is_replay in [false, true] {
            let read = ask(&guard, post(Some("k"), "{}")).await;
            assert_eq!((read.status, read.is_replay()), (status, is_replay));
        }
    }
}

#[tokio::test]
async fn c011_c012_what_is_not_protected_passes() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = (0..4).fold(shop, |shop, _| shop.then(Step::Answer(200, "read")));
    let guard = guard(&engine, &shop, rules());
    for _ in 0..2 {
        let mut get = post(Some("k"), "");
        *get.method_mut() = http::Method::GET;
        assert!(!ask(&guard, get).await.is_replay());
    }
    let passing = guard_with(&engine, &shop, semel::http::Keyless::Pass);
    for _ in 0..2 {
        assert!(!ask(&passing, post(None, "{}")).await.is_replay());
    }
    assert_eq!(shop.sent(), 4);
    let requiring = guard_with(&engine, &shop, semel::http::Keyless::Require);
    let refused = ask(&requiring, post(None, "{}")).await;
    assert_eq!((refused.status, refused.code()), (400, Some("invalid_key")));
    assert_eq!(shop.sent(), 4);
}

fn guard_with(engine: &Engine, shop: &Shop, keyless: semel::http::Keyless) -> Guard {
    let rules = Rules { keyless, ..rules() };
    guard(engine, shop, rules)
}

#[tokio::test]
async fn c080_an_answer_beyond_the_limit_is_not_kept_though_it_is_there_at_once() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Answer(201, "more than ten bytes"));
    let mut rules = rules();
    rules.limits.answer = 10;
    let guard = guard(&engine, &shop, rules);
    let first = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(
        (first.status, first.body.as_str()),
        (201, "more than ten bytes")
    );
    let again = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((again.status, again.code()), (410, Some("expired")));
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c005_c006_c008_what_is_no_key_is_refused() {
    let (engine, shop) = (engine().await, Shop::default());
    let guard = guard(&engine, &shop, rules());
    for key in ["", "\"\"", "a b", "a,b", "\"a", "\"a\\x\""] {
        let read = ask(&guard, post(Some(key), "{}")).await;
        assert_eq!(
            (read.status, read.code()),
            (400, Some("invalid_key")),
            "{key}"
        );
    }
    let mut twice = post(Some("a"), "{}");
    let value = "a".parse().expect("a value");
    twice.headers_mut().append("idempotency-key", value);
    assert_eq!(ask(&guard, twice).await.status, 400);
    assert_eq!(shop.sent(), 0);
}

#[tokio::test]
async fn c057_two_principals_never_meet() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Answer(200, "one"))
        .then(Step::Answer(200, "two"));
    let guard = guard(&engine, &shop, rules());
    for (principal, body) in [("ann", "one"), ("ben", "two"), ("ann", "one")] {
        let caller = Caller {
            principal: Some(principal.to_owned()),
            watch: None,
            ..Caller::default()
        };
        let answer = guard.handle(post(Some("k"), "{}"), caller).await;
        assert_eq!(read(answer.response).await.body, body);
    }
}

#[tokio::test]
async fn callers_of_two_namespaces_share_nothing() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Answer(200, "one"))
        .then(Step::Answer(200, "two"));
    let guard = guard(&engine, &shop, rules());
    for (namespace, body) in [("one", "one"), ("two", "two"), ("one", "one")] {
        let caller = Caller {
            principal: Some("ann".to_owned()),
            namespace: Some(semel::Namespace::new(namespace).expect("it is one")),
            watch: None,
        };
        let answer = guard.handle(post(Some("k"), "{}"), caller).await;
        assert_eq!(read(answer.response).await.body, body);
    }
}

#[tokio::test]
async fn c094_the_upstream_sees_of_keys_what_the_route_says() {
    use semel::http::Forward;
    let mut derived = Vec::new();
    for forward in [
        Forward::Pass,
        Forward::Strip,
        Forward::Derive,
        Forward::Derive,
    ] {
        let (engine, shop) = (engine().await, Shop::default());
        let shop = shop
            .then(Step::Answer(429, "later"))
            .then(Step::Answer(200, "done"));
        let guard = guard(&engine, &shop, Rules { forward, ..rules() });
        ask(&guard, post(Some("k"), "{}")).await;
        let (_, first, _) = shop.last();
        ask(&guard, post(Some("k"), "{}")).await;
        let (_, second, _) = shop.last();
        let key = |headers: &HeaderMap| headers.get("idempotency-key").cloned();
        assert_eq!(key(&first), key(&second), "the same for each attempt");
        match forward {
            Forward::Pass => assert_eq!(key(&first).expect("it is there"), "k"),
            Forward::Strip => assert_eq!(key(&first), None),
            Forward::Derive => derived.push(key(&first).expect("it is there")),
        }
    }
    assert_ne!(derived[0], derived[1], "two ledgers never use the same");
}

#[tokio::test]
async fn a_dry_run_touches_nothing() {
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop.then(Step::Answer(201, "done"));
    let guard = guard(&engine, &shop, rules());
    let dry = |key: Option<&str>, body: &str| {
        let mut request = post(key, body);
        let yes = "?1".parse().expect("a value");
        request.headers_mut().insert("semel-dry-run", yes);
        request
    };
    let would = |read: &Read| {
        let said: serde_json::Value = serde_json::from_str(&read.body).expect("JSON");
        let word = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        (word("would"), word("effect"))
    };
    let words = |would: &str, effect: &str| (would.to_owned(), effect.to_owned());
    for _ in 0..2 {
        let read = ask(&guard, dry(Some("k"), "{}")).await;
        assert_eq!(would(&read), words("execute", "would_create"));
    }
    assert_eq!(shop.sent(), 0);
    ask(&guard, post(Some("k"), "{}")).await;
    let read = ask(&guard, dry(Some("k"), "{}")).await;
    assert_eq!(would(&read), words("replay", "noop"));
    let read = ask(&guard, dry(Some("k"), "[]")).await;
    assert_eq!(would(&read), words("refuse", "noop"));
    let mut slip = dry(Some("k"), "{}");
    let slipped = "true".parse().expect("a value");
    slip.headers_mut().insert("semel-dry-run", slipped);
    assert_eq!(ask(&guard, slip).await.status, 400);
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn keys_can_be_made_of_parts_of_a_request() {
    use semel::core::identity::Pointer;
    let (engine, shop) = (engine().await, Shop::default());
    let shop = shop
        .then(Step::Answer(200, "one"))
        .then(Step::Answer(200, "two"));
    let mut rules = rules();
    rules.derive_from.members = vec![Pointer::new("/order").expect("a pointer")];
    rules.sameness.members.except = vec![Pointer::new("/at").expect("a pointer")];
    let guard = guard(&engine, &shop, rules);
    for (body, expected) in [
        (r#"{"order": 1, "at": 1}"#, "one"),
        (r#"{"order": 2, "at": 1}"#, "two"),
        (r#"{"order": 1, "at": 2}"#, "one"),
    ] {
        assert_eq!(ask(&guard, post(None, body)).await.body, expected, "{body}");
    }
    let other = ask(&guard, post(None, r#"{"order": 1, "amount": 7}"#)).await;
    assert_eq!(other.code(), Some("key_reused"));
}

#[tokio::test]
async fn c085_c097_what_cannot_be_answered_twice_is_refused_before_it_is_sent() {
    let (engine, shop) = (engine().await, Shop::default());
    let guard = guard(&engine, &shop, rules());
    for (name, value) in [
        ("upgrade", "websocket"),
        ("content-type", "application/grpc"),
    ] {
        let mut request = post(Some("k"), "{}");
        let value = value.parse().expect("a value");
        request.headers_mut().insert(name, value);
        assert_eq!(ask(&guard, request).await.status, 501, "{name}");
    }
    assert_eq!(shop.sent(), 0);
}
