//! Changes in a transaction of `tokio_postgres`.

use semel_core::Effect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};

use super::{EffectError, Parameters, insert, listed, quoted, quoted_table, refuse_no_key};

/// A column and its value.
pub type Column<'a> = (&'a str, &'a (dyn ToSql + Sync));

/// What a change answers.
pub type Result<T> = std::result::Result<T, EffectError<Error>>;

const PARAMETERS: Parameters = Parameters('$');

fn names<'a>(columns: &[Column<'a>]) -> Vec<&'a str> {
    columns.iter().map(|(name, _)| *name).collect()
}

fn values<'a>(columns: impl IntoIterator<Item = &'a Column<'a>>) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.into_iter().map(|(_, value)| *value).collect()
}

/// Makes a row what it shall be, in one statement: `created` when there was none with this key,
/// `updated` when a value was another one, `noop` when all are equal already.
///
/// The key's columns must be those of a primary key or a unique index. Columns whose type has no
/// equality (`json`) cannot be compared, and a partitioned table cannot tell whether a row is new.
///
/// # Errors
/// The database's own, after which the transaction must be rolled back.
pub async fn upsert(
    transaction: &Transaction<'_>,
    table: &str,
    key: &[Column<'_>],
    set: &[Column<'_>],
) -> Result<Effect> {
    let (by, changed) = (names(key), names(set));
    refuse_no_key(table, &by)?;
    let mut sql = insert(PARAMETERS, table, &by, &changed);
    if changed.is_empty() {
        sql += " DO NOTHING RETURNING true";
    } else {
        let each = |make: &dyn Fn(String) -> String| {
            listed(changed.iter().map(|column| make(quoted(column))))
        };
        let assigned = each(&|column| format!("{column} = excluded.{column}"));
        let present = each(&|column| format!("present.{column}"));
        let wanted = each(&|column| format!("excluded.{column}"));
        // A row that was there is locked by this transaction before it is changed, which shows in the
        // new one; a row that was not has never been locked.
        sql += &format!(
            " DO UPDATE SET {assigned} WHERE ROW({present}) IS DISTINCT FROM ROW({wanted}) \
             RETURNING (present.xmax = 0)"
        );
    }
    let given = values(key.iter().chain(set));
    let row = transaction.query_opt(&sql, &given).await?;
    let created = row.map(|row| row.try_get(0)).transpose()?;
    Ok(match created {
        Some(true) => Effect::Created,
        Some(false) => Effect::Updated,
        None => Effect::Noop,
    })
}

/// Moves a row from one state to another: `updated` when it was in the first, `noop` when it is in the
/// second already.
///
/// # Errors
/// [`EffectError::OtherState`] names the state that it is in otherwise.
pub async fn transition(
    transaction: &Transaction<'_>,
    table: &str,
    key: &[Column<'_>],
    state: &str,
    from: &(dyn ToSql + Sync),
    to: &(dyn ToSql + Sync),
) -> Result<Effect> {
    let by = names(key);
    refuse_no_key(table, &by)?;
    let (place, column) = (quoted_table(table), quoted(state));
    let found = PARAMETERS.equal(&by, 3);
    let update = format!(
        "UPDATE {place} SET {column} = $1 WHERE {found} AND {column} = $2 \
         AND {column} IS DISTINCT FROM $1"
    );
    let look = format!(
        "SELECT {column}::text, coalesce({column} = $1, false), coalesce({column} = $2, false) \
         FROM {place} WHERE {found} FOR UPDATE"
    );
    let mut given: Vec<&(dyn ToSql + Sync)> = vec![to, from];
    given.extend(values(key));
    loop {
        if transaction.execute(&update, &given).await? > 0 {
            return Ok(Effect::Updated);
        }
        let table = table.to_owned();
        let Some(row) = transaction.query_opt(&look, &given).await? else {
            return Err(EffectError::Missing { table });
        };
        if row.try_get(1)? {
            return Ok(Effect::Noop);
        }
        // It came there just now, and is locked: the next round moves it.
        let is_there: bool = row.try_get(2)?;
        if !is_there {
            let state = row.try_get(0)?;
            return Err(EffectError::OtherState { table, state });
        }
    }
}

/// Deletes what has this key: `deleted`, or `noop` when there is nothing.
///
/// # Errors
/// The database's own, after which the transaction must be rolled back.
pub async fn delete(
    transaction: &Transaction<'_>,
    table: &str,
    key: &[Column<'_>],
) -> Result<Effect> {
    let by = names(key);
    refuse_no_key(table, &by)?;
    let found = PARAMETERS.equal(&by, 1);
    let sql = format!("DELETE FROM {} WHERE {found}", quoted_table(table));
    let deleted = transaction.execute(&sql, &values(key)).await?;
    Ok(if deleted > 0 {
        Effect::Deleted
    } else {
        Effect::Noop
    })
}
