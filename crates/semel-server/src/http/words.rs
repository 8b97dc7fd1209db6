//! The words of requests, and what they mean.

use semel::core::ledger::StateKind;
use semel::{Class, Effect, OnDoubt};
use serde::Deserialize;
use utoipa::ToSchema;

/// What repeating an action would do.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClassWord {
    Safe,
    Idempotent,
    Unsafe,
}

impl From<ClassWord> for Class {
    fn from(word: ClassWord) -> Self {
        match word {
            ClassWord::Safe => Self::Safe,
            ClassWord::Idempotent => Self::Idempotent,
            ClassWord::Unsafe => Self::Unsafe,
        }
    }
}

/// What a caller meets in doubt.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OnDoubt)]
pub(crate) enum DoubtWord {
    Hold,
    Retry,
    Probe,
}

impl From<DoubtWord> for OnDoubt {
    fn from(word: DoubtWord) -> Self {
        match word {
            DoubtWord::Hold => Self::Hold,
            DoubtWord::Retry => Self::Retry,
            DoubtWord::Probe => Self::Probe,
        }
    }
}

/// What an attempt learned.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Verdict)]
pub(crate) enum VerdictWord {
    Done,
    NotDone,
    Unknown,
}

/// What an action did.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DoneEffect)]
pub(crate) enum EffectWord {
    Created,
    Updated,
    Deleted,
    Noop,
    Unknown,
}

impl From<EffectWord> for Effect {
    fn from(word: EffectWord) -> Self {
        match word {
            EffectWord::Created => Self::Created,
            EffectWord::Updated => Self::Updated,
            EffectWord::Deleted => Self::Deleted,
            EffectWord::Noop => Self::Noop,
            EffectWord::Unknown => Self::Unknown,
        }
    }
}

/// Reads a state that can be asked for.
pub(crate) fn state(word: &str) -> Option<StateKind> {
    StateKind::OPERATIONS
        .into_iter()
        .filter(|state| *state != StateKind::Stub)
        .find(|state| state.as_str() == word)
}
