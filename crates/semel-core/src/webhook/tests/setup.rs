//! What proves nothing is refused before anything is received.

use core::time::Duration;

use super::super::*;

#[test]
fn without_a_secret_nothing_is_verified() {
    let secret = || Secret::plain("a-secret").unwrap();
    let new = |scheme, secrets| Proof::new(scheme, secrets, Tolerance::DEFAULT).map(drop);
    for scheme in [
        Scheme::Standard,
        Scheme::Stripe,
        Scheme::Github,
        Scheme::Slack,
    ] {
        assert_eq!(new(scheme.clone(), vec![]), Err(ProofError::NoSecret));
        assert_eq!(new(scheme.clone(), vec![secret(); 8]), Ok(()));
        let many = new(scheme, vec![secret(); 9]);
        assert_eq!(many, Err(ProofError::Secrets { count: 9 }));
    }
    assert_eq!(new(Scheme::None, vec![]), Ok(()));
    assert_eq!(new(Scheme::None, vec![secret()]), Err(ProofError::Needless));
}

#[test]
fn a_time_that_is_named_is_signed_and_the_other_way_round() {
    let keyed = |timestamp: Option<&str>, signed| {
        Scheme::Hmac(Keyed {
            header: "x-signature".to_owned(),
            prefix: String::new(),
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Hex,
            signed,
            timestamp: timestamp.map(str::to_owned),
        })
    };
    for (scheme, is_right) in [
        (keyed(None, Template::body()), true),
        (keyed(Some("x-time"), Template::dated()), true),
        (keyed(None, Template::dated()), false),
        (keyed(Some("x-time"), Template::body()), false),
    ] {
        assert_eq!(
            scheme.is_dated(),
            matches!(&scheme, Scheme::Hmac(it) if it.timestamp.is_some())
        );
        let secrets = vec![Secret::plain("a-secret").unwrap()];
        let made = Proof::new(scheme, secrets, Tolerance::DEFAULT).map(drop);
        let expected = if is_right {
            Ok(())
        } else {
            Err(ProofError::Timestamp)
        };
        assert_eq!(made, expected);
    }
}

#[test]
fn templates_have_the_body_once() {
    for (text, wanted) in [
        ("{body}", Ok(false)),
        ("{timestamp}.{body}", Ok(true)),
        ("v0:{timestamp}:{body}", Ok(true)),
        ("{body}{timestamp}!", Ok(true)),
        ("", Err(TemplateError::Body)),
        ("{timestamp}", Err(TemplateError::Body)),
        ("{body}{body}", Err(TemplateError::Body)),
        (
            "{timestamp}{timestamp}{body}",
            Err(TemplateError::Timestamp),
        ),
        ("{id}.{body}", Err(TemplateError::Brace)),
        ("{body}}", Err(TemplateError::Brace)),
        ("{", Err(TemplateError::Brace)),
    ] {
        let made = Template::new(text);
        assert_eq!(
            made.as_ref().map(Template::is_dated),
            wanted.as_ref().copied(),
            "{text}"
        );
        if let Ok(template) = made {
            assert_eq!(template.as_str(), text);
        }
    }
    assert_eq!(Template::new("{body}"), Ok(Template::body()));
    assert_eq!(Template::new("{timestamp}.{body}"), Ok(Template::dated()));
}

#[test]
fn a_tolerance_is_neither_nothing_nor_everything() {
    let seconds = Duration::from_secs;
    for (length, fits) in [
        (seconds(0), false),
        (Duration::from_millis(999), false),
        (seconds(1), true),
        (seconds(86_400), true),
        (seconds(86_401), false),
        (Duration::MAX, false),
    ] {
        assert_eq!(Tolerance::new(length).is_ok(), fits, "{length:?}");
    }
    assert_eq!(Tolerance::DEFAULT.length(), seconds(300));
}

#[test]
fn secrets_have_their_form_and_are_never_shown() {
    let standard = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let secret = Secret::standard(standard).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret");
    let proof = Proof::new(Scheme::Standard, vec![secret], Tolerance::DEFAULT);
    assert!(!format!("{proof:?}").contains("0, 1, 2"));
    for text in [
        "",
        "whsec_",
        "whsec_AAAA",
        "whsec_***",
        &standard[6..],
        "a-plain-secret",
    ] {
        assert_eq!(Secret::standard(text), Err(SecretError::Form), "{text}");
    }
    for text in ["whpk_AAECAwQF", "whsk_AAECAwQF"] {
        assert_eq!(Secret::standard(text), Err(SecretError::Asymmetric));
    }
    assert_eq!(Secret::plain("1234567"), Err(SecretError::Short));
    assert!(Secret::plain("12345678").is_ok());
    assert!(Secret::plain(&"k".repeat(1_024)).is_ok());
    assert_eq!(Secret::plain(&"k".repeat(1_025)), Err(SecretError::Long));
}

/// Every sender that is known gives up before the shortest time for which its deliveries are remembered.
#[test]
fn horizons_are_those_that_senders_state() {
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    assert!(Scheme::Standard.horizon() >= hours(75) + Duration::from_secs(35 * 60));
    assert_eq!(Scheme::Stripe.horizon(), hours(72));
    assert_eq!(Scheme::Github.horizon(), hours(72));
    assert_eq!(Scheme::Slack.horizon(), hours(24));
    assert_eq!(Scheme::None.horizon(), hours(168));
    assert!(crate::time::Retention::DEFAULT.length() >= hours(168));
}
