//! Whether what callers of a key heard can have been heard from one ledger: whether there is an order
//! of the calls, each between its call and its return, in which the specification of a key (`spec.rs`)
//! gives every answer. The search is that of Wing, Gong and Lowe, by the crate `todc-utils`.

mod spec;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History as Actions};

use self::spec::{OneKey, Step};
use super::audit::Attempts;
use super::{Answer, Ask, Exchange, on_doubt};

/// The most calls of one key that are looked at while they overlap: the search takes exponentially
/// longer with each where it fails. Beyond it those that change nothing are left out, which can hide
/// a mistake, but makes none.
const OVERLAP_MAX: usize = 12;

/// How much of a lease is surely left to its holder: another node's clock may be ahead of the one by
/// which it was granted by a round trip.
const LEASE_SURE: u32 = 2;

/// How far a node's clock may be behind the database's, in nanoseconds: by a round trip on a busy
/// machine. For so long after somebody met a doubt, others may still take the lease for alive.
const CLOCK_BEHIND: u64 = 1_000_000_000;

/// How much was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// Keys.
    pub keys: usize,
    /// Calls that were put into an order.
    pub calls: usize,
    /// Calls that change nothing and were left out.
    pub left_out: usize,
    /// Calls among the checked ones of which nobody knows whether they happened.
    pub unreturned: usize,
}

/// Checks the calls of every key; `attempts` are those that the log holds.
///
/// # Errors
/// Names the first key whose calls no order explains, with the calls.
pub fn check(
    exchanges: &BTreeMap<String, Vec<Exchange>>,
    attempts: &BTreeMap<String, Attempts>,
) -> Result<Checked, String> {
    let none = Attempts::default();
    let mut checked = Checked::default();
    for (key, of_key) in exchanges {
        let attempts = attempts.get(key).unwrap_or(&none);
        check_key(key, of_key, attempts, &mut checked)?;
    }
    Ok(checked)
}

fn check_key(
    key: &str,
    exchanges: &[Exchange],
    attempts: &Attempts,
    checked: &mut Checked,
) -> Result<(), String> {
    let heard: BTreeSet<u64> = exchanges.iter().filter_map(grant_of).collect();
    if let Some(fence) = heard.difference(&attempts.granted).next() {
        let text = format!("{key}: somebody was granted fence {fence}, which is not in the log");
        return Err(text);
    }
    let unheard = attempts.granted.difference(&heard).count();
    let kept = thin_out(with_lost_claims(exchanges, unheard));
    checked.keys += 1;
    checked.calls += kept.len();
    checked.left_out += exchanges.len() - kept.len();
    checked.unreturned += kept.iter().filter(|kept| kept.back.is_none()).count();
    if kept.is_empty() {
        return Ok(());
    }
    let actions = actions(key, &kept, unheard > 0, &attempts.renewed);
    if WGLChecker::<OneKey>::is_linearizable(actions) {
        return Ok(());
    }
    let mut text = format!("{key}: no order of these calls explains their answers:");
    for exchange in kept {
        let Exchange {
            pid,
            ask,
            called,
            back,
        } = exchange;
        text += &match back {
            Some((at, answer)) => format!("\n  {called} to {at}, process {pid}: {ask}: {answer}"),
            None => format!("\n  {called}, process {pid}: {ask}: never returned"),
        };
    }
    Err(text)
}

/// Returns the fence that a call was granted.
fn grant_of(exchange: &Exchange) -> Option<u64> {
    match exchange.back.as_ref()?.1 {
        Answer::Granted { fence, .. } | Answer::Probing { fence, .. } => Some(fence),
        _ => None,
    }
}

/// Leaves out the claims that never returned and were not granted: the log holds as many unheard-of
/// grants as there are others. It does not say whose, so the earliest are kept, which could have
/// happened at any time that the right ones could.
fn with_lost_claims(exchanges: &[Exchange], unheard: usize) -> Vec<&Exchange> {
    let mut left = unheard;
    let keep = |exchange: &&Exchange| {
        let lost = exchange.ask == Ask::Begin && exchange.back.is_none();
        if lost && left > 0 {
            left -= 1;
            return true;
        }
        !lost
    };
    exchanges.iter().filter(keep).collect()
}

/// Leaves out what changes nothing where too many calls overlap.
fn thin_out(exchanges: Vec<&Exchange>) -> Vec<&Exchange> {
    let mut kept: Vec<&Exchange> = vec![];
    for exchange in exchanges {
        let open = |other: &&&Exchange| {
            let back = other.back.as_ref();
            back.is_none_or(|(at, _)| *at >= exchange.called)
        };
        let only_reads = matches!(
            exchange.back,
            Some((
                _,
                Answer::Replay(_) | Answer::InFlight | Answer::InDoubt | Answer::Stored(_)
            ))
        ) && exchange.ask == Ask::Begin;
        if !only_reads || kept.iter().filter(open).count() < OVERLAP_MAX {
            kept.push(exchange);
        }
    }
    kept
}

/// Lists calls and returns in the order of time; what never returned could happen until the end.
fn actions(
    key: &str,
    exchanges: &[&Exchange],
    unheard: bool,
    renewed: &BTreeSet<u64>,
) -> Actions<Step> {
    let doubted = exchanges.iter().any(|exchange| {
        let back = exchange.back.as_ref();
        back.is_some_and(|(_, answer)| *answer == Answer::InDoubt)
    });
    let mut all = vec![];
    for (number, exchange) in exchanges.iter().enumerate() {
        let step = Step {
            on_doubt: on_doubt(key),
            ask: exchange.ask.clone(),
            answer: exchange.back.as_ref().map(|(_, answer)| answer.clone()),
            mortal: !outlived(exchange, exchanges),
            renewed: grant_of(exchange).is_some_and(|fence| renewed.contains(&fence)),
            unheard,
        };
        let back = exchange.back.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let in_flight = step.answer == Some(Answer::InFlight);
        let behind = if doubted && in_flight {
            CLOCK_BEHIND
        } else {
            0
        };
        let called = exchange.called.saturating_sub(behind);
        // At the same moment calls come first: that rules nothing out.
        all.push(((called, 0), (number, Action::Call(step.clone()))));
        all.push(((back, 1), (number, Action::Response(step))));
    }
    all.sort_by_key(|(at, (number, _))| (*at, *number));
    Actions::from_actions(all.into_iter().map(|(_, action)| action).collect())
}

/// Says whether an attempt surely spoke before its lease ended, so that nobody may have ended it.
fn outlived(claim: &Exchange, exchanges: &[&Exchange]) -> bool {
    let Some((_, Answer::Granted { fence, lease } | Answer::Probing { fence, lease })) =
        &claim.back
    else {
        return false;
    };
    let sure = u64::try_from((*lease / LEASE_SURE).as_nanos()).unwrap_or(0);
    exchanges.iter().any(|exchange| {
        let speaks = match &exchange.ask {
            Ask::Done(by, _) | Ask::NotDone(by) => by == fence && exchange.pid == claim.pid,
            Ask::Begin | Ask::Resolve(_) => false,
        };
        let back = exchange.back.as_ref();
        speaks && back.is_some_and(|(at, _)| *at < claim.called.saturating_add(sure))
    })
}
