use crate::http::body::{BodyDigest, BodyHasher, Compare, Members, VALUE_MAX};
use crate::http::profile::Extent;
use crate::http::request::Request;

fn digest(media: &str, body: &[u8]) -> BodyDigest {
    pieces(media, &[body])
}

fn pieces(media: &str, pieces: &[&[u8]]) -> BodyDigest {
    let mut hasher = BodyHasher::new(Compare::ByType, &Members::default(), Some(media));
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finish()
}

fn json(body: &str) -> BodyDigest {
    digest("application/json; charset=utf-8", body.as_bytes())
}

#[test]
fn c070_json_is_compared_by_its_value() {
    assert_eq!(
        json(r#"{"a":1,"b":[1.0,2]}"#),
        json("{ \"b\": [1, 2.0], \"a\": 1e0 }")
    );
    assert_ne!(json(r#"{"a":null}"#), json("{}"));
    assert_ne!(json("[1,2]"), json("[2,1]"));
    assert_eq!(
        digest("application/vnd.api+json", b"{ }"),
        digest("Application/JSON", b"{}")
    );
    assert_ne!(digest("text/plain", b"{ }"), digest("text/plain", b"{}"));
}

#[test]
fn c071_json_without_a_single_value_is_compared_byte_for_byte() {
    assert_ne!(json(r#"{"a":1,"a":2}"#), json(r#"{"a":2}"#));
    assert_ne!(json(r#"{"a":1,"a":2}"#), json(r#"{"a": 1,"a":2}"#));
    assert_eq!(json("{"), json("{"));
    assert_ne!(json("{"), json("{ "));
}

#[test]
fn c072_large_numbers_keep_their_digits() {
    assert_ne!(json("9007199254740993"), json("9007199254740992"));
    assert_ne!(json("0.1000000000000000000001"), json("0.1"));
}

#[test]
fn c068_a_large_body_is_hashed_to_its_end() {
    let mut large = vec![b' '; VALUE_MAX + 1];
    large[0] = b'1';
    let first = digest("application/json", &large);
    *large.last_mut().unwrap() = b'\n';
    assert_ne!(first, digest("application/json", &large));
}

#[test]
fn c073_another_boundary_makes_no_difference_and_another_file_does() {
    let body = |boundary: &str, file: &str| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n{file}\r\n--{boundary}--\r\n"
        )
    };
    let of = |boundary: &str, file: &str| {
        let media = format!("multipart/form-data; boundary={boundary}");
        let body = body(boundary, file);
        let whole = digest(&media, body.as_bytes());
        // Wherever it is cut.
        for at in 0..body.len() {
            let (left, right) = body.as_bytes().split_at(at);
            assert_eq!(pieces(&media, &[left, right]), whole, "cut at {at}");
        }
        whole
    };
    assert_eq!(of("abc", "one"), of("x-1234", "one"));
    assert_ne!(of("abc", "one"), of("abc", "two"));
    // A text that looks like the boundary is a part of its file.
    assert_ne!(of("a", "one\r\n--ab"), of("b", "one\r\n--bb"));
    assert_ne!(of("a", "x--ay"), of("b", "x--by"));
    assert_ne!(
        digest("multipart/mixed; boundary=a", b"x"),
        digest("multipart/mixed; boundary=a", b"y")
    );
}

#[test]
fn c067_no_part_runs_into_the_next() {
    let body = digest("", b"");
    let request = |path, query| {
        let request = Request {
            method: "POST",
            origin: None,
            path,
            query,
            headers: &[],
        };
        request.fingerprint(Extent::Upstream, &body)
    };
    assert_ne!(request("/ab", Some("c")), request("/a", Some("bc")));
    assert_ne!(request("/a", None), request("/a", Some("")));
    assert_eq!(request("/a", Some("b")), request("/a", Some("b")));
}
