//! How often a caller may call.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel::Label;

use crate::http::Problem;

/// The most callers that are remembered; those who have not called for longest are forgotten first, and a
/// forgotten one starts with a full second's worth.
const CALLERS_MAX: usize = 10_000;

/// Counts the calls of each token: a second's worth may come at once, and then so many each second.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: Option<NonZeroU32>,
    callers: Mutex<HashMap<Option<Label>, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub(crate) fn new(per_second: Option<NonZeroU32>) -> Self {
        Self {
            per_second,
            callers: Mutex::default(),
        }
    }

    /// Takes one call of a caller's, or says when there will be one.
    pub(crate) fn take(&self, caller: Option<&Label>) -> Result<(), Problem> {
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: Option<&Label>, now: Instant) -> Result<(), Problem> {
        let Some(per_second) = self.per_second else {
            return Ok(());
        };
        let rate = f64::from(per_second.get());
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller.cloned()) {
            let oldest = callers.iter().min_by_key(|(_, bucket)| bucket.at);
            if let Some(oldest) = oldest.map(|(caller, _)| caller.clone()) {
                callers.remove(&oldest);
            }
        }
        let bucket = callers.entry(caller.cloned()).or_insert(Bucket {
            left: rate,
            at: now,
        });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * rate).min(rate);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let pause = Duration::from_secs_f64((1.0 - bucket.left) / rate);
        let text = format!("this token may call {per_second} times a second");
        Err(Problem::new("rate_limited", text)
            .hint("wait as long as Retry-After says; arrays of calls count as one")
            .after(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_may_come_at_once_and_then_so_many_each_second() {
        let rates = Rates::new(NonZeroU32::new(2));
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let caller = Label::new("tok").ok();
        for (millis, allowed) in [(0, true), (0, true), (0, false), (400, false), (600, true)] {
            let taken = rates.take_at(caller.as_ref(), at(millis));
            assert_eq!(taken.is_ok(), allowed, "{millis}");
        }
        // Another caller has its own.
        assert!(rates.take_at(None, at(600)).is_ok());
    }
}
