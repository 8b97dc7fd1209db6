//! Two remote engines behind two walls of one server, beside the model: each must see what is its own,
//! as the model has it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use semel::store::{Current, Logged, Place, Query, Store, StoreError, Stored};
use semel_core::ledger::{Command, Fence, Rejection, Reply, StateKind};
use semel_core::{KeyHash, Namespace};

use super::{Compared, Coverage, Difference, Model, Stream, failed, same};
use crate::conformance::hand::{Applied, Asked};
use crate::conformance::{Bed, ManualClock};
use crate::remote::RemoteBed;

/// Runs one stream of this many commands.
///
/// # Errors
/// The first difference.
pub async fn run(
    seed: u64,
    steps: usize,
    clock: &Arc<ManualClock>,
    behind: Arc<dyn Bed>,
) -> Result<Coverage, Box<Difference>> {
    let bed = RemoteBed::new(Arc::clone(&behind));
    let stream = Stream::new(seed);
    let hashes = stream.hashes();
    let walls: BTreeSet<_> = hashes.map(|hash| stream.namespace(&hash).clone()).collect();
    let mut stores = BTreeMap::new();
    for namespace in walls {
        let store = bed.open_in(&namespace).await;
        stores.insert(namespace, store);
    }
    let mut run = Run {
        stream,
        model: Model::new(clock),
        coverage: Coverage::default(),
        stores,
        behind: behind.open().await,
        last: String::new(),
    };
    for step in 0..steps {
        run.stream.move_time(clock);
        let compared = run.step().await;
        compared.map_err(|what| run.difference(seed, step, what))?;
    }
    let compared = run.whole().await;
    compared.map_err(|what| run.difference(seed, steps, what))?;
    Ok(run.coverage)
}

struct Run {
    stream: Stream,
    model: Model,
    /// What was carried out over the wire.
    coverage: Coverage,
    stores: BTreeMap<Namespace, Arc<dyn Store>>,
    behind: Arc<dyn Store>,
    last: String,
}

impl Run {
    fn difference(&self, seed: u64, step: usize, what: String) -> Box<Difference> {
        Box::new(Difference {
            seed,
            step,
            lane: "remote",
            what,
            commands: vec![self.last.clone()],
        })
    }

    fn store(&self, key: &KeyHash) -> &Arc<dyn Store> {
        &self.stores[self.stream.namespace(key)]
    }

    async fn step(&mut self) -> Compared {
        if let Some(append) = self.stream.append(&self.model) {
            let (place, fence) = (append.place, append.fence);
            self.model.append(place, fence, &append.chunks);
            let owner = self.owner(place).expect("a running one has an owner");
            let appended = self.stores[owner].append(place, fence, append.chunks).await;
            appended.map_err(failed("a stream"))?;
        }
        let asked = self.stream.command(&self.model);
        let before = self.model.log().len();
        let answered = self.model.apply(&asked);
        self.last = format!("{:?} -> {:?}", asked.command, answered.reply);
        self.stream.hear(&asked, &answered);
        let (applied, sent) = self.apply(&asked).await.map_err(failed("a command"))?;
        if sent {
            self.coverage.count(&asked, &answered);
        }
        same("the answer", plain(&answered.reply), plain(&applied.reply))?;
        same(
            "the record",
            self.model.record(&asked.key),
            applied.current.record(),
        )?;
        let query = self.stream.query(&self.model);
        for (namespace, store) in &self.stores {
            self.same_key(namespace, store, &asked.key).await?;
            self.same_log(namespace, store, before).await?;
            self.same_list(namespace, store, query.clone()).await?;
        }
        Ok(())
    }

    /// Sends a command, unless it is one that is not sent.
    async fn apply(&self, asked: &Asked) -> semel::store::Result<(Applied, bool)> {
        let own = self.stream.namespace(&asked.key);
        let is_servers = matches!(
            asked.command,
            Command::Bury(_) | Command::Drop(_) | Command::Adopt(_)
        );
        let is_strangers = |(parent, _): (KeyHash, Fence)| self.stream.namespace(&parent) != own;
        if !is_servers && !asked.parent.is_some_and(is_strangers) {
            match asked.apply(&**self.store(&asked.key), None).await {
                // What an old report speaks of was stored piece by piece, and there is more by now.
                Err(StoreError::Refused(text)) if text.contains("the answer that was sent") => {}
                applied => return applied.map(|applied| (applied, true)),
            }
        }
        // The store's clock comes from one that has looked.
        self.behind.load(&asked.key).await?;
        let applied = asked.apply(&*self.behind, None).await?;
        Ok((applied, false))
    }

    /// Returns whose a place is.
    fn owner(&self, place: Place) -> Option<&Namespace> {
        let first = usize::try_from(place.0).ok()?.checked_sub(1)?;
        match &self.model.log().get(first)?.entry.command {
            Command::Begin(begin) => Some(&begin.spec.namespace),
            Command::Submit(submit) => Some(&submit.spec.namespace),
            Command::Breaker(ask) => Some(&ask.namespace),
            other => panic!("{} begins nothing", other.name()),
        }
    }

    async fn same_key(
        &self,
        namespace: &Namespace,
        store: &Arc<dyn Store>,
        key: &KeyHash,
    ) -> Compared {
        let own = self.stream.namespace(key) == namespace;
        let current = store.load(key).await.map_err(failed("loading"))?;
        let record = self.model.record(key).filter(|_| own);
        same("the record", record, current.record())?;
        let Some(place) = self.model.place(key) else {
            return Ok(());
        };
        if let Current::Stored(stored) = &current {
            same("the place", place, stored.place)?;
        }
        let at = store
            .load_at(place)
            .await
            .map_err(failed("loading from a place"))?;
        let at = at.map(|stored| stored.record);
        same("what lies at its place", record, at.as_deref())?;
        let payload = store
            .payload(place)
            .await
            .map_err(failed("loading the payload"))?;
        let expected = self.model.payload(key).filter(|_| own);
        same("the payload", expected, payload.as_deref())?;
        let stream = store.stream(place, Fence(1)).await;
        let stream = stream.map_err(failed("loading a stream"))?;
        let expected = if own {
            self.model.stream(place, Fence(1))
        } else {
            &[]
        };
        same("a stream", expected, &stream)
    }

    async fn same_log(
        &self,
        namespace: &Namespace,
        store: &Arc<dyn Store>,
        after: usize,
    ) -> Compared {
        let own = |logged: &&Logged| {
            let owner = logged.place.and_then(|place| self.owner(place));
            owner == Some(namespace)
        };
        let expected: Vec<_> = self.model.log()[after..].iter().filter(own).collect();
        let log = store.log(after as u64, 100).await;
        let log = log.map_err(failed("reading the log"))?;
        // A page may be shorter than asked for, where others' entries lie between.
        same("the end of the log", expected.is_empty(), log.is_empty())?;
        let page = expected.into_iter().take(log.len()).collect::<Vec<_>>();
        same("the log", page, log.iter().collect())
    }

    async fn same_list(
        &self,
        namespace: &Namespace,
        store: &Arc<dyn Store>,
        mut query: Query,
    ) -> Compared {
        // A page with the stubs of others is shorter than it could be.
        query.states.retain(|state| *state != StateKind::Stub);
        query.namespace = Some(namespace.clone());
        let (items, next) = self.model.list(&query);
        let page = store.list(query.clone()).await.map_err(failed("listing"))?;
        same(
            &format!("the list for {query:?}"),
            shown(items),
            shown(page.items),
        )?;
        same("the next page", next, page.next)
    }

    /// Compares everything.
    async fn whole(&self) -> Compared {
        for (namespace, store) in &self.stores {
            for key in self.stream.hashes() {
                self.same_key(namespace, store, &key).await?;
            }
            for after in (0..self.model.log().len()).step_by(50) {
                self.same_log(namespace, store, after).await?;
            }
            let everything = Query {
                states: StateKind::ALL.to_vec(),
                limit: 100,
                ..Query::default()
            };
            let (mut items, _) = self.model.list(&everything);
            items.retain(|stored| self.owner(stored.place) == Some(namespace));
            let page = store.list(everything).await.map_err(failed("listing"))?;
            same("the list of everything", shown(items), shown(page.items))?;
        }
        Ok(())
    }
}

fn shown(items: Vec<Stored>) -> Vec<(Place, Arc<semel_core::ledger::Record>)> {
    let items = items.into_iter();
    items.map(|stored| (stored.place, stored.record)).collect()
}

/// A refusal that the log remembers is one like any other to whoever is refused.
fn plain(reply: &Result<Reply, Rejection>) -> Result<Reply, Rejection> {
    match reply {
        Ok(Reply::Refused(rejection)) => Err(*rejection),
        reply => reply.clone(),
    }
}
