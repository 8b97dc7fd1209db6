//! Engines on other machines (`--store http://…`): their commands in the bytes that they and this server
//! understand, and nobody else.

use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use semel::wire;

use super::problem::Problem;
use super::{Asked, Server, body};
use crate::auth::Caller;
use crate::incident;

/// Answers one call of a remote engine. The call names the scope that it needs; the answer says so when
/// the caller has less.
pub(super) async fn call(
    State(server): State<Server>,
    caller: Caller,
    asked: Asked,
) -> Result<Response, Problem> {
    let limits = server.limits();
    let bodies = &server.0.bodies;
    // A report brings its whole answer along, so it may be larger than what others send.
    let received = body::read(asked.0, bodies, wire::MESSAGE_MAX, limits.read).await?;
    let caller = wire::Caller {
        namespace: caller.namespace,
        scope: caller.scope,
        principal: caller.principal,
    };
    let answer = wire::answer(server.engine(), &caller, &received.bytes);
    let begun = Instant::now();
    let answer = tokio::time::timeout(limits.deadline, answer).await;
    server.counts().store_took(begun.elapsed());
    let answer = answer
        .map_err(|_| {
            server.counts().store_failed();
            Problem::timeout(limits.deadline)
        })?
        .map_err(|malformed| match malformed {
            wire::Malformed::ProbeText(_) => Problem::input(malformed.to_string())
                .hint("use a client of this server's version: it runs its probe itself, and sends the digest"),
            wire::Malformed::Newer { .. } | wire::Malformed::Unreadable(_) => {
                Problem::input(malformed.to_string())
            }
        })?;
    if let Some(incident) = &answer.incident {
        server.counts().store_failed();
        incident::log(incident);
    }
    let mut response = Response::new(Body::from(answer.bytes));
    let media_type = HeaderValue::from_static(wire::MEDIA_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}
