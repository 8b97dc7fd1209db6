//! What must hold for texts that nobody thought of.

use proptest::prelude::*;

use super::samples::{ANNOUNCED, keys};
use super::{with_outputs, with_patterns};
use crate::redact::{REDACTED, Redactor};
use crate::{Label, Note};

/// Makes text of the pieces that the rules look at.
fn soup() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = [
        "password",
        "token",
        "api_key",
        "secret",
        "Authorization",
        "Cookie",
        "pwd",
        "user",
        "bearer",
        "Basic",
        "--",
        "-",
        "=",
        ":",
        "::",
        "=>",
        "://",
        "@",
        "/",
        "?",
        "&",
        ";",
        ",",
        ".",
        " ",
        "  ",
        "\n",
        "\t",
        "\"",
        "'",
        "\\\"",
        "\\",
        "`",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "null",
        "a",
        "Z9",
        "x1y2z3",
        "é",
        "注",
        "%3D",
        "\\n",
        "#",
        "~",
        "_",
        "acme_",
        "cust-",
        "-id",
        REDACTED,
        "[redac",
        "eyJ",
        "sk-",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "-----END ",
        "-----",
    ]
    .map(str::to_owned)
    .to_vec();
    pieces.extend(keys());
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![soup(), any::<String>(), "[ -~]{0,200}"]
}

fn redactors() -> [Redactor; 2] {
    [
        Redactor::default(),
        with_patterns(&["acme_*", "cust-*-id", "*Z9x", "redacted", "word=", "a\":"]),
    ]
}

/// Words that are hidden only because of what stands before them.
fn value() -> impl Strategy<Value = String> {
    "[a-z]{2,6}[A-Z0-9]{2}[A-Za-z0-9_.~+-]{3,30}[a-z0-9]"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn redacting_again_changes_nothing(text in any_text()) {
        for redactor in redactors() {
            let once = redactor.text(&text).into_owned();
            prop_assert_eq!(&*redactor.text(&once), &*once, "{:?}", text);
        }
    }

    #[test]
    fn a_text_grows_no_more_than_its_secrets_are_short(text in any_text()) {
        for redactor in redactors() {
            // Each has a name, a sign and a value, or the characters that a pattern needs.
            let secrets = text.len() / 3 + 1;
            prop_assert!(redactor.text(&text).len() <= text.len() + secrets * REDACTED.len());
        }
    }

    #[test]
    fn notes_and_labels_stay_what_they_are(text in any_text(), times in 1_usize..40) {
        let long = text.repeat(times);
        for redactor in redactors() {
            if let Some(note) = Note::from_lossy(&long) {
                let once = redactor.note(&note).expect("something is left");
                prop_assert!(Note::new(once.as_str()).is_ok());
                prop_assert_eq!(redactor.note(&once), Some(once.clone()), "{:?}", note);
            }
            if let Ok(label) = Label::new(&text) {
                let once = redactor.label(&label);
                prop_assert!(Label::new(once.as_str()).is_ok());
                prop_assert_eq!(redactor.label(&once), once.clone());
            }
        }
    }

    #[test]
    fn a_key_that_is_planted_never_survives(
        before in "\\PC{0,40}", after in "\\PC{0,40}", which in any::<prop::sample::Index>(),
    ) {
        let keys = keys();
        let key = which.get(&keys);
        let text = format!("{before} {key} {after}");
        let found = super::text(&text);
        prop_assert!(!found.contains(key.as_str()), "{found}");
    }

    #[test]
    fn a_value_that_is_announced_never_survives(
        before in "\\PC{0,40}", after in "\\PC{0,40}", value in value(),
        which in any::<prop::sample::Index>(),
    ) {
        let announced = which.get(&ANNOUNCED).replace("{}", &value);
        let text = format!("{before} {announced} {after}");
        let found = super::text(&text);
        prop_assert!(!found.contains(&value), "{text:?} {found:?}");
    }

    #[test]
    fn a_user_pattern_leaves_nothing_that_it_matches(
        before in "[a-z ,]{0,20}", value in "[A-Za-z0-9]{1,20}", after in "[a-z ,]{0,20}",
    ) {
        let found = with_patterns(&["acme_*"]).text(&format!("{before}acme_{value} {after}")).into_owned();
        prop_assert!(!found.contains("acme_"), "{found}");
    }

    #[test]
    fn words_and_numbers_are_untouched(
        words in prop::collection::vec("[a-z]{1,12}|[A-Z]{1,6}-[0-9]{1,10}|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}|[0-9a-f]{40}|[0-9]{1,12}(\\.[0-9]{2})?", 0..20),
    ) {
        // Each of these may be the name of a secret, or announce one.
        let plain = |word: &String| !["bearer", "basic"].contains(&word.as_str());
        let text = words.into_iter().filter(plain).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(super::text(&text), text);
    }

    #[test]
    fn answers_of_any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..80), json in soup()) {
        let redactor = with_outputs(&["", "/a", "/*/b", "/0/*"]);
        for bytes in [&bytes[..], json.as_bytes()] {
            if let Some(found) = redactor.output(bytes) {
                prop_assert_eq!(redactor.output(&found), Some(found));
            }
        }
    }
}
