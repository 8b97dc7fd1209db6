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
