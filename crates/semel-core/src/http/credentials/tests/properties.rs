use proptest::prelude::*;

use super::table::SIGNATURES;
use super::{read, read_by};
use crate::http::credentials::{CredentialRule, CredentialSource};

/// Any value that a credential may have, without spaces around it.
fn value() -> impl Strategy<Value = String> {
    "[!-~]([ -~]{0,12}[!-~])?"
}

/// A word that can stand in every template, quoted or not.
fn word() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+._-]{1,20}"
}

/// The name of a header that carries a credential by the default rule, and a value for it. Values that begin with a
/// signature scheme are made by the templates.
fn credential() -> impl Strategy<Value = (String, String)> {
    let endings: Vec<_> = CredentialRule::SOURCES
        .iter()
        .filter_map(|text| text.strip_prefix('*'))
        .collect();
    let accounts = vec![
        "Stripe-Account",
        "OpenAI-Organization",
        "OpenAI-Project",
        "X-Goog-User-Project",
    ];
    prop_oneof![
        (
            proptest::sample::select(vec!["Bearer", "Basic", "token"]),
            value()
        )
            .prop_map(|(scheme, value)| ("Authorization".to_owned(), format!("{scheme} {value}"))),
        ("[a-zA-Z-]{0,8}", proptest::sample::select(endings), value())
            .prop_map(|(start, ending, value)| (format!("{start}{ending}"), value)),
        (proptest::sample::select(accounts), value())
            .prop_map(|(name, value)| (name.to_owned(), value)),
    ]
}

/// Headers that change between two attempts of one caller.
fn noise() -> impl Strategy<Value = Vec<(String, String)>> {
    let names = vec![
        "user-agent",
        "traceparent",
        "x-request-id",
        "date",
        "x-amz-date",
        "idempotency-key",
        "x-stainless-retry-count",
        "accept-encoding",
        "content-length",
    ];
    let line = (proptest::sample::select(names), value());
    let line = line.prop_map(|(name, value)| (name.to_owned(), value));
    proptest::collection::vec(line, 0..4)
}

fn lines<'a>(parts: &[&'a [(String, String)]]) -> Vec<(&'a str, &'a str)> {
    let all = parts.iter().flat_map(|part| part.iter());
    all.map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// What a list of lines means where every header counts as a whole: values by name, in the order of their lines.
fn meaning(lines: &[(String, String)]) -> Vec<(String, Vec<String>)> {
    let mut grouped: Vec<(String, Vec<String>)> = vec![];
    for (name, value) in lines {
        let name = name.to_ascii_lowercase();
        match grouped.iter_mut().find(|(own, _)| *own == name) {
            Some((_, values)) => values.push(value.clone()),
            None => grouped.push((name, vec![value.clone()])),
        }
    }
    grouped.sort();
    grouped
}

proptest! {
    #[test]
    fn c057_another_credential_is_another_caller(
        shared in proptest::collection::vec(credential(), 0..3),
        (name, one) in credential(),
        other in value(),
        before in noise(),
        after in noise(),
    ) {
        prop_assume!(one != other);
        let (ann, bob) = ([(name.clone(), one)], [(name, other)]);
        let first = read(&lines(&[&before, &shared, &ann]));
        prop_assert!(first.is_some());
        prop_assert_ne!(&first, &read(&lines(&[&after, &shared, &bob])));
        // Neither is a caller without it, nor one that has both.
        prop_assert_ne!(&first, &read(&lines(&[&after, &shared])));
        prop_assert_ne!(&first, &read(&lines(&[&shared, &ann, &bob])));
        // The same caller with other headers around is the same caller.
        prop_assert_eq!(&first, &read(&lines(&[&shared, &ann, &after])));
    }

    #[test]
    fn c057_another_session_cookie_is_another_caller(
        one in word(), other in word(), name in "(session|sid|_app_session|[a-z]{3,8})", rest in word(),
    ) {
        prop_assume!(one != other);
        let ann = format!("theme={rest}; {name}={one}");
        let bob = format!("theme={rest}; {name}={other}");
        prop_assert_ne!(read(&[("Cookie", &ann)]), read(&[("Cookie", &bob)]));
        prop_assert_ne!(read(&[("Cookie", &ann)]), None);
        let again = format!("AWSALB={other}; {name}={one}; _ga={one}; theme={rest}");
        prop_assert_eq!(read(&[("Cookie", &ann)]), read(&[("Cookie", &again)]));
    }

    #[test]
    fn c058_a_changed_cookie_beside_a_credential_is_the_same_caller(
        secret in value(), one in value(), other in value(),
        name in proptest::sample::select(vec!["Authorization", "X-Api-Key", "x-auth-token"]),
    ) {
        prop_assume!(!["bearer", "basic"].contains(&secret.to_ascii_lowercase().as_str()));
        let first = read(&[(name, &secret), ("Cookie", &one)]);
        prop_assert_eq!(&first, &read(&[("Cookie", &other), (name, &secret)]));
        prop_assert_eq!(&first, &read(&[(name, &secret)]));
    }

    #[test]
    fn c058_a_request_that_is_signed_again_is_the_same_caller(
        (name, template) in proptest::sample::select(SIGNATURES.to_vec()),
        key in word(), another in word(),
        (day, later) in ("[0-3][0-9]", "[0-3][0-9]"),
        (signature, renewed) in (word(), word()),
    ) {
        let signed = |key: &str, day: &str, signature: &str| {
            let text = template.replace("{key}", key).replace("{day}", day);
            read(&[(name, &text.replace("{signature}", signature))])
        };
        let first = signed(&key, &day, &signature);
        prop_assert_eq!(&first, &signed(&key, &later, &renewed));
        prop_assert_eq!(first == signed(&another, &day, &signature), key == another);
    }

    /// No two lists of credentials share their bytes, wherever one value ends and the next begins.
    #[test]
    fn canonical_bytes_are_unambiguous(
        one in proptest::collection::vec(("[ab]", "[ab]([ab ]{0,3}[ab])?"), 0..5),
        other in proptest::collection::vec(("[ab]", "[ab]([ab ]{0,3}[ab])?"), 0..5),
    ) {
        let sources = ["a", "b"].map(|name| CredentialSource::Header(name.to_owned()));
        let rule = CredentialRule { sources: sources.to_vec(), ..CredentialRule::default() };
        let bytes = |part: &[(String, String)]| read_by(&rule, &lines(&[part]));
        prop_assert_eq!(bytes(&one) == bytes(&other), meaning(&one) == meaning(&other));
    }

    /// Nor do two lists of cookies: `a=bb` is not `ab=b`.
    #[test]
    fn canonical_cookies_are_unambiguous(
        one in proptest::collection::vec(("[ab]{1,2}", "[ab]{0,2}"), 1..4),
        other in proptest::collection::vec(("[ab]{1,2}", "[ab]{0,2}"), 1..4),
    ) {
        let bytes = |cookies: &[(String, String)]| {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            read(&[("Cookie", &pairs.join("; "))])
        };
        let sorted = |cookies: &[(String, String)]| {
            let mut cookies = cookies.to_vec();
            cookies.sort_by_key(|(name, _)| name.clone());
            cookies
        };
        prop_assert_eq!(bytes(&one) == bytes(&other), sorted(&one) == sorted(&other));
    }

    #[test]
    fn anything_can_be_read(
        lines in proptest::collection::vec((
            "(authorization|cookie|signature|signature-input|ucp-agent|x-api-key)",
            proptest::collection::vec(any::<u8>(), 0..40),
        ), 0..4),
        query in proptest::option::of("\\PC{0,30}"),
    ) {
        let mut rule = CredentialRule::default();
        for text in ["profile:UCP-Agent", "jwt:Authorization"] {
            rule.sources.push(CredentialSource::parse(text).unwrap());
            let lines = lines.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let _ = rule.read(lines, query.as_deref());
        }
    }
}
