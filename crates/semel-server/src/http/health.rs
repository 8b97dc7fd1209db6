//! Whether the server lives, whether it is ready, and what it counts.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use semel::Scope;

use super::body::Answer;
use super::{Problem, Server, json};
use crate::auth::Caller;
use crate::metrics;

/// Says that the process answers, whatever the store does.
pub(super) async fn healthz() -> Response {
    "ok\n".into_response()
}

/// Says whether calls can be answered: operations must be begun and settled in the store.
pub(super) async fn readyz(State(server): State<Server>) -> Result<Response, Problem> {
    let limit = server.limits().ready;
    match tokio::time::timeout(limit, server.engine().store().ready()).await {
        Ok(Ok(())) => json(Answer::ok(&serde_json::json!({"ready": true}))?),
        Ok(Err(error)) => Err(Problem::of(&error.into(), server.now())),
        Err(_) => Err(Problem::timeout(limit)),
    }
}

/// Counts and sizes, in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses(
        (status = 200, description = "All metrics; their names begin with `semel_`", body = String, content_type = "text/plain"),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("safe")), ("x-semel-needs-key" = json!(false)))
)]
pub(super) async fn metrics(
    State(server): State<Server>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    // A token shows what is in its own namespace; the operator of the server sees what it serves.
    let namespace = match caller.principal {
        Some(_) => Some(&caller.namespace),
        None => server.config().namespace.as_ref(),
    };
    let mut response = metrics::text(&server, namespace).await.into_response();
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}
