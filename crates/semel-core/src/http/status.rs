//! What an upstream's answer means for the operation, by its status.

use core::ops::RangeInclusive;

use crate::effect::Effect;

/// What an answer of the upstream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It is the end of the operation, whether in success or failure: everybody gets it from now on.
    Outcome,
    /// The request was turned away before anything was done: the next one may try.
    Release,
    /// Nobody knows whether it took effect.
    Doubt,
}

impl Meaning {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outcome => "outcome",
            Self::Release => "release",
            Self::Doubt => "doubt",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Outcome, Self::Release, Self::Doubt]
            .into_iter()
            .find(|meaning| meaning.as_str() == word)
    }
}

/// Statuses and what they mean: the first range that has a status decides; without one it is a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<(RangeInclusive<u16>, Meaning)>);

impl Statuses {
    /// Makes a table of ranges; those that come first go before those that follow.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = (RangeInclusive<u16>, Meaning)>) -> Self {
        Self(ranges.into_iter().collect())
    }

    /// Puts ranges before those that are there.
    #[must_use]
    pub fn with(
        mut self,
        ranges: impl IntoIterator<Item = (RangeInclusive<u16>, Meaning)>,
    ) -> Self {
        self.0.splice(0..0, ranges);
        self
    }

    /// Returns what a status means.
    #[must_use]
    pub fn meaning(&self, status: u16) -> Meaning {
        let found = self.0.iter().find(|(range, _)| range.contains(&status));
        found.map_or(Meaning::Doubt, |(_, meaning)| *meaning)
    }
}

/// Reads a range of statuses: `429`, `500-599`, `5xx`.
#[must_use]
pub fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let one = |text: &str| {
        let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let status: u16 = is_plain.then(|| text.parse().ok())??;
        (100..=599).contains(&status).then_some(status)
    };
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some(class * 100..=class * 100 + 99);
    }
    match text.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (one(first)?, one(last)?);
            (first <= last).then_some(first..=last)
        }
        None => one(text).map(|status| status..=status),
    }
}

/// Says whether a target that answers with this status is well. Every answer but these shows that it works, whatever
/// it thinks of the request.
#[must_use]
pub const fn is_well(status: u16) -> bool {
    !matches!(status, 429 | 500..=599)
}

/// Says what a request did that ended with this status.
#[must_use]
pub fn effect(method: &str, status: u16) -> Effect {
    match (method, status) {
        (_, 201) => Effect::Created,
        ("DELETE", 200..=299) => Effect::Deleted,
        (_, 200..=299) => Effect::Updated,
        // Whoever refuses may have begun.
        _ => Effect::Unknown,
    }
}

/// Says what a request would do.
#[must_use]
pub fn would(method: &str) -> Effect {
    match method {
        "POST" => Effect::WouldCreate,
        "DELETE" => Effect::WouldDelete,
        _ => Effect::WouldUpdate,
    }
}
