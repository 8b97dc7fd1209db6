//! A connection that speaks HTTP/2.
//!
//! Each request has a stream, known by its number, so that what its connection tells can be told of its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Answers, HEAD_MAX};
use crate::listener::Stream;
use crate::patient::TAKES_NOTHING_MAX;
use crate::proof::Streams;
use crate::replies::Replies;

/// The most requests that are under way on one connection.
const STREAMS_MAX: u32 = 256;

/// How much of a request's body a client may send before somebody reads it.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How much of all bodies on one connection together.
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// How much of one answer waits to be written.
const SEND_BUFFER: usize = 256 * 1024;

/// Headers that are about a connection of HTTP/1, which HTTP/2 has other ways for (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What a connection is served with.
pub(crate) struct Served<A> {
    pub(crate) answers: A,
    pub(crate) replies: Replies,
    /// How long the first words may take, and a connection may be idle.
    pub(crate) idle: Duration,
    /// Where proof of receipt is kept, for those who want it.
    pub(crate) streams: Option<Arc<Streams>>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Answers requests until there are no more.
pub(crate) async fn converse<S, A>(stream: S, mut served: Served<A>) -> Result<(), h2::Error>
where
    S: Stream,
    A: Answers,
{
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    let handshake = timeout(served.idle, builder.handshake::<_, Bytes>(stream));
    let Ok(connection) = handshake.await else {
        return Ok(());
    };
    let mut connection = connection?;
    let mut idle = pin!(sleep(served.idle));
    let (mut is_ending, mut is_stopping) = (false, false);
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, reply) = accepted?;
                idle.as_mut().reset(Instant::now() + served.idle);
                let stream = reply.stream_id().as_u32();
                let is_lost = served.replies.loses(request.method());
                let size = size(request.headers());
                let mut request = request.map(|body| Body::new(Received::new(body, size)));
                host(&mut request);
                if let Some(streams) = &served.streams {
                    request.extensions_mut().insert(streams.arrived(stream));
                }
                tokio::spawn(exchange(request, reply, served.answers.clone(), is_lost));
            }
            () = idle.as_mut() => {
                idle.as_mut().reset(Instant::now() + served.idle);
                if connection.has_streams() {
                    continue;
                }
                if is_ending {
                    // It was told, and does not go.
                    return Ok(());
                }
                is_ending = true;
                connection.graceful_shutdown();
            }
            () = crate::stopped(&mut served.stop), if !is_stopping => {
                // What is under way is answered; then the connection is closed.
                is_stopping = true;
                is_ending = true;
                connection.graceful_shutdown();
            }
        }
    }
}

/// Answers one request.
async fn exchange<A: Answers>(
    request: Request<Body>,
    mut reply: SendResponse<Bytes>,
    answers: A,
    is_lost: bool,
) {
    let is_head = request.method() == Method::HEAD;
    let response = {
        let mut answer = pin!(answers.answer(request));
        // Whoever resets its stream, or closes the connection, has left.
        let left = poll_fn(|context| reply.poll_reset(context));
        tokio::select! {
            biased;
            response = answer.as_mut() => response,
            _ = left => return,
        }
    };
    if is_lost {
        reply.send_reset(Reason::INTERNAL_ERROR);
        return;
    }
    if let Err(error) = respond(reply, response, is_head).await {
        tracing::debug!(%error, "an answer could not be given");
    }
}

async fn respond(
    mut reply: SendResponse<Bytes>,
    response: Response,
    is_head: bool,
) -> Result<(), h2::Error> {
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_2;
    complete(&mut head.headers, head.status, &body, is_head);
    let is_over = is_head || body.is_end_stream();
    let head = Response::from_parts(head, ());
    let mut stream = reply.send_response(head, is_over)?;
    if is_over {
        return Ok(());
    }
    let mut body = pin!(body);
    loop {
        let frame = {
            let left = poll_fn(|context| stream.poll_reset(context));
            tokio::select! {
                biased;
                frame = body.frame() => frame,
                _ = left => return Ok(()),
            }
        };
        let frame = match frame {
            None => return stream.send_data(Bytes::new(), true),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer broke off");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                if !send(&mut stream, data, is_last).await? || is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// Sends a piece of an answer as the peer's windows have room for it. Says whether its caller is still there.
async fn send(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    is_last: bool,
) -> Result<bool, h2::Error> {
    if data.is_empty() {
        stream.send_data(data, is_last)?;
        return Ok(true);
    }
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = timeout(TAKES_NOTHING_MAX, poll_fn(|context| room(stream, context)));
        let Ok(room) = room.await else {
            // One that takes nothing would keep its place for ever.
            stream.send_reset(Reason::CANCEL);
            return Ok(false);
        };
        let Some(room) = room? else { return Ok(false) };
        let piece = data.split_to(room.min(data.len()));
        stream.send_data(piece, is_last && data.is_empty())?;
    }
    Ok(true)
}

/// Waits for room, or for the peer to leave.
fn room(
    stream: &mut SendStream<Bytes>,
    context: &mut Context<'_>,
) -> Poll<Result<Option<usize>, h2::Error>> {
    if stream.poll_reset(context).is_ready() {
        return Poll::Ready(Ok(None));
    }
    if stream.capacity() > 0 {
        return Poll::Ready(Ok(Some(stream.capacity())));
    }
    loop {
        match ready!(stream.poll_capacity(context)).transpose()? {
            Some(0) => {}
            room => return Poll::Ready(Ok(room)),
        }
    }
}

/// Takes away what HTTP/2 does not have, and adds what every answer has.
fn complete(headers: &mut HeaderMap, status: StatusCode, body: &Body, is_head: bool) {
    for name in OF_CONNECTIONS {
        headers.remove(name);
    }
    let now = || {
        let now = httpdate::fmt_http_date(SystemTime::now());
        HeaderValue::try_from(now).unwrap_or_else(|_| HeaderValue::from_static(""))
    };
    headers.entry(header::DATE).or_insert_with(now);
    let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(size) = body.size_hint().exact()
        && !has_none
        && !is_head
    {
        headers.entry(header::CONTENT_LENGTH).or_insert(size.into());
    }
}

/// Says in the form of HTTP/1 for which host a request is, where only its target does.
fn host(request: &mut Request<Body>) {
    if request.headers().contains_key(header::HOST) {
        return;
    }
    let target = request.uri().authority();
    let host = target.and_then(|it| HeaderValue::try_from(it.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// Returns how large a body says that it is.
fn size(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// The body of a request. What is taken of it makes room for more.
struct Received {
    stream: RecvStream,
    /// What it says that it has.
    size: Option<u64>,
    is_data_over: bool,
}

impl Received {
    const fn new(stream: RecvStream, size: Option<u64>) -> Self {
        Self {
            stream,
            size,
            is_data_over: false,
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    // It is checked against what was said by whoever reads the frames.
                    let left = |size: u64| size.saturating_sub(data.len() as u64);
                    self.size = self.size.map(left);
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(context)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.stream.is_end_stream() {
            return SizeHint::with_exact(0);
        }
        self.size
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
