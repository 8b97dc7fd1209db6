//! Whether a copy may be made, and where it begins.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::store::{Origin, Stage, Standing, Store};

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Go on from here.
    Go(Origin),
    /// The ledger has moved there already.
    Done,
}

impl Plan {
    /// Looks at both stores and writes nothing.
    pub(super) async fn make(
        from: &Arc<dyn Store>,
        to: &Arc<dyn Store>,
        snapshot: bool,
    ) -> Result<Self> {
        let (source, target) = (from.id().await?, to.id().await?);
        if source == target {
            return refused("source and target are the same store");
        }
        let (stands, end) = (to.standing().await?, to.end().await?);
        let mine = to.origin(None).await?;
        let mine = mine.filter(|origin| origin.source == source);
        let closed = from.standing().await?;
        let origin = match (stands, mine) {
            (Standing::Open, Some(origin))
                if !snapshot && origin.stage == Stage::Adopting && closed != Standing::Open =>
            {
                return Ok(Self::Done);
            }
            (Standing::Copy, Some(origin)) => origin,
            (Standing::Open | Standing::Copy, None) if end == 0 => Origin {
                source,
                through: 0,
                end: 0,
                stage: Stage::Filling,
            },
            (Standing::Copy, None) | (Standing::Copied { .. }, _) => {
                return refused("the target is a copy of another ledger");
            }
            (Standing::Open | Standing::Closed(_), _) => {
                return refused(
                    "the target is not empty: a ledger is copied into a new store only",
                );
            }
        };
        match (closed, snapshot) {
            (Standing::Copy | Standing::Copied { .. }, false) => refused(
                "the source is a copy that nobody has adopted: `semel restore` makes it a store, \
                 and --snapshot copies it as it is",
            ),
            (Standing::Closed(moved), false) if moved.id != target => refused(&format!(
                "the ledger has moved from there to {} already",
                moved.to
            )),
            (Standing::Open, false) if origin.stage == Stage::Adopting => refused(
                "the target was being adopted, but the source is open again: what it has begun \
                 since would be lost",
            ),
            (Standing::Open | Standing::Closed(_), true) if origin.stage == Stage::Adopting => {
                refused("the ledger is being moved to the target: go on without --snapshot")
            }
            (
                Standing::Open | Standing::Copy | Standing::Copied { .. } | Standing::Closed(_),
                _,
            ) => Ok(Self::Go(origin)),
        }
    }
}

fn refused(why: &str) -> Result<Plan> {
    Err(Error::InvalidInput(why.to_owned()))
}
