//! The token for the gateway itself, which a request may carry where credentials for the server stand.

use axum::http::{HeaderMap, header};
use semel::Token;
use semel::core::token::TokenError;

use crate::http::Problem;

/// Takes the token for the gateway out of the headers of a request, so that the server never sees it. Credentials for
/// the server stay.
pub(super) fn take_token(headers: &mut HeaderMap) -> Result<Option<String>, Problem> {
    let mut lines = headers.get_all(header::AUTHORIZATION).into_iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(crate::auth::unauthorized());
    }
    let token = line.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        let token = token.trim();
        // A token with a typing error in it is still none of the server's business.
        let is_ours = !matches!(token.parse::<Token>(), Err(TokenError::Shape));
        (scheme.eq_ignore_ascii_case("bearer") && is_ours).then(|| token.to_owned())
    });
    if token.is_some() {
        headers.remove(header::AUTHORIZATION);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn credentials_for_the_server_stay() {
        for text in ["Bearer abc", "Basic abc", "abc", ""] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(text));
            let found = take_token(&mut headers).expect("it can be read");
            assert_eq!(found, None, "{text}");
            assert_eq!(headers[header::AUTHORIZATION], text);
        }
        assert_eq!(take_token(&mut HeaderMap::new()).expect("it is none"), None);
    }

    #[test]
    fn two_lines_of_authorization_are_refused() {
        let mut headers = HeaderMap::new();
        for text in ["Bearer a", "Bearer b"] {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(text));
        }
        assert!(take_token(&mut headers).is_err());
    }
}
