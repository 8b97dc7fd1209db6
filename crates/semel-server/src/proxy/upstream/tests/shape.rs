//! What leaves, and what comes back: as it was said, and nothing else.

use axum::http::{HeaderValue, Method, header};
use hyper::body::Frame;

use super::server::{Server, answer};
use super::*;

/// Returns a request as it arrives.
async fn arriving(base: &str, options: Options, request: Request<Body>) -> (String, String) {
    let server = Server::new().await;
    let sending = begin(&client(&(server.url() + base), options), request);
    let mut peer = server.accept().await;
    let (head, body) = peer.request().await;
    peer.say(answer("")).await;
    end(sending).await.expect("there is an answer");
    (head.replace(&server.address.to_string(), "HERE"), body)
}

#[tokio::test]
async fn a_request_says_what_its_sender_said_and_what_http_needs() {
    let request = Request::post("/a/b%20c?d=%2F")
        .header(header::HOST, "asked.example")
        .header("x-own", "1")
        .header("x-own", "2")
        .header(header::ACCEPT_ENCODING, "gzip")
        .header(header::CONTENT_LENGTH, "3")
        .body(full("abc"))
        .expect("it is a request");
    let (head, body) = arriving("", Options::default(), request).await;
    // Only lines of the same name have an order that means something.
    let mut lines: Vec<_> = head.trim_end().lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "POST /a/b%20c?d=%2F HTTP/1.1",
            "accept-encoding: gzip",
            "content-length: 3",
            "host: HERE",
            "x-own: 1",
            "x-own: 2",
        ]
    );
    assert_eq!(body, "abc");
}

#[tokio::test]
async fn a_request_without_a_body_says_so_only_where_it_matters() {
    let (head, _) = arriving("", Options::default(), get("/")).await;
    assert_eq!(head, "GET / HTTP/1.1\r\nhost: HERE\r\n\r\n");
    let request = Request::post("/").body(empty()).expect("it is a request");
    let (head, _) = arriving("", Options::default(), request).await;
    assert_eq!(
        head,
        "POST / HTTP/1.1\r\ncontent-length: 0\r\nhost: HERE\r\n\r\n"
    );
}

#[tokio::test]
async fn c061_what_is_about_one_connection_stays_behind() {
    let request = Request::post("/")
        .header(header::CONNECTION, "keep-alive, X-Hop")
        .header("keep-alive", "timeout=5")
        .header("x-hop", "1")
        .header("proxy-connection", "keep-alive")
        .header(header::TE, "trailers, gzip")
        .header(header::TRANSFER_ENCODING, "chunked")
        .header(header::UPGRADE, "websocket")
        .header("http2-settings", "AAMAAABkAAQAAP__")
        .header(header::EXPECT, "100-continue")
        .body(full("abc"))
        .expect("it is a request");
    let (head, _) = arriving("", Options::default(), request).await;
    assert_eq!(
        head,
        "POST / HTTP/1.1\r\nhost: HERE\r\ncontent-length: 3\r\n\r\n"
    );
}

#[tokio::test]
async fn the_path_of_an_upstream_goes_before_all_others() {
    for (base, path, arrives) in [
        ("/base/", "/a?b", "/base/a?b"),
        ("/base", "/", "/base/"),
        ("/base", "/base", "/base/base"),
        ("/", "/a", "/a"),
        ("", "http://elsewhere/a", "/a"),
    ] {
        let (head, _) = arriving(base, Options::default(), get(path)).await;
        let line = format!("GET {arrives} HTTP/1.1\r\n");
        assert!(head.starts_with(&line), "{base} {path}: {head}");
    }
    let request = Request::builder().method(Method::OPTIONS).uri("*");
    let request = request.body(empty()).expect("it is a request");
    let (head, _) = arriving("/base", Options::default(), request).await;
    assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"), "{head}");
    let url = Url::parse("http://a/b?c").expect("it is an address");
    Client::new(&url, Options::default()).expect_err("nothing can follow a query");
}

#[tokio::test]
async fn the_host_that_was_asked_for_is_kept_on_demand() {
    let options = Options {
        preserve_host: true,
        ..Options::default()
    };
    let mut request = get("/");
    let host = HeaderValue::from_static("asked.example:8080");
    request.headers_mut().insert(header::HOST, host);
    let (head, _) = arriving("", options.clone(), request).await;
    assert!(head.contains("host: asked.example:8080\r\n"), "{head}");
    let (head, _) = arriving("", options, get("http://asked.example/a")).await;
    assert!(head.contains("host: asked.example\r\n"), "{head}");
}

#[tokio::test]
async fn a_body_of_unknown_length_goes_in_chunks_even_with_a_get() {
    for method in [Method::POST, Method::GET] {
        let server = Server::new().await;
        let (pieces, body) = in_pieces();
        let request = Request::builder().method(method).uri("/").body(body);
        let request = request.expect("it is a request");
        let sending = begin(&client(&server.url(), Options::default()), request);
        let mut peer = server.accept().await;
        let (head, _) = peer.request().await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        for piece in ["abc", "defg"] {
            let piece = Frame::data(Bytes::from_static(piece.as_bytes()));
            pieces.send(Ok(piece)).expect("it is read");
        }
        drop(pieces);
        let whole = b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
        assert_eq!(peer.bytes(whole.len()).await, whole);
        peer.say(answer("ok")).await;
        assert_eq!(text(sending).await, "ok");
    }
}

/// Returns an answer as it is read.
async fn answered(said: &str) -> Read {
    let server = Server::new().await;
    let sending = begin(&client(&server.url(), Options::default()), get("/"));
    let mut peer = server.accept().await;
    peer.request().await;
    peer.say(said).await;
    drop(peer);
    let answer = end(sending).await.expect("there is an answer");
    let read = read(answer).await.expect("it is whole");
    assert!(!server.has_another());
    read
}

#[tokio::test]
async fn c031_a_redirect_is_not_followed() {
    let said =
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 2\r\n\r\nno";
    let read = answered(said).await;
    assert_eq!(read.status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(read.headers[header::LOCATION], "/elsewhere");
    assert_eq!(read.text, "no");
}

#[tokio::test]
async fn c032_what_comes_before_an_answer_is_left_out() {
    let said = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                HTTP/1.1 204 No Content\r\nX-Own: 1\r\n\r\n";
    let read = answered(said).await;
    assert_eq!(read.status, StatusCode::NO_CONTENT);
    assert_eq!(read.headers.len(), 1, "{read:?}");
    assert_eq!(read.text, "");
    let read = answered("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(
        (read.status, read.text.as_str()),
        (StatusCode::NOT_MODIFIED, "")
    );
}

#[tokio::test]
async fn c084_nothing_is_decoded() {
    let read =
        answered("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc").await;
    assert_eq!(read.headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(read.text, "abc");
}

#[tokio::test]
async fn c085_trailers_pass() {
    let read = answered(
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n",
    )
    .await;
    assert_eq!(read.text, "abc");
    assert_eq!(read.trailers.expect("there are some")["x-sum"], "7");
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_whole() {
    let read = answered("HTTP/1.0 200 OK\r\n\r\nabc").await;
    assert_eq!(read.text, "abc");
}
