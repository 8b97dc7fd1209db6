//! Telling other nodes which keys came to a rest.
//!
//! It is a transaction of its own, after the batch: PostgreSQL lets those that notify commit one after
//! the other, and nobody's sync is to wait for that. What is lost here is found by polling.

use semel_core::KeyHash;
use tokio_postgres::types::Type;

use super::pool::{Connection, in_time};

/// The keys that one notification names: PostgreSQL takes less than 8,000 bytes, and a key's hash has
/// 64 digits.
const KEYS_MAX: usize = 100;

/// Tells other nodes of keys.
pub(super) async fn tell(connection: Connection, keys: &[KeyHash]) {
    let texts: Vec<String> = keys
        .chunks(KEYS_MAX)
        .map(|keys| keys.iter().map(|key| key.0.hex()).collect())
        .collect();
    let sql = "SELECT pg_notify('semel', text) FROM unnest($1) AS text";
    let told = match connection.client() {
        Ok(client) => in_time(client.query_typed(sql, &[(&texts, Type::TEXT_ARRAY)])).await,
        Err(error) => Err(error),
    };
    if !matches!(told, Ok(Ok(_))) {
        connection.give_up();
    }
}
