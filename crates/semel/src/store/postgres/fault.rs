//! What PostgreSQL's errors mean to a caller, and what to do about them.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::StoreError;

/// Says what failed, in the caller's terms: what can be tried again, and what a person must change.
/// Nothing of the URL is shown, as it may hold a password.
pub(super) fn failed(doing: &str, error: &Error) -> StoreError {
    let text = format!("cannot {doing}: {}", told(error));
    let Some(code) = error.code() else {
        return match error.source() {
            Some(source) if wants_password(source) => StoreError::Refused(format!(
                "{text}; put the password into the URL (postgres://USER:PASSWORD@HOST/DATABASE)"
            )),
            _ => StoreError::Unavailable(text),
        };
    };
    let refused = |hint: &str| StoreError::Refused(format!("{text}; {hint}"));
    let later = |hint: &str| StoreError::Unavailable(format!("{text}; {hint}"));
    match code {
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            refused("check user and password in the URL, and the server's pg_hba.conf")
        }
        &SqlState::INVALID_CATALOG_NAME => {
            refused("create the database first (`createdb NAME`), or correct its name in the URL")
        }
        &SqlState::INSUFFICIENT_PRIVILEGE => refused(
            "let this user make the schema (`GRANT CREATE ON DATABASE name TO user`), or make it \
             and give it away (`CREATE SCHEMA semel AUTHORIZATION user`)",
        ),
        &SqlState::TOO_MANY_CONNECTIONS => later(
            "the server has no free connection: raise max_connections, or put pgbouncer before it",
        ),
        &SqlState::DISK_FULL => later("the server's disk is full: make room on it"),
        &SqlState::LOCK_NOT_AVAILABLE => later("another node has had its turn for too long"),
        &SqlState::QUERY_CANCELED => later("statement_timeout may be too short for this user"),
        &SqlState::READ_ONLY_SQL_TRANSACTION => {
            later("this server only reads: the URL must lead to the primary")
        }
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_COLUMN
        | &SqlState::INVALID_SCHEMA_NAME => {
            StoreError::Corrupt(format!("{text}; the schema `semel` is not what it was"))
        }
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => StoreError::Corrupt(text),
        _ => StoreError::Unavailable(text),
    }
}

fn wants_password(source: &(dyn std::error::Error + 'static)) -> bool {
    source.to_string() == "password missing"
}

/// The server's own words, or the reason below the client's.
pub(super) fn told(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => said.message().to_owned(),
        (None, Some(source)) => format!("{error} ({source})"),
        (None, None) => error.to_string(),
    }
}

/// Says whether an error came with a lost connection, so that another one may do better.
pub(super) fn is_lost(error: &Error) -> bool {
    match error.code() {
        Some(code) => [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code),
        None => true,
    }
}
