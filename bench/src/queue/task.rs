//! What a task is given: its number and when it was submitted, in as many bytes as a result has.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::keys::{Keys, RESULT_BYTES};

/// The digits of a number in an input.
const DIGITS: usize = 16;

/// Makes inputs and reads them.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) keys: Keys,
    began: Instant,
}

/// What a worker reads of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) number: u64,
    /// When it was submitted, by this program's clock.
    pub(super) submitted: Duration,
}

impl Tasks {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            keys: Keys::new()?,
            began: Instant::now(),
        })
    }

    /// Returns the time by the clock that tasks are stamped with.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Makes the input of a task that is submitted now: a JSON string.
    pub(super) fn input(&self, number: u64) -> Vec<u8> {
        let mut input = self.keys.result(number);
        let submitted = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
        let digits = format!("{submitted:0DIGITS$x}{number:0DIGITS$x}");
        input[1..=2 * DIGITS].copy_from_slice(digits.as_bytes());
        input
    }

    /// Reads an input, which must be one of this run's.
    pub(super) fn read(&self, input: &[u8]) -> Result<Task> {
        let task = parse(input).filter(|task| {
            let (from, made) = (2 * DIGITS + 1, self.keys.result(task.number));
            input.get(from..) == made.get(from..)
        });
        task.context("a worker was given another input than was submitted")
    }
}

fn parse(input: &[u8]) -> Option<Task> {
    let text = str::from_utf8(input).ok()?;
    let digits = text
        .get(1..=2 * DIGITS)
        .filter(|_| text.len() == RESULT_BYTES)?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Task {
        submitted: Duration::from_nanos(number(&digits[..DIGITS])?),
        number: number(&digits[DIGITS..])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_says_which_task_it_is_and_since_when() {
        let tasks = Tasks::new().unwrap();
        let before = tasks.now();
        let input = tasks.input(7);
        assert_eq!(input.len(), RESULT_BYTES);
        serde_json::from_slice::<String>(&input).unwrap();
        let task = tasks.read(&input).unwrap();
        assert_eq!(task.number, 7);
        assert!(before <= task.submitted && task.submitted <= tasks.now());
    }

    #[test]
    fn an_input_that_was_not_submitted_is_refused() {
        let (tasks, other) = (Tasks::new().unwrap(), Tasks::new().unwrap());
        let mut changed = tasks.input(7);
        changed[200] ^= 1;
        for wrong in [
            changed,
            other.input(7),
            tasks.input(7)[1..].to_vec(),
            vec![],
        ] {
            assert!(tasks.read(&wrong).is_err());
        }
    }
}
