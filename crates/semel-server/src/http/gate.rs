//! What every request passes: where it comes from, whose it is, how often it comes.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use semel::core::Digest;
use semel::core::http::Host;
use semel::core::http::site::{Admitted, Foreign, Origin, Provenance, Resource, admit};

use super::{Problem, Server, reference};
use crate::auth::{Caller, bearer, unauthorized};
use crate::config::Config;
use crate::span::{self, Span};
use crate::trace;

/// Lets a request in, if it was meant for this server, and answers in one form.
pub(super) async fn pass(State(server): State<Server>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let trace = trace::of(request.headers());
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let (mut response, about) = span::watched(answer(&server, request, next)).await;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        // The router says which methods there are, in a header that it adds last.
        response = Problem::method().into_response();
    }
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("traceparent"), trace::header(trace));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if is_page(headers) {
        for (name, value) in PAGE_HEADERS.iter() {
            headers.insert(name, value.clone());
        }
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    server.counts().answered(path, status, took);
    let span = || Span {
        trace,
        method: method.clone(),
        route: path.to_owned(),
        status,
        ended: server.engine().store().reading().wall,
        took,
        about,
    };
    server.exporter().add(span, trace);
    let id = format_args!("{:032x}", trace.id());
    if status >= 500 {
        tracing::warn!(%method, path, status, took_ms = took.as_millis(), trace = %id, "answered");
    } else {
        tracing::debug!(%method, path, status, took_ms = took.as_millis(), trace = %id, "answered");
    }
    response
}

/// Says whether a browser shows an answer as a page.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

/// What every page says to the browser: it has no scripts, loads nothing, sends no forms, is in no frame, and tells the
/// next page nothing. Its one style is known by its hash.
static PAGE_HEADERS: LazyLock<[(HeaderName, HeaderValue); 3]> = LazyLock::new(|| {
    let style = BASE64_STANDARD.encode(Digest::of(reference::STYLE.as_bytes()).0);
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("it is ASCII");
    [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ]
});

async fn answer(server: &Server, request: Request, next: Next) -> Response {
    let meant = framed_clearly(request.headers())
        .and_then(|()| readable(request.uri()))
        .and_then(|()| {
            let resource = resource(request.extensions().get::<MatchedPath>());
            let head = (request.method(), request.uri(), request.headers());
            meant_for_us(server.config(), head, resource)
        });
    match meant {
        // What needs no token must not depend on one: browsers ask without it what they may ask.
        Ok(Some(origin)) if is_preflight(&request) => permitted(&origin),
        Ok(origin) => {
            let mut response = next.run(request).await;
            if let Some(origin) = origin {
                share(&mut response, &origin);
            }
            response
        }
        Err(problem) => {
            // Nobody wants the rest, whatever it is.
            let mut response = problem.into_response();
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        }
    }
}

/// Says what is asked for: the pages for people are the same for everybody, and links lead to them.
fn resource(path: Option<&MatchedPath>) -> Resource {
    match path.map(MatchedPath::as_str) {
        Some("/docs" | "/errors/{code}") => Resource::Page,
        Some(_) | None => Resource::Call,
    }
}

/// Refuses a request that others could read differently: with codings that this server does not undo, or for
/// two hosts. The connection is closed then, as what follows on it may be anything.
pub(crate) fn framed_clearly(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let is_plain = codings
        .next()
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_plain || codings.next().is_some() {
        let text = "a body may be sent with a Content-Length or in chunks, and in no other coding";
        return Err(Problem::input(text));
    }
    if headers.get_all(header::HOST).into_iter().nth(1).is_some() {
        return Err(Problem::input("there is more than one Host header"));
    }
    if let Some(name) = headers.keys().find(|name| folds_into_framing(name)) {
        let text = format!("the header `{name}` becomes a framing header where `_` is read as `-`");
        return Err(Problem::input(text).hint("send the name with a hyphen, or not at all"));
    }
    Ok(())
}

/// Says whether a server that reads `_` as `-` (CGI, WSGI) takes this name for a header that frames the body.
fn folds_into_framing(name: &HeaderName) -> bool {
    let name = name.as_str();
    let folded = name.contains('_').then(|| name.replace('_', "-"));
    folded.is_some_and(|name| name == "transfer-encoding" || name == "content-length")
}

/// Refuses a path that nobody can name anything by.
fn readable(uri: &Uri) -> Result<(), Problem> {
    let decoded = percent_decode_str(uri.path()).decode_utf8();
    let decoded = decoded.map(drop);
    decoded.map_err(|_| Problem::input("the path is not UTF-8, percent-encoded or not"))
}

/// Refuses what a browser sends for a page of another site: the page may be on a name that leads here (DNS rebinding), or
/// elsewhere (another origin).
/// Returns the trusted origin whose page asks, if one does.
pub(crate) fn meant_for_us(
    config: &Config,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    resource: Resource,
) -> Result<Option<HeaderValue>, Problem> {
    let host = only_text(headers, &header::HOST);
    let host = read_host(host.unwrap_or_default())?;
    // A target in the absolute form names a host, too, which goes before the header (RFC 9112).
    let target = uri.authority().map(|authority| authority.as_str());
    let target = target.map(read_host).transpose()?;
    let is_accepted = |host: &Host| config.accepts_host(host);
    if !is_accepted(&host) || !target.iter().all(is_accepted) {
        let text = "the request does not name this server as its host";
        let hint = "add the name to `serve.hosts` if callers know the server by it";
        return Err(Problem::new("forbidden", text).hint(hint));
    }
    let own = Origin::of(config.scheme(), target.as_ref().unwrap_or(&host));
    let said = Provenance {
        method: method.as_str(),
        origin: only_text(headers, &header::ORIGIN),
        site: only_text(headers, &SEC_FETCH_SITE),
        mode: only_text(headers, &SEC_FETCH_MODE),
        destination: only_text(headers, &SEC_FETCH_DEST),
    };
    match admit(&said, resource, &own, &config.origins) {
        Ok(Admitted::Own) => Ok(None),
        Ok(Admitted::Trusted) => Ok(headers.get(header::ORIGIN).cloned()),
        Err(foreign) => {
            let text = match foreign {
                Foreign::Origin => "pages of this origin may not call this server",
                Foreign::Site => "pages of another site may not call this server",
            };
            let hint = "add the origin to `serve.origins` if its pages are trusted";
            Err(Problem::new("forbidden", text).hint(hint))
        }
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns the text of a header; an empty one where it is there twice, or is no text.
fn only_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next()?;
    match lines.next() {
        None => Some(line.to_str().unwrap_or_default()),
        Some(_) => Some(""),
    }
}

/// Reads for which host a request is.
pub(crate) fn read_host(text: &str) -> Result<Host, Problem> {
    Host::parse(text).map_err(|error| Problem::input(format!("the request's host: {error}")))
}

/// Says whether a browser asks what a page may ask.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Tells a browser what pages of a trusted origin may ask.
fn permitted(origin: &HeaderValue) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    share(&mut response, origin);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id, prefer, traceparent",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets pages of a trusted origin read an answer.
fn share(response: &mut Response, origin: &HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let shown = HeaderValue::from_static("retry-after, traceparent, preference-applied");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
}

/// Finds out whose a request is.
pub(super) async fn authenticate(
    State(server): State<Server>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&server, request.headers()).await {
        Ok(caller) => {
            request.extensions_mut().insert(Arc::new(caller));
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn caller(server: &Server, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = match bearer(headers)? {
        Some(token) => {
            let deadline = server.limits().deadline;
            let admitted = server
                .tokens()
                .admit(server.engine(), token, deadline)
                .await;
            Caller::of(&admitted.inspect_err(|problem| {
                if problem.code() == "unauthorized" {
                    server.counts().refused_token();
                }
            })?)
        }
        None if server.config().needs_token() => return Err(unauthorized()),
        None => Caller::anonymous(server.engine().namespace()),
    };
    server.rates().take(caller.principal.as_ref())?;
    Ok(caller)
}
