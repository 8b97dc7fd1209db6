//! Tokens: found by their ids, revoked for ever, and no part of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use semel::core::token::{Scope, Secret};
use semel::store::{PAGE_MAX, Store};
use semel::{Label, Namespace, TokenId, TokenRecord};
use tokio::task::JoinSet;

use super::cases;
use super::hand::{complete, hash, spec, stored};
use super::{Bed, START};

cases![
    a_token_is_found_as_it_was_kept,
    an_id_is_taken_once,
    of_many_who_take_one_id_one_does,
    another_handle_sees_a_token_and_its_end_at_once,
    a_revocation_stays_as_it_was,
    of_many_who_revoke_one_does,
    a_use_is_never_noted_backwards,
    what_nobody_knows_cannot_be_changed,
    tokens_are_listed_by_their_ids_page_by_page,
    the_ledger_knows_nothing_of_tokens,
];

const SECOND: Duration = Duration::from_secs(1);

fn token(number: u64) -> TokenRecord {
    let secret = Secret::new([u8::try_from(number % 251).unwrap_or_default(); 32]);
    TokenRecord {
        id: TokenId::from_random(number),
        digest: secret.digest(),
        namespace: Namespace::new("team-a").expect("a namespace"),
        scope: Scope::Write,
        label: None,
        created_at: START,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

/// One with everything that a token can have, to the microsecond.
fn whole(number: u64) -> TokenRecord {
    let micro = Duration::from_micros(1);
    TokenRecord {
        scope: Scope::Admin,
        label: Some(Label::new("the 'build' \u{2013} \u{1f511}\u{0301}").expect("a label")),
        created_at: START.plus(micro),
        expires_at: Some(START.plus(Duration::from_secs(100 * 365 * 86_400) + micro)),
        revoked_at: Some(START.plus(SECOND * 2 + micro)),
        last_used_at: Some(START.plus(SECOND + micro)),
        ..token(number)
    }
}

async fn found(store: &dyn Store, id: TokenId) -> Option<TokenRecord> {
    store.token(id).await.expect("it is looked up")
}

async fn keep(store: &dyn Store, token: &TokenRecord) {
    assert_eq!(store.add_token(token.clone()).await, Ok(true));
}

async fn a_token_is_found_as_it_was_kept(bed: Arc<dyn Bed>) {
    let scopes = Scope::ALL.into_iter().zip(10..);
    let scoped = scopes.map(|(scope, number)| TokenRecord {
        scope,
        ..token(number)
    });
    let tokens: Vec<_> = scoped.chain([token(1), whole(2)]).collect();
    let store = bed.open().await;
    for token in &tokens {
        keep(&*store, token).await;
    }
    for store in [&store, &bed.open().await] {
        for token in &tokens {
            assert_eq!(found(&**store, token.id).await.as_ref(), Some(token));
        }
        assert_eq!(found(&**store, TokenId::from_random(3)).await, None);
    }
}

async fn an_id_is_taken_once(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    keep(&*store, &token(1)).await;
    let other = TokenRecord {
        scope: Scope::Admin,
        ..whole(1)
    };
    assert_eq!(store.add_token(other).await, Ok(false));
    assert_eq!(found(&*store, token(1).id).await, Some(token(1)));
}

async fn of_many_who_take_one_id_one_does(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let mut crowd = JoinSet::new();
    for n in 0..16usize {
        let store = Arc::clone(&handles[n % 2]);
        let mine = TokenRecord {
            created_at: START.plus(SECOND * u32::try_from(n).unwrap_or_default()),
            ..token(1)
        };
        crowd.spawn(async move { (store.add_token(mine.clone()).await, mine) });
    }
    let taken = crowd.join_all().await;
    let won: Vec<_> = taken.iter().filter(|(won, _)| *won == Ok(true)).collect();
    assert_eq!(won.len(), 1, "{taken:?}");
    assert!(taken.iter().all(|(won, _)| won.is_ok()), "{taken:?}");
    let stored = found(&*handles[0], token(1).id).await;
    assert_eq!(stored.as_ref(), Some(&won[0].1));
}

async fn another_handle_sees_a_token_and_its_end_at_once(bed: Arc<dyn Bed>) {
    let (here, there) = (bed.open().await, bed.open().await);
    for number in 0..20 {
        let token = token(number);
        assert_eq!(found(&*there, token.id).await, None);
        keep(&*here, &token).await;
        assert_eq!(found(&*there, token.id).await, Some(token.clone()));
        let at = START.plus(SECOND);
        assert_eq!(there.revoke_token(token.id, at).await, Ok(true));
        let revoked = found(&*here, token.id).await.expect("it stays");
        assert_eq!(revoked.revoked_at, Some(at));
    }
}

async fn a_revocation_stays_as_it_was(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let id = token(1).id;
    keep(&*store, &token(1)).await;
    let (first, later) = (START.plus(SECOND), START.plus(SECOND * 2));
    assert_eq!(store.revoke_token(id, first).await, Ok(true));
    for at in [later, START, first] {
        assert_eq!(store.revoke_token(id, at).await, Ok(false));
    }
    assert_eq!(store.add_token(token(1)).await, Ok(false));
    store.note_token_use(id, later).await.expect("it is noted");
    let expected = TokenRecord {
        revoked_at: Some(first),
        last_used_at: Some(later),
        ..token(1)
    };
    for store in [&store, &bed.open().await] {
        assert_eq!(found(&**store, id).await.as_ref(), Some(&expected));
    }
}

async fn of_many_who_revoke_one_does(bed: Arc<dyn Bed>) {
    let handles = [bed.open().await, bed.open().await];
    let id = token(1).id;
    keep(&*handles[0], &token(1)).await;
    let mut crowd = JoinSet::new();
    for n in 0..16usize {
        let store = Arc::clone(&handles[n % 2]);
        crowd.spawn(async move { store.revoke_token(id, START).await });
    }
    let answers = crowd.join_all().await;
    let won = answers.iter().filter(|answer| **answer == Ok(true)).count();
    assert_eq!(won, 1, "{answers:?}");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

async fn a_use_is_never_noted_backwards(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let id = token(1).id;
    keep(&*store, &token(1)).await;
    for (at, last) in [(5, 5), (9, 9), (7, 9), (9, 9), (11, 11)] {
        let noted = store.note_token_use(id, START.plus(SECOND * at)).await;
        noted.expect("it is noted");
        let found = found(&*store, id).await.expect("it is there");
        assert_eq!(found.last_used_at, Some(START.plus(SECOND * last)));
        assert_eq!(found.revoked_at, None);
    }
}

async fn what_nobody_knows_cannot_be_changed(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let nobody = TokenId::from_random(9);
    assert_eq!(store.revoke_token(nobody, START).await, Ok(false));
    assert_eq!(store.note_token_use(nobody, START).await, Ok(()));
    assert_eq!(found(&*store, nobody).await, None);
    assert_eq!(store.tokens(None, PAGE_MAX).await, Ok(vec![]));
}

async fn tokens_are_listed_by_their_ids_page_by_page(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    // The highest bits are the last letters: so the order of the ids is not that of the numbers.
    let tokens: Vec<_> = (0..25u64)
        .map(|number| token(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    for token in &tokens {
        keep(&*store, token).await;
    }
    let ids: BTreeSet<TokenId> = tokens.iter().map(|token| token.id).collect();
    for limit in [1, 7, 25, PAGE_MAX] {
        let (mut listed, mut after) = (vec![], None);
        loop {
            let page = store.tokens(after, limit).await.expect("it lists");
            assert!(page.len() <= limit);
            after = page.last().map(|token| token.id);
            if after.is_none() {
                break;
            }
            listed.extend(page);
        }
        let in_order: Vec<TokenId> = listed.iter().map(|token| token.id).collect();
        assert_eq!(in_order, ids.iter().copied().collect::<Vec<_>>());
        assert!(tokens.iter().all(|token| listed.contains(token)));
    }
}

async fn the_ledger_knows_nothing_of_tokens(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let first = complete(&*store, &spec, b"answer").await;
    let log = store.log(0, 10).await.expect("it reads");
    keep(&*store, &token(1)).await;
    let revoked = store.revoke_token(token(1).id, START).await;
    assert_eq!(revoked, Ok(true));
    assert_eq!(store.log(0, 10).await, Ok(log.clone()));
    let found = store.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(stored(&found).record, first.record);
    // Numbers of the log go on without a gap, where they have none.
    complete(&*store, &self::spec("order-8"), b"answer").await;
    let after = store.log(0, 10).await.expect("it reads");
    assert_eq!((after.len(), &after[..log.len()]), (4, &log[..]));
}
