//! What of a message's head is meant for the other end.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use semel::http::named_by_connection;

/// Headers that are about one connection, named by `Connection` or not (RFC 9110, section 7.6.1).
const OF_CONNECTIONS: [HeaderName; 8] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Takes away what is about one connection only. That trailers are understood may be said to the next one, too.
pub(super) fn without_hops(headers: &mut HeaderMap) {
    let takes_trailers = headers
        .get_all(header::TE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"));
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in OF_CONNECTIONS {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// What a page is asking its browser for, as far as it matters here.
#[derive(Debug)]
pub(super) struct Preflight {
    /// The headers that it wants to send.
    wanted: Vec<HeaderName>,
}

impl Preflight {
    /// Reads what a browser asks before it sends a page's request.
    pub(super) fn of(method: &Method, headers: &HeaderMap) -> Option<Self> {
        let is_one = method == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        is_one.then(|| Self {
            wanted: listed(headers, header::ACCESS_CONTROL_REQUEST_HEADERS),
        })
    }
}

/// Lets pages that may read an answer read what is said here, and send keys, where the upstream says that they may
/// call at all.
pub(super) fn share(
    headers: &mut HeaderMap,
    preflight: Option<&Preflight>,
    keys: &[HeaderName],
    shown: &[HeaderName],
) {
    if !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    match preflight {
        Some(preflight) => {
            let wanted = keys.iter().filter(|key| preflight.wanted.contains(key));
            add(headers, header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        }
        None => add(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, shown.iter()),
    }
}

/// Adds to a list of headers what is not in it.
fn add<'a>(headers: &mut HeaderMap, list: HeaderName, names: impl Iterator<Item = &'a HeaderName>) {
    let listed = listed(headers, list.clone());
    let missing: Vec<&str> = names
        .filter(|name| !listed.contains(name))
        .map(HeaderName::as_str)
        .collect();
    if let Ok(missing) = HeaderValue::try_from(missing.join(", "))
        && !missing.is_empty()
    {
        headers.append(list, missing);
    }
}

fn listed(headers: &HeaderMap, list: HeaderName) -> Vec<HeaderName> {
    let lines = headers.get_all(list).into_iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn c061_what_is_about_one_connection_stays_there() {
        let mut all = headers(&[
            ("connection", "close, X-Private"),
            ("connection", "x-other"),
            ("x-private", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("x-kept", "3"),
            ("trailer", "x-sum"),
            ("content-length", "7"),
        ]);
        without_hops(&mut all);
        let kept = headers(&[
            ("x-kept", "3"),
            ("trailer", "x-sum"),
            ("content-length", "7"),
        ]);
        assert_eq!(all, kept);
    }

    #[test]
    fn c061_that_trailers_are_understood_goes_on() {
        let mut all = headers(&[("te", "gzip;q=0.5, Trailers"), ("connection", "te")]);
        without_hops(&mut all);
        assert_eq!(all, headers(&[("te", "trailers")]));
    }

    #[test]
    fn pages_may_read_what_is_said_here_where_they_may_call() {
        let replayed = [HeaderName::from_static("idempotent-replayed")];
        let keys = [HeaderName::from_static("idempotency-key")];
        let mut without = headers(&[("x", "1")]);
        share(&mut without, None, &keys, &replayed);
        assert_eq!(without, headers(&[("x", "1")]));
        let mut with = headers(&[
            ("access-control-allow-origin", "https://a.example"),
            ("access-control-expose-headers", "x-request-id"),
        ]);
        share(&mut with, None, &keys, &replayed);
        let exposed: Vec<_> = with
            .get_all("access-control-expose-headers")
            .iter()
            .collect();
        assert_eq!(exposed, ["x-request-id", "idempotent-replayed"]);
        let before = with.clone();
        share(&mut with, None, &keys, &replayed);
        assert_eq!(with, before, "once is enough");
    }

    #[test]
    fn a_preflight_is_told_that_a_key_may_be_sent() {
        let keys = [HeaderName::from_static("idempotency-key")];
        let asked = headers(&[
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "content-type, idempotency-key",
            ),
        ]);
        assert!(Preflight::of(&Method::POST, &asked).is_none());
        let preflight = Preflight::of(&Method::OPTIONS, &asked).expect("it is one");
        let mut told = headers(&[
            ("access-control-allow-origin", "*"),
            ("access-control-allow-headers", "content-type"),
        ]);
        share(&mut told, Some(&preflight), &keys, &[]);
        let allowed: Vec<_> = told
            .get_all("access-control-allow-headers")
            .iter()
            .collect();
        assert_eq!(allowed, ["content-type", "idempotency-key"]);
        let unasked = headers(&[("access-control-request-method", "POST")]);
        let preflight = Preflight::of(&Method::OPTIONS, &unasked).expect("it is one");
        let mut told = headers(&[("access-control-allow-origin", "*")]);
        share(&mut told, Some(&preflight), &keys, &[]);
        assert!(!told.contains_key("access-control-allow-headers"));
    }
}
