//! How an answer is stored: a line with its status and headers, then its body as it came (see
//! [`answer_view`](crate::answer_view)).
//!
//! The body follows as it is, so that it can be stored while it arrives, and comes out byte for byte. One that was
//! recorded with its pace is made of pieces, each after a line with the milliseconds since the one before it and its
//! length; of one that was too long, only the head is kept.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use semel_core::http::coding::accepts;

pub(crate) use crate::answer_view::Form;
use crate::answer_view::{self, Line};

/// The head of an answer, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) form: Form,
    /// Whether the upstream coded it in a way that nobody asked for: then everybody gets it so.
    pub(crate) is_forced: bool,
}

/// Headers that belong to one connection, to one reading of a clock, or to the one who asked first.
const LEFT_OUT: [HeaderName; 17] = [
    header::AGE,
    header::ALT_SVC,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::SERVER,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

impl Head {
    /// Keeps what may be told to whoever asks again.
    pub(crate) fn kept(status: StatusCode, headers: &HeaderMap) -> Self {
        let named = named_by_connection(headers);
        let kept = headers.iter().filter(|(name, _)| {
            let name = *name;
            !LEFT_OUT.contains(name)
                && !name.as_str().starts_with("proxy-")
                && !named.contains(name)
        });
        Self {
            status,
            headers: kept
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            form: Form::Plain,
            is_forced: false,
        }
    }

    /// Takes note of which codings the one accepted who asked first.
    pub(crate) fn asked_with(mut self, accepted: &[HeaderValue]) -> Self {
        self.is_forced = self.refused_by(accepted).is_some();
        self
    }

    /// Returns the coding that a request with these lines of `Accept-Encoding` cannot read.
    pub(crate) fn refused_by(&self, accepted: &[HeaderValue]) -> Option<String> {
        let coded = self.headers.get_all(header::CONTENT_ENCODING);
        let lines = accepted.iter().map(HeaderValue::as_bytes);
        if self.is_forced || accepts(lines, coded.iter().map(HeaderValue::as_bytes)) {
            return None;
        }
        let coded = coded
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()));
        Some(coded.collect::<Vec<_>>().join(", "))
    }

    /// Says how the body is stored.
    pub(crate) fn with(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Writes it as the line before the body.
    pub(crate) fn line(&self) -> Vec<u8> {
        let headers = self.headers.iter();
        let written = Line {
            status: self.status.as_u16(),
            // Any bytes are a text of as many characters.
            headers: headers
                .map(|(name, value)| {
                    let value = value.as_bytes().iter().map(|byte| char::from(*byte));
                    (name.as_str().to_owned(), value.collect())
                })
                .collect(),
            body: self.form,
            forced: self.is_forced,
        };
        let mut line = serde_json::to_vec(&written).expect("numbers and texts are JSON");
        line.push(b'\n');
        line
    }

    /// Reads what was stored: the head, and where the body begins.
    pub(crate) fn read(stored: &[u8]) -> Option<(Self, usize)> {
        let (written, start) = Line::read(stored)?;
        let headers = written.headers.into_iter().map(|(name, value)| {
            let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(c).ok()).collect();
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(&bytes?).ok()?))
        });
        let head = Self {
            status: StatusCode::from_u16(written.status).ok()?,
            headers: headers.collect::<Option<_>>()?,
            form: written.body,
            is_forced: written.forced,
        };
        Some((head, start))
    }
}

impl Head {
    /// Returns a body as it came, from what is stored of it behind the head; `None` where it is not kept or not whole.
    pub(crate) fn body<'a>(&self, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        answer_view::body_of(self.form, stored)
    }
}

/// A piece of a body that was recorded with its pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// How long after the one before it came.
    pub(crate) after: Duration,
    pub(crate) bytes: Bytes,
}

impl Piece {
    /// Writes what stands before the bytes of a piece.
    pub(crate) fn line(after: Duration, length: usize) -> String {
        format!("{} {length}\n", after.as_millis())
    }

    /// Reads all pieces of a body; `None` where they are not whole.
    pub(crate) fn read_all(stored: &Bytes) -> Option<Vec<Self>> {
        let pieces = answer_view::pieces(stored)?.into_iter();
        let pieces = pieces.map(|(after, place)| Self {
            after,
            bytes: stored.slice(place),
        });
        Some(pieces.collect())
    }
}

/// Returns the headers that `Connection` names: they are for the next hop alone.
#[must_use]
pub fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter();
    let words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words
        .filter_map(|word| HeaderName::from_bytes(word.trim().as_bytes()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c063_repeated_headers_and_odd_bytes_survive() {
        let mut headers = HeaderMap::new();
        headers.append(header::LINK, HeaderValue::from_static("<a>; rel=x"));
        headers.append(header::LINK, HeaderValue::from_static("<b>; rel=y"));
        headers.insert("x-odd", HeaderValue::from_bytes(b"caf\xe9 \xff").unwrap());
        let head = Head::kept(StatusCode::CREATED, &headers);
        let mut stored = head.line();
        stored.extend_from_slice(b"body\nwith a line");
        let (read, body) = Head::read(&stored).unwrap();
        assert_eq!(read, head);
        assert_eq!(read.headers.get_all(header::LINK).iter().count(), 2);
        assert_eq!(&stored[body..], b"body\nwith a line");
    }

    #[test]
    fn what_was_recorded_with_its_pace_is_read_with_it() {
        let pieces = [(0, "one\n"), (250, ""), (7, "3 4\n")];
        let mut stored = Vec::new();
        for (after, bytes) in pieces {
            let line = Piece::line(Duration::from_millis(after), bytes.len());
            stored.extend_from_slice(line.as_bytes());
            stored.extend_from_slice(bytes.as_bytes());
        }
        let read = Piece::read_all(&stored.clone().into()).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|piece| (piece.after.as_millis(), &piece.bytes[..]))
            .collect();
        assert_eq!(
            read,
            pieces.map(|(after, bytes)| (after.into(), bytes.as_bytes()))
        );
        stored.pop();
        assert_eq!(Piece::read_all(&stored.into()), None);
    }

    #[test]
    fn c060_c061_c062_what_is_not_for_everybody_is_left_out() {
        let mut headers = HeaderMap::new();
        for name in [
            "set-cookie",
            "www-authenticate",
            "proxy-authenticate",
            "proxy-anything",
            "authorization",
            "date",
            "age",
            "server",
            "alt-svc",
            "content-length",
            "transfer-encoding",
            "keep-alive",
            "x-hop",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("close, X-Hop"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let kept = Head::kept(StatusCode::OK, &headers);
        let names: Vec<_> = kept.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type"]);
    }
}
