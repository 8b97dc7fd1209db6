//! One task: sent, judged, reported.

use std::sync::Arc;

use semel::breaker::{Breaker, Pass};
use semel::core::KeyHash;
use semel::{Engine, Label, Namespace, Permit, Receipt, Take, Taken};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Push;
use super::counts::Counts;
use super::judge::{Judged, Verdict, judge};
use super::parcel::Parcel;
use super::transport::{Connection as _, Transport};
use crate::outbound::Lost;

/// What every delivery of a queue needs.
#[derive(Debug)]
pub(super) struct Desk<T> {
    pub(super) engine: Engine,
    pub(super) push: Arc<Push>,
    pub(super) breaker: Breaker,
    transport: T,
    counts: Arc<Counts>,
    stop: watch::Receiver<bool>,
}

impl<T: Transport> Desk<T> {
    pub(super) fn new(
        engine: Engine,
        push: Arc<Push>,
        transport: T,
        counts: Arc<Counts>,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            breaker: engine.breaker_in(&push.namespace, &push.breaker),
            engine,
            push,
            transport,
            counts,
            stop,
        })
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.push.namespace
    }

    pub(super) fn queue(&self) -> &Label {
        &self.push.queue
    }

    pub(super) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Takes tasks that are due now.
    pub(super) async fn take(&self, max: usize) -> semel::Result<Vec<Taken>> {
        let take = Take {
            max,
            ..Take::one(self.queue().clone())
        };
        self.engine.take(self.namespace(), &take).await
    }

    /// Gives a task back that was not sent.
    pub(super) async fn give_back(&self, task: Taken, why: &str) {
        let (permit, _) = task.permit();
        self.noted(permit.not_done(why).await);
    }

    /// Finds out whether the target is back. It is reached before a task is taken: while nobody is there, no task loses
    /// an attempt by it, however long that is.
    pub(super) async fn probe(self: Arc<Self>, pass: Pass) {
        self.counts.probed();
        let until = Instant::now() + self.push.timeout;
        let connection = match self.transport.reach(until).await {
            Ok(connection) => connection,
            Err(lost) => {
                self.warn("not_reached", None, &lost.error);
                return pass.failed().await;
            }
        };
        if self.is_stopping() {
            return;
        }
        // Whoever finds nothing to take drops the pass, and so gives its place back.
        match self.take(1).await {
            Ok(mut taken) => {
                if let Some(task) = taken.pop() {
                    self.deliver(task, pass, Some(connection)).await;
                }
            }
            Err(error) => tracing::warn!(queue = %self.queue(), %error, "no task can be taken"),
        }
    }

    /// Sends a task and reports what became of it, to the ledger and to the breaker.
    pub(super) async fn deliver(&self, task: Taken, pass: Pass, at_hand: Option<T::Connection>) {
        let _counted = self.counts.begin();
        let (permit, input) = task.permit();
        let wall = self.engine.store().reading().wall;
        let secret = self.push.secret.as_ref();
        let parcel = match Parcel::of(&permit, self.queue(), input, secret, wall) {
            Ok(parcel) => parcel,
            Err(error) => return self.noted(permit.not_done(error).await),
        };
        if !permit.is_alive() {
            let why = "the lease ended before the task was sent";
            return self.noted(permit.not_done(why).await);
        }
        let sent = self.send(parcel, at_hand).await;
        let wall = self.engine.store().reading().wall;
        let Judged { verdict, is_well } = judge(sent, permit.fence().0 == 1, wall);
        // A failure is counted before the task can be taken again: what opens the breaker must not be followed by a claim.
        pass.ended(is_well).await;
        self.report(permit, verdict).await;
    }

    async fn send(
        &self,
        parcel: Parcel,
        at_hand: Option<T::Connection>,
    ) -> Result<super::transport::Answer, Lost> {
        let until = Instant::now() + self.push.timeout;
        let connection = match at_hand {
            Some(connection) => connection,
            None => self.transport.reach(until).await?,
        };
        connection.send(parcel, until).await
    }

    async fn report(&self, permit: Permit, verdict: Verdict) {
        let hash = KeyHash::of(self.namespace(), permit.key()).0;
        let attempt = permit.attempt();
        let told = |word, error: &str| {
            let about = format!("{hash} (attempt {attempt})");
            self.counts.ended(word);
            self.warn(word, Some(&about), error);
        };
        self.noted(match verdict {
            Verdict::Done { ok, effect, data } => {
                self.counts.ended(if ok { "succeeded" } else { "failed" });
                permit.finish(ok, effect, data).await
            }
            Verdict::NotDone { error, wait } => {
                told("not_done", &error);
                match wait {
                    None => permit.not_done(&error).await,
                    Some(wait) => permit.not_done_for(&error, wait).await,
                }
            }
            Verdict::Unknown { error } => {
                told("unknown", &error);
                permit.unknown(&error).await
            }
        });
    }

    /// Says what went wrong. The task's key may be private; its hash is not.
    fn warn(&self, verdict: &str, task: Option<&str>, error: &str) {
        let (queue, target) = (self.queue(), self.transport.place());
        tracing::warn!(%queue, target, task, verdict, error, "a delivery failed");
    }

    /// A report that the store did not take leaves the task in doubt, as its lease ends.
    fn noted(&self, report: semel::Result<Receipt>) {
        if let Err(error) = report {
            tracing::warn!(queue = %self.queue(), %error, "a delivery's report was not taken");
        }
    }
}
