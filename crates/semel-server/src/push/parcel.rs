//! What is sent for a task: the same key and the same bytes with every attempt.

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, header};
use semel::core::http::write_key;
use semel::{Label, Permit, Timestamp};

use crate::notify::Secret;

/// What every request of ours says about who sends it.
const USER_AGENT: &str = concat!("semel/", env!("CARGO_PKG_VERSION"));

/// The headers and the body of a request.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

impl Parcel {
    /// Packs a task.
    pub(super) fn of(
        permit: &Permit,
        queue: &Label,
        input: Option<Vec<u8>>,
        secret: Option<&Secret>,
        wall: Timestamp,
    ) -> Result<Self, String> {
        let key = permit.key().as_str();
        let mut headers = vec![
            ("idempotency-key", write_key(key)),
            ("semel-key", key.to_owned()),
            ("semel-queue", queue.to_string()),
            ("semel-attempt", permit.attempt().to_string()),
            ("semel-fence", permit.fence().0.to_string()),
            (header::USER_AGENT.as_str(), USER_AGENT.to_owned()),
        ];
        if input.is_some() {
            headers.push((header::CONTENT_TYPE.as_str(), "application/json".to_owned()));
        }
        let body = input.unwrap_or_default();
        if let Some(secret) = secret {
            // It is signed, and a key could hold the dot that separates what is signed.
            let id = permit.upstream_key();
            let seconds = wall.0.unsigned_abs() / 1_000_000;
            let signature = secret.sign(&id, seconds, &body);
            headers.push(("webhook-id", id));
            headers.push(("webhook-timestamp", seconds.to_string()));
            headers.push(("webhook-signature", signature));
        }
        let headers = headers.into_iter().map(|(name, value)| {
            let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            Ok((HeaderName::from_static(name), value))
        });
        Ok(Self {
            headers: headers.collect::<Result<_, String>>()?,
            body: body.into(),
        })
    }
}
