//! Whose a request is: a token's, or that of whoever shows the same credentials to the server.

use std::fmt;

use axum::http::{HeaderMap, header};
use semel::Token;
use semel::core::token::TokenError;

use crate::http::Problem;
use crate::notify::hmac;

/// How many bytes of a keyed hash name somebody.
const NAME_BYTES: usize = 16;

/// What credentials are hashed with, so that nobody can guess them from what is stored.
#[derive(Clone)]
pub(crate) struct Pepper(Vec<u8>);

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper")
    }
}

impl Pepper {
    /// Takes 16 to 64 bytes that nobody else knows and that stay the same: a principal is part of a call's scope.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Self, String> {
        if (16..=64).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        Err("16 to 64 bytes are needed".to_owned())
    }

    /// Names whoever shows these credentials.
    fn principal(&self, credentials: &[u8]) -> String {
        let hash = hmac(&self.0, &[credentials]);
        let name = hash.0[..NAME_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"));
        format!("auth {}", name.collect::<String>())
    }
}

/// Whose a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nobody's.
    Nothing,
    /// A token for this gateway, which is to be checked, and is not for the server.
    Token(String),
    /// Credentials for the server.
    Others {
        /// What names their owner.
        principal: String,
    },
}

/// Reads what a request shows.
pub(super) fn shown(headers: &HeaderMap, pepper: &Pepper) -> Result<Shown, Problem> {
    let mut lines = headers.get_all(header::AUTHORIZATION).into_iter();
    let Some(line) = lines.next() else {
        return Ok(Shown::Nothing);
    };
    if lines.next().is_some() {
        return Err(crate::auth::unauthorized());
    }
    let token = line.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        let token = token.trim();
        // One with a slip in it is still nobody else's business.
        let is_ours = !matches!(token.parse::<Token>(), Err(TokenError::Shape));
        (scheme.eq_ignore_ascii_case("bearer") && is_ours).then(|| token.to_owned())
    });
    Ok(match token {
        Some(token) => Shown::Token(token),
        None => Shown::Others {
            principal: pepper.principal(line.as_bytes()),
        },
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn showing(text: &'static str) -> Shown {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(text));
        let pepper = Pepper::new(vec![7; 32]).expect("it is long enough");
        shown(&headers, &pepper).expect("it can be read")
    }

    #[test]
    fn whoever_shows_the_same_is_the_same() {
        let one = showing("Bearer abc");
        assert_eq!(one, showing("Bearer abc"));
        assert_ne!(one, showing("Bearer abd"));
        let Shown::Others { principal } = one else {
            panic!("{one:?}");
        };
        assert!(!principal.contains("abc"), "{principal}");
        assert_eq!(principal.len(), "auth ".len() + 32);
    }

    #[test]
    fn what_is_stored_cannot_be_guessed_without_the_pepper() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            HeaderValue::from_static("Bearer abc"),
        );
        let other = Pepper::new(vec![8; 32]).expect("it is long enough");
        assert_ne!(
            shown(&headers, &other).expect("it can be read"),
            showing("Bearer abc")
        );
        assert!(Pepper::new(vec![]).is_err());
    }
}
