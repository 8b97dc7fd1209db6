//! An operator who tells the truth: what the sink holds has happened, and nothing else.

use std::sync::Arc;

use semel::core::ledger::{Record, StateKind};
use semel::{Effect, Engine, Label, OnDoubt};

use super::{Answer, Ask, Scene, key, on_doubt, wall};

/// Settles every doubt among these keys by what the world holds; returns how many there were.
/// Doubts that agents look up themselves are left to them.
///
/// All agents must have ended: while one lives, nobody can know what it will still do.
///
/// # Panics
/// When the store fails or refuses.
pub async fn resolve_truthfully(engine: &Engine, scene: &Scene, keys: &[String]) -> usize {
    let (sink, history) = (scene.sink(), scene.history());
    let mut resolved = 0;
    for text in keys.iter().filter(|text| on_doubt(text) != OnDoubt::Probe) {
        let key = key(text);
        let record = engine.load(&wall(), &key).await.expect("a record loads");
        // A lease that has ended is a doubt, written or not.
        let now = engine.store().now();
        let in_doubt = |record: &Arc<Record>| {
            let operation = record.operation();
            operation.is_some_and(|operation| operation.kind_at(now) == StateKind::Doubtful)
        };
        let Some(record) = record.filter(in_doubt) else {
            continue;
        };
        let by = Label::new("truth").expect("a label");
        let operator = engine.operator(&wall(), &key, record.version(), by);
        let happened = sink.last_of(text).map(|line| line.answer());
        let call = history.call(text, &Ask::Resolve(happened.clone()));
        let settled = match happened {
            Some(answer) => {
                let data = Some(format!("\"{answer}\"").into_bytes());
                operator.resolve_done(true, Effect::Created, data).await
            }
            None => operator.resolve_not_done().await,
        };
        settled.unwrap_or_else(|error| panic!("a doubt is resolved: {error}"));
        history.back(call, &Answer::Resolved);
        resolved += 1;
    }
    resolved
}

/// Returns the keys that have no outcome yet.
///
/// # Panics
/// When the store fails.
pub async fn unsettled(engine: &Engine, keys: &[String]) -> Vec<String> {
    let mut left = vec![];
    for text in keys {
        let record = engine.load(&wall(), &key(text)).await;
        let kind = record.expect("a record loads").map(|record| record.kind());
        if kind != Some(StateKind::Succeeded) {
            left.push(text.clone());
        }
    }
    left
}
