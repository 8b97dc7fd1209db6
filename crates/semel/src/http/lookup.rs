//! Looking up whether a doubted effect happened, before anything is sent again.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, header};
use http_body_util::{BodyExt as _, Limited};
use semel_core::http::lookup::UPSTREAM_KEY;
use semel_core::http::{CredentialRule, Lookup, Place, effect};
use semel_core::ledger::Record;
use semel_core::{Found, OnDoubt};
use tokio::time::Instant;

use super::guard::{Asked, Inner};
use super::stored::Head;
use super::{Body, Upstream};
use crate::engine::Permit;

/// How long an upstream may take to say whether something happened.
const LOOK_UP_MAX: Duration = Duration::from_secs(60);

/// The longest answer that is looked at.
const ANSWER_MAX: usize = 1024 * 1024;

/// Says where it can be looked up what became of a request.
pub(super) fn place(lookup: &Lookup, target: &str, asked: &Asked) -> Option<Place> {
    let key = asked.ask.call.explicit.as_ref().map(|key| key.as_str());
    let body = asked.body.bytes().map(|bytes| &bytes[..]);
    lookup.place(target, key, body)
}

impl Inner {
    /// Says how long to wait until a doubt can be looked up, if that is while its caller waits: what was lost may still
    /// be at work.
    pub(super) fn look_up_in(&self, record: &Record, deadline: Instant) -> Option<Duration> {
        let operation = record.operation()?;
        if operation.spec.policy.on_doubt != OnDoubt::Probe || operation.spec.probe_digest.is_none()
        {
            return None;
        }
        let now = self.doorway.engine().store().now();
        let pause = operation.probe_at().since(now);
        let is_in_time = !pause.is_zero() && Instant::now() + pause <= deadline;
        is_in_time.then_some(pause)
    }

    /// Asks the upstream whether a doubted request took effect, and settles the doubt by what it says. Returns what that
    /// shows.
    pub(super) async fn look_up(&self, asked: &Asked, permit: Permit) -> Found {
        let looked = self.found(asked, &permit).await;
        let found = looked.as_ref().map_or(Found::Unclear, |(found, _)| *found);
        let ended = match looked {
            Ok((Found::Happened, payload)) => {
                let did = effect(asked.parts.method.as_str(), 200);
                permit.finish(true, did, Some(payload)).await
            }
            Ok((Found::DidNot, _)) => permit.not_done("it was looked up: it did not happen").await,
            Ok((Found::Unclear, _)) => {
                let why = "it was looked up: the answer does not tell";
                permit.unknown(why).await
            }
            Err(why) => permit.unknown(format!("it was looked up: {why}")).await,
        };
        // Whoever asked begins again, and meets what is stored.
        if ended.is_ok() { found } else { Found::Unclear }
    }

    async fn found(&self, asked: &Asked, permit: &Permit) -> Result<(Found, Vec<u8>), String> {
        // By this route's own settings and the request at hand: the record has a digest only.
        let target = self.rules.target.as_str();
        let lookup = self.rules.probe.as_ref();
        let place = lookup.and_then(|lookup| place(lookup, target, asked));
        let place = place.ok_or("its route has no probe for this request")?;
        let path = place.url.strip_prefix(target.trim_end_matches('/'));
        let path = path.ok_or("its upstream is not known")?;
        let path = path.replace(UPSTREAM_KEY, &permit.upstream_key());
        // On the same behalf: without the account header of the request, the upstream would look into another account,
        // find nothing, and the request would be sent again.
        let (usual, own) = (CredentialRule::default(), self.rules.credential_rule());
        let is_credential = |name: &HeaderName| {
            *name != header::PROXY_AUTHORIZATION
                && (usual.counts_header(name.as_str()) || own.counts_header(name.as_str()))
        };
        let lines = asked.parts.headers.iter();
        let headers: HeaderMap = lines
            .filter(|(name, _)| is_credential(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        look_up(&*self.upstream, &place, &path, headers).await
    }
}

/// Asks an upstream at a path, with these headers, whether an effect happened. Returns what its answer shows, and the
/// answer as it is stored.
///
/// # Errors
/// Says why there is no answer; then nobody knows.
pub async fn look_up(
    upstream: &dyn Upstream,
    place: &Place,
    path: &str,
    headers: HeaderMap,
) -> Result<(Found, Vec<u8>), String> {
    let mut request = http::Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = path.parse().map_err(|error| format!("{error}"))?;
    *request.headers_mut() = headers;
    let asking = async {
        let response = upstream.send(request).await;
        let response = response.map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let found = place.judge(parts.status.as_u16(), &body);
        let mut payload = Head::kept(parts.status, &parts.headers).line();
        payload.extend_from_slice(&body);
        Ok((found, payload))
    };
    let asked = tokio::time::timeout(LOOK_UP_MAX, asking).await;
    asked.unwrap_or_else(|_| Err("there was no answer".to_owned()))
}
