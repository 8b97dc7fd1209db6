//! Time limits that count only while this process runs.

use std::future::Future;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// How long an answer may take after its time limit, counted by a process that runs.
///
/// A process that was stopped (`SIGSTOP`, a suspended laptop, a paused virtual machine, a starved scheduler) finds its
/// timer expired, and the answer in a socket that nothing has read yet. Without a last look it would give up a
/// connection whose answer is there, and call an effect lost that it could have heard of.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Waits for a future for at most `limit`, plus a last look.
///
/// # Errors
/// Fails when the future is not ready by then.
pub fn within<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    // On the heap: an async function would keep its argument beside the pinned copy of it.
    let mut future = Box::pin(future);
    async move {
        match timeout(limit, future.as_mut()).await {
            Ok(output) => Ok(output),
            Err(_) => timeout(LAST_LOOK, future).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(10);

    /// Stops the whole runtime for longer than the limit; the answer is handed on some turns after the timer has fired,
    /// as by a task that first has to read a socket.
    #[tokio::test]
    async fn answer_that_came_while_the_process_was_stopped_is_taken() {
        let (sender, receiver) = oneshot::channel();
        let waiting = tokio::spawn(within(LIMIT, receiver));
        yield_now().await;
        std::thread::sleep(3 * LIMIT);
        for _ in 0..8 {
            yield_now().await;
        }
        sender.send(7).expect("it is still waited for");
        let answer = waiting.await.expect("it does not panic");
        assert_eq!(answer, Ok(Ok(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_after_the_limit_and_the_last_look() {
        let started = tokio::time::Instant::now();
        let answer = within(LIMIT, std::future::pending::<()>()).await;
        assert!(answer.is_err());
        assert_eq!(started.elapsed(), LIMIT + LAST_LOOK);
    }
}
