//! Payloads and streams: kept apart from the records, byte for byte, until they are erased.

use std::sync::Arc;

use semel::store::{Chunk, Commit, Current, NewPayload, PAYLOAD_MAX, Store, StoreError, Stored};
use semel_core::Verdict;
use semel_core::ledger::{Command, Delivery, Fence, Order, Spec};
use semel_core::{Digest, Effect, Label, Outcome, Payload};

use super::cases;
use super::hand::{Asked, Brought, begin, complete, done, hash, settle, spec, stored};
use super::{Bed, START};

cases![
    behaviour: [
        payloads_of_every_size_come_back_byte_for_byte,
        the_largest_payload_is_taken_and_one_byte_more_is_refused,
        pieces_of_a_stream_come_back_in_order,
        streams_of_two_attempts_are_apart,
        a_stream_becomes_the_payload,
        a_stream_that_is_not_the_answer_can_be_discarded,
        erasing_takes_the_stream_too,
    ],
    storage: [
        a_change_that_keeps_the_payload_keeps_it,
        a_payload_is_replaced_by_the_next_one,
        an_erased_payload_is_gone_and_its_neighbours_are_not,
        the_streams_of_other_attempts_outlive_a_payload,
        a_stream_is_replaced_by_bytes_and_bytes_by_a_stream,
    ],
];

/// Bytes that no compressor makes smaller, the same for the same seed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let blocks = (0u64..).map(|n| Digest::of_parts(&[&seed.to_le_bytes(), &n.to_le_bytes()]));
    blocks.flat_map(|block| block.0).take(length).collect()
}

async fn payload(store: &dyn Store, of: &Stored) -> Option<Vec<u8>> {
    store.payload(of.place).await.expect("the payload loads")
}

async fn payloads_of_every_size_come_back_byte_for_byte(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    // Around the size from which on payloads are compressed, and far beyond a page.
    let sizes = [0, 1, 255, 511, 512, 513, 4_095, 4_096, 70_000, 1_000_000];
    let mut kept = vec![];
    for size in sizes {
        for (kind, bytes) in [("same", vec![b'x'; size]), ("noise", noise(size, 7))] {
            let spec = spec(&format!("{kind}-{size}"));
            kept.push((complete(&*store, &spec, &bytes).await, bytes));
        }
    }
    for (of, bytes) in &kept {
        assert!(payload(&*store, of).await.as_ref() == Some(bytes));
    }
    let again = bed.open().await;
    for (of, bytes) in &kept {
        assert!(payload(&*again, of).await.as_ref() == Some(bytes));
    }
}

async fn the_largest_payload_is_taken_and_one_byte_more_is_refused(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let begun = begin(&spec, 1).apply(&*store, None).await.expect("begun");
    for fill in [noise(PAYLOAD_MAX + 1, 1), vec![0; PAYLOAD_MAX + 1]] {
        let report = done(&spec, 1, 1, &fill);
        let refused = report.apply(&*store, None).await;
        let Err(StoreError::TooLarge { size, limit, .. }) = refused else {
            panic!("it must be refused");
        };
        assert_eq!((size, limit), (PAYLOAD_MAX + 1, PAYLOAD_MAX));
    }
    let found = store.load(&hash(&spec)).await.expect("it loads");
    assert_eq!(stored(&found).record, stored(&begun.current).record);
    assert_eq!(store.log(0, 10).await.expect("the log reads").len(), 1);
    let largest = noise(PAYLOAD_MAX, 1);
    let report = done(&spec, 1, 1, &largest);
    let settled = report.apply(&*store, None).await.expect("it is taken");
    assert!(payload(&*store, stored(&settled.current)).await == Some(largest));
}

async fn a_change_that_keeps_the_payload_keeps_it(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let after = complete(&*store, &spec, b"answer").await;
    let deliver = Asked::new(hash(&spec), Command::Deliver(Delivery::Delivered));
    assert!(deliver.apply(&*store, None).await.expect("marked").wrote);
    assert_eq!(
        payload(&*store, &after).await.as_deref(),
        Some(&b"answer"[..])
    );
}

/// Commits a change that the rules would decide, with another payload in it.
async fn with_payload(store: &dyn Store, spec: &Spec, payload: NewPayload) -> Stored {
    let current = store.load(&hash(spec)).await.expect("it loads");
    let operation = stored(&current).record.operation().expect("it lives");
    let delivery = match operation.delivery {
        Delivery::Delivered => Delivery::Undelivered,
        Delivery::Undelivered | Delivery::Unknown | Delivery::Lapsed => Delivery::Delivered,
    };
    let deliver = Asked::new(hash(spec), Command::Deliver(delivery));
    let mut change = deliver.change(&current, START).expect("a change");
    change.payload = payload;
    match store.commit(change).await {
        Ok(Commit::Done(Current::Stored(stored))) => stored,
        other => panic!("it must be taken: {other:?}"),
    }
}

async fn a_payload_is_replaced_by_the_next_one(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    complete(&*store, &spec, &noise(700, 1)).await;
    for bytes in [noise(20, 2), noise(90_000, 3), vec![], noise(700, 4)] {
        let replaced = NewPayload::Bytes {
            bytes: bytes.as_slice().into(),
            replaces: true,
        };
        let after = with_payload(&*store, &spec, replaced).await;
        assert!(payload(&*store, &after).await == Some(bytes));
    }
}

async fn an_erased_payload_is_gone_and_its_neighbours_are_not(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let specs: Vec<Spec> = (0..40).map(|n| spec(&format!("order-{n}"))).collect();
    // Settled together, so that a store that writes groups puts them side by side.
    for spec in &specs {
        begin(spec, 1).apply(&*store, None).await.expect("begun");
    }
    let bytes = |n: usize| noise(n * 37, n as u64);
    let mut settling = tokio::task::JoinSet::new();
    for (n, spec) in specs.iter().cloned().enumerate() {
        let store = Arc::clone(&store);
        settling.spawn(async move {
            let settled = done(&spec, 1, 1, &bytes(n)).apply(&*store, None).await;
            (n, stored(&settled.expect("settled").current).clone())
        });
    }
    let mut all = settling.join_all().await;
    all.sort_by_key(|(n, _)| *n);
    // Half of them one by one, then the rest: no erasure may move another payload.
    let order = (0..all.len())
        .step_by(2)
        .chain((0..all.len()).skip(1).step_by(2));
    let mut erased = vec![];
    for n in order {
        with_payload(&*store, &specs[n], NewPayload::Erase).await;
        erased.push(n);
        for (m, of) in &all {
            let expected = (!erased.contains(m)).then(|| bytes(*m));
            assert!(payload(&*store, of).await == expected, "{m} after {n}");
        }
    }
}

fn piece(stream: u8, bytes: Vec<u8>) -> Chunk {
    Chunk { stream, bytes }
}

async fn pieces_of_a_stream_come_back_in_order(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let begun = begin(&spec, 1).apply(&*store, None).await.expect("begun");
    let (place, fence) = (begun.place(), Fence(1));
    assert_eq!(store.stream(place, fence).await, Ok(vec![]));
    let mut expected = vec![];
    for n in 0..30usize {
        let pieces: Vec<Chunk> = (0..n % 4)
            .map(|m| piece(1 + u8::from(m == 1), noise(n * m * 300, n as u64)))
            .collect();
        expected.extend(pieces.clone());
        store
            .append(place, fence, pieces)
            .await
            .expect("it is taken");
    }
    assert!(store.stream(place, fence).await == Ok(expected.clone()));
    assert!(bed.open().await.stream(place, fence).await == Ok(expected));
    let too_large = vec![piece(1, vec![0; PAYLOAD_MAX + 1])];
    let refused = store.append(place, fence, too_large).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
}

async fn streams_of_two_attempts_are_apart(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let places = [
        begin(&spec("a"), 1)
            .apply(&*store, None)
            .await
            .expect("begun"),
        begin(&spec("b"), 1)
            .apply(&*store, None)
            .await
            .expect("begun"),
    ]
    .map(|begun| begun.place());
    let mut expected = vec![];
    for place in places {
        for fence in [Fence(1), Fence(2), Fence(u64::MAX)] {
            let pieces = vec![piece(1, format!("{place:?} {fence:?}").into_bytes())];
            store
                .append(place, fence, pieces.clone())
                .await
                .expect("it is taken");
            expected.push((place, fence, pieces));
        }
    }
    for (place, fence, pieces) in expected {
        assert_eq!(store.stream(place, fence).await, Ok(pieces));
    }
}

/// Begins, streams these pieces and settles with them.
async fn streamed(store: &dyn Store, spec: &Spec, pieces: &[Chunk]) -> (Stored, Vec<u8>) {
    let begun = begin(spec, 1).apply(store, None).await.expect("begun");
    for piece in pieces {
        let appended = store.append(begun.place(), Fence(1), vec![piece.clone()]);
        appended.await.expect("it is taken");
    }
    let whole: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.bytes.clone())
        .collect();
    let outcome = Outcome {
        ok: true,
        effect: Effect::Created,
        payload: Some(Payload::of(&whole)),
    };
    let mut report = settle(spec, 1, 1, Verdict::Done(outcome));
    report.payload = Some(Brought::Stream(Fence(1)));
    let settled = report.apply(store, None).await.expect("settled");
    (stored(&settled.current).clone(), whole)
}

async fn a_stream_becomes_the_payload(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let pieces = [
        piece(1, b"out ".to_vec()),
        piece(2, noise(3_000, 1)),
        piece(1, vec![]),
    ];
    let (after, whole) = streamed(&*store, &spec("order-7"), &pieces).await;
    assert!(payload(&*store, &after).await == Some(whole.clone()));
    assert!(payload(&*bed.open().await, &after).await == Some(whole));
    // Nothing was streamed, and that is the answer.
    let (after, _) = streamed(&*store, &spec("order-8"), &[]).await;
    assert_eq!(payload(&*store, &after).await, Some(vec![]));
}

async fn a_stream_that_is_not_the_answer_can_be_discarded(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let pieces = [piece(1, b"all".to_vec())];
    let (answer, whole) = streamed(&*store, &spec("order-7"), &pieces).await;
    let begun = begin(&spec("order-8"), 1).apply(&*store, None).await;
    let place = begun.expect("begun").place();
    for fence in [Fence(1), Fence(2)] {
        let taken = store.append(place, fence, pieces.to_vec()).await;
        taken.expect("it is taken");
    }
    for (place, fence) in [
        (place, Fence(1)),
        (answer.place, Fence(1)),
        (place, Fence(9)),
    ] {
        store.discard(place, fence).await.expect("it is discarded");
    }
    assert_eq!(store.stream(place, Fence(1)).await, Ok(vec![]));
    assert_eq!(store.stream(place, Fence(2)).await, Ok(pieces.to_vec()));
    assert!(payload(&*store, &answer).await == Some(whole));
}

async fn erasing_takes_the_stream_too(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let (after, _) = streamed(&*store, &spec, &[piece(1, b"secret".to_vec())]).await;
    let forget = Asked::new(
        hash(&spec),
        Command::Forget(Order {
            version: after.record.version(),
            by: Label::new("ann").expect("a valid name"),
            note: None,
        }),
    );
    assert!(forget.apply(&*store, None).await.expect("forgotten").wrote);
    assert_eq!(payload(&*store, &after).await, None);
    assert_eq!(store.stream(after.place, Fence(1)).await, Ok(vec![]));
}

/// They may still report, and then their streams are the answer.
async fn the_streams_of_other_attempts_outlive_a_payload(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let (after, _) = streamed(&*store, &spec, &[piece(1, b"first".to_vec())]).await;
    let other = vec![piece(1, b"other".to_vec())];
    store
        .append(after.place, Fence(9), other.clone())
        .await
        .expect("it is taken");
    let replaced = NewPayload::Bytes {
        bytes: b"second"[..].into(),
        replaces: true,
    };
    for change in [replaced, NewPayload::Erase, NewPayload::Keep] {
        with_payload(&*store, &spec, change).await;
        assert_eq!(store.stream(after.place, Fence(1)).await, Ok(vec![]));
        assert_eq!(store.stream(after.place, Fence(9)).await, Ok(other.clone()));
    }
    with_payload(&*store, &spec, NewPayload::Stream(Fence(9))).await;
    assert_eq!(payload(&*store, &after).await, Some(b"other".to_vec()));
}

async fn a_stream_is_replaced_by_bytes_and_bytes_by_a_stream(bed: Arc<dyn Bed>) {
    let store = bed.open().await;
    let spec = spec("order-7");
    let (after, whole) = streamed(&*store, &spec, &[piece(1, noise(900, 1))]).await;
    let bytes = noise(900, 2);
    let replaced = NewPayload::Bytes {
        bytes: bytes.as_slice().into(),
        replaces: true,
    };
    with_payload(&*store, &spec, replaced).await;
    assert!(payload(&*store, &after).await == Some(bytes));
    assert_ne!(payload(&*store, &after).await, Some(whole));
    assert_eq!(store.stream(after.place, Fence(1)).await, Ok(vec![]));
    let later = vec![piece(1, b"again".to_vec())];
    store
        .append(after.place, Fence(2), later.clone())
        .await
        .expect("it is taken");
    with_payload(&*store, &spec, NewPayload::Stream(Fence(2))).await;
    assert_eq!(payload(&*store, &after).await, Some(b"again".to_vec()));
    assert_eq!(store.stream(after.place, Fence(2)).await, Ok(later));
}
