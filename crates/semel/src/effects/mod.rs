//! Changes that say what they did: `created`, `updated`, `deleted` or `noop`.
//!
//! Whoever commits an effect together with its report ([`Permit::commit`](crate::Permit::commit)) has to
//! say which one it was. These functions make the change inside the caller's transaction and return the
//! effect that is true, also when another transaction changes the same row at the same time. A table is
//! named `table` or `schema.table`; all names are quoted, so they are taken as they are.

#[cfg(feature = "postgres")]
pub mod postgres;
pub mod sqlite;

/// Says why a change was not made; `E` is the database's own error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EffectError<E> {
    /// The database refused.
    #[error(transparent)]
    Database(E),
    /// The row is in neither of the two states.
    #[error("the row in {table} is in the state {}, from which it cannot get there", said(.state.as_deref()))]
    OtherState {
        /// Where the row is.
        table: String,
        /// The state that it is in; `None` is NULL.
        state: Option<String>,
    },
    /// There is no such row.
    #[error("there is no such row in {table}")]
    Missing {
        /// Where it was looked for.
        table: String,
    },
    /// No column was named to find the row by: every row of the table would be changed.
    #[error("no key columns were given for {table}")]
    NoKey {
        /// The table.
        table: String,
    },
}

impl<E> From<E> for EffectError<E> {
    fn from(error: E) -> Self {
        Self::Database(error)
    }
}

fn said(state: Option<&str>) -> String {
    state.map_or_else(|| "NULL".to_owned(), |state| format!("`{state}`"))
}

/// How a database writes its parameters: `$1` or `?1`.
#[derive(Clone, Copy, Debug)]
struct Parameters(char);

impl Parameters {
    fn number(self, number: usize) -> String {
        format!("{}{number}", self.0)
    }

    /// Compares columns with parameters, from this number on.
    fn equal(self, columns: &[&str], first: usize) -> String {
        let equals = columns.iter().zip(first..);
        let equals =
            equals.map(|(column, number)| format!("{} = {}", quoted(column), self.number(number)));
        equals.collect::<Vec<_>>().join(" AND ")
    }
}

/// Quotes a name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a table's name and that of its schema, if it has one.
fn quoted_table(table: &str) -> String {
    match table.split_once('.') {
        Some((schema, table)) => format!("{}.{}", quoted(schema), quoted(table)),
        None => quoted(table),
    }
}

fn listed(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Makes the beginning of an upsert: what is inserted, and by which columns it may be there already.
fn insert(parameters: Parameters, table: &str, key: &[&str], values: &[&str]) -> String {
    let columns = key.iter().chain(values);
    let numbers = (1..=columns.clone().count()).map(|number| parameters.number(number));
    format!(
        "INSERT INTO {} AS present ({}) VALUES ({}) ON CONFLICT ({})",
        quoted_table(table),
        listed(columns.map(|column| quoted(column))),
        listed(numbers),
        listed(key.iter().map(|column| quoted(column))),
    )
}

fn refuse_no_key<E>(table: &str, key: &[&str]) -> Result<(), EffectError<E>> {
    if key.is_empty() {
        let table = table.to_owned();
        return Err(EffectError::NoKey { table });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_they_are() {
        assert_eq!(quoted("order"), r#""order""#);
        assert_eq!(quoted(r#"a"; DROP TABLE b"#), r#""a""; DROP TABLE b""#);
        assert_eq!(quoted_table("bank.Account"), r#""bank"."Account""#);
    }

    #[test]
    fn an_upsert_names_its_key_once_and_numbers_every_column() {
        let sql = insert(Parameters('$'), "account", &["id", "kind"], &["balance"]);
        let expected = r#"INSERT INTO "account" AS present ("id", "kind", "balance") VALUES ($1, $2, $3) ON CONFLICT ("id", "kind")"#;
        assert_eq!(sql, expected);
        let sql = Parameters('?').equal(&["id", "kind"], 2);
        assert_eq!(sql, r#""id" = ?2 AND "kind" = ?3"#);
    }
}
