//! The loop of a push queue: what is taken, and when.
//!
//! | the breaker is | |
//! |---|---|
//! | closed | as many tasks are taken as there are free places |
//! | open | nothing is claimed until the time of the next try |
//! | half-open | one task, by whoever has the place of the probe; the place is taken only when a task is due |

use std::sync::Arc;
use std::time::Duration;

use semel::Error;
use semel::breaker::Pass;
use tokio::task::{JoinError, JoinSet};

use super::delivery::Desk;
use super::transport::Transport;

/// How long a courier waits for a task before it looks again whether the breaker is closed and workers have vanished.
const IDLE: Duration = Duration::from_secs(1);

/// How soon it looks again when tasks are due that it may not have yet, as the queue's limits say; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often it looks while the breaker is not closed: somebody may close it by hand, or another server's probe may.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after the store failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// What a courier waits for before its next look, besides a delivery that ends.
#[derive(Debug)]
enum Next {
    /// Nothing: there may be more to do.
    Now,
    /// A delivery that ends.
    Room,
    /// A task.
    Task,
    /// Some time.
    Time(Duration),
}

/// Sends the tasks of one queue.
#[derive(Debug)]
pub(super) struct Courier<T> {
    desk: Arc<Desk<T>>,
    under_way: JoinSet<()>,
    pause: Duration,
}

impl<T: Transport> Courier<T> {
    pub(super) fn new(desk: Arc<Desk<T>>) -> Self {
        Self {
            desk,
            under_way: JoinSet::new(),
            pause: PAUSE_FIRST,
        }
    }

    /// Sends until the server stops; what is under way then is followed to its end.
    pub(super) async fn run(mut self) {
        let mut stop = self.desk.stop();
        while !self.desk.is_stopping() {
            // A look is never broken off: whoever took tasks has to send them or give them back.
            let next = self.look().await;
            let is_busy = !self.under_way.is_empty();
            tokio::select! {
                biased;
                () = crate::stopped(&mut stop) => break,
                Some(ended) = self.under_way.join_next(), if is_busy => ended_well(ended),
                () = wait(&self.desk, &mut self.pause, next) => {}
            }
        }
        while let Some(ended) = self.under_way.join_next().await {
            ended_well(ended);
        }
        if let Err(error) = self.desk.breaker.flush().await {
            tracing::warn!(queue = %self.desk.queue(), %error, "the last calls are not counted");
        }
    }

    async fn look(&mut self) -> Next {
        match self.try_look().await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(queue = %self.desk.queue(), %error, "a push queue cannot be looked at");
                Next::Time(FAILED_PAUSE)
            }
        }
    }

    async fn try_look(&mut self) -> semel::Result<Next> {
        let free = self.desk.push.concurrency - self.under_way.len();
        if free == 0 {
            return Ok(Next::Room);
        }
        match self.desk.breaker.pass_if_closed().await? {
            // Each delivery gets a pass of its own.
            Some(pass) => drop(pass),
            None => return self.try_target().await,
        }
        let taken = self.desk.take(free).await?;
        if taken.is_empty() {
            return Ok(Next::Task);
        }
        self.pause = PAUSE_FIRST;
        let mut taken = taken.into_iter();
        while let Some(task) = taken.next() {
            let pass = match self.may_send().await? {
                Ok(pass) => pass,
                Err(why) => {
                    for task in std::iter::once(task).chain(taken) {
                        self.desk.give_back(task, why).await;
                    }
                    break;
                }
            };
            let desk = Arc::clone(&self.desk);
            self.under_way
                .spawn(async move { desk.deliver(task, pass, None).await });
        }
        Ok(Next::Now)
    }

    /// Asks once more when tasks are there: much may have happened meanwhile. Else says why they are not sent.
    async fn may_send(&self) -> semel::Result<Result<Pass, &'static str>> {
        if self.desk.is_stopping() {
            return Ok(Err("the server stopped before it was sent"));
        }
        let pass = self.desk.breaker.pass_if_closed().await?;
        Ok(pass.ok_or("the breaker opened before it was sent"))
    }

    /// Finds out whether the target is back, if it is time to and there is something to send.
    async fn try_target(&mut self) -> semel::Result<Next> {
        let desk = &self.desk;
        let now = Duration::ZERO;
        if !desk
            .engine
            .has_due(desk.namespace(), desk.queue(), now)
            .await?
        {
            return Ok(Next::Time(LOOK));
        }
        match desk.breaker.admit().await {
            Ok(pass) if pass.is_probe() => {
                self.under_way.spawn(Arc::clone(desk).probe(pass));
                Ok(Next::Time(LOOK))
            }
            // It was closed just now.
            Ok(pass) => {
                drop(pass);
                Ok(Next::Now)
            }
            Err(error) if error.code() == "breaker_open" => Ok(Next::Time(self.until_next(&error))),
            Err(error) => Err(error),
        }
    }

    /// Returns how long the target is left alone, as far as anybody sleeps.
    fn until_next(&self, refused: &Error) -> Duration {
        let now = self.desk.engine.store().now();
        let wait = refused.retry_at().map_or(LOOK, |at| at.since(now));
        wait.clamp(PAUSE_FIRST, LOOK)
    }
}

/// Waits until it is worth looking again.
async fn wait<T: Transport>(desk: &Desk<T>, pause: &mut Duration, next: Next) {
    match next {
        Next::Now => {}
        Next::Room => std::future::pending().await,
        Next::Time(time) => tokio::time::sleep(time).await,
        Next::Task => {
            let paused = tokio::time::sleep(*pause);
            *pause = (*pause * 2).min(PAUSE_MAX);
            let due = desk
                .engine
                .has_due(desk.namespace(), desk.queue(), IDLE)
                .await;
            if due.is_err() {
                tokio::time::sleep(FAILED_PAUSE).await;
            }
            paused.await;
        }
    }
}

fn ended_well(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        // Its permit was dropped, and that is the doubt.
        tracing::error!(%error, "a delivery broke down");
    }
}
