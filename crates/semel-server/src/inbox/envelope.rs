//! What workers are given of a webhook.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use semel::core::webhook::{Delivery, SenderId};
use semel::{Redactor, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::source::Source;

/// The headers that workers get: they say what happened, and not on whose behalf.
const HEADERS: [&str; 10] = [
    "content-type",
    "content-encoding",
    "user-agent",
    "webhook-id",
    "svix-id",
    "x-github-event",
    "x-github-delivery",
    "x-github-hook-id",
    "x-slack-retry-num",
    "x-slack-retry-reason",
];

/// How the headers of CloudEvents begin.
const CLOUD_EVENTS: &str = "ce-";

/// A webhook as its workers get it: that of the first delivery.
#[derive(Debug, Serialize)]
pub(super) struct Envelope<'a> {
    source: &'a str,
    id: String,
    received_at: String,
    headers: BTreeMap<String, String>,
    /// The body, where it is JSON: written as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    /// The body, where it is any other text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_text: Option<&'a str>,
    /// The body, where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl<'a> Envelope<'a> {
    pub(super) fn new(
        source: &'a Source,
        id: &SenderId,
        delivery: &Delivery<'a>,
        redactor: &Redactor,
        now: Timestamp,
    ) -> Self {
        let body = serde_json::from_slice(delivery.body).ok();
        let text = core::str::from_utf8(delivery.body);
        let body_text = text.ok().filter(|_| body.is_none());
        let is_bytes = body.is_none() && body_text.is_none();
        Self {
            source: source.name.as_str(),
            id: id.to_string(),
            received_at: now.to_string(),
            headers: headers(source, delivery, redactor),
            body,
            body_text,
            body_base64: is_bytes.then(|| BASE64_STANDARD.encode(delivery.body)),
        }
    }
}

/// Takes the headers that may be kept; of one that is there twice, all values.
fn headers(
    source: &Source,
    delivery: &Delivery<'_>,
    redactor: &Redactor,
) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::<String, String>::new();
    for (name, value) in delivery.headers {
        let name = name.to_ascii_lowercase();
        let is_kept = HEADERS.contains(&name.as_str())
            || name.starts_with(CLOUD_EVENTS)
            || source.headers.contains(&name);
        let Some(value) = core::str::from_utf8(value).ok().filter(|_| is_kept) else {
            continue;
        };
        let value = redactor.text(value);
        match kept.get_mut(&name) {
            Some(earlier) => {
                earlier.push_str(", ");
                earlier.push_str(&value);
            }
            None => {
                kept.insert(name, value.into_owned());
            }
        }
    }
    kept
}
