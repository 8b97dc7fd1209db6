//! Lists in which the lease is judged: what is stored as running may be in doubt by now.

use semel_core::ledger::StateKind;

use super::Engine;
use crate::error::Result;
use crate::store::{PAGE_MAX, Page, Query, Stored};

/// The most pages of the store that one page of the answer looks through: beyond them the answer is
/// a shorter page and where to go on, so that a crowd of running operations cannot hold a caller up.
const STORE_PAGES_MAX: usize = 16;

impl Engine {
    /// Lists records in one of the states asked for, as of now: a lease that has ended is a doubt,
    /// written or not.
    ///
    /// A page may be shorter than asked for although there is a next one.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn list(&self, query: Query) -> Result<Page> {
        let store = &self.inner.ledger.store;
        if !is_judged(&query.states) {
            return Ok(store.list(query).await?);
        }
        let limit = query.limit.clamp(1, PAGE_MAX);
        let wanted = query.states.clone();
        let mut asked = query;
        if !asked.states.contains(&StateKind::Running) {
            asked.states.push(StateKind::Running);
        }
        let mut answer = Page::default();
        for _ in 0..STORE_PAGES_MAX {
            let page = store.list(asked.clone()).await?;
            let now = store.now();
            for stored in page.items {
                if !wanted.contains(&stored.record.kind_at(now)) {
                    continue;
                }
                if answer.items.len() == limit {
                    answer.next = answer.items.last().map(|stored: &Stored| stored.place);
                    return Ok(answer);
                }
                answer.items.push(stored);
            }
            answer.next = page.next;
            asked.cursor = page.next;
            // The first look was enough for most; the next ones are for what is rare.
            asked.limit = PAGE_MAX;
            if page.next.is_none() || answer.items.len() == limit {
                return Ok(answer);
            }
        }
        Ok(answer)
    }
}

/// Says whether an ended lease can lead into or out of one of these states; evidence settles it.
fn is_judged(states: &[StateKind]) -> bool {
    states.iter().any(|state| match state {
        StateKind::Running | StateKind::Doubtful | StateKind::Succeeded | StateKind::Failed => true,
        StateKind::Pending
        | StateKind::Dead
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => false,
    })
}
