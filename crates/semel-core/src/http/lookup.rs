//! Looking up whether an effect happened: a GET, made from the request whose answer was lost.
//!
//! It is fixed when a request is claimed, and kept with the operation as one line:
//!
//! ```text
//! GET https://api.example.com/orders?reference=order-7 found /items/0
//! ```

use core::fmt::Write as _;
use core::time::Duration;

use crate::canonical::{self, Limits};
use crate::found::Found;
use crate::identity::Pointer;

/// How it is looked up whether an effect happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Path and query. `{key}` is the client's key, `{upstream_key}` the one that is forwarded in its place, `{/order/id}`
    /// a member of the request's body in JSON.
    pub path: String,
    /// Where an answer of 2xx shows the effect (see [`Found::of`]); without it 2xx says that it happened.
    pub found: Option<Pointer>,
    /// How long to wait until looking is worth it, once whatever was lost can no longer act.
    pub after: Duration,
}

/// Where to look, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The URL; [`UPSTREAM_KEY`] in it is replaced when it is used.
    pub url: String,
    /// See [`Lookup::found`].
    pub found: Option<Pointer>,
}

/// What stands for the key that is forwarded: it is made when an operation is claimed.
pub const UPSTREAM_KEY: &str = "{upstream_key}";

impl Lookup {
    /// Fills in what a request says; `None` where it does not say all that is needed.
    #[must_use]
    pub fn place(&self, target: &str, key: Option<&str>, body: Option<&[u8]>) -> Option<Place> {
        let mut url = target.trim_end_matches('/').to_owned();
        let mut rest = self.path.as_str();
        while let Some(open) = rest.find('{') {
            let close = open + rest[open..].find('}')?;
            url.push_str(&rest[..open]);
            match &rest[open + 1..close] {
                "key" => escape(&mut url, key?.as_bytes()),
                "upstream_key" => url.push_str(UPSTREAM_KEY),
                pointer => {
                    let canonical = canonical::canonicalize(body?, &Limits::default()).ok()?;
                    let value = Pointer::new(pointer).ok()?.find(&canonical)?.to_vec();
                    escape(&mut url, &text(&value)?);
                }
            }
            rest = &rest[close + 1..];
        }
        url.push_str(rest);
        let found = self.found.clone();
        Some(Place { url, found })
    }
}

impl Place {
    /// Writes it in one line.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.found {
            Some(found) => format!("GET {} found {}", self.url, found.as_str()),
            None => format!("GET {}", self.url),
        }
    }

    /// Reads such a line; `None` for any other text.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("GET ")?;
        let (url, found) = match rest.split_once(" found ") {
            Some((url, found)) => (url, Some(Pointer::new(found).ok()?)),
            None => (rest, None),
        };
        let is_url =
            url.starts_with('/') || url.starts_with("http://") || url.starts_with("https://");
        (is_url && !url.contains(' ')).then(|| Self {
            url: url.to_owned(),
            found,
        })
    }

    /// Says what an answer shows.
    #[must_use]
    pub fn judge(&self, status: u16, body: &[u8]) -> Found {
        match status {
            200..=299 => {}
            404 | 410 => return Found::DidNot,
            _ => return Found::Unclear,
        }
        let Some(found) = &self.found else {
            return Found::Happened;
        };
        // An answer that cannot be read shows nothing, not even that something is missing.
        let Ok(canonical) = canonical::canonicalize(body, &Limits::default()) else {
            return Found::Unclear;
        };
        Found::of(&canonical, found, None)
    }
}

/// Returns the text of a canonical value that can be a part of a URL.
fn text(canonical: &[u8]) -> Option<Vec<u8>> {
    match canonical {
        [b'"', text @ .., b'"'] => {
            // Canonical texts escape little; what has escapes is no name of anything that is looked up.
            (!text.is_empty() && !text.contains(&b'\\')).then(|| text.to_vec())
        }
        [b'{' | b'[' | b'n', ..] | [] => None,
        plain => Some(plain.to_vec()),
    }
}

/// Adds bytes to a URL, none of which means anything there.
fn escape(url: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(path: &str, found: Option<&str>) -> Lookup {
        Lookup {
            path: path.to_owned(),
            found: found.map(|it| Pointer::new(it).unwrap()),
            after: Duration::ZERO,
        }
    }

    #[test]
    fn a_place_is_made_from_the_request() {
        let lookup = lookup(
            "/orders?a={key}&b={/order/id}&c={upstream_key}",
            Some("/items/0"),
        );
        let body = br#"{"order": {"id": "x y/1"}}"#;
        let place = lookup
            .place("https://a.example/", Some("k/1"), Some(body))
            .unwrap();
        assert_eq!(
            place.line(),
            "GET https://a.example/orders?a=k%2F1&b=x%20y%2F1&c={upstream_key} found /items/0"
        );
        assert_eq!(Place::read(&place.line()), Some(place));
    }

    #[test]
    fn what_a_request_does_not_say_is_not_made_up() {
        let body: &[u8] = br#"{"id": null, "list": [], "empty": "", "n": 7}"#;
        for path in ["/{/id}", "/{/list}", "/{/empty}", "/{/none}", "/{open"] {
            assert_eq!(
                lookup(path, None).place("", None, Some(body)),
                None,
                "{path}"
            );
        }
        assert_eq!(lookup("/{key}", None).place("", None, Some(body)), None);
        assert_eq!(lookup("/{/n}", None).place("", None, None), None);
        let place = lookup("/{/n}", None).place("", None, Some(body)).unwrap();
        assert_eq!(place.url, "/7");
        assert_eq!(Place::read("test -e /tmp/x"), None);
    }

    #[test]
    fn c048_an_answer_shows_what_it_shows() {
        let whole = lookup("/", None).place("", None, None).unwrap();
        let member = lookup("/", Some("/items/0")).place("", None, None).unwrap();
        let table: [(&Place, u16, &[u8], Found); 10] = [
            (&whole, 200, b"", Found::Happened),
            (&whole, 404, b"", Found::DidNot),
            (&whole, 410, b"", Found::DidNot),
            (&whole, 401, b"", Found::Unclear),
            (&whole, 503, b"", Found::Unclear),
            (&member, 200, br#"{"items": [{"id": 1}]}"#, Found::Happened),
            (&member, 200, br#"{"items": []}"#, Found::DidNot),
            (&member, 200, br#"{"items": [null]}"#, Found::DidNot),
            (&member, 200, b"<html>", Found::Unclear),
            (&member, 500, br#"{"items": [{"id": 1}]}"#, Found::Unclear),
        ];
        for (place, status, body, found) in table {
            assert_eq!(place.judge(status, body), found, "{status} {body:?}");
        }
    }
}
