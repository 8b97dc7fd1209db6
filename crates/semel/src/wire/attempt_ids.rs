//! Attempt ids, hidden from callers that may not resolve.
//!
//! A report names the id of its attempt, which only its holder knows: it is 128 random bits. A record has them, so a
//! caller that reads the record of a doubt could report for another one's attempt, which would be a resolution without
//! the scope `operate`. Such callers get digests in place of the ids. Clients compare no ids: the rules run here.

use std::sync::Arc;

use semel_core::ledger::{Begin, Command, Entry, Operation, Record, Renew, Settle};
use semel_core::{AttemptId, Digest};

use super::reply::Said;
use crate::store::{Current, Stored};

/// Hides the attempt ids in an answer, but for the one that the caller itself named.
pub(super) fn hide(said: Said, own: Option<&AttemptId>) -> Said {
    let stored = |stored: Stored| Stored {
        record: hide_in_record(&stored.record, own),
        ..stored
    };
    let current = |current: Current| match current {
        Current::Stored(found) => Current::Stored(stored(found)),
        absent @ Current::Absent(_) => absent,
    };
    match said {
        Said::Applied {
            reply,
            current: found,
            at,
        } => Said::Applied {
            reply,
            current: current(found),
            at,
        },
        Said::Refused { rejection, record } => Said::Refused {
            rejection,
            record: record.map(|record| hide_in_record(&record, own)),
        },
        Said::Found(found) => Said::Found(current(found)),
        Said::Lies(found) => Said::Lies(found.map(stored)),
        Said::Page(mut page) => {
            page.items = page.items.into_iter().map(stored).collect();
            Said::Page(page)
        }
        Said::Records(found) => Said::Records(found.into_iter().map(stored).collect()),
        Said::Log {
            mut entries,
            reached,
            more,
        } => {
            for logged in &mut entries {
                hide_in_entry(&mut logged.entry);
            }
            Said::Log {
                entries,
                reached,
                more,
            }
        }
        other @ (Said::Hello(_)
        | Said::Payload(_)
        | Said::Taken
        | Said::Stream { .. }
        | Said::End(_)
        | Said::Standing(_)
        | Said::Failed(_)
        | Said::Count(_)
        | Said::Tokens(_)
        | Said::PrincipalCode(_)) => other,
    }
}

/// Returns the id of the attempt that a command names.
pub(super) fn named_by(command: &Command) -> Option<&AttemptId> {
    match command {
        Command::Begin(begin) => Some(&begin.attempt),
        Command::Renew(renew) => Some(&renew.attempt),
        Command::Settle(settle) => Some(&settle.attempt),
        Command::Submit(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => None,
    }
}

fn hide_in_record(record: &Arc<Record>, own: Option<&AttemptId>) -> Arc<Record> {
    let Record::Operation(operation) = &**record else {
        return Arc::clone(record);
    };
    if operation.attempts.iter().all(|it| Some(&it.id) == own) {
        return Arc::clone(record);
    }
    let mut operation = Operation::clone(operation);
    for attempt in &mut operation.attempts {
        if Some(&attempt.id) != own {
            attempt.id = digest_of(&attempt.id);
        }
    }
    Arc::new(Record::Operation(operation))
}

fn hide_in_entry(entry: &mut Entry) {
    let command = match &entry.command {
        Command::Begin(begin) => Command::Begin(Begin {
            attempt: digest_of(&begin.attempt),
            ..begin.clone()
        }),
        Command::Renew(renew) => Command::Renew(Renew {
            attempt: digest_of(&renew.attempt),
            ..renew.clone()
        }),
        Command::Settle(settle) => Command::Settle(Settle {
            attempt: digest_of(&settle.attempt),
            ..settle.clone()
        }),
        Command::Submit(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => return,
    };
    entry.command = command;
}

/// Stands for an id: the same for the same one, so that attempts can be told apart.
fn digest_of(id: &AttemptId) -> AttemptId {
    let digest = Digest::of_parts(&[b"semel-attempt-id\0", id.as_str().as_bytes()]);
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest.0[..16]);
    AttemptId::from_random(u128::from_be_bytes(bits))
}
