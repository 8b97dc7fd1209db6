//! The key for the names of callers: made once, the same for all handles, and no part of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;

use semel_core::PrincipalKey;
use tokio::task::JoinSet;

use super::Bed;
use super::cases;

cases![
    first_offered_key_stays,
    concurrent_offers_agree_on_one_key,
    replaced_key_is_found_by_every_handle,
    ledger_has_no_entry_of_the_key,
];

const fn key(byte: u8) -> PrincipalKey {
    PrincipalKey::new([byte; PrincipalKey::BYTES])
}

async fn first_offered_key_stays(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(store.principal_key().await, Ok(None));
    assert_eq!(store.offer_principal_key(key(1)).await, Ok(key(1)));
    assert_eq!(store.offer_principal_key(key(2)).await, Ok(key(1)));
    let other = bed.open().await;
    assert_eq!(other.principal_key().await, Ok(Some(key(1))));
    assert_eq!(other.offer_principal_key(key(3)).await, Ok(key(1)));
}

async fn concurrent_offers_agree_on_one_key(bed: Arc<dyn Bed>) {
    let mut offers = JoinSet::new();
    for byte in 0..8 {
        let bed = Arc::clone(&bed);
        offers.spawn(async move {
            let store = bed.open().await;
            let kept = store.offer_principal_key(key(byte)).await;
            *kept.expect("it is kept").bytes()
        });
    }
    let kept: BTreeSet<_> = offers.join_all().await.into_iter().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let stored = bed.open().await.principal_key().await;
    let stored = stored.expect("it is read").expect("there is one");
    assert!(kept.contains(stored.bytes()));
}

async fn replaced_key_is_found_by_every_handle(bed: Arc<dyn Bed>) {
    let (one, other) = (bed.open().await, bed.open().await);
    assert_eq!(one.replace_principal_key(key(1)).await, Ok(()));
    assert_eq!(other.principal_key().await, Ok(Some(key(1))));
    assert_eq!(other.replace_principal_key(key(2)).await, Ok(()));
    assert_eq!(one.offer_principal_key(key(3)).await, Ok(key(2)));
}

async fn ledger_has_no_entry_of_the_key(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    assert_eq!(store.offer_principal_key(key(1)).await, Ok(key(1)));
    assert_eq!(store.end().await, Ok(0));
}
