//! The doorway: how a door whose callers may give no key finds out which operation a call is for.
//!
//! The rules are in [`identity`](semel_core::identity) and nowhere else. A [`Doorway`] loads what they judge
//! by: what is stored under the call's own keys, the operations that count among its kin
//! ([`Store::kin`](crate::store::Store::kin)), and what was seen here of those who call now. Then it begins.
//!
//! ```text
//!  Call ──▶ load ──▶ identify ──▶ Begin ──▶ Entered { identity, ticket, admission }
//!             ▲                     │                     │ see(Written), see(Acknowledged), …
//!             └── met another's ────┘                     ▼
//!                                                 Deliver, behind the calls
//! ```
//!
//! A new operation is begun under a key that nothing was found under. Whoever finds it taken has lost a
//! race, and judges again. Identical calls at one doorway are judged one after the other; between processes
//! the store decides who was first.

mod bounded;
mod known;
mod marks;
mod memory;
mod ticket;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::identity::{Call, Identity, Kin, Relation, Source};
use semel_core::ledger::{Delivery, Record, Rejection};
use semel_core::{Namespace, Note};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::known::{Asked, Judged};
use self::memory::{Entry, Memory};
pub use self::ticket::Ticket;
use crate::engine::{self, Engine, Permit, Request, Subject};
use crate::error::{Error, Result};
use crate::receipt::Receipt;
use crate::store::StoreError;

/// The calls that a doorway holds at once: those that wait, and those of whose answers nobody knows yet
/// whether they arrived. Each takes a few hundred bytes.
pub const HELD_MAX: usize = 65_536;

/// Locks under which identical calls are judged one after the other. So many that different ones seldom
/// share one, as it is held while a claim is written.
const GATES: usize = 1_024;

/// How often a call is judged again after another process was faster. Each time that one has begun what is
/// found the next time, so only a crowd of processes comes near.
const TRIES: usize = 64;

/// Judges calls, begins their operations, and remembers who got which answer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Doorway {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    engine: Engine,
    memory: Mutex<Memory>,
    gates: Vec<tokio::sync::Mutex<()>>,
    places: Arc<Semaphore>,
    /// Says that there are marks to store.
    due: Arc<Notify>,
    /// Wakes the calls that wait until earlier identical calls are answered.
    answered: Notify,
    /// Held by whoever stores them.
    storing: tokio::sync::Mutex<()>,
    marking: Mutex<Option<AbortHandle>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(marking) = lock(&self.marking).take() {
            marking.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that was judged.
#[derive(Debug)]
pub struct Entered {
    /// Which operation it is for, and why.
    pub identity: Identity,
    /// What says what is seen of its answer; `None` for a call that belongs to no operation.
    pub ticket: Option<Ticket>,
    /// What is to be done.
    pub admission: Admission,
    /// Whether those who called for the operation before got their answers.
    pub delivery: Delivery,
}

/// What a door is told to do with a call.
#[derive(Debug)]
pub enum Admission {
    /// Act, and say what came of it.
    Execute(Permit),
    /// Look up whether the doubted effect happened, touch nothing, and say what was found.
    Probe(Permit),
    /// It was done before: this is the answer.
    Replay(Receipt),
    /// Another attempt runs: come back then.
    Wait {
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// Nobody knows whether an earlier attempt took effect.
    InDoubt(Arc<Record>),
    /// An identical call is in flight, and this one is refused until its caller says what it wants.
    Challenged {
        /// The operation of the other call.
        prior: Arc<Record>,
    },
}

impl From<engine::Admission> for Admission {
    fn from(admission: engine::Admission) -> Self {
        match admission {
            engine::Admission::Execute(permit) => Self::Execute(permit),
            engine::Admission::Probe(permit) => Self::Probe(permit),
            engine::Admission::Replay(receipt) => Self::Replay(receipt),
            engine::Admission::Wait { retry_after } => Self::Wait { retry_after },
            engine::Admission::InDoubt(record) => Self::InDoubt(record),
        }
    }
}

/// What would become of a call.
#[derive(Debug)]
pub struct Previewed {
    /// Which operation it would be for, and why.
    pub identity: Identity,
    /// What it would be told.
    pub preview: Preview,
}

/// What a call would be told.
#[derive(Debug)]
pub enum Preview {
    /// What the ledger would say.
    Ledger(engine::Preview),
    /// See [`Admission::Challenged`].
    Challenged {
        /// The operation of the other call.
        prior: Arc<Record>,
    },
}

impl Doorway {
    /// Makes a doorway to a ledger. It lives in the runtime in which it was made.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let due = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            engine,
            memory: Mutex::default(),
            gates: (0..GATES).map(|_| tokio::sync::Mutex::default()).collect(),
            places: Arc::new(Semaphore::new(HELD_MAX)),
            due,
            answered: Notify::new(),
            storing: tokio::sync::Mutex::default(),
            marking: Mutex::default(),
        });
        let marking = tokio::spawn(marks::run(Arc::downgrade(&inner)));
        *lock(&inner.marking) = Some(marking.abort_handle());
        Self { inner }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Finds out which operation a call is for, and begins it, or joins those who wait for it as long as the
    /// request says. The request's key is replaced by the operation's own.
    ///
    /// # Errors
    /// As [`Engine::begin`]; also when more identical calls are not over than can be judged, or too many
    /// calls are held. Then nothing was begun.
    pub async fn enter(&self, call: &Call, request: Request) -> Result<Entered> {
        let request = request.settled_in(self.inner.engine.namespace());
        let asked = asked(call, &request)?;
        let deadline = Instant::now() + request.wait;
        let mut place = Some(self.inner.place()?);
        let mut gate = match asked.has_kin() {
            true => Some(self.inner.gate(asked.kin).await),
            false => None,
        };
        for _ in 0..TRIES {
            let judged = self.inner.judge(asked).await?;
            let request = identified(&request, call, &judged.identity);
            match judged.identity.relation {
                Relation::First | Relation::IntendedRepeat => {
                    // What is new runs at once: nobody is to be waited for, and an answer that is
                    // there is not given here.
                    let request = request.wait(Duration::ZERO).uncounted();
                    let begun = self.inner.engine.begin(request).await;
                    let Some(admission) = first(begun)? else {
                        self.inner.learn_number(asked, &judged);
                        continue;
                    };
                    let ticket = place
                        .take()
                        .and_then(|place| self.enter_as(asked, &judged, place));
                    return Ok(Entered {
                        delivery: judged.delivery,
                        identity: judged.identity,
                        ticket,
                        admission,
                    });
                }
                Relation::Retry | Relation::Joined => {
                    // Those who come next must see that somebody waits.
                    let ticket = place
                        .take()
                        .and_then(|place| self.enter_as(asked, &judged, place));
                    let engine = &self.inner.engine;
                    let mut begun = engine.begin(request.clone().wait(Duration::ZERO)).await?;
                    drop(gate.take());
                    if let engine::Admission::Wait { .. } = begun {
                        let left = deadline.saturating_duration_since(Instant::now());
                        if !left.is_zero() {
                            begun = engine.begin(request.wait(left)).await?;
                        }
                    }
                    return Ok(Entered {
                        delivery: judged.delivery,
                        identity: judged.identity,
                        ticket,
                        admission: begun.into(),
                    });
                }
                Relation::Challenged => {
                    return Ok(Entered {
                        ticket: None,
                        admission: Admission::Challenged {
                            prior: prior(&judged)?,
                        },
                        delivery: judged.delivery,
                        identity: judged.identity,
                    });
                }
            }
        }
        let crowd = "too many processes take the same call at the same time".to_owned();
        Err(StoreError::Unavailable(crowd).into())
    }

    /// Says what [`Doorway::enter`] would answer now; nothing is written, and nothing is promised.
    ///
    /// # Errors
    /// As [`Doorway::enter`].
    pub async fn preview(&self, call: &Call, request: Request) -> Result<Previewed> {
        let request = request.settled_in(self.inner.engine.namespace());
        let judged = self.inner.judge(asked(call, &request)?).await?;
        let preview = match judged.identity.relation {
            Relation::Challenged => Preview::Challenged {
                prior: prior(&judged)?,
            },
            Relation::First | Relation::IntendedRepeat | Relation::Retry | Relation::Joined => {
                let request = identified(&request, call, &judged.identity);
                Preview::Ledger(self.inner.engine.preview(request).await?)
            }
        };
        Ok(Previewed {
            identity: judged.identity,
            preview,
        })
    }

    /// Returns how many operations are held: those somebody waits for, and those of whose answers something
    /// more can be seen or is to be stored.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.inner.memory).held()
    }

    /// Stores every mark that is due, before a clean exit.
    ///
    /// # Errors
    /// Fails when the store does not take one now.
    pub async fn flush(&self) -> Result<()> {
        if self.inner.store_marks().await {
            return Ok(());
        }
        let text = "not every delivery mark could be stored".to_owned();
        Err(StoreError::Unavailable(text).into())
    }

    fn enter_as(
        &self,
        asked: Asked<'_>,
        judged: &Judged,
        place: OwnedSemaphorePermit,
    ) -> Option<Ticket> {
        let key = &judged.identity.key;
        let relation = judged.identity.relation;
        let entry = Entry {
            key,
            subject: Subject::new(asked.namespace, key),
            kin: asked.kin,
            has_kin: asked.has_kin(),
            stored: match relation {
                Relation::First | Relation::IntendedRepeat => Some(Delivery::Unknown),
                Relation::Retry | Relation::Joined | Relation::Challenged => None,
            },
            by_call_id: asked.by_call_id(),
        };
        let mut memory = lock(&self.inner.memory);
        let (operation, caller) = memory.enter(entry, relation, place, judged.at)?;
        Some(Ticket {
            inner: Arc::clone(&self.inner),
            operation,
            caller,
        })
    }
}

impl Inner {
    fn place(&self) -> Result<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| {
            let text = format!("{HELD_MAX} calls wait here, or for a sign that they arrived");
            StoreError::Unavailable(text).into()
        })
    }

    async fn gate(&self, kin: Kin) -> tokio::sync::MutexGuard<'_, ()> {
        let number = usize::try_from(kin.0 % GATES as u64).unwrap_or_default();
        self.gates[number].lock().await
    }

    /// Remembers that a number is taken after all.
    fn learn_number(&self, asked: Asked<'_>, judged: &Judged) {
        if judged.identity.source == Source::Fingerprint {
            lock(&self.memory).learn_number(asked.kin, judged.identity.occurrence);
        }
    }
}

fn asked<'a>(call: &'a Call, request: &'a Request) -> Result<Asked<'a>> {
    if request.fingerprint()? != call.fingerprint {
        let text = "a call and its request must have the same name and input".to_owned();
        return Err(Error::InvalidInput(text));
    }
    let namespace: &Namespace = &request.namespace;
    Ok(Asked {
        call,
        namespace,
        kin: Kin::of(namespace, call),
    })
}

/// Describes the operation that a call is for.
fn identified(request: &Request, call: &Call, identity: &Identity) -> Request {
    let text = match identity.source {
        Source::Explicit => call.explicit.as_ref().map(|text| text.as_str()),
        Source::CallId => call.call_id.as_ref().map(|text| text.as_str()),
        Source::Business => call.business.as_ref().map(|key| key.as_str()),
        Source::Fingerprint => None,
    };
    let client_key = text.and_then(Note::from_lossy);
    let request = request.clone().key(identity.key.clone());
    request.identified(client_key, identity.occurrence)
}

/// Reads the answer to the Begin of a new operation; `None` when it was not new after all.
fn first(begun: Result<engine::Admission>) -> Result<Option<Admission>> {
    match begun {
        Ok(granted @ (engine::Admission::Execute(_) | engine::Admission::Probe(_))) => {
            Ok(Some(granted.into()))
        }
        Ok(
            engine::Admission::Replay(_)
            | engine::Admission::Wait { .. }
            | engine::Admission::InDoubt(_),
        ) => Ok(None),
        Err(Error::Refused(refusal)) => match refusal.rejection {
            Rejection::Dead | Rejection::Expired => Ok(None),
            Rejection::KeyReused
            | Rejection::InFlight { .. }
            | Rejection::InDoubt { .. }
            | Rejection::Fenced
            | Rejection::Refused { .. }
            | Rejection::NotFound
            | Rejection::BreakerOpen { .. } => Err(Error::Refused(refusal)),
        },
        Err(other) => Err(other),
    }
}

/// Returns the operation of the call that stands in this one's way.
fn prior(judged: &Judged) -> Result<Arc<Record>> {
    let record = judged.record.as_ref().map(Arc::clone);
    record.ok_or_else(|| {
        let text = "a call is challenged by one that is not stored".to_owned();
        StoreError::Corrupt(text).into()
    })
}
