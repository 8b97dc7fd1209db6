//! Whether a signature is right: over the bytes as they came, with any of the secrets, and made lately.

use super::delivery::Delivery;
use super::json;
use super::mac::{self, Algorithm, Encoding};
use super::proof::{Proof, Tolerance, Verified};
use super::refusal::Refusal;
use super::scheme::{Keyed, Scheme};
use crate::time::Timestamp;

/// What a delivery claims: the signatures that it brings, over which bytes, and when they were made.
struct Claim<'a> {
    sent: Vec<Vec<u8>>,
    signed: Vec<&'a [u8]>,
    algorithm: Algorithm,
    at: Option<Timestamp>,
    id: Option<&'a [u8]>,
}

impl Proof {
    /// Says whether a delivery is its sender's and of now.
    ///
    /// The signature is looked at before its time: nobody without a secret learns what is tolerated.
    ///
    /// # Errors
    /// Says what is missing or wrong.
    pub fn verify(&self, delivery: &Delivery<'_>, now: Timestamp) -> Result<Verified, Refusal> {
        let claim = match &self.scheme {
            Scheme::Standard => standard(delivery)?,
            Scheme::Stripe => stripe(delivery)?,
            Scheme::Github => github(delivery)?,
            Scheme::Slack => slack(delivery)?,
            Scheme::Hmac(keyed) => generic(keyed, delivery)?,
            Scheme::None => return Ok(Verified { id: None, at: None }),
        };
        let made = self.secrets.iter();
        let made: Vec<_> = made
            .map(|secret| claim.algorithm.code(secret, &claim.signed))
            .collect();
        if !mac::is_any(&claim.sent, &made) {
            return Err(Refusal::WrongSignature);
        }
        if let Some(at) = claim.at {
            timely(at, self.tolerance, now)?;
        }
        Ok(Verified {
            id: claim.id.map(<[u8]>::to_vec),
            at: claim.at,
        })
    }
}

/// Refuses what was signed too long ago, or too far ahead.
fn timely(at: Timestamp, tolerance: Tolerance, now: Timestamp) -> Result<(), Refusal> {
    let tolerance = tolerance.length();
    let (age, ahead) = (now.since(at), at.since(now));
    if age > tolerance {
        return Err(Refusal::TooOld { age, tolerance });
    }
    if ahead > tolerance {
        return Err(Refusal::TooNew { ahead, tolerance });
    }
    Ok(())
}

/// `webhook-signature: v1,BASE64 v1,BASE64`, over `ID.TIMESTAMP.BODY`.
///
/// All three headers come from one family: an id that nobody signed must not stand beside a signature of another.
fn standard<'a>(delivery: &Delivery<'a>) -> Result<Claim<'a>, Refusal> {
    let is_there = |family: &str| {
        let mut names = delivery.headers.iter().map(|(name, _)| name);
        names.any(|name| PARTS.iter().any(|part| is_part(name, family, part)))
    };
    let family = match is_there("svix") && !is_there("webhook") {
        true => "svix",
        false => "webhook",
    };
    let header = |part: &str| delivery.needed(&format!("{family}-{part}"));
    let [id, timestamp, signature] = [header(PARTS[0])?, header(PARTS[1])?, header(PARTS[2])?];
    // With a dot in the id, the same signed bytes could be split into another id, time and body.
    if id.contains(&b'.') {
        return Err(malformed(&format!("{family}-id"), "an id without a dot"));
    }
    let each = signature.split(|byte| *byte == b' ');
    Ok(Claim {
        // Signatures of other versions may stand beside ours.
        sent: each
            .filter_map(|one| one.strip_prefix(b"v1,"))
            .filter_map(|code| Encoding::Base64.read(code))
            .collect(),
        signed: vec![id, b".", timestamp, b".", delivery.body],
        algorithm: Algorithm::Sha256,
        at: Some(seconds(&format!("{family}-timestamp"), timestamp)?),
        id: Some(id),
    })
}

const PARTS: [&str; 3] = ["id", "timestamp", "signature"];

fn is_part(name: &str, family: &str, part: &str) -> bool {
    name.split_once('-').is_some_and(|(first, rest)| {
        first.eq_ignore_ascii_case(family) && rest.eq_ignore_ascii_case(part)
    })
}

/// `Stripe-Signature: t=TIMESTAMP,v1=HEX,v1=HEX`, over `TIMESTAMP.BODY`.
fn stripe<'a>(delivery: &Delivery<'a>) -> Result<Claim<'a>, Refusal> {
    const NAME: &str = "Stripe-Signature";
    let (mut timestamp, mut sent) = (None, vec![]);
    let header = delivery.needed(NAME)?;
    for element in header.split(|byte| *byte == b',') {
        let element = element.trim_ascii();
        if let Some(text) = element.strip_prefix(b"t=") {
            // A second time would leave it open which one was signed.
            if timestamp.replace(text).is_some() {
                return Err(malformed(NAME, "one t= and any number of v1="));
            }
        } else if let Some(code) = element.strip_prefix(b"v1=") {
            sent.extend(Encoding::Hex.read(code));
        }
    }
    let timestamp = timestamp.ok_or_else(|| malformed(NAME, "one t= and any number of v1="))?;
    Ok(Claim {
        sent,
        signed: vec![timestamp, b".", delivery.body],
        algorithm: Algorithm::Sha256,
        at: Some(seconds(NAME, timestamp)?),
        id: None,
    })
}

/// `X-Hub-Signature-256: sha256=HEX`, over the body. The older header, with SHA-1, proves nothing any more.
fn github<'a>(delivery: &Delivery<'a>) -> Result<Claim<'a>, Refusal> {
    let header = delivery.needed("X-Hub-Signature-256")?;
    Ok(Claim {
        sent: prefixed(header, "sha256=", Encoding::Hex),
        signed: vec![delivery.body],
        algorithm: Algorithm::Sha256,
        at: None,
        id: None,
    })
}

/// `X-Slack-Signature: v0=HEX`, over `v0:TIMESTAMP:BODY`.
fn slack<'a>(delivery: &Delivery<'a>) -> Result<Claim<'a>, Refusal> {
    const TIMESTAMP: &str = "X-Slack-Request-Timestamp";
    let header = delivery.needed("X-Slack-Signature")?;
    let timestamp = delivery.needed(TIMESTAMP)?;
    Ok(Claim {
        sent: prefixed(header, "v0=", Encoding::Hex),
        signed: vec![b"v0:", timestamp, b":", delivery.body],
        algorithm: Algorithm::Sha256,
        at: Some(seconds(TIMESTAMP, timestamp)?),
        id: None,
    })
}

/// An HMAC as the settings describe it.
fn generic<'a>(keyed: &'a Keyed, delivery: &Delivery<'a>) -> Result<Claim<'a>, Refusal> {
    let header = delivery.needed(&keyed.header)?;
    let (timestamp, at) = match &keyed.timestamp {
        Some(name) => {
            let text = delivery.needed(name)?;
            (text, Some(seconds(name, text)?))
        }
        None => (&b""[..], None),
    };
    Ok(Claim {
        sent: prefixed(header, &keyed.prefix, keyed.encoding),
        signed: keyed.signed.fill(timestamp, delivery.body),
        algorithm: keyed.algorithm,
        at,
        id: None,
    })
}

/// Reads the one code of a header.
fn prefixed(header: &[u8], prefix: &str, encoding: Encoding) -> Vec<Vec<u8>> {
    let code = header.strip_prefix(prefix.as_bytes());
    let code = code.and_then(|code| encoding.read(code));
    code.into_iter().collect()
}

/// Reads seconds since 1970, written in digits and nothing else.
fn seconds(name: &str, text: &[u8]) -> Result<Timestamp, Refusal> {
    let wrong = || malformed(name, "a time in seconds since 1970");
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| is_number);
    let seconds: i64 = text.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    seconds
        .checked_mul(1_000_000)
        .map(Timestamp)
        .ok_or_else(wrong)
}

fn malformed(name: &str, wanted: &'static str) -> Refusal {
    let name = name.to_owned();
    Refusal::MalformedHeader { name, wanted }
}

/// Returns what Slack asks an address to say before it sends events there; only a delivery that was verified may be
/// answered with it.
#[must_use]
pub fn challenge(body: &[u8]) -> Option<String> {
    let canonical = json::canonical(body).ok()?;
    let text = |member: &str| json::text(json::find(&canonical, member)?);
    (text("/type")? == "url_verification")
        .then(|| text("/challenge"))
        .flatten()
}
