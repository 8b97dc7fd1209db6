//! The token for the proxy itself, which a request carries beside its credentials for the upstream.

use axum::http::{HeaderMap, HeaderName, header};
use semel::Token;
use semel::core::token::TokenError;

use crate::auth::unauthorized;
use crate::http::Problem;

/// A token for the proxy itself.
pub(super) const SEMEL_TOKEN: HeaderName = HeaderName::from_static("semel-token");

/// Takes the token for the proxy out of what goes to the upstream.
///
/// One that was put where the upstream's credentials belong is taken, too: it is nobody else's business.
pub(super) fn token(headers: &mut HeaderMap) -> Result<Option<String>, Problem> {
    let mut found = vec![];
    for line in headers.get_all(SEMEL_TOKEN) {
        found.push(line.to_str().map_err(|_| refused())?.trim().to_owned());
    }
    for line in headers.get_all(header::PROXY_AUTHORIZATION) {
        let text = line.to_str().map_err(|_| refused())?;
        found.push(bearer(text).ok_or_else(refused)?.to_owned());
    }
    let misplaced: Vec<String> = headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .filter_map(|line| bearer(line.to_str().ok()?))
        // One with a slip in it is still a token of ours.
        .filter(|text| !matches!(text.parse::<Token>(), Err(TokenError::Shape)))
        .map(str::to_owned)
        .collect();
    if !misplaced.is_empty() {
        headers.remove(header::AUTHORIZATION);
    }
    found.extend(misplaced);
    headers.remove(SEMEL_TOKEN);
    headers.remove(header::PROXY_AUTHORIZATION);
    if found.len() > 1 {
        return Err(refused());
    }
    Ok(found.pop())
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Says that there is no valid token, and where it belongs.
pub(super) fn refused() -> Problem {
    let hint = "send `Semel-Token: TOKEN`; `semel token create --scope write` makes one";
    unauthorized().hint(hint)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use semel::{Engine, NewToken, Scope};

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_str(value).expect("it is one");
            headers.append(*name, value);
        }
        headers
    }

    #[tokio::test]
    async fn a_token_for_the_proxy_never_goes_on() {
        let engine = Engine::open("memory:").await.expect("it opens");
        let wanted = NewToken {
            namespace: semel::Namespace::default(),
            scope: Scope::Write,
            label: None,
            expires_in: None,
        };
        let (made, _) = engine.create_token(wanted).await.expect("it is made");
        let text = made.reveal();
        let as_bearer = format!("Bearer {text}");
        for (name, value) in [
            ("semel-token", &text),
            ("proxy-authorization", &as_bearer),
            ("authorization", &as_bearer),
        ] {
            let mut headers = headers(&[(name, value), ("cookie", "x")]);
            let found = token(&mut headers).expect("it can be read");
            assert_eq!(found.as_deref(), Some(text.as_str()), "{name}");
            assert_eq!(headers.keys().collect::<Vec<_>>(), ["cookie"], "{name}");
        }
        let mut both = headers(&[("semel-token", &text), ("authorization", "Bearer theirs")]);
        assert!(token(&mut both).expect("it can be read").is_some());
        assert_eq!(both["authorization"], "Bearer theirs");
        for lines in [
            [
                ("semel-token", text.as_str()),
                ("semel-token", text.as_str()),
            ],
            [
                ("semel-token", text.as_str()),
                ("proxy-authorization", as_bearer.as_str()),
            ],
            [("proxy-authorization", "Basic abc"), ("cookie", "x")],
        ] {
            assert!(token(&mut headers(&lines)).is_err(), "{lines:?}");
        }
    }
}
