//! What people do about breakers.

use std::sync::Arc;
use std::time::Duration;

use semel_core::breaker::{Act, Breaker as Stored, Order, PhaseKind, Reply};
use semel_core::ledger::{Decision, Fence, Record, Reply as LedgerReply, StateKind};
use semel_core::{Label, Namespace, Note};

use super::{Breaker, BreakerView, answered_otherwise};
use crate::engine::Engine;
use crate::error::Result;
use crate::store::{PAGE_MAX, Query};

/// An order that was carried out.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// Where the breaker stands now.
    pub phase: PhaseKind,
    /// Whether it stood there before.
    pub repeated: bool,
}

/// Who decides about a breaker, why, and on what they saw.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Who decides.
    pub by: Label,
    /// Why.
    pub note: Option<Note>,
    /// The fence that the breaker had when it was decided about, 0 where there was none; on another one the order is
    /// refused. Without it, the order is for what is stored when it comes.
    pub fence: Option<u64>,
}

impl Decided {
    /// Decides about whatever is stored.
    #[must_use]
    pub const fn by(by: Label) -> Self {
        Self {
            by,
            note: None,
            fence: None,
        }
    }
}

impl Choice {
    const fn act(self, order: Order) -> Act {
        match self {
            Self::Open(length) => Act::Open(order, length),
            Self::Close => Act::Close(order),
            Self::Reset => Act::Reset(order),
        }
    }
}

impl Engine {
    /// Lists all breakers behind a wall, or everywhere, by their names.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn breakers(&self, namespace: Option<&Namespace>) -> Result<Vec<BreakerView>> {
        let mut query = Query {
            namespace: namespace.cloned(),
            states: StateKind::BREAKERS.to_vec(),
            limit: PAGE_MAX,
            ..Query::default()
        };
        let mut found = vec![];
        loop {
            let page = self.store().list(query.clone()).await?;
            let now = self.store().now();
            let breakers = page
                .items
                .iter()
                .filter_map(|stored| stored.record.breaker());
            found.extend(breakers.map(|breaker| BreakerView::of(breaker, now)));
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(found)
    }
}

/// What people decide about a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Lets nothing through, for this long or until somebody closes it.
    Open(Option<Duration>),
    /// Lets calls through again.
    Close,
    /// Lets calls through again, and forgets what became of those before.
    Reset,
}

impl Breaker {
    /// Carries a decision out.
    ///
    /// # Errors
    /// `fenced` when its phase changed since it was decided about; `not_found` when what is to be closed is not known. Fails
    /// when the store does.
    pub async fn decide(&self, decided: Decided, choice: Choice) -> Result<Ordered> {
        let order = self.order(decided).await?;
        self.ordered(choice.act(order)).await
    }

    /// Says what a decision would come to, and how the breaker stands: as of now, or as it would be where there is none yet.
    /// Nothing is written.
    ///
    /// # Errors
    /// As [`Breaker::decide`].
    pub async fn foresee(
        &self,
        decided: Decided,
        choice: Choice,
    ) -> Result<(Ordered, Option<BreakerView>)> {
        let command = self.0.command(choice.act(self.order(decided).await?));
        let record = self.stored().await?;
        let now = self.0.engine.store().now();
        let (reply, next) = match semel_core::ledger::decide(record.as_deref(), &command, now) {
            Ok(Decision::Write(write)) => (write.reply, write.next),
            Ok(Decision::Answer(reply)) => (reply, None),
            Err(rejection) => return Err(self.0.subject().refused_on(rejection, record)),
        };
        let stored = record.as_deref().or(next.as_ref());
        let stored = stored.and_then(Record::breaker);
        let view = stored.map(|breaker| BreakerView::of(breaker, now));
        match reply {
            LedgerReply::Breaker(Reply::Ordered { phase, repeated }) => {
                Ok((Ordered { phase, repeated }, view))
            }
            _ => Err(answered_otherwise()),
        }
    }

    /// Returns what is stored of it; `None` when nobody has reported a call yet.
    ///
    /// # Errors
    /// Fails when the store does.
    pub async fn view(&self) -> Result<Option<BreakerView>> {
        let record = self.stored().await?;
        let now = self.0.engine.store().now();
        let breaker = record.as_deref().and_then(Record::breaker);
        Ok(breaker.map(|breaker| BreakerView::of(breaker, now)))
    }

    /// Lets nothing through, for this long or until somebody closes it.
    ///
    /// # Errors
    /// As [`Breaker::decide`].
    pub async fn open(&self, decided: Decided, length: Option<Duration>) -> Result<Ordered> {
        self.decide(decided, Choice::Open(length)).await
    }

    /// Lets calls through again.
    ///
    /// # Errors
    /// As [`Breaker::decide`].
    pub async fn close(&self, decided: Decided) -> Result<Ordered> {
        self.decide(decided, Choice::Close).await
    }

    /// Lets calls through again, and forgets what became of those before.
    ///
    /// # Errors
    /// As [`Breaker::decide`].
    pub async fn reset(&self, decided: Decided) -> Result<Ordered> {
        self.decide(decided, Choice::Reset).await
    }

    async fn stored(&self) -> Result<Option<Arc<Record>>> {
        let hash = Stored::hash_of(&self.0.namespace, &self.0.name);
        let current = self.0.engine.store().load(&hash).await?;
        self.0.saw(&current);
        Ok(match current {
            crate::store::Current::Absent(_) => None,
            crate::store::Current::Stored(stored) => Some(stored.record),
        })
    }

    async fn order(&self, decided: Decided) -> Result<Order> {
        let Decided { by, note, fence } = decided;
        let fence = match fence {
            Some(fence) => Fence(fence),
            None => {
                let record = self.stored().await?;
                record.map_or_else(Fence::default, |record| record.fence())
            }
        };
        Ok(Order { fence, by, note })
    }

    async fn ordered(&self, act: Act) -> Result<Ordered> {
        match self.0.ask(act).await? {
            Reply::Ordered { phase, repeated } => Ok(Ordered { phase, repeated }),
            Reply::Admitted(_) | Reply::Counted | Reply::Ignored => Err(answered_otherwise()),
        }
    }
}
