//! What an agent does, in its own process.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use semel::store::StoreError;
use semel::{Admission, Effect, Engine, Error, Lease, Permit, Receipt, Request};
use tokio::time::Instant;

use super::crash::Fate;
use super::history::Call;
use super::{
    Answer, Ask, CrashPoint, Dice, History, Keys, NAME, Orders, Sink, Told, Word, crowd_key, key,
    on_doubt,
};

/// Attempts that a probe may have to judge get a short lease: nobody looks before its end.
const PROBED_LEASE: Duration = Lease::MIN;

/// How often an agent on a full disk looks whether it has waited for long enough.
const LOOK: Duration = Duration::from_millis(5);

/// After how long without an answer everybody must be waiting to report.
const STALLED: Duration = Duration::from_millis(500);

/// How soon a caller asks again that found the store not available.
const INSIST_PAUSE: Duration = Duration::from_millis(100);

/// How far from its place a key of a crowd may be taken: near enough for callers to meet.
const CROWD_SPREAD: u64 = 24;

/// An agent at work.
struct Worker {
    engine: Engine,
    orders: Orders,
    sink: Sink,
    told: Told,
    history: History,
    fate: Fate,
    pause: Fate,
    dice: Mutex<Dice>,
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
    let runtime = runtime.worker_threads(orders.threads).enable_all().build();
    runtime.expect("a runtime starts").block_on(follow(orders))
}

async fn follow(orders: Orders) -> semel::Result<()> {
    limit_files(orders.file_limit);
    let engine = open(&orders).await?;
    if orders.barrier {
        wait_for_the_others();
    }
    let worker = Arc::new(Worker {
        engine,
        sink: Sink::at(orders.sink.clone()),
        told: Told::at(orders.told.clone()),
        history: History::at(orders.history.clone()),
        fate: Fate::new(orders.crash, Signal::KILL),
        pause: Fate::new(orders.stop, Signal::STOP),
        dice: Mutex::new(Dice::seeded(orders.seed)),
        errors: AtomicUsize::new(0),
        answers: AtomicUsize::new(0),
        orders,
    });
    if worker.orders.say_time {
        worker.told.remember("-", &Word::Time(seconds()));
    }
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

/// Opens the store, and again while it is not available, as long as the orders insist.
async fn open(orders: &Orders) -> semel::Result<Engine> {
    let end = Instant::now() + orders.insist;
    loop {
        match super::open_as(orders).await {
            Err(error) if is_away(&error) && Instant::now() < end => {
                tokio::time::sleep(INSIST_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Says whether the store may be there again later.
const fn is_away(error: &Error) -> bool {
    matches!(
        error,
        Error::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))
    )
}

/// What this process takes for the time.
fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
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
            Keys::Crowd(count, share) => {
                let mut dice = Dice::seeded(self.orders.seed ^ number as u64);
                let place = |number: usize| (number as u64 + dice.below(CROWD_SPREAD), number);
                let mut places: Vec<_> = (0..*count).map(place).collect();
                places.sort_unstable();
                places.retain(|_| dice.below(*share) == 0);
                for (_, number) in places {
                    self.carry_out(&crowd_key(number)).await;
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
        self.reach(CrashPoint::BeforeClaim);
        let word = match self.begin(key).await {
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

    /// Begins, and again while the store is not available, as long as the orders insist.
    async fn begin(&self, key: &str) -> semel::Result<Admission> {
        let end = Instant::now() + self.orders.insist;
        loop {
            let call = self.history.call(key, &Ask::Begin);
            let begun = self.engine.begin(self.request(key)).await;
            match &begun {
                Ok(admission) => self.history.back(call, &self.answer(key, admission)),
                // Nothing came back that says whether it was stored.
                Err(error) if is_away(error) && Instant::now() < end => {
                    tokio::time::sleep(INSIST_PAUSE).await;
                    continue;
                }
                Err(_) => {}
            }
            return begun;
        }
    }

    fn answer(&self, key: &str, admission: &Admission) -> Answer {
        match admission {
            Admission::Execute(permit) => Answer::Granted {
                fence: permit.fence().0,
                lease: self.lease(key),
            },
            Admission::Probe(permit) => Answer::Probing {
                fence: permit.fence().0,
                lease: self.lease(key),
            },
            Admission::Replay(receipt) => Answer::Replay(answer_of(receipt)),
            Admission::Wait { .. } => Answer::InFlight,
            Admission::InDoubt(_) => Answer::InDoubt,
        }
    }

    /// Says that this moment has come. Returns whether the process was stopped at it.
    fn reach(&self, point: CrashPoint) -> bool {
        self.fate.reach(point);
        self.pause.reach(point)
    }

    /// Takes as long as an effect may.
    async fn linger(&self) {
        if !self.orders.linger.is_zero() {
            tokio::time::sleep(self.drawn(self.orders.linger)).await;
        }
    }

    fn drawn(&self, most: Duration) -> Duration {
        let mut dice = self.dice.lock().expect("nobody panics");
        dice.up_to(most)
    }

    /// Asks for more time, as somebody does who does not know how long it was stopped.
    async fn ask_for_time(&self, key: &str, permit: &Permit) {
        let answer = match permit.renew().await {
            Ok(()) => "renewed",
            Err(error) => error.code(),
        };
        self.told.remember(key, &Word::Renewal(answer.to_owned()));
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

    fn lease(&self, text: &str) -> Duration {
        match on_doubt(text) {
            semel::OnDoubt::Probe => PROBED_LEASE,
            semel::OnDoubt::Hold | semel::OnDoubt::Retry => self.orders.lease,
        }
    }

    fn request(&self, text: &str) -> Request {
        let lease = Lease::new(self.lease(text)).expect("orders name a lease that is allowed");
        Request::new(NAME, key(text))
            .input(text)
            .on_doubt(on_doubt(text))
            .lease(lease)
            .wait(self.orders.wait)
    }

    async fn act(&self, key: &str, permit: Permit) -> Word {
        if self.reach(CrashPoint::AfterClaim) {
            self.ask_for_time(key, &permit).await;
        }
        self.linger().await;
        if !permit.is_alive() {
            let released = self.not_done(key, permit, "the lease ended before the effect began");
            let released = released.await;
            return released.map_or_else(|error| error_word(&error), |_| Word::Wait);
        }
        let line = self.sink.cause(key, permit.fence(), || {
            self.reach(CrashPoint::MidEffect);
        });
        if self.reach(CrashPoint::AfterEffect) {
            self.ask_for_time(key, &permit).await;
        }
        self.linger().await;
        let settled = self.done(key, permit, &line.answer()).await;
        self.reach(CrashPoint::AfterSettle);
        match settled {
            Ok(receipt) if receipt.replayed => Word::Replayed(answer_of(&receipt)),
            Ok(receipt) => Word::Done(answer_of(&receipt)),
            Err(error) => error_word(&error),
        }
    }

    /// Answers a probe by what the world holds.
    async fn look_up(&self, key: &str, permit: Permit) -> Word {
        let settled = match self.sink.last_of(key) {
            Some(line) => self.done(key, permit, &line.answer()).await,
            None => {
                let looked = self.not_done(key, permit, "the sink has no such line");
                looked.await
            }
        };
        match settled {
            Ok(receipt) if receipt.ok => Word::Replayed(answer_of(&receipt)),
            Ok(_) => Word::Wait,
            Err(error) => error_word(&error),
        }
    }

    async fn done(&self, key: &str, permit: Permit, answer: &str) -> semel::Result<Receipt> {
        let ask = Ask::Done(permit.fence().0, answer.to_owned());
        let call = self.history.call(key, &ask);
        let settled = permit.done(Effect::Created, answer).await;
        match &settled {
            Ok(receipt) if receipt.replayed => {
                self.history.back(call, &Answer::Stored(answer_of(receipt)));
            }
            Ok(receipt) => self
                .history
                .back(call, &Answer::Settled(answer_of(receipt))),
            Err(error) => self.refused(call, error),
        }
        settled
    }

    async fn not_done(&self, key: &str, permit: Permit, why: &str) -> semel::Result<Receipt> {
        let call = self.history.call(key, &Ask::NotDone(permit.fence().0));
        let settled = permit.not_done(why).await;
        match &settled {
            Ok(receipt) if receipt.ok => {
                self.history.back(call, &Answer::Stored(answer_of(receipt)));
            }
            Ok(_) => self.history.back(call, &Answer::Released),
            Err(error) => self.refused(call, error),
        }
        settled
    }

    /// A refusal is an answer; any other error says nothing about what is stored.
    fn refused(&self, call: Call, error: &Error) {
        if error.code() == "fenced" {
            self.history.back(call, &Answer::Fenced);
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
