//! Looking up whether an effect happened: a GET, made from the request whose answer was lost.
//!
//! A place is one line:
//!
//! ```text
//! GET https://api.example.com/orders?reference=order-7 found /items/0
//! ```
//!
//! The operation keeps its digest, never the line: a URL from a record would let the writer of the record choose where
//! the credentials of an operator go. The place is made anew from the settings of the process that looks up, and the
//! digest tells whether it is the one that the request was claimed with.

use core::fmt::Write as _;
use core::time::Duration;

use crate::canonical::{self, Limits};
use crate::digest::Digest;
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

/// Why the look-up of an operation cannot be made from some settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// No route has a look-up.
    NoLookup,
    /// No route leads to the recorded place.
    OtherPlace,
    /// No route leads there with what the operation knows; some take members of the request's body, which is not kept.
    NeedsBody,
}

/// Finds the place with this digest among routes, each an upstream and its look-up. `key` is the client's key.
///
/// # Errors
/// Says why none of them leads there.
pub fn find_place<'a>(
    routes: impl Iterator<Item = (&'a str, &'a Lookup)>,
    key: Option<&str>,
    recorded: &Digest,
) -> Result<Place, PlaceError> {
    let mut missing = PlaceError::NoLookup;
    for (target, lookup) in routes {
        match lookup.place(target, key, None) {
            Some(place) if place.digest() == *recorded => return Ok(place),
            None if lookup.needs_body() => missing = PlaceError::NeedsBody,
            Some(_) | None if missing == PlaceError::NoLookup => missing = PlaceError::OtherPlace,
            Some(_) | None => {}
        }
    }
    Err(missing)
}

impl Lookup {
    /// Says whether the path has members of the request's body in it.
    fn needs_body(&self) -> bool {
        self.path.contains("{/")
    }

    /// Fills in what a request says; `None` where it does not say all that is needed.
    #[must_use]
    pub fn place(&self, target: &str, key: Option<&str>, body: Option<&[u8]>) -> Option<Place> {
        let mut url = target.trim_end_matches('/').to_owned();
        let mut rest = self.path.as_str();
        while let Some(open) = rest.find('{') {
            let close = open + rest[open..].find('}')?;
            url.push_str(&rest[..open]);
            match &rest[open + 1..close] {
                "key" => fill(&mut url, key?.as_bytes())?,
                "upstream_key" => url.push_str(UPSTREAM_KEY),
                pointer => {
                    let canonical = canonical::canonicalize(body?, &Limits::default()).ok()?;
                    let value = Pointer::new(pointer).ok()?.find(&canonical)?.to_vec();
                    fill(&mut url, &text(&value)?)?;
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

    /// Returns the SHA-256 of that line, which an operation keeps.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.line().as_bytes())
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

/// Adds a value to a URL, escaped: it fills its hole and changes nothing around it. `None` for `.` and `..`, which
/// lead to other paths however they are escaped.
fn fill(url: &mut String, value: &[u8]) -> Option<()> {
    if matches!(value, b"." | b"..") {
        return None;
    }
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    Some(())
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
        assert_eq!(place.digest(), Digest::of(place.line().as_bytes()));
    }

    #[test]
    fn place_is_found_only_among_own_routes() {
        let (orders, mail) = (lookup("/orders/{key}", None), lookup("/mail?k={key}", None));
        let body = lookup("/charges/{/id}", Some("/paid"));
        let routes = [
            ("https://a.example", &orders),
            ("https://b.example/", &mail),
            ("https://c.example", &body),
        ];
        let find = |routes: &[(&'static str, &Lookup)], line: &str, key: Option<&str>| {
            let digest = Digest::of(line.as_bytes());
            find_place(routes.iter().copied(), key, &digest).map(|place| place.line())
        };
        let k = Some("k/1");
        let table = [
            ("GET https://a.example/orders/k%2F1", k, true),
            ("GET https://b.example/mail?k=k%2F1", k, true),
            // Forged: another host, another key than the operation's, more than a hole takes, a member of the body.
            ("GET https://evil.example/orders/k%2F1", k, false),
            ("GET https://a.example/orders/other", k, false),
            ("GET https://a.example/orders/k/1", k, false),
            ("GET https://a.example/orders/k%2F1 found /x", k, false),
            ("GET https://c.example/charges/7 found /paid", k, false),
            ("GET https://a.example/orders/k%2F1", None, false),
            ("GET https://a.example/orders/..", Some(".."), false),
            ("GET https://a.example/orders/.", Some("."), false),
        ];
        for (line, key, is_found) in table {
            let expected = if is_found {
                Ok(line.to_owned())
            } else {
                Err(PlaceError::NeedsBody)
            };
            assert_eq!(find(&routes, line, key), expected, "{line} {key:?}");
        }
        let line = "GET https://evil.example/orders/k%2F1";
        assert_eq!(find(&[], line, k), Err(PlaceError::NoLookup));
        assert_eq!(find(&routes[..2], line, k), Err(PlaceError::OtherPlace));
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
