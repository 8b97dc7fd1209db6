//! What PostgreSQL's errors mean to a caller, and what to do about them.

use std::error::Error as _;
use std::io;

use rustls::AlertDescription;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::tls::ROOTS;
use crate::store::StoreError;
use crate::tls::advice;

/// Says what failed, in the caller's terms: what can be tried again, and what a person must change.
/// Nothing of the URL is shown, as it may hold a password.
pub(super) fn failed(doing: &str, error: &Error) -> StoreError {
    let text = format!("cannot {doing}: {}", told(error));
    let refused = |hint: &str| StoreError::Refused(format!("{text}; {hint}"));
    let later = |hint: &str| StoreError::Unavailable(format!("{text}; {hint}"));
    let Some(code) = error.code() else {
        return unspoken(error, text);
    };
    match code {
        &SqlState::INVALID_PASSWORD => {
            refused("check user and password in the URL, and the server's pg_hba.conf")
        }
        &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => refused(
            "check the user in the URL, and the server's pg_hba.conf: it may ask for TLS (sslmode) or \
             for a client's certificate (sslcert, sslkey)",
        ),
        &SqlState::INVALID_CATALOG_NAME => {
            refused("create the database first (`createdb NAME`), or correct its name in the URL")
        }
        &SqlState::INSUFFICIENT_PRIVILEGE => refused(
            "let this user make the schema (`GRANT CREATE ON DATABASE name TO user`), or make it \
             and give it away (`CREATE SCHEMA semel AUTHORIZATION user`)",
        ),
        &SqlState::TOO_MANY_CONNECTIONS => later(
            "the server has no free connection: raise max_connections, say connections=N in the URLs \
             of the nodes, or put pgbouncer before it",
        ),
        &SqlState::DISK_FULL => later("the server's disk is full: make room on it"),
        &SqlState::LOCK_NOT_AVAILABLE => later("another node has had its turn for too long"),
        &SqlState::QUERY_CANCELED => later(
            "statement_timeout is too short for this user (`ALTER ROLE user SET statement_timeout = 0`), \
             or the server is overloaded",
        ),
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => later(
            "idle_in_transaction_session_timeout is too short for this user (`ALTER ROLE user RESET \
             idle_in_transaction_session_timeout`)",
        ),
        &SqlState::CANNOT_CONNECT_NOW | &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => {
            later("the server is stopping or starting: try again soon")
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => later(ONLY_READS),
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_COLUMN
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::INVALID_SCHEMA_NAME => StoreError::Corrupt(format!(
            "{text}; the schema `semel` is not what it was: bring it back from a backup"
        )),
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => StoreError::Corrupt(text),
        _ => StoreError::Unavailable(text),
    }
}

/// What to do about a server that only reads.
const ONLY_READS: &str = "it only reads (a standby, or default_transaction_read_only = on): the URL must \
     lead to the primary, or name all servers (postgres://USER@HOST,HOST/DATABASE)";

/// Says what an error means that the server did not put into words.
fn unspoken(error: &Error, text: String) -> StoreError {
    let Some(source) = error.source() else {
        return StoreError::Unavailable(text);
    };
    if let Some(handshake) = below::<rustls::Error>(source) {
        let own = not_taken(handshake).map(str::to_owned);
        return match own.or_else(|| advice(handshake, ROOTS)) {
            Some(advice) => StoreError::Refused(format!("{text}; {advice}")),
            None => StoreError::Unavailable(text),
        };
    }
    // The client has no codes for these.
    match source.to_string().as_str() {
        "password missing" => StoreError::Refused(format!(
            "{text}; put the password into the URL (postgres://USER:PASSWORD@HOST/DATABASE)"
        )),
        "server does not support TLS" => StoreError::Refused(format!(
            "{text}; set `ssl = on` there, or say sslmode=disable in the URL if the network in between is \
             trusted"
        )),
        "server did not use channel binding" => StoreError::Refused(format!(
            "{text}; it takes TLS and a password stored as scram-sha-256, or leave out channel_binding"
        )),
        NO_WRITES => StoreError::Unavailable(format!("{text}; {ONLY_READS}")),
        _ => match below::<io::Error>(source).map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                StoreError::Unavailable(format!(
                    "{text}; is it running, and are host and port in the URL right?"
                ))
            }
            _ => StoreError::Unavailable(text),
        },
    }
}

/// Says what to do when the server does not take this client's certificate.
const fn not_taken(handshake: &rustls::Error) -> Option<&'static str> {
    match handshake {
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied,
        ) => Some(
            "the server does not take this client's certificate: check sslcert and sslkey in the URL, \
             and ssl_ca_file of the server",
        ),
        _ => None,
    }
}

/// How the client says that a server does not take writes.
const NO_WRITES: &str = "database does not allow writes";

/// Says whether a server was left because it does not take writes.
pub(super) fn only_reads(error: &Error) -> bool {
    let source = error.source();
    source.is_some_and(|source| source.to_string() == NO_WRITES)
}

/// Finds an error of this type in another one or below it.
fn below<'a, T: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a T> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    // What an `io::Error` holds is not its source, but itself.
    let held = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match held {
        Some(held) => below(held),
        None => below(error.source()?),
    }
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
