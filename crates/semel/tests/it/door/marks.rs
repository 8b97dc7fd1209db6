//! Delivery marks: kept in memory at once, in the store soon, and nobody waits for them.

use semel::Label;
use semel::core::ledger::Delivery;

use super::*;

async fn stored_mark(door: &Doorway, key: &Key) -> Option<Delivery> {
    let record = record(door, key).await;
    record.operation().map(|operation| operation.delivery)
}

#[tokio::test]
async fn marks_are_stored_without_anybody_asking_and_then_forgotten() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (identity, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    assert_eq!(door.held(), 1);
    arrived(&ticket);
    while stored_mark(&door, &identity.key).await != Some(Delivery::Delivered) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A cancel may still come.
    assert_eq!(door.held(), 1);
    drop(ticket);
    while door.held() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_proof_that_comes_late_counts_as_long_as_its_ticket_is_kept() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (_, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    ticket.see(Observation::Written);
    door.flush().await.expect("the marks are stored");
    ticket.see(Observation::RepeatedHere);
    assert_eq!(complete(&door, &call()).await.occurrence, 2);
}

#[tokio::test]
async fn a_cancel_after_the_mark_was_stored_takes_it_back() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (identity, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    arrived(&ticket);
    door.flush().await.expect("the marks are stored");
    assert_eq!(counting(&door).await, 0);
    ticket.see(Observation::Cancelled);
    // Known here at once, and elsewhere once it is stored.
    let (retry, second) = replay(&door, &call()).await;
    assert_eq!(told(&retry), as_a(Relation::Retry, 1));
    second.see(Observation::Reset);
    drop((ticket, second));
    door.flush().await.expect("the marks are stored");
    assert_eq!(
        stored_mark(&door, &identity.key).await,
        Some(Delivery::Undelivered)
    );
    let (retry, _ticket) = replay(&start(&bed).await, &call()).await;
    assert_eq!(told(&retry), as_a(Relation::Retry, 1));
}

#[tokio::test]
async fn a_crash_before_the_mark_swallows_one_repeat_visibly() {
    let bed = sqlite();
    let door = start(&bed).await;
    complete(&door, &call()).await;
    drop(door);
    let door = start(&bed).await;
    let (swallowed, ticket) = replay(&door, &call()).await;
    assert_eq!(told(&swallowed), as_a(Relation::Retry, 1));
    arrived(&ticket);
    assert_eq!(complete(&door, &call()).await.occurrence, 2);
}

#[tokio::test]
async fn a_mark_for_what_was_forgotten_is_given_up() {
    let bed = sqlite();
    let door = start(&bed).await;
    let (identity, ticket, permit) = run(&door, &call()).await;
    done(permit).await;
    let version = record(&door, &identity.key).await.version();
    let by = Label::new("ann").expect("a valid name");
    let namespace = Namespace::default();
    let operator = door
        .engine()
        .operator(&namespace, &identity.key, version, by);
    operator.forget().await.expect("it is forgotten");
    drop(ticket);
    door.flush().await.expect("there is nothing to store");
    assert_eq!(door.held(), 0);
}

/// A mark that is in the store by now, and no longer in memory, must be seen in one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_seen_while_it_is_being_stored() {
    let bed = sqlite();
    let door = start(&bed).await;
    let storing = {
        let door = door.clone();
        tokio::spawn(async move {
            loop {
                door.flush().await.expect("the marks are stored");
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 1..=300 {
        assert_eq!(complete(&door, &call()).await.occurrence, n);
    }
    storing.abort();
}

/// A mark that is on its way to the store says less than what was seen since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_being_stored_is_not_the_last_word() {
    let bed = sqlite();
    let door = start(&bed).await;
    let storing = {
        let door = door.clone();
        tokio::spawn(async move {
            loop {
                door.flush().await.expect("the marks are stored");
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 1..=300 {
        let named = with_id(&format!("toolu_{n}"));
        complete(&door, &named).await;
        // Nobody knows while it waits whether it gets the answer this time.
        let (_, ticket) = replay(&door, &named).await;
        tokio::task::yield_now().await;
        arrived(&ticket);
    }
    storing.abort();
}

#[tokio::test]
async fn a_retry_by_its_id_does_not_hide_what_was_delivered() {
    let bed = sqlite();
    let door = start(&bed).await;
    let first = complete(&door, &with_id("toolu_1")).await;
    door.flush().await.expect("the marks are stored");
    let (again, ticket) = replay(&door, &with_id("toolu_1")).await;
    assert_eq!(again.key, first.key);
    // It lost this answer: an identical call is a retry now, also for other processes.
    ticket.see(Observation::Reset);
    drop(ticket);
    door.flush().await.expect("the marks are stored");
    let (retry, _ticket) = replay(&start(&bed).await, &call()).await;
    assert_eq!((retry.key, retry.relation), (first.key, Relation::Retry));
}

/// Nobody is judged by it, so it is not taken back for as long as the next answer is on its way.
#[tokio::test]
async fn a_replay_by_its_key_writes_nothing_unless_it_is_lost() {
    let bed = sqlite();
    let door = start(&bed).await;
    let keyed = Call {
        explicit: Some(text("order-7")),
        ..call()
    };
    let first = complete(&door, &keyed).await;
    door.flush().await.expect("the marks are stored");
    let before = record(&door, &first.key).await.version();
    let (_, ticket) = replay(&door, &keyed).await;
    door.flush().await.expect("the marks are stored");
    assert_eq!(record(&door, &first.key).await.version(), before);
    arrived(&ticket);
    drop(ticket);
    door.flush().await.expect("the marks are stored");
    assert_eq!(record(&door, &first.key).await.version(), before);
    assert_eq!(
        stored_mark(&door, &first.key).await,
        Some(Delivery::Delivered)
    );
    let (_, ticket) = replay(&door, &keyed).await;
    ticket.see(Observation::Reset);
    drop(ticket);
    door.flush().await.expect("the marks are stored");
    assert_eq!(
        stored_mark(&door, &first.key).await,
        Some(Delivery::Undelivered)
    );
    assert_eq!(door.held(), 0);
}
