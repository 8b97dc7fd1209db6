//! Telling by a webhook, as the Standard Webhooks specification has it.

use axum::http::{HeaderName, HeaderValue};
use semel::Timestamp;

use super::channel::Told;
use super::signature::Secret;
use crate::outbound::{Outbound, Url};

/// Sends to one address.
#[derive(Debug)]
pub(crate) struct Webhook {
    outbound: Outbound,
    secret: Option<Secret>,
}

impl Webhook {
    pub(super) fn new(url: Url, secret: Option<Secret>) -> Result<Self, String> {
        let outbound = Outbound::new(url)?;
        Ok(Self { outbound, secret })
    }

    /// Sends it once. The id stays the same when it is sent again; the time is that of sending.
    pub(super) async fn tell(&self, id: &str, json: Vec<u8>, now: Timestamp) -> Told {
        let seconds = now.0.unsigned_abs() / 1_000_000;
        let mut headers = vec![
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds.to_string()),
        ];
        if let Some(secret) = &self.secret {
            headers.push(("webhook-signature", secret.sign(id, seconds, &json)));
        }
        let headers = headers.into_iter().map(|(name, value)| {
            let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            Ok((HeaderName::from_static(name), value))
        });
        let headers = match headers.collect::<Result<Vec<_>, String>>() {
            Ok(headers) => headers,
            Err(error) => return Told::No(error),
        };
        match self.outbound.post(&headers, json.into()).await {
            Ok(status) if status.is_success() => Told::Yes,
            // Whoever answers so has not taken it, and is asked again under the same id.
            Ok(status) => Told::No(format!("it was answered with {status}")),
            Err(lost) if lost.sent => Told::Unknown(lost.error),
            Err(lost) => Told::No(lost.error),
        }
    }
}
