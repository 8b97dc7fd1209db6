//! The log as it grows: a page of it, or a stream of server-sent events that goes on where it stopped.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use semel::view::EventView;
use semel::{Namespace, Scope};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::body::Answer;
use super::operations::{Listed, PAGE, cursor, limit};
use super::problem::Problem;
use super::query::Parameters;
use super::{Server, json, schema};
use crate::auth::Caller;
use crate::feed::{Follower, Next};

/// How often a stream says that it is alive: less than common proxies wait for.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// How soon a client is to come back when the stream ends.
const RETRY: &str = "retry: 1000\n\n";

/// The most events of one piece of a stream.
const PIECE_MAX: usize = 256;

/// Lists what was accepted, or streams it as it happens.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events that does not end. Each has the
/// event's number as `id`; a client that comes back with `Last-Event-ID` goes on after it, without a gap or a
/// repeat. Without it, or `after`, the stream begins now.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        ("after" = Option<String>, Query, description = "Only events after this number", pattern = "^[0-9]{1,18}$", nullable = false),
        ("limit" = Option<u32>, Query, description = "How many a page has, 50 by default", minimum = 1, maximum = 1000, nullable = false),
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event; for streams only", pattern = "^[0-9]{1,18}$", nullable = false),
    ),
    responses(
        (status = 200, description = "A page of events, the oldest first; or a stream", content(
            (schema::Events = "application/json"),
            (String = "text/event-stream"),
        )),
        super::Refusals,
    ),
    extensions(("x-semel-class" = json!("safe")), ("x-semel-needs-key" = json!(false)))
)]
pub(crate) async fn events(
    State(server): State<Server>,
    caller: Caller,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    let mut asked = Parameters::read(query.as_deref())?;
    let after = asked.parsed("after", cursor)?;
    let limit = asked.parsed("limit", limit)?;
    asked.done()?;
    let last = headers.get("last-event-id").map(|value| {
        let text = value.to_str().unwrap_or_default();
        cursor(text).map_err(|_| Problem::input("Last-Event-ID is the `id` of an event"))
    });
    let last = last.transpose()?;
    if wants_stream(&headers) {
        let after = last.or(after);
        return follow(&server, caller.namespace, after).await;
    }
    let reader = server.feed().reader(server.engine());
    let page = reader.page(&caller.namespace, after.unwrap_or(0), limit.unwrap_or(PAGE));
    let (items, next) = server.within(Duration::ZERO, page).await?;
    json(Answer::ok(&Listed {
        items,
        next: next.map(|next| next.to_string()),
    })?)
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// A stream that is open.
struct Open {
    server: Server,
    namespace: Namespace,
    follower: Follower,
    alive_at: Instant,
    _place: OwnedSemaphorePermit,
}

async fn follow(
    server: &Server,
    namespace: Namespace,
    after: Option<u64>,
) -> Result<Response, Problem> {
    let place = server.stream_place().ok_or_else(|| {
        Problem::new("rate_limited", "too many event streams are open")
            .hint("close one, or ask for pages with `after`")
            .after(Duration::from_secs(5))
    })?;
    let follower = server.feed().follow(server.engine(), after);
    let follower = server.within(Duration::ZERO, follower).await?;
    let open = Open {
        server: server.clone(),
        namespace,
        follower,
        alive_at: Instant::now() + ALIVE_EVERY,
        _place: place,
    };
    let first = stream::once(async { Ok(Frame::data(Bytes::from_static(RETRY.as_bytes()))) });
    let rest = stream::unfold(open, |mut open| async {
        let piece = open.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), open))
    });
    let body = Body::new(StreamBody::new(stream::StreamExt::chain(first, rest)));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

impl Open {
    /// Returns the next piece; `None` when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let stopped = self.server.stopping();
            let next = tokio::select! {
                biased;
                () = stopped => return None,
                next = self.follower.next(&self.namespace, PIECE_MAX) => next,
                () = sleep_until(self.alive_at) => Next::Nothing,
            };
            let piece = match next {
                Next::Events(events) if events.is_empty() => continue,
                Next::Events(events) => write(&events),
                Next::Nothing => Bytes::from_static(b": alive\n\n"),
            };
            self.alive_at = Instant::now() + ALIVE_EVERY;
            return Some(piece);
        }
    }
}

fn write(events: &[EventView]) -> Bytes {
    let mut text = vec![];
    for event in events {
        text.extend_from_slice(
            format!("id: {}\nevent: {}\ndata: ", event.seq, event.command).as_bytes(),
        );
        // Strings and numbers only: writing them cannot fail.
        text.extend(serde_json::to_vec(event).unwrap_or_default());
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}
