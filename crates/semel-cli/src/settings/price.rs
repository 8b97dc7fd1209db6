//! What answers cost: `price` of a route, for counting what is saved.

use std::collections::BTreeMap;

use semel::core::http::{Price, Rate};
use semel::core::{Currency, Money};
use toml::Value;

use super::nearest::only;
use crate::failure::Failure;

/// The members of a price.
const MEMBERS: [&str; 5] = ["currency", "call", "input", "output", "models"];

/// The members of a model's price.
const MODEL_MEMBERS: [&str; 2] = ["input", "output"];

/// The most models of a route: more than a provider has.
const MODELS_MAX: usize = 1_000;

/// Reads what the answers of a route cost.
pub(super) fn price(value: &Value, wrong: &dyn Fn(String) -> Failure) -> Result<Price, Failure> {
    let wrong = |text: String| wrong(format!("price: {text}"));
    only(value, &MEMBERS, "a price", &wrong)?;
    let currency = value.get("currency").and_then(Value::as_str);
    let currency = currency.ok_or_else(|| {
        let text = "`currency` is missing: three capital letters, as in `USD`";
        wrong(text.to_owned())
    })?;
    let currency = Currency::new(currency).map_err(|error| wrong(format!("currency: {error}")))?;
    Ok(Price {
        currency,
        call: amount(value, "call").map_err(wrong)?,
        rate: rate(value).map_err(wrong)?,
        models: match value.get("models") {
            Some(models) => read_models(models, &wrong)?,
            None => BTreeMap::new(),
        },
    })
}

fn read_models(
    models: &Value,
    wrong: &dyn Fn(String) -> Failure,
) -> Result<BTreeMap<String, Rate>, Failure> {
    let Some(table) = models.as_table() else {
        let found = models.type_str();
        return Err(wrong(format!("models must be a table; it is a {found}")));
    };
    if table.len() > MODELS_MAX {
        let count = table.len();
        let text = format!("models: there are {count}; there may be {MODELS_MAX}");
        return Err(wrong(text));
    }
    let rates = table.iter().map(|(name, value)| {
        let wrong = |text: String| wrong(format!("models.{name}: {text}"));
        only(value, &MODEL_MEMBERS, "the price of a model", &wrong)?;
        Ok((name.clone(), rate(value).map_err(wrong)?))
    });
    rates.collect()
}

fn rate(value: &Value) -> Result<Rate, String> {
    Ok(Rate {
        input: amount(value, "input")?,
        output: amount(value, "output")?,
    })
}

/// Reads an amount by how it is written, so that it is exact.
fn amount(value: &Value, member: &str) -> Result<Money, String> {
    let text = match value.get(member) {
        None => return Ok(Money::default()),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Float(number)) => number.to_string(),
        Some(other) => {
            let found = other.type_str();
            return Err(format!("{member}: an amount is a number; it is a {found}"));
        }
    };
    Money::price(&text).map_err(|error| format!("{member}: `{text}`: {error}"))
}
