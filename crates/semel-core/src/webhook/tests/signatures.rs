//! Signatures: those of the senders' own formulas are taken, and nothing else is. The codes were made by another
//! implementation.

use core::time::Duration;

use super::super::*;
use crate::time::Timestamp;

const BODY: &[u8] = br#"{"id":"evt_1","amount":100}"#;
const TIME: &str = "1794736800";
const NOW: Timestamp = Timestamp(1_794_736_800_000_000);

const STANDARD: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const STANDARD_CODE: &str = "v1,fygO3W/7yKG+RHMr1cMUh26FlanCdrm8Ivwav4GV5eU=";
const OTHER: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const OTHER_CODE: &str = "v1,/VI8x1H9kzepXiTUHewfDsLExFFVUcYg7j0F7Te2aTc=";
const STRIPE_CODE: &str = "10c9a294320ab6ee6938aef0f12c6722bb5aa7e6ffb9d0e11e3001bce3fcb8d5";
const OLDER_CODE: &str = "2ac3ed239ab99e50cddab59f341333149dc806bd317249f4bbc36fb31ce7a6a9";
const SLACK_CODE: &str = "c7e694e11ec3915223a4d82b1070c826e18e7615f1f8d6212af7e7abe00fd682";

fn proof(scheme: Scheme, secrets: &[&str]) -> Proof {
    let read = secrets.iter().map(|text| scheme.secret(text).unwrap());
    let secrets = read.collect();
    Proof::new(scheme, secrets, Tolerance::DEFAULT).unwrap()
}

fn verify(proof: &Proof, headers: &[(&str, &str)], body: &[u8]) -> Result<Verified, Refusal> {
    verify_at(proof, headers, body, NOW)
}

fn verify_at(
    proof: &Proof,
    headers: &[(&str, &str)],
    body: &[u8],
    now: Timestamp,
) -> Result<Verified, Refusal> {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let headers = &headers;
    proof.verify(&Delivery { headers, body }, now)
}

fn missing(name: &str) -> Result<Verified, Refusal> {
    let name = name.to_owned();
    Err(Refusal::MissingHeader { name })
}

fn repeated(name: &str) -> Result<Verified, Refusal> {
    let name = name.to_owned();
    Err(Refusal::RepeatedHeader { name })
}

fn is_malformed(answer: &Result<Verified, Refusal>) -> bool {
    matches!(answer, Err(Refusal::MalformedHeader { .. }))
}

fn webhook(signature: &str) -> [(&'static str, &str); 3] {
    [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", TIME),
        ("webhook-signature", signature),
    ]
}

#[test]
fn standard_webhooks_are_verified_over_id_time_and_raw_body() {
    let proof = proof(Scheme::Standard, &[STANDARD]);
    let right = Ok(Verified {
        id: Some(b"msg_1".to_vec()),
        at: Some(NOW),
    });
    assert_eq!(verify(&proof, &webhook(STANDARD_CODE), BODY), right);
    // The same value in another spelling is another message.
    let spaced = br#"{"id": "evt_1", "amount": 100}"#;
    let wrong = Err(Refusal::WrongSignature);
    assert_eq!(verify(&proof, &webhook(STANDARD_CODE), spaced), wrong);
    assert_eq!(verify(&proof, &webhook(OTHER_CODE), BODY), wrong);
    let mut headers = webhook(STANDARD_CODE);
    headers[0].1 = "msg_2";
    assert_eq!(verify(&proof, &headers, BODY), wrong);
    headers = webhook(STANDARD_CODE);
    headers[1].1 = "1794736801";
    assert_eq!(verify(&proof, &headers, BODY), wrong);
    headers = webhook(STANDARD_CODE);
    headers[0].0 = "Webhook-ID";
    assert_eq!(verify(&proof, &headers, BODY), right);
}

#[test]
fn of_several_signatures_one_is_enough_and_unknown_versions_are_skipped() {
    let proof = proof(Scheme::Standard, &[STANDARD]);
    for signature in [
        format!("{OTHER_CODE} {STANDARD_CODE}"),
        format!("{STANDARD_CODE} {OTHER_CODE}"),
        format!("v1a,bm8= v9,x {STANDARD_CODE}"),
        format!("v1,*** {STANDARD_CODE}"),
        // Without its padding.
        STANDARD_CODE.trim_end_matches('=').to_owned(),
    ] {
        assert!(
            verify(&proof, &webhook(&signature), BODY).is_ok(),
            "{signature}"
        );
    }
    let code = STANDARD_CODE.strip_prefix("v1,").unwrap();
    for signature in [
        code.to_owned(),
        format!("v2,{code}"),
        format!("v1a,{code}"),
        format!("v1 {code}"),
        "v1,".to_owned(),
        "v1,fygO".to_owned(),
        format!("{STANDARD_CODE},{OTHER_CODE}"),
    ] {
        let refused = verify(&proof, &webhook(&signature), BODY);
        assert_eq!(refused, Err(Refusal::WrongSignature), "{signature}");
    }
}

#[test]
fn while_secrets_are_rotated_each_of_them_counts() {
    let both = proof(Scheme::Standard, &[OTHER, STANDARD]);
    for code in [STANDARD_CODE, OTHER_CODE] {
        assert!(verify(&both, &webhook(code), BODY).is_ok());
    }
    let after = proof(Scheme::Standard, &[OTHER]);
    let refused = verify(&after, &webhook(STANDARD_CODE), BODY);
    assert_eq!(refused, Err(Refusal::WrongSignature));
}

#[test]
fn the_id_comes_from_the_family_of_the_signature() {
    let proof = proof(Scheme::Standard, &[STANDARD]);
    let svix = [
        ("svix-id", "msg_1"),
        ("svix-timestamp", TIME),
        ("svix-signature", STANDARD_CODE),
    ];
    let id = |answer: Result<Verified, Refusal>| answer.map(|verified| verified.id);
    assert_eq!(id(verify(&proof, &svix, BODY)), Ok(Some(b"msg_1".to_vec())));
    // An id that nobody signed stands beside a right signature.
    let mixed = [svix[0], svix[1], svix[2], ("webhook-id", "msg_2")];
    assert_eq!(verify(&proof, &mixed, BODY), missing("webhook-timestamp"));
    let all = [&svix[..], &webhook(OTHER_CODE)].concat();
    assert_eq!(verify(&proof, &all, BODY), Err(Refusal::WrongSignature));
}

#[test]
fn headers_are_there_once_and_say_something() {
    let proof = proof(Scheme::Standard, &[STANDARD]);
    let headers = webhook(STANDARD_CODE);
    for left_out in 0..3 {
        let mut rest = headers.to_vec();
        let (name, _) = rest.remove(left_out);
        assert_eq!(verify(&proof, &rest, BODY), missing(name));
        rest.push((name, ""));
        assert_eq!(verify(&proof, &rest, BODY), missing(name));
        let mut twice = headers.to_vec();
        twice.push(headers[left_out]);
        assert_eq!(verify(&proof, &twice, BODY), repeated(name));
    }
    for time in [
        "now",
        "-1",
        "+1794736800",
        "1794736800.5",
        " 1",
        "9223372036854775807",
        "99999999999999999999",
    ] {
        let mut headers = webhook(STANDARD_CODE);
        headers[1].1 = time;
        assert!(is_malformed(&verify(&proof, &headers, BODY)), "{time}");
    }
}

#[test]
fn a_signature_counts_for_five_minutes_either_way() {
    let proof = proof(Scheme::Standard, &[STANDARD]);
    let headers = webhook(STANDARD_CODE);
    let at = |seconds: i64| {
        verify_at(
            &proof,
            &headers,
            BODY,
            Timestamp(NOW.0 + seconds * 1_000_000),
        )
    };
    let tolerance = Duration::from_secs(300);
    assert!(at(300).is_ok() && at(-300).is_ok());
    let age = Duration::from_secs(301);
    assert_eq!(at(301), Err(Refusal::TooOld { age, tolerance }));
    let ahead = age;
    assert_eq!(at(-301), Err(Refusal::TooNew { ahead, tolerance }));
    // Three days later.
    assert!(matches!(at(259_200), Err(Refusal::TooOld { .. })));
    // Whoever has no secret does not learn what is tolerated.
    let wrong = verify_at(&proof, &webhook(OTHER_CODE), BODY, Timestamp(0));
    assert_eq!(wrong, Err(Refusal::WrongSignature));
}

#[test]
fn stripe_signs_time_and_body_and_may_sign_twice() {
    let proof = proof(Scheme::Stripe, &["whsec_stripe_secret"]);
    let verify = |header: &str| verify(&proof, &[("stripe-signature", header)], BODY);
    for header in [
        format!("t={TIME},v1={STRIPE_CODE}"),
        format!("t={TIME},v1={OLDER_CODE},v1={STRIPE_CODE},v0=6ffbb59b"),
        format!("v1={STRIPE_CODE}, t={TIME}"),
        format!("t={TIME},v1={}", STRIPE_CODE.to_uppercase()),
    ] {
        let verified = verify(&header);
        assert_eq!(
            verified,
            Ok(Verified {
                id: None,
                at: Some(NOW)
            }),
            "{header}"
        );
    }
    for header in [
        format!("t={TIME},v0={STRIPE_CODE}"),
        format!("t={TIME},v1={OLDER_CODE}"),
        format!("t={TIME}"),
        format!("t=1794736801,v1={STRIPE_CODE}"),
        format!("t={TIME},v1={}", &STRIPE_CODE[..62]),
        format!("t={TIME},v1={STRIPE_CODE}0"),
        format!("t={TIME},v1="),
    ] {
        assert_eq!(verify(&header), Err(Refusal::WrongSignature), "{header}");
    }
    for header in [
        format!("v1={STRIPE_CODE}"),
        format!("t={TIME},t={TIME},v1={STRIPE_CODE}"),
        format!("t=x,v1={STRIPE_CODE}"),
    ] {
        assert!(is_malformed(&verify(&header)), "{header}");
    }
}

#[test]
fn github_signs_the_body_and_its_old_header_counts_for_nothing() {
    // The example of GitHub's own documentation.
    let code = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let proof = proof(Scheme::Github, &["It's a Secret to Everybody"]);
    let right = format!("sha256={code}");
    let body = b"Hello, World!";
    let signed = |value: &str| verify(&proof, &[("X-Hub-Signature-256", value)], body);
    assert_eq!(signed(&right), Ok(Verified { id: None, at: None }));
    for value in [
        code,
        &format!("sha1={code}"),
        &format!("sha256={code}00"),
        "sha256=",
    ] {
        assert_eq!(signed(value), Err(Refusal::WrongSignature), "{value}");
    }
    let old = [(
        "X-Hub-Signature",
        "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59",
    )];
    assert_eq!(verify(&proof, &old, body), missing("X-Hub-Signature-256"));
    // It says nothing about when: an old one is as good as a new one.
    let headers = [("X-Hub-Signature-256", &right[..])];
    assert!(verify_at(&proof, &headers, body, Timestamp(i64::MAX)).is_ok());
}

#[test]
fn slack_signs_version_time_and_body() {
    let proof = proof(Scheme::Slack, &["8f742231b10e8888abcd99yyyzzz85a5"]);
    let signed = |time: &str, value: &str| {
        let headers = [
            ("X-Slack-Request-Timestamp", time),
            ("X-Slack-Signature", value),
        ];
        verify(&proof, &headers, BODY)
    };
    let right = format!("v0={SLACK_CODE}");
    assert_eq!(
        signed(TIME, &right),
        Ok(Verified {
            id: None,
            at: Some(NOW)
        })
    );
    assert_eq!(signed("1794736801", &right), Err(Refusal::WrongSignature));
    assert_eq!(signed(TIME, SLACK_CODE), Err(Refusal::WrongSignature));
    let undated = verify(&proof, &[("X-Slack-Signature", &right)], BODY);
    assert_eq!(undated, missing("X-Slack-Request-Timestamp"));
}

fn keyed() -> Keyed {
    Keyed {
        header: "X-Shop-Hmac".to_owned(),
        prefix: String::new(),
        algorithm: Algorithm::Sha256,
        encoding: Encoding::Base64,
        signed: Template::body(),
        timestamp: None,
    }
}

#[test]
fn a_generic_code_is_where_and_what_the_settings_say() {
    let base64 = "cgPNVGlD/jQy/fjtn60Vic9kMITO01yp38rf+wmONOM=";
    let sha512 = "1171f65377794d869d8adb4a31d7d12dde287a8ba21fa4a8a7df8fcdd8ad500e\
                  1b5725023e5905e9d489a5e0b9009052cdea483d9ba63aa47b7a655c40983d0b";
    let dated = "811b384d12adb9a59be876668ef7792b5e6df177dca999e12c833a00db880c15";
    let time = || Some("X-Time".to_owned());
    let hex = Keyed {
        encoding: Encoding::Hex,
        ..keyed()
    };
    for (keyed, value) in [
        (keyed(), base64.to_owned()),
        (
            Keyed {
                prefix: "s=".to_owned(),
                ..keyed()
            },
            format!("s={base64}"),
        ),
        (
            Keyed {
                timestamp: time(),
                signed: Template::dated(),
                ..hex.clone()
            },
            dated.to_owned(),
        ),
        (
            Keyed {
                algorithm: Algorithm::Sha512,
                timestamp: time(),
                signed: Template::new("v0:{timestamp}:{body}").unwrap(),
                ..hex.clone()
            },
            sha512.to_owned(),
        ),
    ] {
        let is_dated = keyed.timestamp.is_some();
        let proof = proof(Scheme::Hmac(keyed), &["shop-secret"]);
        let headers = [("x-shop-hmac", &value[..]), ("x-time", TIME)];
        let at = is_dated.then_some(NOW);
        assert_eq!(
            verify(&proof, &headers, BODY),
            Ok(Verified { id: None, at })
        );
        let wrong = verify(&proof, &headers, b"{}");
        assert_eq!(wrong, Err(Refusal::WrongSignature));
        if is_dated {
            assert_eq!(verify(&proof, &headers[..1], BODY), missing("X-Time"));
            let late = Timestamp(NOW.0 + 301_000_000);
            let late = verify_at(&proof, &headers, BODY, late);
            assert!(matches!(late, Err(Refusal::TooOld { .. })));
        }
    }
}

#[test]
fn a_secret_that_is_longer_than_a_block_counts_whole() {
    let code = "bd7feb6886245f1e18df1f18c28dcf3a77304acc907940576a0ef4f31df5db50";
    let keyed = Keyed {
        encoding: Encoding::Hex,
        ..keyed()
    };
    let long = "k".repeat(200);
    for (secret, is_right) in [(&long[..], true), (&long[..128], false)] {
        let proof = proof(Scheme::Hmac(keyed.clone()), &[secret]);
        let headers = [("X-Shop-Hmac", code)];
        assert_eq!(verify(&proof, &headers, BODY).is_ok(), is_right);
    }
}

#[test]
fn what_is_signed_as_a_sender_would_is_verified() {
    let dated = Keyed {
        timestamp: Some("X-Time".to_owned()),
        signed: Template::dated(),
        prefix: "t1=".to_owned(),
        ..keyed()
    };
    for (scheme, secret) in [
        (Scheme::Standard, STANDARD),
        (Scheme::Stripe, "stripe-secret"),
        (Scheme::Github, "github-secret"),
        (Scheme::Slack, "slack-secret"),
        (Scheme::Hmac(keyed()), "shop-secret"),
        (Scheme::Hmac(dated), "shop-secret"),
    ] {
        let proof = proof(scheme, &[secret, OTHER]);
        let headers = proof.sign("msg_1", BODY, NOW);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        assert!(verify(&proof, &headers, BODY).is_ok(), "{headers:?}");
        assert_eq!(verify(&proof, &headers, b""), Err(Refusal::WrongSignature));
    }
    // The very bytes that another implementation makes.
    let proof = proof(Scheme::Standard, &[STANDARD]);
    let headers = proof.sign("msg_1", BODY, NOW);
    assert_eq!(headers[2].1, STANDARD_CODE);
}

#[test]
fn slack_is_told_its_challenge_and_nobody_else_is() {
    let asked = br#"{"token":"t","challenge":"3eZbrw1a\u00e9","type":"url_verification"}"#;
    assert_eq!(challenge(asked).as_deref(), Some("3eZbrw1a\u{e9}"));
    for other in [
        &br#"{"type":"event_callback","challenge":"x"}"#[..],
        br#"{"type":"url_verification"}"#,
        br#"{"type":"url_verification","challenge":7}"#,
        br#"{"type":"url_verification","challenge":"x","challenge":"y"}"#,
        b"type=url_verification&challenge=x",
        b"",
    ] {
        assert_eq!(challenge(other), None);
    }
}
