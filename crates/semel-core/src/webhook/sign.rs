//! Signing as the sender would: for those who test their inbox.

use super::mac::{Algorithm, Encoding};
use super::proof::Proof;
use super::scheme::Scheme;
use crate::time::Timestamp;

impl Proof {
    /// Returns the headers with which a sender would deliver this body: signed with the first secret, at this time.
    ///
    /// `id` is what Standard Webhooks signs; other schemes have it elsewhere.
    #[must_use]
    pub fn sign(&self, id: &str, body: &[u8], now: Timestamp) -> Vec<(String, String)> {
        let Some(secret) = self.secrets.first() else {
            return vec![];
        };
        let timestamp = now.0.div_euclid(1_000_000).to_string();
        let time = timestamp.as_bytes();
        let hex = |parts: &[&[u8]]| Encoding::Hex.write(&Algorithm::Sha256.code(secret, parts));
        let named = |pairs: Vec<(&str, String)>| {
            let pairs = pairs.into_iter();
            pairs
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        };
        match &self.scheme {
            Scheme::Standard => {
                let parts = [id.as_bytes(), b".", time, b".", body];
                let code = Encoding::Base64.write(&Algorithm::Sha256.code(secret, &parts));
                named(vec![
                    ("webhook-id", id.to_owned()),
                    ("webhook-timestamp", timestamp),
                    ("webhook-signature", format!("v1,{code}")),
                ])
            }
            Scheme::Stripe => {
                let code = hex(&[time, b".", body]);
                named(vec![(
                    "Stripe-Signature",
                    format!("t={timestamp},v1={code}"),
                )])
            }
            Scheme::Github => {
                let code = hex(&[body]);
                named(vec![("X-Hub-Signature-256", format!("sha256={code}"))])
            }
            Scheme::Slack => {
                let code = hex(&[b"v0:", time, b":", body]);
                named(vec![
                    ("X-Slack-Request-Timestamp", timestamp),
                    ("X-Slack-Signature", format!("v0={code}")),
                ])
            }
            Scheme::Hmac(keyed) => {
                let parts = keyed.signed.fill(time, body);
                let code = keyed.encoding.write(&keyed.algorithm.code(secret, &parts));
                let signature = format!("{}{code}", keyed.prefix);
                let mut headers = named(vec![(&keyed.header, signature)]);
                let dated = keyed.timestamp.clone();
                headers.extend(dated.map(|name| (name, timestamp.clone())));
                headers
            }
            Scheme::None => vec![],
        }
    }
}
