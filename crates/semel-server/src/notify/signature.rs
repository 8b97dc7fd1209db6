//! Signatures of webhooks, as the Standard Webhooks specification has them.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use semel::core::Digest;

/// How a secret begins.
const PREFIX: &str = "whsec_";

/// How many bytes of a message SHA-256 works on at once.
const BLOCK: usize = 64;

/// What webhooks are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a secret: `whsec_` and 24 to 64 bytes in base64.
    ///
    /// # Errors
    /// Says what is wrong, without showing it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = text.strip_prefix(PREFIX);
        let bytes = bytes.and_then(|text| BASE64_STANDARD.decode(text).ok());
        match bytes {
            Some(bytes) if (24..=BLOCK).contains(&bytes.len()) => Ok(Self(bytes)),
            Some(_) | None => Err(format!(
                "a secret is {PREFIX} and 24 to 64 bytes in base64, as \
                 `echo {PREFIX}$(openssl rand -base64 32)` makes one"
            )),
        }
    }

    /// Signs a message: returns the whole value of the header.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let timestamp = timestamp.to_string();
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
        let mac = hmac(&self.0, &parts);
        format!("v1,{}", BASE64_STANDARD.encode(mac.0))
    }
}

/// HMAC-SHA-256 (RFC 2104) with a key that is not longer than a block.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> Digest {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
        block
    };
    let inner = padded(0x36);
    let mut message: Vec<&[u8]> = vec![&inner];
    message.extend(parts);
    Digest::of_parts(&[&padded(0x5c), &Digest::of_parts(&message).0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_rfc_4231() {
        for (key, data, mac) in [
            (
                vec![0x0b; 20],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 20],
                &[0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
        ] {
            assert_eq!(hmac(&key, &[data]).hex(), mac);
            let (a, b) = data.split_at(3);
            assert_eq!(hmac(&key, &[a, b]).hex(), mac);
        }
    }

    #[test]
    fn a_secret_has_its_form_and_is_never_shown() {
        let secret = Secret::parse(&format!("whsec_{}", BASE64_STANDARD.encode([7; 32])));
        assert_eq!(format!("{:?}", secret.expect("it is right")), "Secret");
        for text in ["", "whsec_", "whsec_AAAA", "whsec_***", "AAAAAAAAAAAAAAAA"] {
            let refused = Secret::parse(text).expect_err("it is wrong");
            assert!(text.len() < 7 || !refused.contains(text), "{refused}");
        }
        let long = format!("whsec_{}", BASE64_STANDARD.encode([7; 65]));
        assert!(Secret::parse(&long).is_err());
    }
}
