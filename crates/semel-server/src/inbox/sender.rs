//! Sending as a sender would: for those who test their inbox.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;

use crate::outbound::{Outbound, Url};

/// How long the server may take to answer: as long as senders wait at most.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The most of an answer that is read: receipts and problems are small.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends a webhook once, with these headers.
///
/// # Errors
/// Says why there is no answer.
pub async fn deliver(
    url: &Url,
    headers: &[(String, String)],
    body: &[u8],
) -> Result<Heard, String> {
    let mut request = Request::post(url.path())
        .header(header::HOST, url.host())
        .body(Full::new(Bytes::copy_from_slice(body)))
        .map_err(|error| error.to_string())?;
    for (name, value) in headers {
        let wrong = || format!("the header {name} cannot be sent");
        let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        let name = HeaderName::try_from(name).map_err(|_| wrong())?;
        request.headers_mut().insert(name, value);
    }
    let outbound = Outbound::new(url.clone())?;
    let stream = outbound.connect().await.map_err(|lost| lost.error)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let heard = tokio::time::timeout(ANSWER_MAX, async {
        let answer = sender.send_request(request).await;
        let (parts, body) = answer.map_err(|error| error.to_string())?.into_parts();
        let body = Limited::new(Body::new(body), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok(Heard {
            status: parts.status.as_u16(),
            body: body.to_bytes().to_vec(),
        })
    });
    let heard = heard.await;
    connection.abort();
    heard.unwrap_or_else(|_| {
        let seconds = ANSWER_MAX.as_secs();
        Err(format!("there was no answer within {seconds} s"))
    })
}
