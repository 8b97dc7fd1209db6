//! `semel inbox replay`

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::process::ExitCode;

use semel::core::KeyHash;
use semel::core::identity::{Door, inbox_key, inbox_prefix, inbox_repeat};
use semel::core::ledger::{Rejection, StateKind};
use semel::core::webhook::SenderId;
use semel::store::{Current, PAGE_MAX, Query};
use semel::{Effect, Engine, Key, Label, Namespace, Queueing, Request};
use serde_json::json;

use crate::args::inbox::Replay;
use crate::args::values::StateWord;
use crate::context::Context;
use crate::failure::Failure;
use crate::found::Found;
use crate::order::{Choice, Desk, refused};
use crate::selection::{Tally, unconfirmed};
use crate::settings::inbox::Source;

/// The number of a webhook that is handed on for the second time.
const SECOND: NonZeroU32 = NonZeroU32::new(2).expect("it is not zero");

/// How often one webhook can be handed on: each number is looked for.
const OCCURRENCES_MAX: u32 = 1_000;

pub(super) async fn run(context: &Context, args: &Replay) -> Result<ExitCode, Failure> {
    let source = context.settings.inbox_source(&args.name)?;
    let desk = Desk::new(context, &args.said)?;
    let engine = context.open_existing().await?;
    let namespace = match &source.namespace {
        Some(namespace) => namespace.clone(),
        None => context.namespace()?,
    };
    let room = Room {
        context,
        engine,
        source,
        namespace,
        again: args.again,
    };
    let mut tally = Tally::default();
    if !args.keys.is_empty() {
        for text in &args.keys {
            match room.find(text).await {
                Ok(found) => {
                    let answer = room.replay(&desk, &found).await;
                    tally.count(context, &found, answer);
                }
                Err(failure) => tally.missing(context, &failure),
            }
        }
        return Ok(tally.finish(context, "handed on", false));
    }
    let (found, more) = room.select(args).await?;
    let rehearsal = Desk {
        dry_run: desk.dry_run || !args.yes,
        ..desk.clone()
    };
    for one in &found {
        let answer = room.replay(&rehearsal, one).await;
        tally.count(context, one, answer);
    }
    if rehearsal.dry_run && !desk.dry_run && !found.is_empty() {
        return Err(unconfirmed(found.len(), "hand it on again"));
    }
    Ok(tally.finish(context, "handed on", more))
}

/// Where webhooks are looked for, and what is asked for.
struct Room<'a> {
    context: &'a Context,
    engine: Engine,
    source: &'a Source,
    namespace: Namespace,
    again: bool,
}

impl Room<'_> {
    /// Finds the webhook that a text means: the sender's id, or the whole key.
    async fn find(&self, text: &str) -> Result<Found, Failure> {
        let id = SenderId::new(text.as_bytes());
        let key = id.map(|id| inbox_key(&self.source.name, &id));
        let whole = Key::new(text).ok();
        let whole = whole.filter(|key| key.as_str().starts_with(&inbox_prefix(&self.source.name)));
        for key in whole.into_iter().chain(key) {
            if let Some(found) = self.load(&key).await? {
                return Ok(found);
            }
        }
        let (source, namespace) = (&self.source.name, &self.namespace);
        let text = format!("{text}: {source} sent no such webhook to {namespace}");
        let hint = self.context.command(&["list", "--door", "inbox"]);
        Err(Failure::not_found(text).hint(format!("`{hint}` shows what there is")))
    }

    async fn load(&self, key: &Key) -> Result<Option<Found>, Failure> {
        let store = self.engine.store();
        let hash = KeyHash::of(&self.namespace, key);
        let current = store.load(&hash).await.map_err(semel::Error::from)?;
        let now = store.now();
        Ok(match current {
            Current::Stored(stored) => Found::listed(stored, now),
            Current::Absent(_) => None,
        })
    }

    /// Finds all that match the filters.
    async fn select(&self, args: &Replay) -> Result<(Vec<Found>, bool), Failure> {
        let mut fitting = vec![StateWord::Failed, StateWord::Dead];
        fitting.extend(self.again.then_some(StateWord::Succeeded));
        let fits = |state: &StateWord| fitting.contains(state);
        if args.state.is_empty() || !args.state.iter().all(fits) {
            let text = "name a KEY, or choose many with --state failed or --state dead";
            return Err(Failure::input(text).hint("--state succeeded needs --again"));
        }
        let store = self.engine.store();
        let mut query = Query {
            namespace: Some(self.namespace.clone()),
            states: args.state.iter().copied().map(StateKind::from).collect(),
            door: Some(Door::Inbox.as_str().to_owned()),
            name: Some(self.source.name.as_str().to_owned()),
            since: args.since.map(|moment| moment.from(store.now())),
            until: args.until.map(|moment| moment.from(store.now())),
            limit: PAGE_MAX,
            ..Query::default()
        };
        let mut found: Vec<Found> = vec![];
        let mut origins = BTreeSet::new();
        loop {
            let page = self.engine.list(query.clone()).await?;
            let now = store.now();
            let listed = page.items.into_iter();
            let listed = listed.filter_map(|stored| Found::listed(stored, now));
            // A webhook that was handed on before is one all the same: the latest of its numbers stands for it.
            found.extend(listed.filter(|one| origins.insert(origin(&one.key))));
            query.cursor = page.next;
            if page.next.is_none() || found.len() >= PAGE_MAX {
                let more = page.next.is_some() || found.len() > PAGE_MAX;
                found.truncate(PAGE_MAX);
                return Ok((found, more));
            }
        }
    }

    /// Hands one webhook on again, or only says what that would do; answers with a receipt.
    async fn replay(&self, desk: &Desk, found: &Found) -> Result<(), Failure> {
        match found.state() {
            StateKind::Failed | StateKind::Dead => {
                let (context, engine) = (self.context, &self.engine);
                desk.decide(context, engine, found, Choice::Retry).await
            }
            StateKind::Succeeded if self.again => self.again(desk, found).await,
            StateKind::Succeeded => {
                let text = format!("{}: it was done", found.key);
                let hint =
                    "--again hands it on once more, as a new operation: its workers act again";
                Err(Failure::input(text).hint(hint).about(&found.key))
            }
            StateKind::Pending | StateKind::Running => {
                self.left_alone(found, &found.key);
                Ok(())
            }
            StateKind::Doubtful => Err(refused(
                found,
                Rejection::InDoubt {
                    own: false,
                    probe_at: None,
                },
            )),
            StateKind::Tombstone | StateKind::Stub | StateKind::Breaker(_) => Err(gone(found)),
        }
    }

    /// Leaves what was done for the workers again, under the next number. One under an earlier number that was not done
    /// yet is what was asked for: it waits, gets fresh attempts, or has to be resolved first.
    async fn again(&self, desk: &Desk, found: &Found) -> Result<(), Failure> {
        let input = self.input(found).await?.ok_or_else(|| gone(found))?;
        let again = SECOND.get()..=OCCURRENCES_MAX;
        for occurrence in again.filter_map(NonZeroU32::new) {
            let key = inbox_repeat(&found.key, occurrence).ok_or_else(|| gone(found))?;
            let Some(one) = self.load(&key).await? else {
                let called = found.operation().and_then(|it| it.spec.client_key.clone());
                let request = Request::new(self.source.name.as_str(), key.clone())
                    .identified(called, occurrence.get())
                    .input_bytes(&input);
                return self.submit(desk, &key, request).await;
            };
            let was_done = matches!(
                one.state(),
                StateKind::Succeeded | StateKind::Tombstone | StateKind::Stub
            );
            if !was_done {
                return Box::pin(self.replay(desk, &one)).await;
            }
        }
        let text = format!("{}: it was handed on too often", found.key);
        Err(Failure::input(text))
    }

    async fn input(&self, found: &Found) -> Result<Option<Vec<u8>>, Failure> {
        let hash = KeyHash::of(&found.namespace, &found.key);
        let current = self.engine.store().load(&hash).await;
        match current.map_err(semel::Error::from)? {
            Current::Stored(stored) => Ok(self.engine.task_input(&stored).await?),
            Current::Absent(_) => Ok(None),
        }
    }

    async fn submit(&self, desk: &Desk, key: &Key, request: Request) -> Result<(), Failure> {
        let (context, source) = (self.context, self.source);
        if desk.dry_run {
            let change = format!("would leave it for the workers of {}", source.queue);
            let json = json!({
                "ok": true,
                "effect": Effect::WouldCreate.as_str(),
                "namespace": self.namespace.as_str(),
                "key": key.as_str(),
                "changes": [change],
            });
            context.printer.answer(&json, &format!("{key}: {change}"));
            return Ok(());
        }
        let door = Label::new(Door::Inbox.as_str());
        let door = door.map_err(|error| Failure::internal(error.to_string()))?;
        let request = request
            .namespace(self.namespace.clone())
            .door(door)
            .principal(desk.by.clone())
            .retention(source.retention);
        let to = Queueing::on(source.queue.clone())
            .priority(source.priority)
            .lane(source.lane.clone());
        let receipt = self.engine.submit(request, to).await?;
        let line = format!("{key}: {}", receipt.state.as_str());
        context.printer.answer(&receipt, &line);
        Ok(())
    }

    /// Says that there is nothing to do: the workers have it or get it.
    fn left_alone(&self, found: &Found, key: &Key) {
        let state = found.state().as_str();
        let json = json!({
            "ok": true,
            "effect": Effect::Noop.as_str(),
            "reason": "its workers have it or get it",
            "namespace": self.namespace.as_str(),
            "key": key.as_str(),
            "state": state,
        });
        let printer = &self.context.printer;
        printer.answer(&json, &format!("{key}: {state} already"));
    }
}

/// Names what a webhook and all its repeats have in common.
fn origin(key: &Key) -> Option<Key> {
    inbox_repeat(key, SECOND)
}

fn gone(found: &Found) -> Failure {
    let text = format!(
        "{}: it is past its retention, and its body was erased",
        found.key
    );
    Failure::new("expired", text)
        .hint("ask the sender to send it again under a new id")
        .about(&found.key)
}
