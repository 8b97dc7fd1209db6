//! What was saved by answers that were given again.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::Replayed;
use semel::core::identity::Door;
use semel::core::{Currency, Money};

use super::known;
use super::text::Text;

/// The doors that are told apart. A caller of the API may name others, which must not become labels.
const DOORS: [&str; 3] = [Door::Proxy.as_str(), Door::Mcp.as_str(), "other"];

#[derive(Default)]
struct Sum {
    calls: u64,
    time: Duration,
    money: BTreeMap<Currency, Money>,
}

pub(super) fn write(text: &mut Text, replayed: &Replayed) {
    let sums = DOORS.map(|door| (door, sum(replayed, door)));
    text.metric(&known::SAVED_CALLS);
    for (door, sum) in &sums {
        text.sample(&known::SAVED_CALLS, &[("door", door)], sum.calls);
    }
    text.metric(&known::SAVED_SECONDS);
    for (door, sum) in &sums {
        let seconds = sum.time.as_secs_f64();
        text.sample(&known::SAVED_SECONDS, &[("door", door)], seconds);
    }
    text.metric(&known::SAVED_MONEY);
    for (door, sum) in &sums {
        for (currency, money) in &sum.money {
            let labels = [("door", *door), ("currency", currency.as_str())];
            text.sample(&known::SAVED_MONEY, &labels, money);
        }
    }
}

fn sum(replayed: &Replayed, door: &str) -> Sum {
    let mut sum = Sum::default();
    for (by, saved) in &replayed.by {
        let known = DOORS.iter().find(|known| **known == by.door.as_str());
        if *known.unwrap_or(&"other") != door {
            continue;
        }
        sum.calls += saved.calls;
        sum.time += saved.time;
        for (currency, money) in &saved.money {
            let all = sum.money.entry(*currency).or_default();
            *all = all.plus(*money);
        }
    }
    sum
}
