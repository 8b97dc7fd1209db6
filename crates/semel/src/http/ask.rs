//! What a request asks for: read before anything is claimed.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use semel_core::http::{
    Extent, METHOD_OVERRIDES, MethodKind, Protection, dated, is_json, read_body_key, read_key,
};
use semel_core::identity::{BusinessKey, Call, ClientText, Door, InFlight, Pointer, Scope};
use semel_core::{Key, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Caller;
use super::received::Received;
use super::refusal::Refusal;
use super::rules::{Keyless, Rules};

/// Asks what would happen, without anything happening.
pub(super) const DRY_RUN: HeaderName = HeaderName::from_static("semel-dry-run");

/// How SDKs say that a request is a retry: how many times it was tried before.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// How a request says when it was first sent (OASIS Repeatable Requests).
const FIRST_SENT: HeaderName = HeaderName::from_static("repeatability-first-sent");

/// How a request is treated.
#[derive(Debug)]
pub(super) enum Treatment {
    /// It goes on as it is.
    Pass {
        /// Whether it asks for no effect.
        is_safe: bool,
    },
    /// It takes effect once.
    Guard {
        protection: Protection,
        /// The key that its caller gave.
        key: Option<ClientText>,
    },
}

/// What the head of a request says about its treatment.
#[derive(Debug)]
pub(super) enum HeadVerdict {
    Decided(Treatment),
    /// The key may be in the body, which has to be read first.
    ReadBody(MethodKind),
}

impl Rules {
    /// Reads from the head of a request how it is treated.
    pub(super) fn judge_head(&self, parts: &Parts) -> Result<HeadVerdict, Refusal> {
        let overrides = METHOD_OVERRIDES.iter();
        let overrides = overrides.flat_map(|name| parts.headers.get_all(*name));
        let overrides = overrides.map(HeaderValue::as_bytes);
        let kind = self.profile.method_kind(parts.method.as_str(), overrides);
        if kind == MethodKind::Safe {
            return Ok(HeadVerdict::Decided(Treatment::Pass { is_safe: true }));
        }
        let key = self.key(&parts.headers)?;
        if key.is_none() && !self.profile.key_members.is_empty() && !is_opaque(&parts.headers) {
            return Ok(HeadVerdict::ReadBody(kind));
        }
        self.judge(kind, key).map(HeadVerdict::Decided)
    }

    /// Decides how a request is treated, once it is known whether it has a key.
    pub(super) fn judge(
        &self,
        kind: MethodKind,
        key: Option<ClientText>,
    ) -> Result<Treatment, Refusal> {
        let Some(protection) = self.profile.protection(kind, key.is_some()) else {
            return Ok(Treatment::Pass { is_safe: false });
        };
        if key.is_none() {
            let is_required = self.profile.requires_key || self.keyless == Keyless::Require;
            match self.keyless {
                _ if is_required => {
                    let members = &self.profile.key_members;
                    let refusal = Refusal::missing_key(&self.profile, &self.key_headers, members);
                    return Err(refusal);
                }
                Keyless::Pass => return Ok(Treatment::Pass { is_safe: false }),
                Keyless::Derive | Keyless::Require => {}
            }
        }
        Ok(Treatment::Guard { protection, key })
    }

    /// Reads the key that a caller gave in the body.
    pub(super) fn body_key(
        &self,
        headers: &HeaderMap,
        body: &Received,
    ) -> Result<Option<ClientText>, Refusal> {
        let media = headers.get(header::CONTENT_TYPE);
        let media = media.and_then(|media| media.to_str().ok());
        let is_json = is_json(media.unwrap_or_default());
        let is_coded = is_coded(headers);
        let Some(bytes) = body.bytes().filter(|_| !is_coded) else {
            // It may hold a key that is not seen, so it must not pass as a request without one.
            return if is_json {
                Err(Refusal::hidden_key(is_coded))
            } else {
                Ok(None)
            };
        };
        let key = read_body_key(bytes, is_json, &self.profile.key_members);
        let key = key.map_err(|error| Refusal::invalid_body_key(&error))?;
        let text = key.as_deref().map(ClientText::new).transpose();
        text.map_err(|error| Refusal::invalid_body_key(&error))
    }

    /// Reads the key that a caller gave.
    fn key(&self, headers: &HeaderMap) -> Result<Option<ClientText>, Refusal> {
        let mut found = None;
        for name in &self.key_headers {
            let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
            let key = read_key(lines, self.profile.spelling, Key::MAX_BYTES);
            let key = key.map_err(|error| Refusal::invalid_key(name, &error))?;
            if key.is_some() && found.is_some() {
                return Err(Refusal::two_keys());
            }
            found = found.or(key);
        }
        let text = found.as_deref().map(ClientText::new).transpose();
        text.map_err(|error| Refusal::invalid_key(&self.key_headers[0], &error))
    }
}

impl Rules {
    /// Reads when a request was first sent, where it says so; of two dates the earlier one.
    pub(super) fn first_sent(
        &self,
        headers: &HeaderMap,
        key: Option<&ClientText>,
    ) -> Result<Option<Timestamp>, Refusal> {
        let mut lines = headers.get_all(FIRST_SENT).iter();
        let said = match (lines.next(), lines.next()) {
            (None, _) => None,
            (Some(line), None) => {
                let date = line.to_str().ok().and_then(dated::read_date);
                Some(date.ok_or_else(Refusal::first_sent)?)
            }
            (Some(_), Some(_)) => return Err(Refusal::first_sent()),
        };
        let key = key.filter(|_| self.dated_keys);
        let made = key.and_then(|key| dated::made_at(key.as_str()));
        Ok(said.into_iter().chain(made).min())
    }
}

/// Says whether a request only asks what would happen.
pub(super) fn is_dry_run(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut lines = headers.get_all(DRY_RUN).iter();
    let said = lines.next().map(HeaderValue::as_bytes);
    match (said, lines.next()) {
        (None, _) | (Some(b"?0"), None) => Ok(false),
        (Some(b"?1"), None) => Ok(true),
        // Whoever asks for it must not get an effect for a slip of the pen.
        (Some(_), _) => Err(Refusal::dry_run()),
    }
}

/// A request that takes effect once.
#[derive(Debug)]
pub(super) struct Ask {
    /// Who it is, as the doorway judges it.
    pub(super) call: Call,
    /// What the fingerprint is of.
    pub(super) input: Vec<u8>,
    pub(super) name: String,
    pub(super) protection: Protection,
}

impl Ask {
    /// Reads a request whose body is here.
    pub(super) fn new(
        rules: &Rules,
        parts: &Parts,
        caller: &Caller,
        body: &Received,
        protection: Protection,
        key: Option<ClientText>,
    ) -> Result<Self, Refusal> {
        let names = rules.sameness.headers.iter().map(HeaderName::as_str);
        // To an upstream that heeds them, these are other requests.
        let named: Vec<(&str, &[u8])> = names
            .chain(METHOD_OVERRIDES)
            .flat_map(|name| {
                let values = parts.headers.get_all(name).iter();
                values.map(move |value| (name, value.as_bytes()))
            })
            .collect();
        let origin = host(parts).filter(|_| rules.sameness.host);
        let request = semel_core::http::Request {
            method: parts.method.as_str(),
            origin,
            path: parts.uri.path(),
            query: parts.uri.query(),
            headers: &named,
        };
        let extent = rules.profile.extent;
        let target = match extent {
            Extent::Upstream => rules.target.clone(),
            Extent::Path => format!("{} {}", rules.target, parts.uri.path()),
        };
        let name = request.name();
        let business = match &key {
            Some(_) => None,
            None => business(rules, parts, body, &name)?,
        };
        let call = Call {
            door: Door::Proxy,
            scope: Scope {
                principal: caller.principal.clone(),
                target,
                conversation: None,
            },
            explicit: key,
            call_id: None,
            business,
            fingerprint: request.fingerprint(extent, &body.digest),
            in_flight: in_flight(&parts.headers),
            repeat_of: None,
        };
        Ok(Self {
            call,
            input: request.input(extent, &body.digest),
            name: name.to_string(),
            protection,
        })
    }
}

/// Says whether the body of a request is coded: what it says is not what its bytes are.
pub(super) fn is_coded(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::CONTENT_ENCODING);
    coding.is_some_and(|coding| coding != "identity")
}

/// Says why the body of a request is nothing that is read here: a connection that becomes another one, or gRPC.
pub(super) fn opaque(headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(header::UPGRADE) {
        return Some("a connection that becomes another one cannot be answered a second time");
    }
    let media = headers.get(header::CONTENT_TYPE);
    let media = media.and_then(|media| media.to_str().ok());
    let is_grpc = media.is_some_and(|media| media.starts_with("application/grpc"));
    is_grpc.then_some("gRPC says how a call ended in trailers, which are not kept")
}

fn is_opaque(headers: &HeaderMap) -> bool {
    opaque(headers).is_some()
}

/// Says what becomes of a request while an identical one is under way: one that says that it is a retry joins it.
fn in_flight(headers: &HeaderMap) -> InFlight {
    let count = headers.get(RETRY_COUNT).and_then(|it| it.to_str().ok());
    let count: Option<u32> = count.and_then(|count| count.trim().parse().ok());
    match count {
        Some(1..) => InFlight::Join,
        Some(0) | None => Door::Proxy.in_flight(),
    }
}

/// Returns the host that was asked for.
fn host(parts: &Parts) -> Option<&str> {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    authority.or_else(|| parts.headers.get(header::HOST)?.to_str().ok())
}

/// Finds the key that is made of parts of a request.
fn business(
    rules: &Rules,
    parts: &Parts,
    body: &Received,
    name: &semel_core::Label,
) -> Result<Option<BusinessKey>, Refusal> {
    let from = &rules.derive_from;
    if from.headers.is_empty() && from.members.is_empty() {
        return Ok(None);
    }
    // Headers and body are one document, so that pointers can name the parts of both.
    let mut headers = Map::new();
    let mut pointers = Vec::new();
    for name in &from.headers {
        if let Some(value) = parts.headers.get(name) {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.as_str().to_owned(), Value::String(text));
        }
        pointers.push(format!("/headers/{name}"));
    }
    pointers.extend(
        from.members
            .iter()
            .map(|it| format!("/body{}", it.as_str())),
    );
    let pointers: Result<Vec<_>, _> = pointers.iter().map(|it| Pointer::new(it)).collect();
    let pointers = pointers.map_err(|error| Refusal::input(error.to_string()))?;
    let body = body.bytes().and_then(|bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        serde_json::from_str::<&RawValue>(text).ok()
    });
    let body = body.map_or("null", RawValue::get);
    let document = format!("{{\"headers\":{},\"body\":{body}}}", Value::Object(headers));
    // What has no single meaning names no business: the whole request does.
    Ok(BusinessKey::of(name, &pointers, document.as_bytes()).unwrap_or_default())
}
