//! Identity: which operation is this call?
//!
//! Some callers give a key; many cannot. [`identify`] answers for all of them, the same way at
//! every door, over what the store knows and what the door saw. In this order:
//!
//! 1. An **explicit key** is the identity, and nothing else is looked at.
//! 2. A **harness's call id** that names a known operation means that operation. A call id that
//!    names none proves nothing: a model that plans its call anew gets a new id for the same intent.
//! 3. A **business key**, taken from the input by configured pointers, is the identity.
//! 4. Otherwise the **fingerprint** in its scope, *delivery-aware*: whoever received an answer and
//!    calls again wants another effect; whoever did not is retrying.
//!
//! # The fourth rule
//!
//! | the earlier identical call | the call is |
//! |---|---|
//! | delivered: succeeded, failed, dead | an intended repeat, the next occurrence |
//! | settled, and undelivered or nothing known, within its window | a retry |
//! | the same, after its window | an intended repeat |
//! | in doubt | a retry, for ever, unless the caller was told of a definite failure |
//! | in flight, its caller seen to go, before it or within [`CROSSING`] after it | a retry |
//! | in flight, its caller waiting at this door | as the door says: [`InFlight`] |
//! | in flight, its caller not seen from here | joined; refused where the tool asks for it |
//! | pending with nobody waiting: not applied | a retry, which carries it out |
//! | delivered, took effect within [`CHALLENGE_WINDOW`], and the tool asks first | refused visibly, once |
//!
//! With several of them, the one that is least sure to be over decides, and among equals the one
//! of the lowest number. So two lost calls are found again by two retries, one each, and what can be
//! answered comes before what would run.
//!
//! The window is [`WINDOW`] with a conversation in the scope and [`WINDOW_WITHOUT_CONVERSATION`]
//! without one.
//!
//! # Why it holds
//!
//! A new operation gets a key that nothing known has, and claims it by a Begin on an absent key.
//! Two judges that did not see each other's call choose the same key; one of them loses the claim,
//! reads again and judges again. So a lost race is a second look, never a second effect.
//! The exception is two identical calls with *different* call ids judged by two processes at once:
//! each is named by its own id, and both run.
//!
//! # Known limits
//!
//! - A client that gives up silently on a live connection, or whose host lost the answer after
//!   receiving it, looks like an intended repeat.
//! - An intermediary's acknowledgement is not the client's.
//! - A crash before the delivery mark swallows one intended repeat, visibly: it is answered as a
//!   replay.
//! - A retry that comes after its window, or under another principal, target or conversation, runs.
//! - Of two identical calls at two processes that share a store, the second joins the first even
//!   where the door runs both, as neither process can see that the other's caller is still there.
//! - A record holds one mark. Where two processes each hold a caller of one operation, the mark that
//!   is stored last stands.
//! - A call id that a door does not remember (see [`Prior::call_ids`]) is a new one.

mod call;
mod command_line;
mod delivery;
mod key;
mod kin;
mod pointer;
#[cfg(test)]
mod tests;
mod upshot;

use core::time::Duration;

pub use call::{
    CHALLENGE_WINDOW, Call, Identity, InFlight, Prior, Relation, WINDOW,
    WINDOW_WITHOUT_CONVERSATION,
};
pub use command_line::CommandLine;
pub use delivery::{CROSSING, CallerId, Callers, Exchange, Observation};
pub use key::{
    ClientKey, ClientText, Door, Scope, Source, client_text, inbox_key, inbox_prefix, inbox_repeat,
    is_made_from, ledger_key,
};
pub use kin::{Kin, KinChange};
pub use pointer::{BusinessKey, Pointer, PointerError};
pub use upshot::Upshot;

use crate::ledger::{Delivery, StateKind};
use crate::time::Timestamp;

/// Decides which operation a call is for.
///
/// `known` holds what is stored under [`Call::own_keys`]; and unless that [`names`] the operation,
/// of the operations of this fingerprint in this scope at least those that count ([`Kin`]), and the one
/// of the highest number. That number is looked up before those that count: what another process begins
/// in between is then found among them, or has taken the number. More does no harm: what belongs to
/// another scope, another fingerprint or an explicit key is passed over here.
///
/// The door sets its marks in memory before it asks, so that a repeat on the same connection is
/// judged with its own proof of receipt.
#[must_use]
pub fn identify(call: &Call, known: &[Prior], now: Timestamp) -> Identity {
    if let Some(text) = &call.explicit {
        return exactly(call, &ClientKey::Explicit(text.clone()), known);
    }
    if let Some(prior) = named_by_call_id(call, known) {
        return existing(prior, Relation::Retry, Source::CallId);
    }
    if let Some(key) = &call.business {
        return exactly(call, &ClientKey::Business(key.clone()), known);
    }
    by_delivery(call, known, now)
}

/// Says whether what is stored under a call's own keys tells which operation it is for, whatever became
/// of the identical calls before it.
#[must_use]
pub fn names(call: &Call, known: &[Prior]) -> bool {
    call.explicit.is_some() || call.business.is_some() || named_by_call_id(call, known).is_some()
}

/// Says whether a call counts as one that nobody will ask for again: what became of it was not seen to
/// arrive, and its window has passed.
#[must_use]
pub fn has_lapsed(call: &Call, prior: &Prior, now: Timestamp) -> bool {
    kin::is_suspect(prior.delivery) && unasked_standing(prior, call.window(), now) == Standing::Over
}

/// Takes a key as the identity, whatever became of its earlier calls.
fn exactly(call: &Call, client_key: &ClientKey, known: &[Prior]) -> Identity {
    let key = call.key(client_key, 1);
    let is_known = known
        .iter()
        .any(|prior| prior.key == key && prior.state != StateKind::Stub);
    Identity {
        key,
        occurrence: 1,
        relation: if is_known {
            Relation::Retry
        } else {
            Relation::First
        },
        source: client_key.source(),
    }
}

/// Finds the operation that a call with the same call id was for.
fn named_by_call_id<'a>(call: &Call, known: &'a [Prior]) -> Option<&'a Prior> {
    let id = call.call_id.as_ref()?;
    let own = call.key(&ClientKey::CallId(id.clone()), 1);
    let prefix = key::prefix(call.door, &call.scope);
    let is_named = |prior: &&Prior| {
        let in_scope = prior.key.as_str().starts_with(&prefix);
        let by_id = prior.key == own || prior.call_ids.contains(id);
        in_scope && by_id && prior.state != StateKind::Stub
    };
    // Its own key goes before what was remembered beside another one.
    let named = known.iter().filter(is_named);
    named.min_by_key(|prior| prior.key != own)
}

/// Judges a call by what became of the identical ones before it.
fn by_delivery(call: &Call, known: &[Prior], now: Timestamp) -> Identity {
    let prefix = key::prefix(call.door, &call.scope);
    let relatives: Vec<&Prior> = known
        .iter()
        .filter(|prior| is_relative(call, &prefix, prior))
        .collect();
    let decisive = relatives
        .iter()
        .map(|prior| (standing(call, prior, now), *prior))
        .min_by_key(|(standing, prior)| (*standing, prior.occurrence, &prior.key));
    let Some((standing, prior)) = decisive else {
        return fresh(call, &relatives, Relation::First);
    };
    let known_as = |relation| existing(prior, relation, Source::Fingerprint);
    match standing {
        Standing::Lost | Standing::Doubt | Standing::Unapplied => known_as(Relation::Retry),
        // Running both takes a caller that is seen to wait: behind one that is not there may be a
        // process that crashed, and then this call is the retry.
        Standing::Unseen => match call.in_flight {
            InFlight::Distinct | InFlight::Join => known_as(Relation::Joined),
            InFlight::Challenge => known_as(Relation::Challenged),
        },
        Standing::Waiting => match call.in_flight {
            InFlight::Distinct => fresh(call, &relatives, Relation::IntendedRepeat),
            InFlight::Join => known_as(Relation::Joined),
            InFlight::Challenge => known_as(Relation::Challenged),
        },
        Standing::Over => match (call.in_flight, last_effect(call, &relatives, now)) {
            (InFlight::Challenge, Some(prior)) => {
                existing(prior, Relation::Challenged, Source::Fingerprint)
            }
            (InFlight::Challenge, None) | (InFlight::Distinct | InFlight::Join, _) => {
                fresh(call, &relatives, Relation::IntendedRepeat)
            }
        },
    }
}

/// Finds the last identical call that may have taken effect of late, unless the caller says that it knows of
/// it and wants another.
fn last_effect<'a>(call: &Call, relatives: &[&'a Prior], now: Timestamp) -> Option<&'a Prior> {
    let acted = relatives.iter().filter(|prior| match prior.state {
        StateKind::Succeeded | StateKind::Tombstone | StateKind::Doubtful => true,
        StateKind::Failed
        | StateKind::Dead
        | StateKind::Pending
        | StateKind::Running
        | StateKind::Stub
        | StateKind::Breaker(_) => false,
    });
    let last = acted.max_by_key(|prior| (prior.occurrence, &prior.key))?;
    let is_late = now.since(last.last_seen) <= CHALLENGE_WINDOW;
    let is_asked_for = call.repeat_of.as_ref() == Some(&last.key);
    (is_late && !is_asked_for).then_some(last)
}

/// Says whether a prior is for the same fingerprint in the same scope, and was not given a key.
fn is_relative(call: &Call, prefix: &str, prior: &Prior) -> bool {
    prior.state != StateKind::Stub
        && prior.fingerprint == call.fingerprint
        && prior
            .key
            .as_str()
            .strip_prefix(prefix)
            .is_some_and(key::is_named_by_delivery)
}

/// How surely a prior is over, the least sure first: that one decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Its caller did not get the outcome, or may not have.
    Lost,
    /// Nobody knows whether its effect happened.
    Doubt,
    /// It is in flight, and its caller is not seen from here.
    Unseen,
    /// Its caller waits here.
    Waiting,
    /// It was not applied, and waits for somebody to carry it out.
    Unapplied,
    /// Its caller has the outcome, or will not ask for it any more.
    Over,
}

fn standing(call: &Call, prior: &Prior, now: Timestamp) -> Standing {
    let standing = unasked_standing(prior, call.window(), now);
    let asked = call.repeat_of.as_ref() == Some(&prior.key);
    match standing {
        // The caller knows of it and wants another.
        Standing::Lost | Standing::Unseen | Standing::Waiting if asked => Standing::Over,
        Standing::Lost
        | Standing::Doubt
        | Standing::Unseen
        | Standing::Waiting
        | Standing::Unapplied
        | Standing::Over => standing,
    }
}

fn unasked_standing(prior: &Prior, window: Duration, now: Timestamp) -> Standing {
    match prior.state {
        StateKind::Doubtful => match prior.delivery {
            Delivery::Delivered if prior.failure_told => Standing::Over,
            Delivery::Delivered | Delivery::Unknown | Delivery::Undelivered | Delivery::Lapsed => {
                Standing::Doubt
            }
        },
        StateKind::Running => match prior.delivery {
            Delivery::Undelivered => Standing::Lost,
            // Any other mark is that of an earlier attempt's answer.
            Delivery::Unknown | Delivery::Delivered | Delivery::Lapsed if prior.waiting => {
                Standing::Waiting
            }
            Delivery::Unknown | Delivery::Delivered | Delivery::Lapsed => Standing::Unseen,
        },
        StateKind::Pending if prior.waiting => Standing::Waiting,
        StateKind::Pending => Standing::Unapplied,
        StateKind::Succeeded | StateKind::Failed | StateKind::Dead | StateKind::Tombstone => {
            match prior.delivery {
                Delivery::Unknown | Delivery::Delivered | Delivery::Lapsed if prior.waiting => {
                    Standing::Waiting
                }
                Delivery::Delivered | Delivery::Lapsed => Standing::Over,
                Delivery::Unknown | Delivery::Undelivered
                    if prior.waiting || now.since(prior.last_seen) <= window =>
                {
                    Standing::Lost
                }
                Delivery::Unknown | Delivery::Undelivered => Standing::Over,
            }
        }
        StateKind::Stub | StateKind::Breaker(_) => Standing::Over,
    }
}

fn existing(prior: &Prior, relation: Relation, source: Source) -> Identity {
    Identity {
        key: prior.key.clone(),
        occurrence: prior.occurrence,
        relation,
        source,
    }
}

/// Names a new operation: by its call id, so that a harness finds it again for as long as anything
/// is kept of it; else by the fingerprint and the next number.
fn fresh(call: &Call, relatives: &[&Prior], relation: Relation) -> Identity {
    if let Some(id) = call.call_id.as_ref().filter(|_| !call.is_numbered()) {
        return Identity {
            key: call.key(&ClientKey::CallId(id.clone()), 1),
            occurrence: 1,
            relation,
            source: Source::CallId,
        };
    }
    let base = ClientKey::Fingerprint(call.fingerprint);
    let numbered = relatives
        .iter()
        .filter(|prior| prior.key == call.key(&base, prior.occurrence));
    let occurrence = numbered
        .map(|prior| prior.occurrence.max(1))
        .max()
        .map_or(1, |last| last.saturating_add(1));
    Identity {
        key: call.key(&base, occurrence),
        occurrence,
        relation,
        source: Source::Fingerprint,
    }
}
