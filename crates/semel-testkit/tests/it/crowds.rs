//! Many processes on one file: one grant per key, and nobody is starved.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{Agent, Keys, Orders, Scene, Word};
use semel_testkit::scaled;

use crate::agent;

/// Sends all agents at once and waits for their end; all must do as they were ordered.
fn send_together(orders: &[Orders]) {
    for ended in agent().start_together(orders).into_iter().map(Agent::wait) {
        assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
    }
}

/// Lets a crowd begin one key at once; returns what they were told.
async fn crowd_on_one_key(wait: Duration) -> Vec<Word> {
    const CROWD: usize = 64;
    let scene = Scene::new();
    let orders = (0..CROWD).map(|number| Orders {
        wait,
        threads: 1 + number % 2,
        ..Orders::new(&scene, Keys::These(vec!["the-key".to_owned()]))
    });
    send_together(&orders.collect::<Vec<_>>());
    let engine = scene.open().await;
    let audited = audit(&engine, &scene, &mut Seen::default()).await;
    let audited = audited.expect("world, ledger and callers agree");
    assert_eq!(audited.effects, 1, "the effect happened once");
    let words: Vec<_> = scene.told().words().into_iter().map(|(_, w)| w).collect();
    assert_eq!(words.len(), CROWD);
    let done = words.iter().filter(|word| matches!(word, Word::Done(_)));
    assert_eq!(done.count(), 1, "one was granted: {words:?}");
    words
}

#[tokio::test]
async fn of_64_processes_that_begin_one_key_at_once_one_is_granted_and_the_rest_wait_or_replay() {
    let words = crowd_on_one_key(Duration::ZERO).await;
    let others = words.iter().filter(|word| !matches!(word, Word::Done(_)));
    for word in others {
        // That all replays carry the same bytes, the audit has seen.
        let expected = matches!(word, Word::Wait | Word::Replayed(_));
        assert!(expected, "{word:?}");
    }
}

#[tokio::test]
async fn of_64_processes_that_wait_for_one_key_all_get_the_answer_of_the_one() {
    let words = crowd_on_one_key(Duration::from_secs(60)).await;
    let answers: Vec<_> = words.iter().filter_map(Word::answer).collect();
    assert_eq!(answers.len(), words.len(), "{words:?}");
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[tokio::test]
async fn processes_on_distinct_keys_share_one_file_without_error_loss_or_starvation() {
    let crowd = scaled(32, 8);
    let lasting = Duration::from_secs(scaled(30, 4));
    let scene = Scene::new();
    let orders = (0..crowd).map(|number| Orders {
        threads: 1 + usize::try_from(number % 2).unwrap_or(0),
        // Several callers each, so that every process wants its turn all the time.
        tasks: 4,
        ..Orders::new(&scene, Keys::New(format!("p{number}-"), lasting))
    });
    send_together(&orders.collect::<Vec<_>>());

    let engine = scene.open().await;
    let audited = audit(&engine, &scene, &mut Seen::default()).await;
    let audited = audited.expect("world, ledger and callers agree");
    let words = scene.told().words();
    let mut cycles: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, word) in &words {
        assert!(matches!(word, Word::Done(_)), "{key}: {word:?}");
        let (process, _) = key.split_once('-').expect("keys name their process");
        *cycles.entry(process).or_default() += 1;
    }
    // Each cycle is a claim and a settlement, and nothing else is in the log but renewals.
    assert_eq!(audited.effects, words.len());
    assert!(audited.entries >= 2 * words.len(), "{audited:?}");
    let slowest = cycles.values().min().copied().unwrap_or(0);
    let fastest = cycles.values().max().copied().unwrap_or(0);
    assert_eq!(
        cycles.len() as u64,
        crowd,
        "every process got something done"
    );
    assert!(slowest * 10 >= fastest, "some are starved: {cycles:?}");
}
