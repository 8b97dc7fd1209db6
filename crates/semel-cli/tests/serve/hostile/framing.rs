//! Requests whose end nobody can agree on: whoever stands in front of the server may see another request than
//! the server does, so none of them is carried out, and the connection is over.

use crate::harness::World;
use crate::http::{Connection, was_cut};
use crate::server::Server;

use super::{begin, beside_a_good_client, nothing_happened};

/// A request by its head (without the empty line) and what follows; `KEY` stands for a key of its own.
struct Case {
    name: &'static str,
    head: &'static str,
    rest: &'static str,
}

const fn case(name: &'static str, head: &'static str, rest: &'static str) -> Case {
    Case { name, head, rest }
}

/// `BODY` is a begin of `KEY`, `CHUNK` the same as a chunk, `LENGTH` the body's length, `NEXT` a whole
/// request that begins `KEY`, too.
const CASES: &[Case] = &[
    case(
        "two lengths",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\nContent-Length: 0",
        "BODY",
    ),
    case(
        "two lengths, the first of nothing",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a list of lengths",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH, 0",
        "BODY",
    ),
    case(
        "a length with a sign",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: +LENGTH",
        "BODY",
    ),
    case(
        "a negative length",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1",
        "BODY",
    ),
    case(
        "a hexadecimal length",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0x10",
        "BODY",
    ),
    case(
        "a length beyond every number",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999999999",
        "BODY",
    ),
    case(
        "a length of no number",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ",
        "BODY",
    ),
    case(
        "an unknown coding",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: xchunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "chunks that are not the last coding",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked, identity",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "chunks in another coding",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip, chunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "chunks in chunks",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "a coding hidden by a control character",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: \x0bchunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "a header that goes on in the next line",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Note: a\r\n b\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a first header that is indented",
        "POST /v1/begin HTTP/1.1\r\n X-Note: a\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a space before the colon",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length : LENGTH",
        "BODY",
    ),
    case(
        "a header without a colon",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length LENGTH",
        "BODY",
    ),
    case(
        "a header without a name",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n: a\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "NUL in a header",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Note: a\0b\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a lonely CR in a header",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Note: a\rb\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a chunk of no number",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "g\r\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "a negative chunk",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "-1\r\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "a chunk beyond every number",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "fffffffffffffffff\r\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "a chunk that is longer than it says",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "2\r\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "a chunk's size that ends with LF",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "SIZE\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "an extension of a chunk with LF in it",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "SIZE;a\nb\r\nBODY\r\n0\r\n\r\n",
    ),
    case(
        "chunks in HTTP/1.0",
        "POST /v1/begin HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "another version",
        "POST /v1/begin HTTP/1.2\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "no version",
        "POST /v1/begin\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a version of another protocol",
        "POST /v1/begin ICE/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case("HTTP/2 without asking", "PRI * HTTP/2.0", "SM\r\n\r\n"),
    case(
        "a space in the target",
        "POST /v1/begin extra HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "NUL in the target",
        "POST /v1/begin\0 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "a method of no letters",
        "PO(ST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "the greeting of TLS",
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
        "",
    ),
];

/// What RFC 9112 lets a server read in one way: chunks before a length, and LF as the end of a line. Then nothing
/// after it is read, or it is the next request as everybody sees it.
const TOLERABLE: &[Case] = &[
    case(
        "both lengths and chunks",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\nTransfer-Encoding: chunked",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "chunks before a length",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: LENGTH",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "a request hidden behind an early end of chunks",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        "0\r\n\r\nNEXT",
    ),
    case(
        "a request hidden behind a length of nothing",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: 0",
        "CHUNK0\r\n\r\n",
    ),
    case(
        "lines that end with LF",
        "POST /v1/begin HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: LENGTH",
        "BODY",
    ),
    case(
        "one line that ends with LF",
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Note: a\nContent-Length: LENGTH",
        "BODY",
    ),
];

impl Case {
    fn bytes(&self, key: &str) -> Vec<u8> {
        let body = begin(key);
        let size = format!("{:x}", body.len());
        let next = format!(
            "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let fill = |text: &str| {
            text.replace("CHUNK", "SIZE\r\nBODY\r\n")
                .replace("NEXT", &next)
                .replace("LENGTH", &body.len().to_string())
                .replace("SIZE", &size)
                .replace("BODY", &body)
        };
        let lines = if self.head.contains("\r\n") || !self.head.contains('\n') {
            "\r\n\r\n"
        } else {
            "\n\n"
        };
        format!("{}{lines}{}", fill(self.head), fill(self.rest)).into_bytes()
    }
}

#[test]
fn what_is_not_framed_clearly_is_refused_and_ends_the_connection() {
    let world = World::new();
    let server = Server::start(&world);
    let broken = beside_a_good_client(&server, |others| {
        let mut broken = vec![];
        for (number, case) in CASES.iter().enumerate() {
            let key = format!("evil-{number}");
            if let Err(what) = refused(&server, &case.bytes(&key)) {
                broken.push(format!("{}: {what}", case.name));
            }
            if server.get(&format!("/v1/operations/{key}")).status != 404 {
                broken.push(format!("{}: it was carried out", case.name));
            }
        }
        others.is_served();
        broken
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What may be read in one way is refused, or read in that way; a request that hides in it is never seen.
#[test]
fn what_may_be_read_in_one_way_hides_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    for (number, case) in TOLERABLE.iter().enumerate() {
        let key = format!("evil-{number}");
        let mut connection = server.connect();
        connection.send(&case.bytes(&key)).expect("it is sent");
        let answer = connection.answer().expect("it is answered");
        assert!(
            matches!(answer.status, 200 | 400),
            "{}: {answer:?}",
            case.name
        );
        connection
            .closed()
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let stored = server.get(&format!("/v1/operations/{key}")).status;
        let expected = if answer.status == 200 { 200 } else { 404 };
        assert_eq!(stored, expected, "{}: {answer:?}", case.name);
    }
}

/// Expects a refusal and the end of the connection.
fn refused(server: &Server, bytes: &[u8]) -> Result<(), String> {
    let mut connection = server.connect();
    // The server may have hung up before all is sent; what it said is still there.
    let _sent = connection.send(bytes);
    let answer = match connection.answer() {
        // Who speaks another protocol altogether may be left without a word.
        Err(error) if was_cut(&error) => return Ok(()),
        answer => answer.map_err(|error| error.to_string())?,
    };
    if !(400..500).contains(&answer.status) && answer.status != 505 {
        return Err(format!("it was answered: {answer:?}"));
    }
    connection
        .closed()
        .map_err(|error| format!("after {}: {error}", answer.status))
}

#[test]
fn two_equal_lengths_are_one_or_none_and_hide_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    let body = begin("twice");
    let length = body.len();
    let bytes = format!(
        "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nContent-Length: {length}\r\n\r\n{body}GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    let mut connection = server.connect();
    connection.send(bytes.as_bytes()).expect("it is sent");
    let answer = connection.answer().expect("it is answered");
    if answer.status == 200 {
        assert_eq!(answer.json()["decision"], "execute", "{answer:?}");
        // What comes after it is the next request, and nothing else.
        assert_eq!(connection.answer().expect("it is answered").status, 200);
    } else {
        assert_eq!(answer.status, 400, "{answer:?}");
        nothing_happened(&server, "twice");
    }
    connection.closed().expect("it is over");
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let world = World::new();
    let server = Server::start(&world);
    let mut connection = server.connect();
    let mut bytes = vec![];
    for number in 0..20 {
        let body = format!(r#"{{"key":"row-{number}","name":"n"}}"#);
        let head =
            "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        // Lengths and chunks take turns.
        let request = if number % 2 == 0 {
            format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
        } else {
            let (first, second) = body.split_at(7);
            let chunk = |part: &str| format!("{:X};x=y\r\n{part}\r\n", part.len());
            let (first, second) = (chunk(first), chunk(second));
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{first}{second}0\r\nX-Trailer: t\r\n\r\n"
            )
        };
        bytes.extend(request.as_bytes());
    }
    connection.send(&bytes).expect("they are sent");
    for number in 0..20 {
        let answer = in_order(&mut connection);
        assert_eq!(answer["key"], format!("row-{number}"), "{answer}");
    }
}

fn in_order(connection: &mut Connection) -> serde_json::Value {
    connection.answer().expect("it is answered").expect(200)
}

/// Targets that lead nowhere: a refusal, and nothing is carried out.
#[test]
fn strange_targets_lead_nowhere() {
    let world = World::new();
    let server = Server::start(&world);
    let body = begin("evil");
    for target in [
        "http://evil.example/v1/begin",
        "//evil.example/v1/begin",
        "//v1/begin",
        "/v1//begin",
        "/v1/./begin",
        "/v1/../v1/begin",
        "/v1/x/../begin",
        "/v1%2Fbegin",
        "/v1/%62egin%00",
        "/v1/begin/",
        "/V1/BEGIN",
        "/v1/begin%20",
        "/v1/begin;a=b",
        "/v1/begin/evil",
        "/",
        "*",
        "v1/begin",
        "localhost:80",
        "http://",
        "file:///v1/begin",
        "?",
        "/\u{fc}",
    ] {
        let bytes = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        refused(&server, bytes.as_bytes()).unwrap_or_else(|what| panic!("{target}: {what}"));
        nothing_happened(&server, "evil");
    }
    // Methods that are none of the API's.
    for method in [
        "CONNECT", "TRACE", "OPTIONS", "PUT", "DELETE", "PATCH", "begin", "GET",
    ] {
        let target = if method == "CONNECT" {
            "localhost:80"
        } else {
            "/v1/begin"
        };
        let bytes = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        refused(&server, bytes.as_bytes()).unwrap_or_else(|what| panic!("{method}: {what}"));
        nothing_happened(&server, "evil");
    }
    // The absolute form is as good as the other where it names this server.
    let mut connection = server.connect();
    let bytes = "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.send(bytes.as_bytes()).expect("it is sent");
    assert_eq!(connection.answer().expect("it is answered").status, 200);
}
