//! On whose behalf a request comes.
//!
//! Whoever shows the upstream the same credentials is the same: they are hashed with a key, and never stored. Nothing
//! in them is believed without being checked: the claims of a token that nobody verified here say nothing.

use axum::http::{HeaderMap, HeaderName, header};
use semel::Token;
use semel::core::token::TokenError;

use crate::auth::unauthorized;
use crate::http::Problem;
use crate::pepper::Pepper;

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

/// Names whoever shows these credentials; `None` for nobody.
pub(super) fn principal(
    headers: &HeaderMap,
    names: &[HeaderName],
    pepper: &Pepper,
) -> Option<String> {
    let name = names.iter().find(|name| headers.contains_key(*name))?;
    // What stands in one header is not what stands in another, and two lines are not one.
    let mut credentials = name.as_str().as_bytes().to_vec();
    for line in headers.get_all(name) {
        credentials.extend((line.len() as u64).to_be_bytes());
        credentials.extend(line.as_bytes());
    }
    Some(pepper.principal(&credentials))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use semel::{Engine, NewToken, Scope};

    use super::super::CREDENTIALS;
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_str(value).expect("it is one");
            headers.append(*name, value);
        }
        headers
    }

    fn named(lines: &[(&'static str, &str)], names: &[HeaderName]) -> Option<String> {
        let pepper = Pepper::new(vec![7; 32]).expect("it is long enough");
        principal(&headers(lines), names, &pepper)
    }

    #[test]
    fn c057_other_credentials_are_somebody_else_s() {
        let shown: &[&[(&'static str, &str)]] = &[
            &[],
            &[("authorization", "Bearer a")],
            &[("authorization", "Bearer b")],
            &[("authorization", "Basic a")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[("authorization", "Bearer aBearer b")],
            &[("cookie", "session=a")],
            &[("cookie", "session=b")],
            &[("cookie", "Bearer a")],
        ];
        let names: Vec<_> = shown.iter().map(|it| named(it, &CREDENTIALS)).collect();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(*name, named(shown[at], &CREDENTIALS), "{at}");
            assert!(!names[..at].contains(name), "{:?}", shown[at]);
            assert_eq!(name.is_none(), at == 0);
        }
    }

    #[test]
    fn c057_a_route_may_name_the_header_that_counts() {
        let key = [HeaderName::from_static("x-api-key")];
        assert_eq!(named(&[("authorization", "Bearer a")], &key), None);
        let one = named(&[("x-api-key", "a")], &key);
        assert!(one.is_some());
        assert_ne!(one, named(&[("x-api-key", "b")], &key));
    }

    #[test]
    fn c058_whoever_is_told_by_another_header_may_refresh_a_token() {
        let account = [HeaderName::from_static("x-account")];
        let before = named(
            &[("authorization", "Bearer a"), ("x-account", "7")],
            &account,
        );
        let after = named(
            &[("authorization", "Bearer b"), ("x-account", "7")],
            &account,
        );
        assert_eq!(before, after);
        let first = named(
            &[("authorization", "Bearer a"), ("cookie", "x")],
            &CREDENTIALS,
        );
        let other = named(
            &[("authorization", "Bearer a"), ("cookie", "y")],
            &CREDENTIALS,
        );
        assert_eq!(first, other, "the first header that is there counts");
    }

    #[test]
    fn nobody_reads_credentials_from_a_name() {
        let name = named(&[("authorization", "Bearer secret")], &CREDENTIALS).expect("a name");
        assert!(!name.contains("secret"), "{name}");
        let other = Pepper::new(vec![8; 32]).expect("it is long enough");
        let headers = headers(&[("authorization", "Bearer secret")]);
        assert_ne!(Some(name), principal(&headers, &CREDENTIALS, &other));
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
