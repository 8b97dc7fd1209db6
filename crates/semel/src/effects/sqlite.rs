//! Changes in a transaction of `rusqlite`.
//!
//! Nobody else writes between the statements of one SQLite transaction, and one whose snapshot was
//! overtaken before its first change is refused. So two statements are as exact here as one.

use rusqlite::types::ValueRef;
use rusqlite::{Error, OptionalExtension, ToSql, Transaction};
use semel_core::Effect;

use super::{EffectError, Parameters, insert, quoted, quoted_table, refuse_no_key};

/// A column and its value.
pub type Column<'a> = (&'a str, &'a dyn ToSql);

/// What a change answers.
pub type Result<T> = std::result::Result<T, EffectError<Error>>;

const PARAMETERS: Parameters = Parameters('?');

fn names<'a>(columns: &[Column<'a>]) -> Vec<&'a str> {
    columns.iter().map(|(name, _)| *name).collect()
}

fn values<'a>(columns: impl IntoIterator<Item = &'a Column<'a>>) -> Vec<&'a dyn ToSql> {
    columns.into_iter().map(|(_, value)| *value).collect()
}

/// Makes a row what it shall be: `created` when there was none with this key, `updated` when a value
/// was another one, `noop` when all are equal already.
///
/// The key's columns must be those of a primary key or a unique index.
///
/// # Errors
/// The database's own.
pub fn upsert(
    transaction: &Transaction<'_>,
    table: &str,
    key: &[Column<'_>],
    set: &[Column<'_>],
) -> Result<Effect> {
    let (by, changed) = (names(key), names(set));
    refuse_no_key(table, &by)?;
    let given = values(key.iter().chain(set));
    let sql = insert(PARAMETERS, table, &by, &changed) + " DO NOTHING";
    if transaction.execute(&sql, given.as_slice())? > 0 {
        return Ok(Effect::Created);
    }
    if changed.is_empty() {
        return Ok(Effect::Noop);
    }
    let numbered = || changed.iter().zip(by.len() + 1..);
    let each = |make: &dyn Fn(String, String) -> String| -> Vec<String> {
        let made = numbered().map(|(column, number)| {
            let number = PARAMETERS.number(number);
            make(quoted(column), number)
        });
        made.collect()
    };
    let assigned = each(&|column, number| format!("{column} = {number}")).join(", ");
    // Letter for letter, whatever the column's collation calls equal.
    let differs = each(&|column, number| format!("{column} IS NOT {number} COLLATE BINARY"));
    let sql = format!(
        "UPDATE {} SET {assigned} WHERE {} AND ({})",
        quoted_table(table),
        PARAMETERS.equal(&by, 1),
        differs.join(" OR "),
    );
    Ok(effect(
        transaction.execute(&sql, given.as_slice())?,
        Effect::Updated,
    ))
}

/// Moves a row from one state to another: `updated` when it was in the first, `noop` when it is in the
/// second already.
///
/// # Errors
/// [`EffectError::OtherState`] names the state that it is in otherwise.
pub fn transition(
    transaction: &Transaction<'_>,
    table: &str,
    key: &[Column<'_>],
    state: &str,
    from: &dyn ToSql,
    to: &dyn ToSql,
) -> Result<Effect> {
    let by = names(key);
    refuse_no_key(table, &by)?;
    let (place, column) = (quoted_table(table), quoted(state));
    let found = PARAMETERS.equal(&by, 3);
    let mut given: Vec<&dyn ToSql> = vec![to, from];
    given.extend(values(key));
    let sql = format!(
        "UPDATE {place} SET {column} = ?1 WHERE {found} AND {column} IS ?2 AND {column} IS NOT ?1"
    );
    if transaction.execute(&sql, given.as_slice())? > 0 {
        return Ok(Effect::Updated);
    }
    // The second parameter is not needed here, and must be there for the numbers of the others.
    let sql = format!("SELECT {column}, {column} IS ?1, ?2 IS NULL FROM {place} WHERE {found}");
    let row = transaction
        .query_row(&sql, given.as_slice(), |row| {
            Ok((shown(row.get_ref(0)?), row.get::<_, bool>(1)?))
        })
        .optional()?;
    let table = table.to_owned();
    match row {
        None => Err(EffectError::Missing { table }),
        Some((_, true)) => Ok(Effect::Noop),
        Some((state, false)) => Err(EffectError::OtherState { table, state }),
    }
}

/// Deletes what has this key: `deleted`, or `noop` when there is nothing.
///
/// # Errors
/// The database's own.
pub fn delete(transaction: &Transaction<'_>, table: &str, key: &[Column<'_>]) -> Result<Effect> {
    let by = names(key);
    refuse_no_key(table, &by)?;
    let found = PARAMETERS.equal(&by, 1);
    let sql = format!("DELETE FROM {} WHERE {found}", quoted_table(table));
    let deleted = transaction.execute(&sql, values(key).as_slice())?;
    Ok(effect(deleted, Effect::Deleted))
}

fn effect(rows: usize, changed: Effect) -> Effect {
    if rows > 0 { changed } else { Effect::Noop }
}

/// A state as people read it.
fn shown(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Some(format!("{} bytes", bytes.len())),
    }
}
