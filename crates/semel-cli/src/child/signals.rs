//! Signals: what is sent to us is meant for the child.
//!
//! The child is in our process group, so that a pipeline, a terminal's Ctrl-C and a kill of the whole
//! group work as if we were not there. What the terminal sends reaches the child by itself; what
//! somebody sends to us alone is passed on.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::raise;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::{Notify, watch};

const HEARD: [c_int; 8] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
];

/// Those that end a process which does not listen for them.
const ASK_TO_END: [c_int; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Listens for signals until it is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    shared: Arc<Shared>,
    asked: watch::Receiver<Option<c_int>>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    child: Mutex<Option<Pid>>,
    /// What came while a child was expected: it is for that one.
    missed: Mutex<Vec<c_int>>,
    /// The first signal that came while there was no child.
    asked: watch::Sender<Option<c_int>>,
    /// Whether somebody asked us, or our child, to end.
    was_told: AtomicBool,
    /// Somebody wants to stop us for a while.
    stop: Notify,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = SignalsInfo::<WithOrigin>::new(HEARD)?;
        let handle = signals.handle();
        let (sender, asked) = watch::channel(None);
        let shared = Arc::new(Shared {
            child: Mutex::default(),
            missed: Mutex::default(),
            asked: sender,
            was_told: AtomicBool::new(false),
            stop: Notify::new(),
        });
        let listener = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || signals.forever().for_each(|origin| listener.heard(&origin)))?;
        Ok(Self {
            shared,
            asked,
            handle,
            thread: Some(thread),
        })
    }

    /// Keeps what comes from now on for the child that is about to be started.
    pub(crate) fn expect_child(&self) {
        self.shared.missed().clear();
    }

    /// Passes signals on to this child from now on, or to nobody. What came since it was expected is
    /// passed on now.
    pub(crate) fn forward_to(&self, child: Option<Pid>) {
        let mut current = self.shared.child();
        *current = child;
        let missed = std::mem::take(&mut *self.shared.missed());
        if let Some(pid) = child {
            missed.into_iter().for_each(|signal| send(pid, signal));
        }
    }

    /// Waits until somebody asks us to end while there is no child.
    pub(crate) async fn asked_to_end(&self) -> c_int {
        let mut asked = self.asked.clone();
        loop {
            if let Some(signal) = *asked.borrow_and_update() {
                return signal;
            }
            if asked.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the signal that asked us to end while there was no child.
    pub(crate) fn was_asked_to_end(&self) -> Option<c_int> {
        *self.asked.borrow()
    }

    /// Says whether somebody asked us to end, whoever it was for: a child that ended of it says nothing of its own.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.shared.was_told.load(Ordering::Relaxed)
    }

    /// Waits until somebody wants to stop us for a while; [`stop`] then does it.
    pub(crate) async fn asked_to_stop(&self) {
        self.shared.stop.notified().await;
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Stops this process until it is continued.
pub(crate) fn stop() -> io::Result<()> {
    raise(SIGSTOP)
}

/// Sends a signal to a child; it can only fail when the child has ended.
fn send(pid: Pid, signal: c_int) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(pid, signal);
    }
}

impl Shared {
    fn child(&self) -> MutexGuard<'_, Option<Pid>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self) -> MutexGuard<'_, Vec<c_int>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, origin: &Origin) {
        // What the terminal sends goes to the whole group, the child included.
        if origin.cause != Cause::Kernel {
            let child = self.child();
            match *child {
                Some(pid) => send(pid, origin.signal),
                None => {
                    let mut missed = self.missed();
                    if !missed.contains(&origin.signal) {
                        missed.push(origin.signal);
                    }
                }
            }
        }
        if origin.signal == SIGTSTP {
            self.stop.notify_one();
        }
        let asks_to_end = ASK_TO_END.contains(&origin.signal);
        self.was_told.fetch_or(asks_to_end, Ordering::Relaxed);
        if self.child().is_none() && asks_to_end {
            self.asked.send_if_modified(|asked| {
                let first = asked.is_none();
                asked.get_or_insert(origin.signal);
                first
            });
        }
    }
}
