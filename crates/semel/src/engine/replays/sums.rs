//! What was saved, by what saved it.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_core::{Currency, Label, Money};

/// What saved something: a door, and what it names behind it, such as an upstream or a tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saver {
    /// The way in.
    pub door: Label,
    /// What is behind it.
    pub name: Option<Label>,
}

/// How much was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// How many answers were given again.
    pub calls: u64,
    /// How long the attempts took whose answers were given again.
    pub time: Duration,
    /// What they cost, where prices are known.
    pub money: BTreeMap<Currency, Money>,
}

/// What was saved, all in all and by what saved it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// All of it.
    pub all: Saved,
    /// What each saver saved.
    pub by: Vec<(Saver, Saved)>,
}

/// The most savers that are told apart; what the others save is one sum. A machine has a few doors and some
/// upstreams or tools behind each, and what is kept of all of them is written whenever it changes.
pub(super) const SAVERS_MAX: usize = 256;

/// The most currencies of one saver. Beyond it calls and time are counted, and no money: nobody pays in more.
const CURRENCIES_MAX: usize = 16;

impl Saver {
    pub(crate) const fn new(door: Label, name: Option<Label>) -> Self {
        Self { door, name }
    }

    /// Stands for all that are not told apart.
    pub(super) fn other() -> Self {
        Self::new(Label::new("other").expect("it is a word"), None)
    }
}

impl Saved {
    /// One answer that was given again.
    pub(crate) fn call(time: Duration, money: Option<(Currency, Money)>) -> Self {
        Self {
            calls: 1,
            time,
            money: money.into_iter().collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.time = self.time.saturating_add(other.time);
        for (currency, money) in &other.money {
            if let Some(sum) = self.money.get_mut(currency) {
                *sum = sum.plus(*money);
            } else if self.money.len() < CURRENCIES_MAX {
                self.money.insert(*currency, *money);
            }
        }
    }
}

/// Sums by what saved them, of a limited number of savers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums(BTreeMap<Saver, Saved>);

impl Sums {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Saver, &Saved)> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, by: &Saver, saved: &Saved) {
        if let Some(sum) = self.0.get_mut(by) {
            return sum.add(saved);
        }
        // One place is for those that find none.
        let by = if self.0.len() < SAVERS_MAX - 1 {
            by.clone()
        } else {
            Saver::other()
        };
        self.0.entry(by).or_default().add(saved);
    }

    pub(super) fn add_all(&mut self, others: &Self) {
        for (by, saved) in others.iter() {
            self.add(by, saved);
        }
    }
}

impl From<Sums> for Replayed {
    fn from(sums: Sums) -> Self {
        let mut all = Saved::default();
        sums.0.values().for_each(|saved| all.add(saved));
        Self {
            all,
            by: sums.0.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saver(number: usize) -> Saver {
        let label = |text: &str| Label::new(text).expect("it is a label");
        Saver::new(label("proxy"), Some(label(&format!("upstream {number}"))))
    }

    fn currency(number: usize) -> Currency {
        let letter = char::from(b'A' + u8::try_from(number).expect("there are few"));
        Currency::new(&format!("XX{letter}")).expect("it is one")
    }

    #[test]
    fn beyond_the_limit_all_are_counted_as_one() {
        let mut sums = Sums::default();
        let (dollar, one) = (currency(0), Duration::from_secs(1));
        let saved = Saved::call(one, Some((dollar, Money(2))));
        for _ in 0..2 {
            for number in 0..2 * SAVERS_MAX {
                sums.add(&saver(number), &saved);
            }
        }
        assert_eq!(sums.iter().len(), SAVERS_MAX);
        let replayed = Replayed::from(sums);
        let calls = 4 * SAVERS_MAX as u64;
        assert_eq!(replayed.all.calls, calls);
        assert_eq!(replayed.all.time, Duration::from_secs(calls));
        assert_eq!(replayed.all.money[&dollar], Money(2 * calls));
        let other = replayed.by.iter().find(|(by, _)| *by == Saver::other());
        let expected = calls - 2 * (SAVERS_MAX as u64 - 1);
        assert_eq!(other.map(|(_, saved)| saved.calls), Some(expected));
    }

    #[test]
    fn too_many_currencies_lose_money_and_no_calls() {
        let mut sums = Sums::default();
        for number in 0..20 {
            let saved = Saved::call(Duration::ZERO, Some((currency(number), Money(1))));
            sums.add(&saver(0), &saved);
        }
        let all = Replayed::from(sums).all;
        assert_eq!((all.calls, all.money.len()), (20, CURRENCIES_MAX));
    }
}
