//! What is a token and what is not, and who may come in.

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::text::Namespace;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp(1_794_744_000_000_000);

fn token(id: u64, secret: [u8; 32]) -> Token {
    Token {
        id: TokenId::from_random(id),
        secret: Secret::new(secret),
    }
}

fn record(token: &Token) -> TokenRecord {
    TokenRecord {
        id: token.id,
        digest: token.secret.digest(),
        namespace: Namespace::new("team-a").expect("a namespace"),
        scope: Scope::Write,
        label: None,
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

#[test]
fn a_token_is_written_as_it_always_was() {
    let counted = core::array::from_fn(|at| u8::try_from(at).unwrap_or_default());
    let written = token(0x0123_4567_89ab_cdef, counted).reveal();
    let expected =
        "semel_ffkqt4yc5t82_000g40r40m30e209185gr38e1w8124gk2gahc5rr34d1p70x3rfg_80zhabr";
    assert_eq!(written, expected);
    assert_eq!(written.len(), 79);
}

#[test]
fn a_scope_includes_those_below_it_and_no_other() {
    for (rank, scope) in Scope::ALL.into_iter().enumerate() {
        for (needed_rank, needed) in Scope::ALL.into_iter().enumerate() {
            assert_eq!(scope.includes(needed), rank >= needed_rank);
        }
        assert_eq!(Scope::from_word(scope.as_str()), Some(scope));
    }
    assert_eq!(Scope::from_word("Admin"), None);
    assert_eq!(Scope::from_word(""), None);
}

#[test]
fn ids_are_twelve_lower_case_letters_and_digits() {
    assert!("0123456789az".parse::<TokenId>().is_ok());
    for wrong in [
        "",
        "0123456789a",
        "0123456789abc",
        "0123456789aB",
        "0123456789_a",
        "01234567éa",
    ] {
        assert_eq!(wrong.parse::<TokenId>(), Err(TokenError::Id), "{wrong}");
    }
}

#[test]
fn debugging_shows_no_secret() {
    let token = token(7, [0xa5; 32]);
    let (shown, whole) = (format!("{token:?}"), token.reveal());
    let secret = whole.split('_').nth(2).expect("a secret");
    assert!(shown.contains(token.id.as_str()), "{shown}");
    for hidden in [secret, &secret[..8], "a5a5", "165"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn who_has_the_secret_of_an_active_token_comes_in() {
    let held = token(1, [7; 32]);
    let granted = Granted {
        id: held.id,
        namespace: Namespace::new("team-a").expect("a namespace"),
        scope: Scope::Write,
    };
    assert_eq!(judge(Some(&record(&held)), &held, NOW), Ok(granted));
}

#[test]
fn nobody_else_comes_in_and_the_log_can_say_why() {
    let second = Duration::from_secs(1);
    let held = token(1, [7; 32]);
    let sound = record(&held);
    let expired = TokenRecord {
        expires_at: Some(NOW),
        ..sound.clone()
    };
    let revoked = TokenRecord {
        revoked_at: Some(NOW.plus(second)),
        expires_at: Some(NOW),
        ..sound.clone()
    };
    let other_secret = token(1, [8; 32]);
    let other_id = token(2, [7; 32]);
    for (record, shown, refusal) in [
        (None, &held, Refusal::Unknown),
        (Some(&sound), &other_id, Refusal::Unknown),
        (Some(&sound), &other_secret, Refusal::WrongSecret),
        // Who has not the secret does not learn where the token stands.
        (Some(&revoked), &other_secret, Refusal::WrongSecret),
        (Some(&expired), &held, Refusal::Expired),
        (Some(&revoked), &held, Refusal::Revoked),
    ] {
        assert_eq!(judge(record, shown, NOW), Err(refusal));
    }
    let before = Timestamp(NOW.0 - 1);
    assert!(judge(Some(&expired), &held, before).is_ok());
}

#[test]
fn an_unknown_id_is_never_let_in_by_the_digest_that_stands_for_nobody() {
    let held = token(1, [7; 32]);
    let zeros = TokenRecord {
        digest: crate::Digest([0; 32]),
        ..record(&held)
    };
    assert_eq!(judge(Some(&zeros), &held, NOW), Err(Refusal::WrongSecret));
}

#[test]
fn a_use_is_noted_once_a_minute() {
    let held = token(1, [7; 32]);
    let used = |at| TokenRecord {
        last_used_at: at,
        ..record(&held)
    };
    assert!(used(None).use_is_due(NOW));
    assert!(!used(Some(NOW)).use_is_due(NOW));
    let almost = NOTED_EVERY - Duration::from_micros(1);
    assert!(!used(Some(NOW)).use_is_due(NOW.plus(almost)));
    assert!(used(Some(NOW)).use_is_due(NOW.plus(NOTED_EVERY)));
    // A clock that was set back does not lead to a write for each request.
    assert!(!used(Some(NOW.plus(NOTED_EVERY))).use_is_due(NOW));
}

proptest! {
    #[test]
    fn a_token_is_read_as_it_was_written(id: u64, secret: [u8; 32]) {
        let written = token(id, secret).reveal();
        let read: Token = written.parse().expect("it is read");
        prop_assert_eq!(read.reveal(), written);
        prop_assert_eq!(read.id, TokenId::from_random(id));
        prop_assert_eq!(read.secret.digest(), Secret::new(secret).digest());
    }

    /// The sum finds them all: none of them is even looked up.
    #[test]
    fn no_token_with_one_other_character_is_a_token(id: u64, secret: [u8; 32], other: char) {
        let written = token(id, secret).reveal();
        let ascii = (0..=127u8).map(char::from);
        for other in ascii.chain([other]) {
            for (at, own) in written.char_indices().filter(|(_, own)| *own != other) {
                let mut wrong = written.clone();
                wrong.replace_range(at..at + own.len_utf8(), other.encode_utf8(&mut [0; 4]));
                prop_assert!(wrong.parse::<Token>().is_err(), "{}: {:?}", at, other);
            }
        }
    }

    #[test]
    fn no_part_of_a_token_is_a_token(id: u64, secret: [u8; 32]) {
        let written = token(id, secret).reveal();
        for end in 0..written.len() {
            prop_assert_eq!(written[..end].parse::<Token>().err(), Some(TokenError::Shape));
            prop_assert_eq!(written[end + 1..].parse::<Token>().err(), Some(TokenError::Shape));
        }
        for longer in [format!("{written} "), format!(" {written}"), format!("{written}0")] {
            prop_assert_eq!(longer.parse::<Token>().err(), Some(TokenError::Shape));
        }
    }

    #[test]
    fn two_neighbours_that_changed_places_are_noticed(id: u64, secret: [u8; 32]) {
        let written = token(id, secret).reveal().into_bytes();
        for at in 1..written.len() {
            let mut wrong = written.clone();
            wrong.swap(at - 1, at);
            let wrong = String::from_utf8(wrong).expect("it is text");
            prop_assert!(wrong.as_bytes() == written || wrong.parse::<Token>().is_err());
        }
    }

    #[test]
    fn no_text_makes_the_reader_fail(text in ".{0,100}") {
        let _read = text.parse::<Token>();
    }
}

#[test]
fn server_for_one_namespace_takes_its_tokens_only() {
    let namespace = |text| Namespace::new(text).expect("it is one");
    let granted = Granted {
        id: "000000000000".parse().expect("it is an id"),
        namespace: namespace("ours"),
        scope: Scope::Admin,
    };
    assert!(granted.may_enter(None));
    assert!(granted.may_enter(Some(&namespace("ours"))));
    assert!(!granted.may_enter(Some(&namespace("theirs"))));
}
