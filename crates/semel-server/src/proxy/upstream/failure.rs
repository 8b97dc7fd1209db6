//! Why there is no answer, and what is known of the request then.

use std::error::Error;
use std::io;

use axum::http::Request;
use h2::Reason;
use semel::Incident;
use semel::http::{Body, SendError};

/// What became of a request that has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was never begun, and here it is again.
    GivenBack(Box<Request<Body>>, String),
    /// Nothing of it left, or the other side said that it did nothing about it.
    NotSent(String),
    /// Something of it left.
    Lost(String),
}

impl Failure {
    /// Says it to a caller that cannot use what was given back.
    pub(super) fn last(self, place: &str) -> SendError {
        match self {
            Self::GivenBack(_, why) | Self::NotSent(why) => not_sent(place, why),
            Self::Lost(why) => {
                tracing::info!(upstream = place, why, "a request was lost");
                SendError::Lost(why)
            }
        }
    }
}

/// A request of which nothing was sent. The client is not told where the upstream is: the log is.
pub(super) fn not_sent(place: &str, why: String) -> SendError {
    tracing::info!(upstream = place, why, "a request was not sent");
    SendError::NotSent(why)
}

/// An upstream that cannot be reached: what the resolver and TLS say of it names its host.
pub(super) fn not_reached(place: &str, why: &str) -> SendError {
    let incident = Incident::new(format!("{place} cannot be reached: {why}"));
    let Incident { id, cause } = &incident;
    tracing::info!(incident = %id, cause, "a request was not sent");
    SendError::NotSent(format!(
        "the upstream cannot be reached (the proxy's log has the cause: incident {id})"
    ))
}

/// Says whether a server turned a stream of HTTP/2 away before it did anything about it (RFC 9113, 8.7): it refused the
/// stream, or it goes away and the stream came after the last one that it looked at.
///
/// The error of a stream says "goes away" in that case only. Whoever adds other ways to learn of a GOAWAY must check
/// its last stream, too: a stream up to it may have been handled.
pub(super) fn turned_away(error: &hyper::Error) -> bool {
    let Some(error) = error
        .source()
        .and_then(<dyn Error>::downcast_ref::<h2::Error>)
    else {
        return false;
    };
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

/// Says whether it was the connection that broke, and not one stream of it.
pub(super) fn connection_broke(error: &hyper::Error) -> bool {
    error.source().is_some_and(<dyn Error>::is::<io::Error>)
}

/// Says what happened, with the reasons below it.
pub(super) fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some repeat what lies below them.
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        cause = error.source();
    }
    words
}
