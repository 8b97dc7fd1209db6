//! A call that was admitted.

use std::sync::Arc;

use semel_core::AttemptId;
use semel_core::breaker::{Act, Admit, Report, Window};
use semel_core::ledger::Fence;
use tokio::task::AbortHandle;

use super::{PROBE_LEASE, Shared};

/// Lets one call to the target through, and wants to hear what became of it.
///
/// A pass that is dropped counts as nothing: whoever drops it did not call, or nobody knows what became of it, and
/// neither says anything about the target. A probe that is dropped gives its place back.
#[derive(Debug)]
#[must_use = "the breaker wants to hear what became of the call"]
pub struct Pass {
    shared: Arc<Shared>,
    fence: Fence,
    probe: Option<Probe>,
}

/// The only place of a half-open breaker.
#[derive(Debug)]
struct Probe {
    id: AttemptId,
    /// Says that it is alive.
    renewal: AbortHandle,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Pass {
    pub(super) fn new(shared: Arc<Shared>, fence: Fence, probe: Option<AttemptId>) -> Self {
        let probe = probe.map(|id| Probe {
            renewal: tokio::spawn(renew(Arc::clone(&shared), id.clone())).abort_handle(),
            id,
        });
        Self {
            shared,
            fence,
            probe,
        }
    }

    /// Says whether it is the one call of a half-open breaker.
    #[must_use]
    pub const fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Says that the target answered.
    pub async fn succeeded(self) {
        self.ended(true).await;
    }

    /// Says that the target did not answer, or in a way that counts as a failure.
    pub async fn failed(self) {
        self.ended(false).await;
    }

    /// Says what became of the call.
    ///
    /// Should the store fail, what was counted is kept and written later. A probe's word is not: when its lease has
    /// ended, another call is the probe.
    pub async fn ended(mut self, ok: bool) {
        let shared = Arc::clone(&self.shared);
        match self.probe.take() {
            None => shared.count(ok, self.fence).await,
            Some(probe) => {
                let mut calls = Window::default();
                calls.count(ok, &shared.settings, shared.engine.store().now());
                // See above: there is nobody to tell, and the lease ends by itself.
                drop(shared.ask(self.report(&probe, calls)).await);
            }
        }
    }

    /// Gives it back: what became of the call says nothing of the target. Unlike dropping it, this waits until the place of a
    /// probe is free again.
    pub async fn give_back(mut self) {
        if let Some(probe) = self.probe.take() {
            let act = self.report(&probe, Window::default());
            // Should it fail, the lease ends by itself.
            drop(self.shared.ask(act).await);
        }
    }

    fn report(&self, probe: &Probe, calls: Window) -> Act {
        Act::Report(Report {
            fence: self.fence,
            probe: Some(probe.id.clone()),
            calls,
        })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(probe) = self.probe.take() {
            let (shared, act) = (
                Arc::clone(&self.shared),
                self.report(&probe, Window::default()),
            );
            // Should it fail, the lease ends by itself.
            let given_back = async move { drop(shared.ask(act).await) };
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(given_back);
            }
        }
    }
}

/// Says again and again that a probe is alive, as its call may take longer than its lease.
async fn renew(shared: Arc<Shared>, id: AttemptId) {
    let lease = PROBE_LEASE;
    loop {
        tokio::time::sleep(lease.length() / 3).await;
        let id = id.clone();
        // Whether it is too late shows when it reports.
        drop(shared.ask(Act::Admit(Admit { id, lease })).await);
    }
}
