//! Whose a request is: a token's, or that of whoever shows the same credentials to the server.

use axum::http::{HeaderMap, header};
use semel::Token;
use semel::core::token::TokenError;

use crate::http::Problem;
use crate::pepper::Pepper;

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
