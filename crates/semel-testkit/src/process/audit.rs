//! Holds the world, the ledger and the callers against each other.

use std::collections::{BTreeMap, BTreeSet};

use semel::core::ledger::{Command, Event, StateKind};
use semel::store::{Logged, Place};
use semel::{Engine, Key, Namespace};

use super::{Line, Scene, key, wall};

/// What an earlier audit of the same store saw: nothing of it may be gone later.
#[derive(Debug, Default)]
pub struct Seen {
    log: Vec<Logged>,
}

/// How much an audit looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Audited {
    /// Effects in the sink.
    pub effects: usize,
    /// Answers that agents had.
    pub answers: usize,
    /// Entries in the log.
    pub entries: usize,
}

/// Checks everything that must hold whenever no agent is at work; says what does not.
///
/// # Errors
/// The first thing that is wrong, in words.
///
/// # Panics
/// When the store fails.
pub async fn audit(engine: &Engine, scene: &Scene, seen: &mut Seen) -> Result<Audited, String> {
    let verified = engine.verify().await.expect("the store is verified");
    if let Some(difference) = verified.difference {
        return Err(format!("verify: {difference}"));
    }
    let log = whole_log(engine).await;
    if log.get(..seen.log.len()) != Some(seen.log.as_slice()) {
        return Err("something that was recorded is lost from the log".to_owned());
    }
    let effects = scene.sink().lines();
    let story = Story::of(&log);
    every_fence_rises(&log)?;
    every_effect_was_permitted(&effects, &story)?;
    let happened: BTreeSet<_> = effects.iter().map(Line::answer).collect();
    every_outcome_happened(engine, &happened, &story).await?;
    let answers = every_answer_is_recorded(engine, scene, &happened).await?;
    let entries = log.len();
    seen.log = log;
    Ok(Audited {
        effects: effects.len(),
        answers,
        entries,
    })
}

/// Reads the whole log.
///
/// # Panics
/// When the store fails.
pub async fn whole_log(engine: &Engine) -> Vec<Logged> {
    let mut log: Vec<Logged> = vec![];
    loop {
        let after = log.last().map_or(0, |last| last.seq);
        let page = engine.store().log(after, semel::store::PAGE_MAX).await;
        let page = page.expect("the log is read");
        if page.is_empty() {
            return log;
        }
        log.extend(page);
    }
}

/// What the log says of a key's attempts, by their fences.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// Those that were granted.
    pub granted: BTreeSet<u64>,
    /// Those whose lease was renewed.
    pub renewed: BTreeSet<u64>,
}

/// Returns the attempts that are in the log, by key.
#[must_use]
pub fn attempts(log: &[Logged]) -> BTreeMap<String, Attempts> {
    let mut places: BTreeMap<Place, (String, Attempts)> = BTreeMap::new();
    for Logged { place, entry, .. } in log {
        let Some(place) = place else { continue };
        if let Command::Begin(begin) = &entry.command {
            let key = begin.spec.key.as_str();
            let attempts = places.entry(*place);
            let (_, attempts) = attempts.or_insert_with(|| (key.to_owned(), Attempts::default()));
            if is_grant(&entry.events) {
                attempts.granted.insert(entry.fence.0);
            }
        } else if let (Some((_, attempts)), true) = (
            places.get_mut(place),
            entry.events.contains(&Event::Renewed),
        ) {
            attempts.renewed.insert(entry.fence.0);
        }
    }
    places.into_values().collect()
}

fn is_grant(events: &[Event]) -> bool {
    events.contains(&Event::Begun) || events.contains(&Event::ProbeBegun)
}

/// No fence of an operation goes back, and no two attempts have the same one.
fn every_fence_rises(log: &[Logged]) -> Result<(), String> {
    let mut last: BTreeMap<Place, u64> = BTreeMap::new();
    for Logged { seq, place, entry } in log {
        let Some(place) = place else { continue };
        let before = last.insert(*place, entry.fence.0).unwrap_or(0);
        let rises = if is_grant(&entry.events) {
            entry.fence.0 > before
        } else {
            entry.fence.0 >= before
        };
        if !rises {
            let fence = entry.fence.0;
            return Err(format!("log entry {seq}: fence {fence} after {before}"));
        }
    }
    Ok(())
}

/// What the log says about each key.
struct Story {
    /// By key and fence: the number of the entry that granted the attempt.
    granted: BTreeMap<(String, u64), u64>,
    /// By key: the numbers of entries that permit another attempt after one that may have acted.
    permitted: BTreeMap<String, Vec<u64>>,
    keys: Vec<(Namespace, Key)>,
}

impl Story {
    fn of(log: &[Logged]) -> Self {
        let mut story = Self {
            granted: BTreeMap::new(),
            permitted: BTreeMap::new(),
            keys: vec![],
        };
        let mut names = BTreeMap::new();
        for Logged { seq, place, entry } in log {
            let Some(place) = place else { continue };
            if let Command::Begin(begin) = &entry.command {
                let spec = &begin.spec;
                let known = names.insert(*place, spec.key.as_str().to_owned());
                if known.is_none() {
                    story.keys.push((spec.namespace.clone(), spec.key.clone()));
                }
            }
            let Some(name) = names.get(place) else {
                continue;
            };
            if entry.events.contains(&Event::Begun) {
                story.granted.insert((name.clone(), entry.fence.0), *seq);
            }
            let waived = entry.events.contains(&Event::DoubtWaived);
            let released = entry.state == Some(StateKind::Pending);
            if waived || released {
                let permitted = story.permitted.entry(name.clone()).or_default();
                permitted.push(*seq);
            }
        }
        story
    }
}

/// No effect without a durable claim, none twice, and no second one without a permission between.
fn every_effect_was_permitted(effects: &[Line], story: &Story) -> Result<(), String> {
    let mut by_key: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in effects {
        let claim = story.granted.get(&(line.key.clone(), line.fence));
        let Some(claim) = claim else {
            return Err(format!("an effect without a recorded claim: {line:?}"));
        };
        by_key.entry(&line.key).or_default().push(*claim);
    }
    for (key, mut claims) in by_key {
        claims.sort_unstable();
        for pair in claims.windows(2) {
            let between = |seq: &u64| pair[0] < *seq && *seq <= pair[1];
            let permitted = story.permitted.get(key);
            if !permitted.is_some_and(|permitted| permitted.iter().any(between)) {
                return Err(format!(
                    "{key} took effect at log entries {pair:?} without a resolution between them"
                ));
            }
        }
    }
    Ok(())
}

/// A record says succeeded only if the world saw it, and what it says is what happened.
async fn every_outcome_happened(
    engine: &Engine,
    happened: &BTreeSet<String>,
    story: &Story,
) -> Result<(), String> {
    for (namespace, key) in &story.keys {
        let record = engine.load(namespace, key).await.expect("a record loads");
        let Some(record) = record else {
            return Err(format!("{key} is in the log and has no record"));
        };
        if record.kind() != StateKind::Succeeded {
            continue;
        }
        let stored = stored_answer(engine, key).await;
        // An answer names its key, so that another key's answer would not be found true here.
        let own = |answer: &String| answer.starts_with(&format!("{key} "));
        if !stored
            .as_ref()
            .is_some_and(|answer| own(answer) && happened.contains(answer))
        {
            return Err(format!(
                "{key} is recorded as done ({stored:?}), but the world did not see it"
            ));
        }
    }
    Ok(())
}

/// Whoever was told that it is done was told what is recorded, and saw what happened.
async fn every_answer_is_recorded(
    engine: &Engine,
    scene: &Scene,
    happened: &BTreeSet<String>,
) -> Result<usize, String> {
    let mut answers = 0;
    let mut checked: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (text, word) in scene.told().words() {
        let Some(answer) = word.answer() else {
            continue;
        };
        let stored = match checked.get(&text) {
            Some(stored) => stored.clone(),
            None => {
                let stored = stored_answer(engine, &key(&text)).await;
                checked.insert(text.clone(), stored.clone());
                stored
            }
        };
        if stored.as_deref() != Some(answer) {
            return Err(format!("{text}: told `{answer}`, recorded is {stored:?}"));
        }
        if !happened.contains(answer) {
            return Err(format!("{text}: told `{answer}`, which never happened"));
        }
        answers += 1;
    }
    Ok(answers)
}

async fn stored_answer(engine: &Engine, key: &Key) -> Option<String> {
    let payload = engine.payload(&wall(), key).await;
    let bytes = payload.expect("a payload loads")?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim_matches('"').to_owned())
}
