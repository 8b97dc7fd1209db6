//! Calls of the gateway's own tools.

use std::sync::Arc;

use semel::core::Note;
use semel::core::ledger::{Record, StateKind};
use semel::store::{Query, Stored};
use semel::view::RecordView;
use semel::{Effect, Error, Key, Label, Named, Scope};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::admin;
use super::super::ask::Ask;
use super::super::http::desk::Asked;
use super::super::message::Message;
use super::super::say;
use super::Gateway;
use crate::incident;

/// How many calls are listed unless told otherwise.
const LISTED: usize = 20;

/// The most calls that are listed.
const LISTED_MAX: usize = 50;

/// The most pages that are looked through for the caller's own calls: those of others may be many.
const PAGES_MAX: usize = 20;

#[derive(Debug, Deserialize)]
struct Status {
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct List {
    state: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    key: String,
    happened: bool,
    #[serde(default)]
    note: Option<String>,
}

impl Gateway {
    /// Answers a call of one of the gateway's own tools.
    pub(super) async fn administer(&self, request: &Message, asked: &Asked, ask: &Ask) -> Message {
        let id = request.id().unwrap_or("null");
        let arguments = ask.arguments.as_deref().unwrap_or("{}");
        let said = match ask.name.as_str() {
            admin::STATUS => self.status(asked, arguments).await,
            admin::LIST => self.recent(asked, arguments).await,
            _ => self.resolve(asked, arguments).await,
        };
        say::own_tool(id, ask.era, said)
    }

    async fn status(&self, asked: &Asked, arguments: &str) -> Result<String, String> {
        let Status { key } = read(arguments)?;
        let (key, record) = self.found(asked, &key).await?;
        let payload = self.engine.payload(&asked.namespace, &key);
        let data = payload.await.map_err(said)?;
        let now = self.engine.store().now();
        self.written(RecordView::detailed(&record, data.map(Arc::from), now))
    }

    async fn recent(&self, asked: &Asked, arguments: &str) -> Result<String, String> {
        let List { state, limit } = read(arguments)?;
        let states = match state {
            Some(word) => {
                vec![StateKind::parse(&word).ok_or_else(|| format!("`{word}` is no state"))?]
            }
            None => vec![],
        };
        let limit = limit.unwrap_or(LISTED).clamp(1, LISTED_MAX);
        let query = Query {
            namespace: Some(asked.namespace.clone()),
            door: Some("mcp".to_owned()),
            states,
            limit: LISTED_MAX,
            ..Query::default()
        };
        let (own, all) = self.own_calls(asked, query, limit).await?;
        let now = self.engine.store().now();
        let mut lines: Vec<String> = own
            .iter()
            .map(|stored| self.written(RecordView::of(&stored.record, now)))
            .collect::<Result<_, _>>()?;
        if lines.is_empty() {
            lines.push("there is none".to_owned());
        }
        if !all {
            lines.push("calls that are older were not looked at".to_owned());
        }
        Ok(lines.join("\n"))
    }

    /// Finds the caller's own among all calls; returns whether all were looked at that there was room for.
    async fn own_calls(
        &self,
        asked: &Asked,
        mut query: Query,
        wanted: usize,
    ) -> Result<(Vec<Stored>, bool), String> {
        let mut own = vec![];
        for _ in 0..PAGES_MAX {
            let page = self.engine.list(query.clone()).await.map_err(said)?;
            let found = page.items.into_iter();
            own.extend(found.filter(|stored| is_own(&stored.record, asked)));
            query.cursor = page.next;
            if page.next.is_none() || own.len() >= wanted {
                own.truncate(wanted);
                return Ok((own, true));
            }
        }
        Ok((own, false))
    }

    async fn resolve(&self, asked: &Asked, arguments: &str) -> Result<String, String> {
        if !asked.scope.includes(Scope::Operate) {
            let scope = asked.scope;
            return Err(format!(
                "a doubt is settled with a token of scope `operate`, and this one has `{scope}`; ask the person to run \
                 `semel resolve`"
            ));
        }
        let Resolve {
            key,
            happened,
            note,
        } = read(arguments)?;
        let (key, record) = self.found(asked, &key).await?;
        let by = Label::new("semel_resolve").map_err(|error| error.to_string())?;
        let mut operator = self
            .engine
            .operator(&asked.namespace, &key, record.version(), by);
        if let Some(note) = note {
            let note = Note::new(&note).map_err(|error| error.to_string())?;
            operator = operator.note(note);
        }
        let resolved = if happened {
            let effect = self.effect_of(&record).unwrap_or(Effect::Updated);
            operator.resolve_done(true, effect, None).await
        } else {
            operator.resolve_not_done().await
        };
        let receipt = resolved.map_err(said)?;
        Ok(match happened {
            true => format!("{key} is settled: it took effect, and is not done again."),
            false => format!(
                "{key} is settled: it did not take effect ({}). Call the tool again to do it.",
                receipt.state.as_str()
            ),
        })
    }

    /// Returns what a success of an operation's tool does, where that is configured. Of several servers two
    /// may have a tool of one name, and the record does not say whose it is.
    fn effect_of(&self, record: &Record) -> Option<Effect> {
        let name = &record.operation()?.spec.name;
        let [served] = self.about.catalogue.servers() else {
            return None;
        };
        served.policy.tool(name.as_str()).effect
    }

    /// Finds an operation of the caller's own, by its key or by what its client calls it; anothers' are not
    /// there.
    async fn found(&self, asked: &Asked, name: &str) -> Result<(Key, Arc<Record>), String> {
        let nothing = || format!("there is no call with the key `{name}`");
        let namespace = &asked.namespace;
        let own = |record: &Record| is_own(record, asked);
        let found = match self.engine.find_among(namespace, name, own).await {
            Ok(found) => found,
            Err(Error::InvalidKey(_)) => None,
            Err(error) => return Err(said(error)),
        };
        let Named { key, .. } = found.ok_or_else(nothing)?;
        // A call whose gateway is gone is in doubt, and can be resolved before its lease ends.
        let record = self
            .engine
            .notice_gone(namespace, &key)
            .await
            .map_err(said)?;
        let record = record.filter(|record| is_own(record, asked));
        Ok((key, record.ok_or_else(nothing)?))
    }

    fn written(&self, view: Option<RecordView>) -> Result<String, String> {
        let view = view.ok_or("it was forgotten")?;
        let view = view.shown(self.engine.redactor());
        serde_json::to_string(&view).map_err(|error| error.to_string())
    }
}

/// Says whether an operation is the caller's own.
pub(super) fn is_own(record: &Record, asked: &Asked) -> bool {
    record.operation().is_some_and(|operation| {
        let spec = &operation.spec;
        spec.door.as_ref().map(Label::as_str) == Some("mcp")
            && spec.principal.as_ref().map(Label::as_str) == asked.principal.as_deref()
    })
}

fn read<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|error| format!("the arguments are wrong: {error}"))
}

fn said(error: Error) -> String {
    let error = incident::conceal(error);
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}
