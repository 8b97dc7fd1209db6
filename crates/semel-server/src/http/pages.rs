//! What people read: the API's description, its reference, and a page for each code.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder};

use super::{Problem, Server, reference, schema};

/// Describes the API as a whole; the handlers describe themselves.
pub(super) fn openapi() -> OpenApi {
    let about = "The ledger of Semel over HTTP. Every call that changes something may be sent again when its \
                 reply was lost: it does no more than once, but for the lease of tasks, which takes others then. \
                 `x-semel-class` says of each call whether it is `safe` (it only reads), `idempotent` or `unsafe`; `x-semel-needs-key` whether it names an operation. \
                 Errors are problems (RFC 9457) with a stable `code`, whose page is at `type`.";
    let license = LicenseBuilder::new()
        .name("MIT OR Apache-2.0")
        .identifier(Some("MIT OR Apache-2.0"));
    let info = InfoBuilder::new()
        .title("Semel")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .license(Some(license.build()));
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token made by `semel token create`"));
    let components = ComponentsBuilder::new()
        .security_scheme("token", SecurityScheme::Http(token.build()))
        .schema_from::<schema::Asked>();
    let tags = [
        (
            "attempts",
            "What those who act ask: begin, renew, settle; and submit",
        ),
        (
            "operators",
            "What people decide, each on the version that they saw",
        ),
        (
            "queues",
            "Tasks that workers carry out: leaving them, and taking them",
        ),
        ("inbox", "Webhooks, which prove themselves by a signature"),
        ("operations", "Looking at operations"),
        ("breakers", "Which targets are left alone"),
        ("events", "The log, as a page or as a stream"),
        ("service", "The server itself"),
    ];
    let tags = tags.map(|(name, about)| {
        let tag = TagBuilder::new().name(name).description(Some(about));
        tag.build()
    });
    OpenApiBuilder::new()
        .info(info.build())
        .components(Some(components.build()))
        .tags(Some(tags))
        .security(Some([SecurityRequirement::new("token", [""; 0])]))
        .build()
}

pub(super) async fn openapi_json(State(server): State<Server>) -> Response {
    let mut response = server.openapi().to_vec().into_response();
    let media_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// The first page of a person; programs, which do not ask for a page, are told where the API is.
pub(super) async fn home(headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|line| line.to_str().ok());
    if accepted.any(|line| line.contains("text/html")) {
        return Html(reference::home(env!("CARGO_PKG_VERSION"))).into_response();
    }
    super::nothing_at("/").into_response()
}

pub(super) async fn reference(State(server): State<Server>) -> Response {
    Html(server.reference().to_owned()).into_response()
}

/// The pages of docs/errors/, so that the server can show what its problems point at.
const PAGES: [(&str, &str); 20] = [
    (
        "breaker_open",
        include_str!("../../../../docs/errors/breaker_open.md"),
    ),
    ("dead", include_str!("../../../../docs/errors/dead.md")),
    (
        "expired",
        include_str!("../../../../docs/errors/expired.md"),
    ),
    ("fenced", include_str!("../../../../docs/errors/fenced.md")),
    (
        "forbidden",
        include_str!("../../../../docs/errors/forbidden.md"),
    ),
    (
        "in_doubt",
        include_str!("../../../../docs/errors/in_doubt.md"),
    ),
    (
        "in_flight",
        include_str!("../../../../docs/errors/in_flight.md"),
    ),
    (
        "internal",
        include_str!("../../../../docs/errors/internal.md"),
    ),
    (
        "invalid_input",
        include_str!("../../../../docs/errors/invalid_input.md"),
    ),
    (
        "invalid_key",
        include_str!("../../../../docs/errors/invalid_key.md"),
    ),
    (
        "key_reused",
        include_str!("../../../../docs/errors/key_reused.md"),
    ),
    ("lost", include_str!("../../../../docs/errors/lost.md")),
    (
        "not_acceptable",
        include_str!("../../../../docs/errors/not_acceptable.md"),
    ),
    (
        "not_found",
        include_str!("../../../../docs/errors/not_found.md"),
    ),
    (
        "not_sent",
        include_str!("../../../../docs/errors/not_sent.md"),
    ),
    (
        "rate_limited",
        include_str!("../../../../docs/errors/rate_limited.md"),
    ),
    (
        "store_unavailable",
        include_str!("../../../../docs/errors/store_unavailable.md"),
    ),
    (
        "store_unusable",
        include_str!("../../../../docs/errors/store_unusable.md"),
    ),
    (
        "too_large",
        include_str!("../../../../docs/errors/too_large.md"),
    ),
    (
        "unauthorized",
        include_str!("../../../../docs/errors/unauthorized.md"),
    ),
];

pub(super) async fn error(Path(code): Path<String>) -> Result<Response, Problem> {
    let page = PAGES.iter().find(|(known, _)| *known == code);
    let (code, text) = page.ok_or_else(|| Problem::not_found("there is no such code"))?;
    Ok(Html(reference::markdown(code, text)).into_response())
}
