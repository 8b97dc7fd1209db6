//! Taking tasks from a queue.

use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::{Begin, Command, Expire, Fence, Operation, StateKind};
use semel_core::queue::{QueueHash, RETRY_AFTER_MAX, Spot, Standing};
use semel_core::{AttemptId, Digest, Key, Label, Lease, Namespace, OnDoubt, Timestamp, Verdict};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::asks::{Ask, MyTurn};
use super::turn::{Room, Turn};
use crate::engine::claim::{Claim, Claimed};
use crate::engine::finish::Finish;
use crate::engine::ledger::{Brought, Subject};
use crate::engine::wait::{self, POLL_FIRST, POLL_MAX};
use crate::engine::{Background, Engine, Inner, Permit};
use crate::error::{Error, Result};
use crate::store::{Current, INPUT, StoreError, Stored, WAITING_MAX, Waiting};

/// The longest pause between two looks at a store on this machine.
const POLL_NEAR: Duration = Duration::from_millis(25);

/// How often one call looks along the line, at most: a look that finds only tasks of lanes which may not have more is
/// followed by another one, behind them.
const LOOKS_MAX: usize = 8;

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The queue.
    pub queue: Label,
    /// How many tasks at most.
    pub max: usize,
    /// How long to wait for the first one.
    pub wait: Duration,
    /// How long the worker may be silent about each of them.
    pub lease: Lease,
    /// Whether the worker can look up what became of a doubted attempt.
    pub probes: bool,
    /// Whether the worker is another process, which keeps its attempts itself.
    pub is_elsewhere: bool,
}

impl Take {
    /// Asks for one task, without waiting.
    #[must_use]
    pub fn one(queue: Label) -> Self {
        Self {
            queue,
            max: 1,
            wait: Duration::ZERO,
            lease: Lease::DEFAULT,
            probes: false,
            is_elsewhere: false,
        }
    }
}

/// A task that a worker has. Dropping it gives it back, as nothing was done with it yet.
#[derive(Debug)]
pub struct Taken {
    name: Label,
    input: Option<Vec<u8>>,
    lease_until: Timestamp,
    permit: Permit,
}

/// A task whose worker is another process: it renews the lease and reports by the attempt's id and fence.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its key.
    pub key: Key,
    /// What is done.
    pub name: Label,
    /// What it is given.
    pub input: Option<Vec<u8>>,
    /// The attempt's id.
    pub attempt_id: AttemptId,
    /// Its fence.
    pub fence: Fence,
    /// Its number, from 1.
    pub attempt: u32,
    /// Until when it may act.
    pub lease_until: Timestamp,
    /// Whether it is to look up only, and to touch nothing.
    pub is_probe: bool,
    /// The digest of the probe that it was submitted with.
    pub probe_digest: Option<Digest>,
}

impl Taken {
    /// Returns its key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.permit.key()
    }

    /// Returns what is done.
    #[must_use]
    pub const fn name(&self) -> &Label {
        &self.name
    }

    /// Returns what it is given.
    #[must_use]
    pub fn input(&self) -> Option<&[u8]> {
        self.input.as_deref()
    }

    /// Takes it into this process's hands: the permit renews its lease and reports.
    pub fn permit(self) -> (Permit, Option<Vec<u8>>) {
        (self.permit.hand_over(), self.input)
    }

    /// Hands it to another process.
    #[must_use]
    pub fn keep(self) -> Kept {
        let permit = &self.permit;
        let kept = Kept {
            key: permit.key().clone(),
            name: self.name,
            input: self.input,
            attempt_id: permit.attempt_id().clone(),
            fence: permit.fence(),
            attempt: permit.attempt(),
            lease_until: self.lease_until,
            is_probe: permit.is_probe(),
            probe_digest: permit.probe_digest(),
        };
        self.permit.let_go();
        kept
    }
}

impl Engine {
    /// Takes tasks from a queue, and waits for the first one as long as asked.
    ///
    /// A task that nobody reports about is in doubt once its lease is over.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn take(&self, namespace: &Namespace, take: &Take) -> Result<Vec<Taken>> {
        let queue = QueueHash::of(namespace, &take.queue);
        let deadline = Instant::now() + take.wait;
        let mut pause = POLL_FIRST;
        loop {
            let waiter = self.inner.ledger.waiters.register(queue.bell());
            let notified = waiter.notified();
            // Once begun, it is followed to its end: tasks that nobody takes are given back.
            let (inner, namespace, take) =
                (Arc::clone(&self.inner), namespace.clone(), take.clone());
            let wanted = async move { inner.take(&namespace, queue, &take).await };
            let taken = Finish::new(self.inner.runtime.clone(), wanted).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !taken.is_empty() || left.is_zero() {
                return Ok(taken);
            }
            self.inner.listens();
            tokio::select! {
                biased;
                () = notified => {}
                () = tokio::time::sleep(pause.min(left)) => {}
            }
            pause = (pause * 2).min(self.inner.poll_max());
        }
    }

    /// Returns what the workers of a task are given.
    ///
    /// # Errors
    /// Fails when the store does, and when what it has is not what was submitted.
    pub async fn task_input(&self, stored: &Stored) -> Result<Option<Vec<u8>>> {
        match stored.record.operation() {
            Some(operation) => self.inner.input(stored, operation, None).await,
            None => Ok(None),
        }
    }
}

impl Inner {
    /// Hears from now on what other nodes do.
    pub(in crate::engine) fn listens(self: &Arc<Self>) {
        self.listening.get_or_init(|| {
            let listening = wait::listen(Arc::downgrade(self));
            Background(vec![self.runtime.spawn(listening).abort_handle()])
        });
    }

    /// Returns how long whoever waits for tasks goes without a look: where nobody tells of what other processes submit,
    /// and a look is cheap, that is short.
    fn poll_max(&self) -> Duration {
        #[cfg(feature = "postgres")]
        let is_told = self.ledger.store.as_postgres().is_some();
        #[cfg(not(feature = "postgres"))]
        let is_told = false;
        if is_told || self.ledger.is_elsewhere() {
            POLL_MAX
        } else {
            POLL_NEAR
        }
    }

    /// Takes what is due now. Whoever asks while the line is looked along is served together with the others who do:
    /// one look finds tasks for all of them, and one commit holds them.
    async fn take(
        self: &Arc<Self>,
        namespace: &Namespace,
        queue: QueueHash,
        take: &Take,
    ) -> Result<Vec<Taken>> {
        let line = self.turns.of(queue);
        loop {
            let (ask, answered) = Ask::new(namespace, take);
            if let Some(mut turn) = MyTurn::ask(&line, ask) {
                // Nobody asked before, so this one is among the first who are served.
                self.serve(queue, &mut turn).await;
                if turn.is_asked() {
                    let inner = Arc::clone(self);
                    self.runtime.spawn(async move {
                        while turn.is_asked() {
                            inner.serve(queue, &mut turn).await;
                        }
                    });
                }
            }
            // Whoever had the turn may have gone without a word.
            if let Ok(taken) = answered.await {
                return taken;
            }
        }
    }

    /// Serves those who asked, as far as they ask for the same.
    async fn serve(self: &Arc<Self>, queue: QueueHash, turn: &mut MyTurn) {
        let asks = turn.next();
        let Some(first) = asks.first() else { return };
        let (namespace, mut take) = (first.namespace.clone(), first.take.clone());
        take.max = asks.iter().map(Ask::max).sum();
        match self.take_turn(&namespace, queue, &take, turn).await {
            Ok(taken) => {
                let mut taken = taken.into_iter();
                for ask in asks {
                    let share = taken.by_ref().take(ask.max()).collect();
                    ask.tell(Ok(share));
                }
            }
            Err(error) => {
                // The others have to hear of it from the store itself.
                let mut asks = asks.into_iter();
                if let Some(first) = asks.next() {
                    first.tell(Err(error));
                }
                turn.leave(asks);
            }
        }
    }

    /// Takes what is due now for whoever has the turn.
    async fn take_turn(
        self: &Arc<Self>,
        namespace: &Namespace,
        queue: QueueHash,
        take: &Take,
        turn: &mut Turn,
    ) -> Result<Vec<Taken>> {
        let settings = self.queues.of(&take.queue);
        let store = &*self.ledger.store;
        let mut room = Room::of(store, queue, settings, take.max).await?;
        let mut taken = vec![];
        for _ in 0..LOOKS_MAX {
            if room.is_full() {
                break;
            }
            let Some(chosen) = self.look(namespace, queue, take, turn, &mut room).await? else {
                break;
            };
            if chosen.is_empty() {
                continue;
            }
            let tried = chosen.len();
            taken = self.begin_all(chosen, take).await?;
            turn.learn(tried, tried - taken.len());
            if !taken.is_empty() {
                break;
            }
        }
        if taken.is_empty() && turn.looks_after() {
            self.look_after(queue, turn).await?;
        }
        Ok(taken)
    }

    /// Notices workers that have vanished: what they had is in doubt, and follows its policy.
    async fn look_after(&self, queue: QueueHash, turn: &mut Turn) -> Result<()> {
        let now = self.ledger.store.now();
        let ask = Waiting {
            queue,
            now,
            after_lane: 0,
            skip: turn.looked_after,
            limit: WAITING_MAX,
            taken: true,
            inputs: false,
        };
        let found = self.ledger.store.waiting(ask).await?;
        // The next look goes on behind these, and begins anew at the end.
        turn.looked_after = match found.len() {
            WAITING_MAX => turn.looked_after + WAITING_MAX,
            _ => 0,
        };
        for stored in found {
            let Some(operation) = stored.record.operation() else {
                continue;
            };
            let subject = Subject::new(&operation.spec.namespace, &operation.spec.key);
            let is_lapsed = operation.kind_at(now) == StateKind::Doubtful;
            let gone = self.gone(&subject, operation);
            if gone.is_some() || is_lapsed {
                self.write_off(&subject, Current::Stored(stored), gone)
                    .await?;
            }
        }
        Ok(())
    }

    /// Notices that the worker of a task has vanished, if it provably has.
    pub(in crate::engine) async fn expire_if_gone(
        &self,
        subject: &Subject,
        current: &Current,
    ) -> Result<bool> {
        let operation = current.record().and_then(|record| record.operation());
        let running = operation.filter(|it| it.state.kind() == StateKind::Running);
        let gone = running.and_then(|operation| self.gone(subject, operation));
        if gone.is_some() {
            self.write_off(subject, current.clone(), gone).await?;
        }
        Ok(gone.is_some())
    }

    async fn write_off(
        &self,
        subject: &Subject,
        current: Current,
        gone: Option<Fence>,
    ) -> Result<()> {
        let (expire, none) = (Command::Expire(Expire { gone }), Brought::default());
        let applied = self.ledger.apply(subject, Some(current), &expire, &none);
        applied.await.map(drop)
    }

    /// Returns the attempt whose worker is provably gone, and its command too.
    fn gone(&self, subject: &Subject, operation: &Operation) -> Option<Fence> {
        let attempt = operation.latest()?;
        let is_gone = self.ledger.is_gone(subject, attempt);
        is_gone.then_some(attempt.fence)
    }

    /// Looks along the line, and chooses those that may be taken; `None` when there is nothing to find.
    async fn look(
        &self,
        namespace: &Namespace,
        queue: QueueHash,
        take: &Take,
        turn: &mut Turn,
        room: &mut Room<'_>,
    ) -> Result<Option<Vec<Stored>>> {
        let ask = Waiting {
            queue,
            now: self.ledger.store.now(),
            after_lane: turn.lane,
            skip: turn.skip,
            limit: take.max,
            taken: false,
            inputs: true,
        };
        let found = self.ledger.store.waiting(ask).await?;
        if found.is_empty() {
            turn.go_on();
            // There is nothing so far back.
            let was_back = std::mem::take(&mut turn.skip) > 0;
            return Ok(was_back.then(Vec::new));
        }
        let (mut chosen, mut is_any_meant) = (vec![], false);
        for stored in found {
            let Some(lane) = lane_if_meant(&stored, namespace, take) else {
                continue;
            };
            is_any_meant = true;
            turn.lane = lane;
            if room.take(turn, lane).await? {
                chosen.push(stored);
            }
        }
        // Those that this worker cannot take stand last: there is nothing behind them.
        Ok(is_any_meant.then_some(chosen))
    }

    /// Begins tasks together, so that one commit holds them all.
    async fn begin_all(self: &Arc<Self>, chosen: Vec<Stored>, take: &Take) -> Result<Vec<Taken>> {
        let mut begun = JoinSet::new();
        for (n, stored) in chosen.into_iter().enumerate() {
            let (inner, take) = (Arc::clone(self), take.clone());
            begun.spawn(async move { (n, inner.begin_task(stored, &take).await) });
        }
        let (mut taken, mut failed) = (vec![], None);
        while let Some(begun) = begun.join_next().await {
            match begun {
                Ok((n, Ok(Some(task)))) => taken.push((n, task)),
                Ok((_, Ok(None))) => {}
                Ok((_, Err(error))) => failed = Some(error),
                Err(error) => {
                    let text = format!("a task was not taken: {error}");
                    failed = Some(StoreError::Unavailable(text).into());
                }
            }
        }
        match failed {
            Some(error) if taken.is_empty() => Err(error),
            // The worker gets what there is, in the order of the line.
            Some(_) | None => {
                taken.sort_by_key(|(n, _)| *n);
                Ok(taken.into_iter().map(|(_, task)| task).collect())
            }
        }
    }

    /// Begins one task; `None` when another worker was faster.
    async fn begin_task(self: Arc<Self>, mut stored: Stored, take: &Take) -> Result<Option<Taken>> {
        let at_hand = stored.payload.take();
        let Some(operation) = stored.record.operation() else {
            return Ok(None);
        };
        // What cannot be read must not be begun.
        let input = self.input(&stored, operation, at_hand.as_deref()).await?;
        let spec = Arc::clone(&operation.spec);
        let name = spec.name.clone();
        let holder = (!take.is_elsewhere).then(|| self.holder.clone()).flatten();
        let claim = Claim {
            inner: Arc::clone(&self),
            subject: Subject::new(&spec.namespace, &spec.key),
            begin: Begin {
                spec,
                attempt: AttemptId::from_random(self.ids.next()?),
                lease: take.lease,
                holder,
                worker: true,
                sighting: None,
            },
            brought: Brought {
                limits: self.queues.of(&take.queue).limits(),
                ..Brought::default()
            },
            saver: None,
        };
        let assumed = Some(Current::Stored(stored.clone()));
        match claim.assuming(assumed, Permit::granted_until).await {
            Ok(Claimed::Granted((permit, lease_until))) => Ok(Some(Taken {
                name,
                input,
                lease_until,
                permit,
            })),
            Ok(Claimed::Replay(_) | Claimed::Wait { .. } | Claimed::InDoubt(_))
            | Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Loads what a task is given, and proves that it is what was submitted.
    async fn input(
        &self,
        stored: &Stored,
        operation: &Operation,
        at_hand: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(payload) = operation.task.as_ref().and_then(|task| task.input) else {
            return Ok(None);
        };
        let bytes = match at_hand {
            Some(bytes) => bytes.to_vec(),
            None => {
                let chunks = self.ledger.store.stream(stored.place, INPUT).await?;
                chunks.into_iter().flat_map(|chunk| chunk.bytes).collect()
            }
        };
        if Digest::of(&bytes) != payload.digest {
            let key = &operation.spec.key;
            let text = format!("the input of {key} is not what was submitted");
            return Err(StoreError::Corrupt(text).into());
        }
        Ok(Some(bytes))
    }

    /// Puts a task that is to be tried again off for as long as its queue's budget says.
    pub(in crate::engine) fn budgeted(
        &self,
        operation: Option<&Operation>,
        verdict: Verdict,
    ) -> Verdict {
        let Verdict::NotDone {
            reject: false,
            error,
            retry_after,
        } = verdict
        else {
            return verdict;
        };
        let queued = operation.and_then(|operation| Some((operation, operation.queue.as_ref()?)));
        let wait = queued.map(|(operation, queue)| {
            let line = QueueHash::of(&operation.spec.namespace, queue);
            let budget = self.queues.of(queue).retry_budget;
            self.turns.of(line).retry(budget)
        });
        let retry_after = match wait.filter(|wait| !wait.is_zero()) {
            None => retry_after,
            Some(wait) => Some(
                retry_after
                    .unwrap_or_default()
                    .max(wait)
                    .min(RETRY_AFTER_MAX),
            ),
        };
        Verdict::NotDone {
            reject: false,
            error,
            retry_after,
        }
    }
}

/// Returns the lane of a task that was found, if it is one that was asked for: the index leads to candidates.
pub(super) fn lane_if_meant(stored: &Stored, namespace: &Namespace, take: &Take) -> Option<u64> {
    let operation = stored.record.operation()?;
    let spot = Spot::of(&stored.record)?;
    let is_doubted = operation.state.kind() == StateKind::Doubtful;
    let is_probed = is_doubted && operation.spec.policy.on_doubt == OnDoubt::Probe;
    let is_meant = operation.spec.namespace == *namespace
        && operation.queue.as_ref() == Some(&take.queue)
        && matches!(spot.standing, Standing::Waiting { .. })
        && (take.probes || !is_probed);
    is_meant.then_some(spot.lane)
}
