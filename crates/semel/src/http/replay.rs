//! What is answered from the ledger.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::vec;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use serde_json::Value;
use tokio::time::{Sleep, sleep};

use super::carry::Told;
use super::refusal::Refusal;
use super::rules::Rules;
use super::saved::Joined;
use super::stored::{Form, Head, Piece};
use super::{Body, BodyError};
use crate::receipt::Receipt;

/// Answers a request that accepts these codings with what is stored of an operation that is done. Who cannot be given an
/// answer that is kept does not have it, and comes again; who hears that it was too long knows all that there is.
pub(super) fn told(rules: &Rules, receipt: &Receipt, accepted: &[HeaderValue]) -> Told {
    let payload = receipt.payload.as_deref();
    let Some(stored) = payload else {
        return Told::outcome(resolved(rules, receipt, None));
    };
    let Some((head, start)) = Head::read(stored) else {
        return Told::outcome(resolved(rules, receipt, Some(stored)));
    };
    if let Some(refusal) = unreadable(&head, accepted) {
        return Told::put_off(refusal.response());
    }
    let body = Bytes::copy_from_slice(&stored[start..]);
    let body = match head.form {
        Form::Left => return Told::outcome(Refusal::not_kept(head.status).response()),
        Form::Plain if body.is_empty() => Body::empty(),
        Form::Plain => Body::full(body),
        Form::Paced => {
            let Some(pieces) = Piece::read_all(&body) else {
                let damaged = Refusal::internal("what is stored of the answer cannot be read");
                return Told::put_off(damaged.response());
            };
            paced(pieces)
        }
    };
    Told::outcome(told_before(rules, &head, body))
}

/// Returns why an answer cannot be given to a request that accepts these codings: nothing is decoded, and what was done
/// is not done again for another coding.
pub(super) fn unreadable(head: &Head, accepted: &[HeaderValue]) -> Option<Refusal> {
    match head.form {
        Form::Left => None,
        Form::Plain | Form::Paced => {
            let coding = head.refused_by(accepted)?;
            Some(Refusal::not_acceptable(head.status, &coding))
        }
    }
}

/// Answers a request that accepts these codings with what streams to somebody else.
pub(super) fn joined(rules: &Rules, head: &Head, rest: Joined, accepted: &[HeaderValue]) -> Told {
    match unreadable(head, accepted) {
        Some(refusal) => Told::put_off(refusal.response()),
        None => Told::outcome(told_before(rules, head, Body::new(rest))),
    }
}

fn told_before(rules: &Rules, head: &Head, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers.clone();
    mark(rules, &mut response);
    response
}

/// Says that an answer was given before.
fn mark(rules: &Rules, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(rules.replayed(), HeaderValue::from_static("true"));
}

/// Answers for an operation whose outcome somebody looked up or decided: there is no answer of the upstream's.
fn resolved(rules: &Rules, receipt: &Receipt, data: Option<&[u8]>) -> Response<Body> {
    let json = data.filter(|data| serde_json::from_slice::<Value>(data).is_ok());
    let mut response = match json {
        Some(json) => {
            let mut response = Response::new(Body::full(Bytes::copy_from_slice(json)));
            let media = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, media);
            response
        }
        None => Response::new(Body::empty()),
    };
    *response.status_mut() = match (receipt.ok, json) {
        (true, Some(_)) => StatusCode::OK,
        (true, None) => StatusCode::NO_CONTENT,
        (false, _) => StatusCode::CONFLICT,
    };
    if !receipt.ok {
        super::refusal::do_not_retry(response.headers_mut());
    }
    mark(rules, &mut response);
    response
}

/// Makes a body whose pieces come as they came the first time.
fn paced(pieces: Vec<Piece>) -> Body {
    Body::new(Paced {
        pieces: pieces.into_iter(),
        next: None,
    })
}

struct Paced {
    pieces: vec::IntoIter<Piece>,
    next: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.next.is_none() {
            let Some(Piece { after, bytes }) = self.pieces.next() else {
                return Poll::Ready(None);
            };
            self.next = Some((Box::pin(sleep(after)), bytes));
        }
        let Some((pause, _)) = &mut self.next else {
            return Poll::Ready(None);
        };
        ready!(pause.as_mut().poll(context));
        let piece = self.next.take().map(|(_, bytes)| Ok(Frame::data(bytes)));
        Poll::Ready(piece)
    }
}
