use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::{read, read_by, rule};
use crate::http::credentials::{
    CookiePattern, CredentialError, CredentialRule, CredentialSource, is_same,
};

/// Header names that vendors use for credentials.
const CREDENTIAL_HEADERS: [&str; 24] = [
    "Authorization",
    "Proxy-Authorization",
    "X-Api-Key",
    "api-key",
    "api_key",
    "apikey",
    "XApiKey",
    "x-goog-api-key",
    "DD-API-KEY",
    "X-Auth-Key",
    "X-Api-Secret",
    "X-Auth-Token",
    "X-Shopify-Access-Token",
    "Private-Token",
    "X-Amz-Security-Token",
    "X-Vault-Token",
    "x-functions-key",
    "Ocp-Apim-Subscription-Key",
    "Stripe-Account",
    "OpenAI-Organization",
    "OpenAI-Project",
    "X-Goog-User-Project",
    "Cookie",
    "Signature-Input",
];

#[test]
fn c057_every_credential_header_tells_callers_apart() {
    for name in CREDENTIAL_HEADERS {
        let value = |who: &str| match name {
            "Cookie" => format!("session={who}"),
            "Signature-Input" => format!("sig=(\"@method\");keyid=\"{who}\""),
            _ => who.to_owned(),
        };
        let (ann, bob) = (value("ann"), value("bob"));
        let (ann, bob) = (read(&[(name, &ann)]), read(&[(name, &bob)]));
        assert!(ann.is_some() && bob.is_some(), "{name}");
        assert_ne!(ann, bob, "{name}");
        assert!(CredentialRule::default().counts_header(name), "{name}");
    }
}

#[test]
fn c057_headers_that_change_between_attempts_do_not_count() {
    for (name, value) in [
        ("Idempotency-Key", "k"),
        ("User-Agent", "x"),
        ("X-Request-Id", "1"),
        ("traceparent", "00-1-1-00"),
        ("X-Stainless-Retry-Count", "1"),
        ("X-CSRF-Token", "1"),
        ("X-Amz-Date", "20261118T000000Z"),
        ("Signature", "sig=:YWJj:"),
        ("DPoP", "eyJ.eyJ.x"),
        ("X-Api-Key", ""),
        ("Authorization", "Bearer "),
        ("Authorization", "basic"),
        ("Cookie", ""),
        ("Cookie", "; ;"),
        ("Cookie", "AWSALB=1; _ga=2; __cf_bm=3"),
    ] {
        assert_eq!(read(&[(name, value)]), None, "{name}: {value}");
    }
}

/// `SCHEME KEY-ID SIGNATURE`, filled in by the tests.
pub(super) const SIGNATURES: [(&str, &str); 9] = [
    (
        "Authorization",
        "AWS4-HMAC-SHA256 Credential={key}/202611{day}/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature={signature}",
    ),
    (
        "Authorization",
        "AWS4-ECDSA-P256-SHA256 Credential={key}/202611{day}/iam/aws4_request,SignedHeaders=host,Signature={signature}",
    ),
    (
        "Authorization",
        "GOOG4-RSA-SHA256 Credential={key}/202611{day}/auto/storage/goog4_request, SignedHeaders=host, Signature={signature}",
    ),
    (
        "authorization",
        "Signature keyId=\"{key}\",algorithm=\"hs2019\",headers=\"(request-target) date\",created=17{day},signature=\"{signature}\"",
    ),
    (
        "Authorization",
        "Digest username=\"{key}\", realm=\"a, b\", nonce=\"{day}\", uri=\"/x?y=1\", qop=auth, nc=000000{day}, response=\"{signature}\"",
    ),
    (
        "Authorization",
        "OAuth oauth_consumer_key=\"c\", oauth_token=\"{key}\", oauth_nonce=\"{signature}\", oauth_timestamp=\"17{day}\"",
    ),
    (
        "Authorization",
        "Hawk id=\"{key}\", ts=\"17{day}\", nonce=\"j4h3g2\", mac=\"{signature}\"",
    ),
    ("Authorization", "SharedKey {key}:{signature}{day}"),
    (
        "Signature-Input",
        "sig1=(\"@method\" \"@query-param\";name=\"x\");created=17{day};keyid=\"{key}\";nonce=\"{signature}\"",
    ),
];

fn signed(template: &str, key: &str, day: &str, signature: &str) -> String {
    template
        .replace("{key}", key)
        .replace("{day}", day)
        .replace("{signature}", signature)
}

#[test]
fn c058_a_request_that_is_signed_again_is_the_same_caller() {
    for (name, template) in SIGNATURES {
        let first = read(&[(name, &signed(template, "AKID1", "17", "aa"))]);
        let again = read(&[(name, &signed(template, "AKID1", "18", "bb"))]);
        assert_eq!(first, again, "{template}");
        let other = read(&[(name, &signed(template, "AKID2", "17", "aa"))]);
        assert_ne!(first, other, "{template}");
    }
}

#[test]
fn a_key_id_that_cannot_be_read_counts_as_a_whole() {
    for (one, other) in [
        (
            "AWS4-HMAC-SHA256 Signature=1",
            "AWS4-HMAC-SHA256 Signature=2",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/1, Credential=b/1, Signature=1",
            "AWS4-HMAC-SHA256 Credential=a/1, Credential=b/1, Signature=2",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=/1, Signature=1",
            "AWS4-HMAC-SHA256 Credential=/1, Signature=2",
        ),
        ("Signature keyId=\"a", "Signature keyId=\"a\" x"),
        (
            "Digest username=\"a\", response=1",
            "Digest username=\"a\", response=2",
        ),
        (
            "OAuth oauth_token=\"a\", n=1",
            "OAuth oauth_token=\"a\", n=2",
        ),
        ("SharedKey 1", "SharedKey 2"),
        ("Unknown id=\"a\", n=1", "Unknown id=\"a\", n=2"),
    ] {
        let of = |text| read(&[("Authorization", text)]);
        assert!(of(one).is_some());
        assert_ne!(of(one), of(other), "{one}");
    }
    for (one, other) in [
        ("sig=();created=1", "sig=();created=2"),
        ("a=();keyid=\"x\", b=();n=1", "a=();keyid=\"x\", b=();n=2"),
        // A parameter of a component is not the signature's.
        ("a=(\"x\";keyid=\"k\");n=1", "a=(\"x\";keyid=\"k\");n=2"),
        (
            "a=();keyid=\"x\";keyid=\"y\";n=1",
            "a=();keyid=\"x\";keyid=\"y\";n=2",
        ),
        ("a=(;keyid=\"x\";n=1", "a=(;keyid=\"x\";n=2"),
    ] {
        let of = |text| read(&[("Signature-Input", text)]);
        assert!(of(one).is_some());
        assert_ne!(of(one), of(other), "{one}");
    }
}

/// Two quoted texts, or a comma in one, must not be read as the parameter of another caller.
#[test]
fn a_key_id_within_a_quoted_text_is_not_read() {
    let own = "Digest username=\"bob\", realm=\"r\", opaque=\"x, username=\\\"ann\\\"\"";
    let ann = "Digest username=\"ann\", realm=\"r\"";
    let bob = "Digest username=\"bob\", realm=\"r\"";
    let of = |text| read(&[("Authorization", text)]);
    assert_eq!(of(own), of(bob));
    assert_ne!(of(own), of(ann));
}

#[test]
fn a_signature_of_the_draft_counts_by_its_key_id() {
    let of = |text| read(&[("Signature", text)]);
    let first = of("keyId=\"https://a.example/#key\",signature=\"1\"");
    assert!(first.is_some());
    assert_eq!(
        first,
        of("keyId=\"https://a.example/#key\",signature=\"2\"")
    );
    assert_ne!(
        first,
        of("keyId=\"https://b.example/#key\",signature=\"1\"")
    );
}

#[test]
fn a_cookie_counts_where_nothing_else_proves_the_caller() {
    for (name, value) in [
        ("Authorization", "Bearer a"),
        ("X-Api-Key", "a"),
        ("X-Auth-Token", "a"),
    ] {
        let with = |cookie| read(&[(name, value), ("Cookie", cookie)]);
        assert_eq!(with("session=ann"), with("session=bob"), "{name}");
        assert_eq!(with("session=ann"), read(&[(name, value)]), "{name}");
    }
    // These say which account or agent is meant, or are for the proxy; they prove nothing about the user.
    for (name, value) in [
        ("Stripe-Account", "acct_1"),
        ("OpenAI-Organization", "org"),
        ("OpenAI-Project", "project"),
        ("X-Goog-User-Project", "project"),
        ("Proxy-Authorization", "Basic abc"),
        ("Signature-Input", "sig=();keyid=\"k\""),
        ("Authorization", "Bearer"),
        ("X-Api-Key", ""),
    ] {
        let with = |cookie| read(&[(name, value), ("Cookie", cookie)]);
        assert_ne!(with("session=ann"), with("session=bob"), "{name}");
    }
}

#[test]
fn cookies_of_load_balancers_and_analytics_do_not_count() {
    let first = read(&[("Cookie", "session=ann; AWSALB=1; _ga=2")]);
    for same in [
        "session=ann",
        "AWSALBCORS=3; session=ann; _ga_ABC123=4",
        " session = ann ;__cf_bm=x;; cf_clearance=y",
        "BIGipServerpool=1; ARRAffinitySameSite=2; _pk_ses.1.ab=1; session=ann",
    ] {
        assert_eq!(first, read(&[("Cookie", same)]), "{same}");
    }
    for other in [
        "session=bob",
        "session=ann; admin=1",
        "Session=ann",
        "session=ann; session=bob",
        "ann",
        // Rails names sessions after the application.
        "session=ann; _gateway_session=x",
        "session=ann; _ga2=x",
        "session=ann; awsalb=x",
    ] {
        assert_ne!(first, read(&[("Cookie", other)]), "{other}");
    }
}

#[test]
fn the_order_of_cookies_and_of_headers_does_not_matter() {
    let first = read(&[("Cookie", "a=1; b=2"), ("Cookie", "c=3")]);
    assert_eq!(first, read(&[("cookie", "c=3; b=2; a=1")]));
    // Of two cookies of one name, servers take the first.
    let twice = read(&[("Cookie", "a=1; a=2")]);
    assert_ne!(twice, read(&[("Cookie", "a=2; a=1")]));
    let one = read(&[("X-Api-Key", "1"), ("Authorization", "2")]);
    assert_eq!(one, read(&[("authorization", " 2 "), ("X-API-KEY", "1")]));
    let lines = read(&[("X-Api-Key", "1"), ("X-Api-Key", "2")]);
    assert_ne!(lines, read(&[("X-Api-Key", "2"), ("X-Api-Key", "1")]));
    assert_ne!(lines, read(&[("X-Api-Key", "1, 2")]));
}

fn token(payload: &str, signature: &str) -> String {
    let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
    format!("eyJhbGciOiJSUzI1NiJ9.{payload}.{signature}")
}

#[test]
fn c058_a_refreshed_token_is_another_caller_unless_issuer_and_subject_count() {
    let bearer = |payload: &str| format!("Bearer {}", token(payload, "c2ln"));
    let first = bearer(r#"{"iss":"https://i","sub":"ann","exp":1}"#);
    let refreshed = bearer(r#"{"sub": "ann", "exp": 2, "iss": "https://i"}"#);
    let plain = |text: &str| read(&[("Authorization", text)]);
    assert_ne!(plain(&first), plain(&refreshed));

    let by_subject = rule(&["jwt:Authorization"]);
    let of = |text: &str| read_by(&by_subject, &[("Authorization", text)]);
    assert_eq!(of(&first), of(&refreshed));
    assert_ne!(
        of(&first),
        of(&bearer(r#"{"iss":"https://i","sub":"bob"}"#))
    );
    assert_ne!(
        of(&first),
        of(&bearer(r#"{"iss":"https://j","sub":"ann"}"#))
    );
    // Whatever is not such a token counts as a whole.
    for payload in [
        r#"{"iss":"https://i","exp":1}"#,
        r#"{"sub":"ann","exp":1}"#,
        r#"{"iss":"https://i","sub":"","exp":1}"#,
        r#"{"iss":"https://i","sub":7,"exp":1}"#,
        r#"{"iss":"https://i","sub":"bob","sub":"ann","exp":1}"#,
        "not json",
    ] {
        let one = format!("Bearer {}", token(payload, "MQ"));
        let other = format!("Bearer {}", token(payload, "Mg"));
        assert_ne!(of(&one), of(&other), "{payload}");
        assert_ne!(of(&one), of(&first), "{payload}");
    }
    for (one, other) in [
        ("Bearer a", "Bearer b"),
        ("Basic a", "Basic b"),
        ("a.b", "a.c"),
    ] {
        assert_ne!(of(one), of(other));
    }
    // A later source for the same header takes the place of the earlier one.
    let mut both = CredentialRule::default();
    both.sources
        .push(CredentialSource::Jwt("authorization".to_owned()));
    let of = |text: &str| read_by(&both, &[("Authorization", text), ("X-Api-Key", "k")]);
    assert_eq!(of(&first), of(&refreshed));
    assert_ne!(of(&first), read_by(&both, &[("Authorization", &first)]));
}

#[test]
fn an_agent_is_told_by_its_profile_not_by_its_version() {
    let agents = rule(&["profile:UCP-Agent"]);
    let of = |text| read_by(&agents, &[("UCP-Agent", text)]);
    let first = of("profile=\"https://ann.example/p\"");
    for same in [
        "profile=\"https://ann.example/p\"; version=\"2099-01-01\"",
        "version=\"2026-01-11\", profile=\"https://ann.example/p\"",
        "profile=https://ann.example/p",
    ] {
        assert_eq!(first, of(same), "{same}");
    }
    for other in [
        "profile=\"https://bob.example/p\"",
        "profile=\"https://ann.example/p\", profile=\"https://bob.example/p\"",
        "profile=\"https://ann.example/p",
        "profile=\"\"",
        "https://ann.example/p",
        "x=\"profile=https://ann.example/p\"",
    ] {
        assert_ne!(first, of(other), "{other}");
        assert!(of(other).is_some(), "{other}");
    }
}

#[test]
fn credentials_in_the_query_count() {
    let default = CredentialRule::default();
    let of = |query: &str| default.read([], Some(query));
    for name in [
        "api_key",
        "api-key",
        "apikey",
        "access_token",
        "subscription-key",
        "api%5Fkey",
    ] {
        let ann = of(&format!("a=1&{name}=ann"));
        assert!(ann.is_some(), "{name}");
        assert_ne!(ann, of(&format!("a=1&{name}=bob")), "{name}");
        assert_eq!(ann, of(&format!("{name}=ann&b=2")), "{name}");
    }
    for without in ["", "key=1", "token=1", "a=api_key", "api_key=", "api_key"] {
        assert_eq!(of(without), None, "{without}");
    }
    let named = rule(&["query:key"]);
    assert!(named.read([], Some("key=1")).is_some());
    assert_eq!(named.read([], Some("Key=1&api_key=2")), None);
    // The same text elsewhere is another credential.
    assert_ne!(of("api_key=a"), read(&[("api_key", "a")]));
}

#[test]
fn a_cookie_that_is_named_counts_beside_everything() {
    let session = rule(&["Authorization", "cookie:session"]);
    let of = |cookie| {
        read_by(
            &session,
            &[("Authorization", "Bearer a"), ("Cookie", cookie)],
        )
    };
    assert_ne!(of("session=ann"), of("session=bob"));
    assert_eq!(of("session=ann"), of("theme=dark; session=ann"));
    assert!(session.counts_header("Cookie"));
    let whole = rule(&["Authorization", "whole:Cookie"]);
    let of = |cookie| read_by(&whole, &[("Authorization", "Bearer a"), ("Cookie", cookie)]);
    assert_ne!(of("a=1; b=2"), of("b=2; a=1"));
    let signed = rule(&["whole:Authorization"]);
    let of = |text| read_by(&signed, &[("Authorization", text)]);
    assert_ne!(of("Hawk id=\"a\", ts=1"), of("Hawk id=\"a\", ts=2"));
    assert!(!signed.counts_header("Cookie"));
}

#[test]
fn sources_are_written_as_they_are_read() {
    for text in CredentialRule::SOURCES.into_iter().chain([
        "whole:X",
        "jwt:Authorization",
        "profile:UCP-Agent",
        "cookie:session",
        "query:key",
    ]) {
        assert_eq!(CredentialSource::parse(text).unwrap().to_string(), text);
    }
    for text in CredentialRule::IGNORED_COOKIES {
        assert_eq!(CookiePattern::parse(text).unwrap().to_string(), text);
    }
    for wrong in ["", "*", "a b", "jwt:", "jwt:a b", "a\nb", "ä"] {
        let error = CredentialSource::parse(wrong).unwrap_err();
        assert!(matches!(error, CredentialError::Name(_)), "{wrong}");
    }
    let error = CredentialSource::parse("jvt:Authorization").unwrap_err();
    assert_eq!(error, CredentialError::Form("jvt".to_owned()));
    for wrong in ["", "*", "a*b", "a b", "**"] {
        assert!(CookiePattern::parse(wrong).is_err(), "{wrong}");
    }
    assert!(is_same("X_Api-Key", "x-api_key"));
}
