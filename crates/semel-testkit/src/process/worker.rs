//! What an agent does, in its own process.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use semel::{Admission, Effect, Engine, Error, Lease, Permit, Receipt, Request};
use tokio::time::Instant;

use super::crash::Fate;
use super::{CrashPoint, Dice, Keys, NAME, Orders, Sink, Told, Word, key, on_doubt};

/// Attempts that a probe may have to judge get a short lease: nobody looks before its end.
const PROBED_LEASE: Duration = Lease::MIN;

/// How often an agent on a full disk looks whether it has waited for long enough.
const LOOK: Duration = Duration::from_millis(5);

/// After how long without an answer everybody must be waiting to report.
const STALLED: Duration = Duration::from_millis(500);

/// An agent at work.
struct Worker {
    engine: Engine,
    orders: Orders,
    sink: Sink,
    told: Told,
    fate: Fate,
    errors: AtomicUsize,
    answers: AtomicUsize,
}

/// Follows the orders to their end.
///
/// # Errors
/// Fails when the store refuses to be opened; what happens later is remembered, key by key.
///
/// # Panics
/// When the machine has no threads left, or the world that effects happen in is broken.
pub fn run(orders: Orders) -> semel::Result<()> {
    let mut runtime = if orders.threads > 1 {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.worker_threads(orders.threads).enable_time().build();
    runtime.expect("a runtime starts").block_on(follow(orders))
}

async fn follow(orders: Orders) -> semel::Result<()> {
    limit_files(orders.file_limit);
    let engine = super::open(&orders.store).await?;
    if orders.barrier {
        wait_for_the_others();
    }
    let worker = Arc::new(Worker {
        engine,
        sink: Sink::at(orders.sink.clone()),
        told: Told::at(orders.told.clone()),
        fate: Fate::new(orders.crash),
        errors: AtomicUsize::new(0),
        answers: AtomicUsize::new(0),
        orders,
    });
    if let Some(errors) = worker.orders.lift_after {
        tokio::spawn(Arc::clone(&worker).make_room(errors));
    }
    let tasks: Vec<_> = (0..worker.orders.tasks)
        .map(|number| tokio::spawn(Arc::clone(&worker).work(number)))
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    Ok(())
}

fn limit_files(limit: Option<u64>) {
    let limit = Rlimit {
        current: limit,
        maximum: None,
    };
    setrlimit(Resource::Fsize, limit).expect("a process may limit itself");
}

/// Says that the store is open, and waits until the parent closes the pipe for all.
fn wait_for_the_others() {
    let mut out = std::io::stdout();
    let said = out.write_all(b"ready\n").and_then(|()| out.flush());
    said.expect("the parent listens");
    let waited = std::io::stdin().read_to_end(&mut vec![]);
    waited.expect("the parent closes the pipe");
}

impl Worker {
    async fn work(self: Arc<Self>, number: usize) {
        match &self.orders.keys {
            Keys::These(keys) => {
                let mut keys = keys.clone();
                Dice::seeded(self.orders.seed ^ number as u64).shuffle(&mut keys);
                for key in keys {
                    self.carry_out(&key).await;
                }
            }
            Keys::New(prefix, lasting) => {
                let end = Instant::now() + *lasting;
                let mut count = 0;
                while Instant::now() < end {
                    self.carry_out(&format!("{prefix}{number}-{count}")).await;
                    count += 1;
                }
            }
        }
    }

    /// Carries one operation out, as far as it is permitted, and remembers the answer.
    async fn carry_out(&self, key: &str) {
        self.fate.reach(CrashPoint::BeforeClaim);
        let word = match self.engine.begin(self.request(key)).await {
            Ok(Admission::Execute(permit)) => self.act(key, permit).await,
            Ok(Admission::Probe(permit)) => self.look_up(key, permit).await,
            Ok(Admission::Replay(receipt)) => Word::Replayed(answer_of(&receipt)),
            Ok(Admission::Wait { .. }) => Word::Wait,
            Ok(Admission::InDoubt(_)) => Word::InDoubt,
            Err(error) => error_word(&error),
        };
        if matches!(word, Word::Error(_) | Word::Unstored(_)) {
            self.errors.fetch_add(1, Ordering::SeqCst);
        }
        self.told.remember(key, &word);
        self.answers.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes room on the disk after so many errors, or when everybody waits to report.
    async fn make_room(self: Arc<Self>, errors: usize) {
        let mut before = 0;
        let mut since = Instant::now();
        while self.errors.load(Ordering::SeqCst) < errors {
            tokio::time::sleep(LOOK).await;
            let answers = self.answers.load(Ordering::SeqCst);
            if answers != before {
                (before, since) = (answers, Instant::now());
            } else if since.elapsed() > STALLED {
                break;
            }
        }
        let errors = self.errors.load(Ordering::SeqCst);
        self.told.remember("-", &Word::Room(errors));
        limit_files(None);
        if let Some(ballast) = &self.orders.ballast {
            std::fs::remove_file(ballast).expect("the ballast is removed");
        }
    }

    fn request(&self, text: &str) -> Request {
        let on_doubt = on_doubt(text);
        let length = match on_doubt {
            semel::OnDoubt::Probe => PROBED_LEASE,
            semel::OnDoubt::Hold | semel::OnDoubt::Retry => self.orders.lease,
        };
        Request::new(NAME, key(text))
            .input(text)
            .on_doubt(on_doubt)
            .lease(Lease::new(length).expect("orders name a lease that is allowed"))
            .wait(self.orders.wait)
    }

    async fn act(&self, key: &str, permit: Permit) -> Word {
        self.fate.reach(CrashPoint::AfterClaim);
        if !permit.is_alive() {
            let released = permit
                .not_done("the lease ended before the effect began")
                .await;
            return released.map_or_else(|error| error_word(&error), |_| Word::Wait);
        }
        let line = self.sink.cause(key, permit.fence(), || {
            self.fate.reach(CrashPoint::MidEffect);
        });
        self.fate.reach(CrashPoint::AfterEffect);
        let settled = permit.done(Effect::Created, &line.answer()).await;
        self.fate.reach(CrashPoint::AfterSettle);
        match settled {
            Ok(receipt) if receipt.replayed => Word::Replayed(answer_of(&receipt)),
            Ok(receipt) => Word::Done(answer_of(&receipt)),
            Err(error) => error_word(&error),
        }
    }

    /// Answers a probe by what the world holds.
    async fn look_up(&self, key: &str, permit: Permit) -> Word {
        let settled = match self.sink.last_of(key) {
            Some(line) => permit.done(Effect::Created, &line.answer()).await,
            None => permit.not_done("the sink has no such line").await,
        };
        match settled {
            Ok(receipt) if receipt.ok => Word::Replayed(answer_of(&receipt)),
            Ok(_) => Word::Wait,
            Err(error) => error_word(&error),
        }
    }
}

fn answer_of(receipt: &Receipt) -> String {
    let json = receipt.data().unwrap_or("null");
    json.trim_matches('"').to_owned()
}

fn error_word(error: &Error) -> Word {
    match error {
        Error::Unstored { noted, .. } => Word::Unstored(*noted),
        other => Word::Error(format!("{} {other}", other.code())),
    }
}
