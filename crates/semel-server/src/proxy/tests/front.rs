//! What goes on to the upstream, and what comes back.

use axum::http::{HeaderName, Method};
use semel::{Engine, Scope};

use super::super::route::Matches;
use super::fake::{Fake, asked, guarded, local, made, proxy, serving};
use crate::config::Auth;

#[tokio::test]
async fn c010_a_key_is_found_however_its_name_is_spelled() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    for name in ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"] {
        asked(proxy.address, "POST /", &[&format!("{name}: k")]).await;
    }
    let came = fake.all();
    assert_eq!(came.len(), 3);
    for came in came {
        assert_eq!(came.headers["idempotency-key"], "k");
    }
}

#[tokio::test]
async fn what_comes_goes_on_and_what_is_answered_comes_back() {
    let fake = Fake::named("up")
        .saying("set-cookie", "a=1")
        .saying("set-cookie", "b=2");
    let proxy = proxy(&fake).await;
    let lines = [
        "Content-Length: 5",
        "X-A: 1",
        "X-A: 2",
        "Accept-Encoding: gzip",
    ];
    let first = "POST /a%2Fb/?q=%7E&q";
    let mut text = vec![];
    text.extend(lines);
    let answer = {
        let request = format!(
            "{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n\r\nhello",
            text.join("\r\n")
        );
        super::fake::said(proxy.address, &request).await
    };
    assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
    assert!(
        answer.contains("set-cookie: a=1\r\nset-cookie: b=2\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nup"), "{answer}");
    assert!(!answer.contains("semel-error"), "{answer}");
    assert!(!answer.contains("via"), "{answer}");
    let [came] = &fake.all()[..] else {
        panic!("{:?}", fake.all());
    };
    assert_eq!(came.method, Method::POST);
    assert_eq!(came.target, "/a%2Fb/?q=%7E&q");
    assert_eq!(came.body.as_deref(), Some(&b"hello"[..]));
    assert_eq!(came.headers["accept-encoding"], "gzip");
    let twice: Vec<_> = came.headers.get_all("x-a").iter().collect();
    assert_eq!(twice, ["1", "2"]);
    for name in ["via", "forwarded", "x-forwarded-for"] {
        assert!(!came.headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn c061_what_is_about_one_connection_goes_neither_way() {
    let fake = Fake::named("up")
        .saying("connection", "x-theirs")
        .saying("x-theirs", "1")
        .saying("keep-alive", "timeout=9")
        .saying("x-kept", "2");
    let proxy = proxy(&fake).await;
    let answer = asked(
        proxy.address,
        "GET /",
        &[
            "Connection: x-ours",
            "X-Ours: 1",
            "Keep-Alive: 1",
            "TE: trailers",
            "X-Kept: 2",
        ],
    )
    .await;
    assert!(answer.contains("x-kept: 2"), "{answer}");
    assert!(!answer.contains("x-theirs"), "{answer}");
    assert!(!answer.contains("keep-alive"), "{answer}");
    let came = fake.all();
    let mut names: Vec<_> = came[0].headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["host", "te", "x-kept"]);
}

#[tokio::test]
async fn c061_a_key_that_its_sender_takes_back_is_refused() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let lines = ["Connection: idempotency-key", "Idempotency-Key: k"];
    let answer = asked(proxy.address, "POST /", &lines).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(fake.all().is_empty());
}

#[tokio::test]
async fn c057_whoever_shows_other_credentials_is_somebody_else() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let shown: [&[&str]; 6] = [
        &[],
        &["Authorization: Bearer a"],
        &["Authorization: Bearer b"],
        &["Authorization: Basic a"],
        &["Cookie: s=a"],
        &["Cookie: s=b"],
    ];
    for lines in shown.iter().chain(&shown) {
        asked(proxy.address, "POST /", lines).await;
    }
    let came = fake.all();
    let (first, again) = came.split_at(shown.len());
    for (at, came) in first.iter().enumerate() {
        assert_eq!(came.principal, again[at].principal, "{:?}", shown[at]);
        assert_eq!(came.principal.is_none(), at == 0, "{:?}", shown[at]);
        let others = first[..at].iter().map(|other| &other.principal);
        assert!(others.into_iter().all(|other| *other != came.principal));
    }
    assert_eq!(
        first[1].headers["authorization"], "Bearer a",
        "it is the upstream's"
    );
}

#[tokio::test]
async fn the_first_route_that_fits_is_taken_and_without_one_it_is_said() {
    let (one, other) = (Fake::named("one"), Fake::named("other"));
    let engine = Engine::open("memory:").await.expect("it opens");
    let routes = vec![
        (
            Matches::all().host("api.example").expect("a host"),
            guarded(one.clone()),
        ),
        (
            Matches::all()
                .path("/v1")
                .expect("a path")
                .methods([Method::POST]),
            guarded(other.clone()),
        ),
    ];
    let proxy = serving(engine, routes, local()).await;
    let answer = asked(proxy.address, "GET /x", &["Host: api.example:80"]).await;
    assert!(answer.ends_with("one"), "{answer}");
    let answer = asked(proxy.address, "POST /v1/x", &[]).await;
    assert!(answer.ends_with("other"), "{answer}");
    for first in ["GET /v1/x", "POST /v1x", "POST /"] {
        let answer = asked(proxy.address, first, &[]).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{first}: {answer}");
        assert!(
            answer.contains("semel-error: not_found"),
            "{first}: {answer}"
        );
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(
            answer.contains(r#""type":"urn:semel:error:not_found""#),
            "{answer}"
        );
    }
    let answer = asked(proxy.address, "POST /v1/../x", &[]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!((one.all().len(), other.all().len()), (1, 1));
}

#[tokio::test]
async fn a_page_on_a_name_that_leads_here_gets_nothing() {
    let fake = Fake::named("up");
    let proxy = proxy(&fake).await;
    let answer = asked(proxy.address, "POST /", &["Host: evil.example"]).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(fake.all().is_empty());
}

#[tokio::test]
async fn where_tokens_are_needed_nobody_passes_without_one_and_none_goes_on() {
    let fake = Fake::named("up");
    let engine = Engine::open("memory:").await.expect("it opens");
    let (write, read) = (
        made(&engine, Scope::Write).await,
        made(&engine, Scope::Read).await,
    );
    let mut config = local();
    config.auth = Auth::Required;
    let routes = vec![(Matches::all(), guarded(fake.clone()))];
    let proxy = serving(engine, routes, config).await;
    for (lines, status) in [
        (vec![], "401"),
        (vec!["Authorization: Bearer theirs".to_owned()], "401"),
        (vec![format!("Semel-Token: {read}")], "403"),
        (vec![format!("Semel-Token: x{write}")], "401"),
        (vec![format!("Semel-Token: {write}")], "201"),
        (vec![format!("Proxy-Authorization: Bearer {write}")], "201"),
        (
            vec![
                format!("Semel-Token: {write}"),
                "Authorization: Bearer theirs".to_owned(),
            ],
            "201",
        ),
    ] {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let answer = asked(proxy.address, "POST /", &lines).await;
        let first = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&first), "{lines:?}: {answer}");
        if status == "401" {
            assert!(answer.contains("semel-error: unauthorized"), "{answer}");
        }
    }
    let came = fake.all();
    assert_eq!(came.len(), 3);
    for came in &came {
        assert!(!format!("{came:?}").contains(&write), "{came:?}");
    }
    assert_eq!(came[0].principal, came[1].principal, "the token's own");
    assert_ne!(
        came[0].principal, came[2].principal,
        "whose credentials are shown"
    );
    assert_eq!(came[2].headers["authorization"], "Bearer theirs");
}

#[tokio::test]
async fn pages_may_read_what_is_said_here() {
    let fake = Fake::named("up").saying("access-control-allow-origin", "*");
    let proxy = proxy(&fake).await;
    let answer = asked(proxy.address, "POST /", &["Origin: https://a.example"]).await;
    let exposed = "access-control-expose-headers: idempotent-replayed, semel-error";
    assert!(answer.contains(exposed), "{answer}");
}
