//! The principal: whose request it is, by the credentials that it carries.
//!
//! [`CredentialRule`] says which credentials count. They are hashed with a key of the store's, and never stored themselves.

use axum::http::{HeaderMap, header};
use semel::core::http::CredentialRule;
use semel::core::http::credentials::add_token;

use crate::http::Problem;
use crate::principal_key::PrincipalKey;

/// The credentials of a request, as far as they count.
#[derive(Debug)]
pub(crate) struct ShownCredentials {
    /// Canonical bytes; none where the request carries no credentials for the upstream.
    credentials: Option<Vec<u8>>,
    /// Whether a token of Semel's own counts beside them: it stands where credentials for a proxy do.
    counts_token: bool,
}

impl ShownCredentials {
    /// Reads the credentials of a request. A token of Semel's own must be out of its headers by now.
    pub(crate) fn new(headers: &HeaderMap, query: Option<&str>, rule: &CredentialRule) -> Self {
        let lines = headers.iter();
        let lines = lines.map(|(name, value)| (name.as_str(), value.as_bytes()));
        Self {
            credentials: rule.read(lines, query),
            counts_token: rule.counts_header(header::PROXY_AUTHORIZATION.as_str()),
        }
    }

    /// Names the caller; `holder` is the token that it showed. `None` for a caller without credentials.
    pub(crate) async fn principal(
        self,
        holder: Option<String>,
        key: &PrincipalKey,
    ) -> Result<Option<String>, Problem> {
        let Some(mut credentials) = self.credentials else {
            return Ok(holder);
        };
        if let Some(holder) = holder.filter(|_| self.counts_token) {
            add_token(&mut credentials, &holder);
        }
        key.principal(&credentials).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use semel::core::http::CredentialSource;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().expect("it is a name");
            headers.append(name, HeaderValue::from_str(value).expect("it is one"));
        }
        headers
    }

    async fn open_key() -> PrincipalKey {
        let engine = semel::Engine::open("memory:").await.expect("it opens");
        PrincipalKey::open(&engine, "proxy")
            .await
            .expect("it opens")
    }

    async fn named(
        key: &PrincipalKey,
        lines: &[(&str, &str)],
        holder: Option<&str>,
        rule: &CredentialRule,
    ) -> Option<String> {
        let shown = ShownCredentials::new(&headers(lines), None, rule);
        let named = shown.principal(holder.map(str::to_owned), key).await;
        named.expect("the ledger is there")
    }

    #[tokio::test]
    async fn c057_each_set_of_credentials_has_its_own_principal() {
        let (rule, own) = (CredentialRule::default(), open_key().await);
        let own = &own;
        let shown: &[&[(&str, &str)]] = &[
            &[],
            &[("authorization", "Bearer a")],
            &[("authorization", "Bearer b")],
            &[("authorization", "Basic a")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[("authorization", "Bearer aBearer b")],
            &[("authorization", "Bearer a"), ("x-api-key", "a")],
            &[("authorization", "Bearer a"), ("stripe-account", "a")],
            &[("x-api-key", "a")],
            &[("x-api-key", "b")],
            &[("api-key", "a")],
            &[("x-goog-api-key", "a")],
            &[("cookie", "session=a")],
            &[("cookie", "session=b")],
            &[("cookie", "Bearer a")],
        ];
        let mut names = vec![];
        for lines in shown {
            names.push(named(own, lines, None, &rule).await);
        }
        for (at, name) in names.iter().enumerate() {
            assert_eq!(*name, named(own, shown[at], None, &rule).await, "{at}");
            assert!(!names[..at].contains(name), "{:?}", shown[at]);
            assert_eq!(name.is_none(), at == 0);
        }
    }

    #[tokio::test]
    async fn c057_a_token_counts_beside_credentials_for_the_upstream() {
        let (rule, own) = (CredentialRule::default(), open_key().await);
        let own = &own;
        let (ann, bob) = (Some("token ann"), Some("token bob"));
        assert_eq!(named(own, &[], ann, &rule).await.as_deref(), ann);
        let key: &[(&str, &str)] = &[("authorization", "Bearer shared")];
        assert_ne!(
            named(own, key, ann, &rule).await,
            named(own, key, bob, &rule).await
        );
        assert_ne!(
            named(own, key, ann, &rule).await,
            named(own, key, None, &rule).await
        );
        assert_eq!(
            named(own, key, ann, &rule).await,
            named(own, key, ann, &rule).await
        );
        // A token is no credential for the upstream: the cookie beside it counts.
        let first = named(own, &[("cookie", "session=1")], ann, &rule).await;
        let second = named(own, &[("cookie", "session=2")], ann, &rule).await;
        assert_ne!(first, second);
        // Where a route names its credentials, the token counts only if they are not there.
        let only = CredentialRule {
            sources: vec![CredentialSource::Header("x-user".to_owned())],
            ..CredentialRule::default()
        };
        let user: &[(&str, &str)] = &[("x-user", "7")];
        assert_eq!(
            named(own, user, ann, &only).await,
            named(own, user, bob, &only).await
        );
        assert_ne!(
            named(own, &[], ann, &only).await,
            named(own, &[], bob, &only).await
        );
    }

    #[tokio::test]
    async fn c059_a_principal_does_not_show_credentials_and_depends_on_the_key() {
        let (rule, own) = (CredentialRule::default(), open_key().await);
        let own = &own;
        let lines = [("authorization", "Bearer secret")];
        let name = named(own, &lines, None, &rule).await.expect("a name");
        assert!(!name.contains("secret"), "{name}");
        assert_eq!(name.len(), "auth ".len() + 32);
        let other = open_key().await;
        assert_ne!(Some(name), named(&other, &lines, None, &rule).await);
    }
}
