//! What a request says to whom it goes, and what HTTP needs of it.

use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use hyper::body::Body as _;
use semel::http::{Body, named_by_connection};

use crate::outbound::Url;

/// Headers that are about one connection only (RFC 9110), and those that this side writes itself.
const OWN: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    // The body is complete by now: nobody waits to be told to go on.
    header::EXPECT,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The server to whom requests go.
#[derive(Debug)]
pub(super) struct Target {
    scheme: Scheme,
    authority: Authority,
    /// Goes before every path; it does not end in a slash.
    base: String,
    preserve_host: bool,
}

/// Where one request goes.
#[derive(Debug)]
pub(super) struct Address {
    scheme: Scheme,
    authority: Authority,
    path: PathAndQuery,
}

impl Target {
    pub(super) fn new(url: &Url, preserve_host: bool) -> Result<Self, String> {
        if url.path().contains('?') {
            return Err("an address with a query cannot go before other paths".to_owned());
        }
        let authority = Authority::try_from(url.host()).map_err(|error| error.to_string())?;
        let scheme = if url.is_encrypted() {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        Ok(Self {
            scheme,
            authority,
            base: url.path().trim_end_matches('/').to_owned(),
            preserve_host,
        })
    }

    /// Takes from a request what is not for the other end, and says where it goes.
    pub(super) fn address(&self, request: &mut Request<Body>) -> Result<Address, String> {
        if request.method() == Method::CONNECT {
            return Err("CONNECT is not passed on".to_owned());
        }
        let authority = match asked_for(request).filter(|_| self.preserve_host) {
            Some(host) => host.map_err(|error| format!("its Host is none: {error}"))?,
            None => self.authority.clone(),
        };
        let path = request.uri().path_and_query();
        let path = match path.map_or("/", PathAndQuery::as_str) {
            // What is asked of a whole server has no path.
            "*" => PathAndQuery::from_static("*"),
            path => PathAndQuery::try_from(format!("{}{path}", self.base))
                .map_err(|error| format!("its path is none: {error}"))?,
        };
        // What another connection hung on it says nothing on this one.
        request.extensions_mut().clear();
        let length = request.headers().contains_key(header::CONTENT_LENGTH);
        let has_meaning = [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
        let is_empty = request.body().is_end_stream();
        strip(request.headers_mut());
        if is_empty && (length || has_meaning) {
            // Some servers refuse a request that could have a body and does not say that it has none.
            let none = HeaderValue::from_static("0");
            request.headers_mut().insert(header::CONTENT_LENGTH, none);
        }
        Ok(Address {
            scheme: self.scheme.clone(),
            authority,
            path,
        })
    }
}

/// Returns the host that a request is for, as its sender said it.
fn asked_for(request: &Request<Body>) -> Option<Result<Authority, axum::http::uri::InvalidUri>> {
    let said = request.headers().get(header::HOST);
    said.map(|host| Authority::try_from(host.as_bytes()))
        .or_else(|| request.uri().authority().cloned().map(Ok))
}

/// Removes what is about one connection. `TE: trailers` stays: HTTP/2 knows no other, and HTTP/1.1 loses it later.
fn strip(headers: &mut HeaderMap) {
    let mut named = named_by_connection(headers);
    named.retain(|name| name != header::TE);
    for name in OWN.iter().chain(&named) {
        headers.remove(name);
    }
    let wants_trailers = headers.get_all(header::TE).iter().any(|value| {
        let words = value.to_str().unwrap_or_default().split(',');
        words
            .map(str::trim)
            .any(|word| word.eq_ignore_ascii_case("trailers"))
    });
    headers.remove(header::TE);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

impl Address {
    /// Writes it the way HTTP/1.1 does.
    pub(super) fn write_http1(&self, request: &mut Request<Body>) -> Result<(), String> {
        let host = HeaderValue::try_from(self.authority.as_str());
        let host = host.map_err(|error| error.to_string())?;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = Uri::from(self.path.clone());
        let is_chunked =
            !request.body().is_end_stream() && request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        headers.insert(header::HOST, host);
        headers.remove(header::TE);
        if is_chunked {
            // A GET would lose such a body without it.
            let chunked = HeaderValue::from_static("chunked");
            headers.insert(header::TRANSFER_ENCODING, chunked);
        }
        Ok(())
    }

    /// Writes it the way HTTP/2 does; undoes what HTTP/1.1 wrote.
    pub(super) fn write_http2(&self, request: &mut Request<Body>) -> Result<(), String> {
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(self.path.clone())
            .build()
            .map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.remove(header::HOST);
        headers.remove(header::TRANSFER_ENCODING);
        Ok(())
    }
}
