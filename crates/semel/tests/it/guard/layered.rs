//! The same rules as a tower layer.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel::http::layer::OnceLayer;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::*;

#[tokio::test]
async fn a_service_of_ones_own_acts_once() {
    let acted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acted);
    let inside = service_fn(move |_: Request<Body>| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Infallible>(Response::new(number.to_string())) }
    });
    let service = OnceLayer::new(engine().await, rules()).layer(inside);
    for (authorization, key, expected) in [
        ("a", Some("k"), "1"),
        ("a", Some("k"), "1"),
        ("b", Some("k"), "2"),
        // Nobody can tell here whether an answer arrived.
        ("a", None, "3"),
        ("a", None, "4"),
    ] {
        let mut request = post(key, "{}");
        let authorization = authorization.parse().expect("a value");
        request.headers_mut().insert("authorization", authorization);
        let Ok(response) = service.clone().oneshot(request).await;
        assert_eq!(read(response).await.body, expected);
    }
    assert_eq!(acted.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_service_that_fails_leaves_a_doubt() {
    let acted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acted);
    let inside = service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Err::<Response<String>, _>(std::io::Error::other("oh")) }
    });
    let service = OnceLayer::new(engine().await, rules()).layer(inside);
    for status in [502, 409] {
        let Ok(response) = service.clone().oneshot(post(Some("k"), "{}")).await;
        assert_eq!(response.status().as_u16(), status);
    }
    assert_eq!(acted.load(Ordering::SeqCst), 1);
}

/// By default the layer tells callers apart as the proxy does.
#[tokio::test]
async fn c057_every_credential_tells_the_callers_of_a_service_apart() {
    let acted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acted);
    let inside = service_fn(move |_: Request<Body>| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Infallible>(Response::new(number.to_string())) }
    });
    let service = OnceLayer::new(engine().await, rules()).layer(inside);
    let callers: [&[(&'static str, &str)]; 8] = [
        &[],
        &[("x-api-key", "a")],
        &[("x-api-key", "b")],
        &[("authorization", "Bearer a")],
        &[("authorization", "Bearer a"), ("stripe-account", "1")],
        &[("authorization", "Bearer a"), ("stripe-account", "2")],
        &[("cookie", "session=a")],
        &[("cookie", "session=b")],
    ];
    let send = async |lines: &[(&'static str, &str)]| {
        let mut request = post(Some("k"), "{}");
        for (name, value) in lines {
            let value = value.parse().expect("a value");
            request.headers_mut().append(*name, value);
        }
        let Ok(response) = service.clone().oneshot(request).await;
        read(response).await.body
    };
    for _ in 0..2 {
        for (at, caller) in callers.iter().enumerate() {
            let expected = (at + 1).to_string();
            assert_eq!(send(caller).await, expected.as_str(), "{caller:?}");
        }
    }
    // What changes between two attempts of one caller does not count.
    let changed = [("authorization", "Bearer a"), ("cookie", "session=c")];
    assert_eq!(send(&changed).await, "4");
    assert_eq!(acted.load(Ordering::SeqCst), callers.len());
}

#[tokio::test]
async fn c012_a_key_counts_whatever_the_method_of_a_service() {
    let acted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acted);
    let inside = service_fn(move |_: Request<Body>| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Infallible>(Response::new(number.to_string())) }
    });
    let service = OnceLayer::new(engine().await, rules()).layer(inside);
    for (method, effects) in [("patch", 1), ("LOCK", 1), ("get", 1), ("GET", 2)] {
        let before = acted.load(Ordering::SeqCst);
        for _ in 0..2 {
            let mut request = post(Some(method), "{}");
            *request.method_mut() = method.parse().expect("a method");
            let Ok(response) = service.clone().oneshot(request).await;
            read(response).await;
        }
        assert_eq!(acted.load(Ordering::SeqCst) - before, effects, "{method}");
    }
}
