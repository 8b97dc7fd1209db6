//! Circuit breakers: targets that fail are left alone for a while, by everybody who shares the store.
//!
//! The rule is [`semel_core::breaker`]; its record lies in the ledger. Here is what keeps that cheap: while all is well
//! a call writes nothing.
//!
//! ```
//! # async fn example() -> Result<(), semel::Error> {
//! use semel::breaker::Settings;
//! use semel::{Engine, Key};
//!
//! let engine = Engine::open("memory:").await?;
//! let breaker = engine.breaker(Key::new("payments")?, Settings::default())?;
//! match breaker.admit().await {
//!     Ok(pass) => {
//!         // Call the target, then say what became of it.
//!         pass.succeeded().await;
//!     }
//!     Err(refused) => println!("not before {:?}", refused.retry_at()),
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```

mod by_namespace;
mod counting;
mod operate;
mod pass;
mod view;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use semel_core::breaker::{Act, Admit, Ask, Breaker as Stored, Phase, Reply};
use semel_core::ledger::{Command, Decision, Fence, Record, Rejection, Reply as LedgerReply};
use semel_core::{AttemptId, Key, Lease, Namespace};
use tokio::time::Instant;

pub use self::by_namespace::Breakers;
pub use self::operate::{Choice, Decided, Ordered};
pub use self::pass::Pass;
pub use self::view::{BreakerView, SettingsView};
pub use semel_core::breaker::{PhaseKind, Settings, SettingsError};

use self::counting::Counting;
use crate::engine::{Brought, Engine, Subject};
use crate::error::{Error, Result};
use crate::store::{Current, Store, StoreError};

/// How long what a store that is far away said may be gone by. A breaker that opens elsewhere is noticed here that
/// much later.
const SEEN_FOR: Duration = Duration::from_secs(1);

/// How long a probe may be silent: when its process dies, another call may try after this.
pub const PROBE_LEASE: Lease = Lease::DEFAULT;

/// The breaker of one target. Cheap to clone; all handles of one name in an engine count together.
#[derive(Clone, Debug)]
pub struct Breaker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    engine: Engine,
    namespace: Namespace,
    name: Key,
    settings: Settings,
    /// What was read last, and when.
    seen: Mutex<Option<Seen>>,
    counting: Counting,
}

/// What was stored when somebody looked.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    record: Option<Arc<Record>>,
}

impl Seen {
    fn breaker(&self) -> Option<&Stored> {
        self.record.as_deref().and_then(Record::breaker)
    }
}

/// The breakers that an engine has handles of.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Vec<Weak<Shared>>>);

/// What a breaker is called, and what it bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    name: Key,
    settings: Settings,
}

impl Target {
    /// Names a breaker.
    ///
    /// # Errors
    /// Refuses settings that are of no use.
    pub fn new(name: Key, settings: Settings) -> std::result::Result<Self, SettingsError> {
        let settings = settings.check()?;
        Ok(Self { name, settings })
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &Key {
        &self.name
    }
}

impl Engine {
    /// Returns the breaker of a target, in the engine's own namespace.
    ///
    /// # Errors
    /// Refuses settings that are of no use.
    pub fn breaker(&self, name: Key, settings: Settings) -> Result<Breaker> {
        let target = Target::new(name, settings);
        let target = target.map_err(|error| Error::InvalidInput(error.to_string()))?;
        Ok(self.breaker_of(&target))
    }

    /// Returns the breaker of a target, in the engine's own namespace.
    #[must_use]
    pub fn breaker_of(&self, target: &Target) -> Breaker {
        self.breaker_in(&self.namespace(), target)
    }

    /// Returns the breaker of a target behind this wall.
    #[must_use]
    pub fn breaker_in(&self, namespace: &Namespace, target: &Target) -> Breaker {
        let mut known = lock(&self.known_breakers().0);
        known.retain(|one| one.strong_count() > 0);
        let same = known.iter().filter_map(Weak::upgrade).find(|one| {
            let (name, settings) = (&target.name, &target.settings);
            (&one.namespace, &one.name, &one.settings) == (namespace, name, settings)
        });
        let shared = same.unwrap_or_else(|| {
            let shared = Arc::new(Shared {
                engine: self.clone(),
                namespace: namespace.clone(),
                name: target.name.clone(),
                settings: target.settings,
                seen: Mutex::new(None),
                counting: Counting::default(),
            });
            known.push(Arc::downgrade(&shared));
            shared
        });
        Breaker(shared)
    }
}

impl Breaker {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &Key {
        &self.0.name
    }

    /// Asks whether the target may be called now. Should the call be the probe of a half-open breaker, that is stored
    /// before this returns, and nobody else is admitted until it has reported or its lease has ended.
    ///
    /// # Errors
    /// `breaker_open` while the target is left alone: [`Error::retry_at`] says when to come again. Fails when the store
    /// does.
    pub async fn admit(&self) -> Result<Pass> {
        if let Some(pass) = self.0.through_as_seen()? {
            return Ok(pass);
        }
        let id = self.0.engine.fresh_id()?;
        let admit = Act::Admit(Admit {
            id: id.clone(),
            lease: PROBE_LEASE,
        });
        match self.0.ask(admit).await? {
            Reply::Admitted(admitted) => {
                let probe = admitted.probe_until.map(|_| id);
                Ok(Pass::new(Arc::clone(&self.0), admitted.fence, probe))
            }
            Reply::Counted | Reply::Ignored | Reply::Ordered { .. } => Err(answered_otherwise()),
        }
    }

    /// Returns a pass if the breaker is closed. Nothing is written: for those who must know whether they have to call
    /// at all before they take the only place.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn pass_if_closed(&self) -> Result<Option<Pass>> {
        let seen = self.0.look().await?;
        let fence = match seen.breaker() {
            None => Some(Fence::default()),
            Some(breaker) => match breaker.phase {
                Phase::Closed(_) => Some(breaker.fence),
                Phase::Open(_) | Phase::HalfOpen(_) => None,
            },
        };
        Ok(fence.map(|fence| Pass::new(Arc::clone(&self.0), fence, None)))
    }

    /// Says whether a call would be admitted now, and takes no place: for dry runs.
    ///
    /// # Errors
    /// As [`Breaker::admit`].
    pub async fn would_admit(&self) -> Result<()> {
        let seen = self.0.look().await?;
        self.0.foreseen(&seen).map(drop)
    }

    /// Writes what was counted here, if anything was: for processes that end.
    ///
    /// # Errors
    /// Fails when the store does; what was counted stays counted.
    pub async fn flush(&self) -> Result<()> {
        self.0.flush().await
    }
}

impl Shared {
    fn subject(&self) -> Subject {
        Subject {
            hash: Stored::hash_of(&self.namespace, &self.name),
            key: Some(self.name.clone()),
        }
    }

    fn command(&self, act: Act) -> Command {
        Command::Breaker(Box::new(Ask {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            settings: self.settings,
            act,
        }))
    }

    /// Has something decided and stored, and keeps in mind what is stored then.
    async fn ask(&self, act: Act) -> Result<Reply> {
        let command = self.command(act);
        let none = Brought::default();
        let answer = self.engine.apply(&self.subject(), &command, &none).await;
        match answer {
            Ok(applied) => {
                self.saw(&applied.current);
                match applied.reply {
                    LedgerReply::Breaker(reply) => Ok(reply),
                    _ => Err(answered_otherwise()),
                }
            }
            Err(error) => {
                if let Error::Refused(refusal) = &error {
                    self.see(refusal.record.clone());
                }
                Err(error)
            }
        }
    }

    fn saw(&self, current: &Current) {
        self.see(match current {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(Arc::clone(&stored.record)),
        });
    }

    fn see(&self, record: Option<Arc<Record>>) {
        let at = Instant::now();
        *lock(&self.seen) = Some(Seen { at, record });
    }

    /// Returns what is stored, as of now or of a moment ago.
    async fn look(&self) -> Result<Seen> {
        if let Some(seen) = self.recently_seen() {
            return Ok(seen);
        }
        let store = self.engine.store();
        self.saw(&store.load(&self.subject().hash).await?);
        let seen = lock(&self.seen).clone();
        seen.ok_or_else(answered_otherwise)
    }

    /// Returns what was seen, where it may still be gone by: only a store that is far away is not asked each time.
    fn recently_seen(&self) -> Option<Seen> {
        if !is_far(&**self.engine.store()) {
            return None;
        }
        let seen = lock(&self.seen).clone();
        seen.filter(|seen| seen.at.elapsed() < SEEN_FOR)
    }

    /// Lets a call through, or refuses it, by what was seen a moment ago; `None` when the store must be asked.
    fn through_as_seen(self: &Arc<Self>) -> Result<Option<Pass>> {
        let Some(seen) = self.recently_seen() else {
            return Ok(None);
        };
        let fence = self.foreseen(&seen)?;
        Ok(fence.map(|fence| Pass::new(Arc::clone(self), fence, None)))
    }

    /// Says what would become of a call by what was seen: the fence with which it goes through, or `None` when it would be
    /// stored.
    fn foreseen(&self, seen: &Seen) -> Result<Option<Fence>> {
        let admit = self.command(Act::Admit(Admit {
            // Nothing is decided by it: a probe is always asked for.
            id: AttemptId::from_random(0),
            lease: PROBE_LEASE,
        }));
        let now = self.engine.store().now();
        match semel_core::ledger::decide(seen.record.as_deref(), &admit, now) {
            Ok(Decision::Answer(LedgerReply::Breaker(Reply::Admitted(admitted)))) => {
                Ok(Some(admitted.fence))
            }
            Ok(Decision::Answer(_) | Decision::Write(_)) => Ok(None),
            Err(rejection @ Rejection::BreakerOpen { .. }) => {
                Err(self.subject().refused_on(rejection, seen.record.clone()))
            }
            Err(_) => Ok(None),
        }
    }
}

/// Says whether asking a store takes a trip over the network.
fn is_far(store: &dyn Store) -> bool {
    #[cfg(feature = "postgres")]
    if store.as_postgres().is_some() {
        return true;
    }
    #[cfg(feature = "remote")]
    if store.as_remote().is_some() {
        return true;
    }
    let _near = store;
    false
}

fn answered_otherwise() -> Error {
    let text = "a breaker was answered with something else".to_owned();
    StoreError::Corrupt(text).into()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
