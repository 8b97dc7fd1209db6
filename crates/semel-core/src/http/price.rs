//! What an answer costs that is not asked for again.

use std::collections::BTreeMap;

use super::usage::Usage;
use crate::money::{Currency, Money};

/// What the tokens of a model cost, per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Those of the question.
    pub input: Money,
    /// Those of the answer.
    pub output: Money,
}

/// What the answers of an upstream cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// What it is paid in.
    pub currency: Currency,
    /// What each call costs.
    pub call: Money,
    /// What tokens cost, unless the model has a rate of its own.
    pub rate: Rate,
    /// What the tokens of some models cost.
    pub models: BTreeMap<String, Rate>,
}

impl Price {
    /// Returns what an answer cost, rounded to the nearest millionth.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Money {
        let rate = usage.model.as_deref().map(|model| self.rate_of(model));
        let rate = rate.unwrap_or(self.rate);
        let cost = |tokens: Option<u64>, per_million: Money| {
            u128::from(tokens.unwrap_or(0)) * u128::from(per_million.0)
        };
        let tokens = cost(usage.input, rate.input) + cost(usage.output, rate.output);
        let unit = u128::from(Money::UNIT);
        let tokens = u64::try_from((tokens + unit / 2) / unit).unwrap_or(u64::MAX);
        self.call.plus(Money(tokens))
    }

    /// Returns the rate of a model. Answers name it with the date of its making, which settings may leave out.
    fn rate_of(&self, model: &str) -> Rate {
        let named = self.models.get(model);
        let named = named.or_else(|| self.models.get(undated(model)?));
        named.copied().unwrap_or(self.rate)
    }
}

/// Returns a name without the date at its end: `-2024-07-18`, `-20250514` or `-0613`.
fn undated(model: &str) -> Option<&str> {
    const SHAPES: [&str; 3] = ["-dddd-dd-dd", "-dddddddd", "-dddd"];
    let fits = |end: &str, shape: &str| {
        end.len() == shape.len()
            && end.bytes().zip(shape.bytes()).all(|(byte, of)| match of {
                b'd' => byte.is_ascii_digit(),
                _ => byte == of,
            })
    };
    SHAPES.iter().find_map(|shape| {
        let at = model.len().checked_sub(shape.len())?;
        let (name, end) = model.split_at_checked(at)?;
        fits(end, shape).then_some(name)
    })
}
