//! Records and events as users see them: the JSON that the command line and the API answer with.

use std::sync::Arc;

use semel_core::identity::{Source, Upshot};
use semel_core::ledger::{
    Attempt, Command, Entry, Event, Operation, Record, Resolved, StateKind, Tombstone,
};
use semel_core::{Digest, Effect, Fingerprint, Key, Label, Namespace, Note, Redactor, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::receipt::{as_text, as_text_option, is_false, is_redacted, json_of, state_word};
use crate::store::Logged;

pub use crate::answer_view::{AnswerBody, AnswerView};
pub use crate::token_view::TokenView;

/// An operation as of a moment: a lease that has ended by then is a doubt, written or not.
///
/// Serialized, it is the Record object; what is absent is null.
#[derive(Clone, Debug, Serialize)]
pub struct RecordView {
    /// The wall.
    #[serde(serialize_with = "as_text")]
    pub namespace: Namespace,
    /// The key.
    #[serde(serialize_with = "as_text")]
    pub key: Key,
    /// What the client called it, where a door scopes keys.
    #[serde(serialize_with = "as_text_option")]
    pub client_key: Option<Note>,
    /// What is done.
    #[serde(serialize_with = "as_text_option")]
    pub name: Option<Label>,
    /// Where it stands.
    #[serde(serialize_with = "state_word")]
    pub state: StateKind,
    /// Whether it ended in success, once it has ended.
    pub ok: Option<bool>,
    /// What it did: nothing is said while it has done nothing, and `unknown` where nobody knows.
    #[serde(serialize_with = "as_text_option")]
    pub effect: Option<Effect>,
    /// What repeating it would do.
    pub class: Option<&'static str>,
    /// What a caller meets in doubt.
    pub on_doubt: Option<&'static str>,
    /// The SHA-256 of the probe that finds out whether a doubted effect happened.
    #[serde(serialize_with = "as_text_option")]
    pub probe_digest: Option<Digest>,
    /// The way in.
    #[serde(serialize_with = "as_text_option")]
    pub door: Option<Label>,
    /// On whose behalf.
    #[serde(serialize_with = "as_text_option")]
    pub principal: Option<Label>,
    /// Who carries it out, when it is not the caller.
    #[serde(serialize_with = "as_text_option")]
    pub queue: Option<Label>,
    /// The key of the operation that it is a step of.
    #[serde(serialize_with = "as_text_option")]
    pub parent: Option<Key>,
    /// How many attempts there were since the last fresh start.
    pub attempt: Option<u32>,
    /// The fence of the newest attempt.
    pub fence: u64,
    /// How many commands were accepted.
    pub version: u64,
    /// How many attempts there may be.
    pub max_attempts: Option<u32>,
    /// Name and input, hashed.
    #[serde(serialize_with = "as_text")]
    pub fingerprint: Fingerprint,
    /// When the first command was accepted.
    #[serde(serialize_with = "as_text_option")]
    pub created_at: Option<Timestamp>,
    /// When the newest attempt began.
    #[serde(serialize_with = "as_text_option")]
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    #[serde(serialize_with = "as_text_option")]
    pub settled_at: Option<Timestamp>,
    /// Until when the running attempt may act.
    #[serde(serialize_with = "as_text_option")]
    pub lease_until: Option<Timestamp>,
    /// Before this time no attempt may begin.
    #[serde(serialize_with = "as_text_option")]
    pub run_at: Option<Timestamp>,
    /// Whether the caller got the answer.
    pub delivery: &'static str,
    /// Which of the tasks that wait goes first; left out where it is no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// Whose task it is; left out where it is no task, or nobody's.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "as_text_option"
    )]
    pub lane: Option<Label>,
    /// What the key was made from, where a door scopes keys; left out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_source: Option<&'static str>,
    /// Which of several intended repeats it is, where a door tells them apart; left out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u32>,
    /// What has become of it, in the words of a door that scopes keys; left out elsewhere, and where the
    /// record does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// Who holds, or held, the newest attempt.
    pub holder: Option<HolderView>,
    /// Who settled the last doubt.
    pub resolved: Option<ResolvedView>,
    /// The remembered attempts, oldest first; left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<AttemptView>>,
    /// Whether a rule took something out of the answer; left out where none did.
    #[serde(skip_serializing_if = "is_false")]
    pub redacted: bool,
    /// What its worker is given, without secrets; left out of lists, and where it is no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
    /// What it answered; left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
}

/// The process that holds an attempt.
#[derive(Clone, Debug, Serialize)]
pub struct HolderView {
    /// The host's name.
    #[serde(serialize_with = "as_text")]
    pub host: Label,
    /// The process id there.
    pub pid: u32,
}

/// Who settled a doubt.
#[derive(Clone, Debug, Serialize)]
pub struct ResolvedView {
    /// The person or the probe.
    #[serde(serialize_with = "as_text")]
    pub by: Label,
    /// When.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// Why.
    #[serde(serialize_with = "as_text_option")]
    pub note: Option<Note>,
}

/// One try.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptView {
    /// Its number.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
    /// When it began.
    #[serde(serialize_with = "as_text")]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(serialize_with = "as_text_option")]
    pub ended_at: Option<Timestamp>,
    /// What it said last.
    pub verdict: Option<&'static str>,
    /// What went wrong.
    #[serde(serialize_with = "as_text_option")]
    pub error: Option<Note>,
}

/// A stored answer.
#[derive(Clone, Debug)]
pub enum Data {
    /// One over HTTP.
    Answer(AnswerView),
    /// Any other one: in JSON it is itself where it is JSON, and null where it is not.
    Other(Option<Arc<[u8]>>),
}

impl Data {
    fn of(stored: Option<Arc<[u8]>>) -> Self {
        match stored.as_deref().and_then(AnswerView::read) {
            Some(answer) => Self::Answer(answer),
            None => Self::Other(stored),
        }
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Answer(answer) => answer.serialize(serializer),
            Self::Other(stored) => {
                let json = stored.as_deref().and_then(json_of);
                json.serialize(serializer)
            }
        }
    }
}

impl RecordView {
    /// Shows a record as lists do; `None` when it has forgotten even its key, or is no operation.
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Option<Self> {
        match record {
            Record::Operation(operation) => Some(Self::operation(&operation.judged_at(now))),
            Record::Tombstone(tombstone) => Some(Self::tombstone(tombstone)),
            Record::Stub(_) | Record::Breaker(_) => None,
        }
    }

    /// Shows a record with its attempts and its answer.
    #[must_use]
    pub fn detailed(record: &Record, data: Option<Arc<[u8]>>, now: Timestamp) -> Option<Self> {
        let attempts = match record {
            Record::Operation(operation) => {
                let judged = operation.judged_at(now);
                judged.attempts.iter().map(AttemptView::of).collect()
            }
            Record::Tombstone(_) | Record::Stub(_) | Record::Breaker(_) => vec![],
        };
        Some(Self {
            attempts: Some(attempts),
            data: Some(Data::of(data)),
            ..Self::of(record, now)?
        })
    }

    /// Adds what a worker is given, as far as it may be shown: JSON, or else a text.
    #[must_use]
    pub fn given(mut self, input: Option<&[u8]>, redactor: &Redactor) -> Self {
        self.input = input.and_then(|input| {
            let text = String::from_utf8_lossy(input);
            let shown = redactor.text(&text).into_owned();
            let text = |shown: String| serde_json::to_string(&shown).unwrap_or_default();
            RawValue::from_string(shown.clone())
                .or_else(|_| RawValue::from_string(text(shown)))
                .ok()
        });
        self
    }

    fn operation(operation: &Operation) -> Self {
        let spec = &operation.spec;
        let latest = operation.latest();
        let settled = operation.settled();
        let holder = latest.and_then(|attempt| attempt.holder.as_ref());
        let task = operation.task.as_deref();
        // A key of that shape may have come in by another door as it is.
        let came_by = |door: &Label| spec.key.as_str().starts_with(&format!("{door}/"));
        let source = Source::of(&spec.key).filter(|_| spec.door.as_ref().is_some_and(came_by));
        Self {
            namespace: spec.namespace.clone(),
            key: spec.key.clone(),
            client_key: spec.client_key.clone(),
            name: Some(spec.name.clone()),
            state: operation.state.kind(),
            ok: settled.map(|settled| settled.outcome.ok),
            effect: effect_of(operation),
            class: Some(spec.policy.class.as_str()),
            on_doubt: Some(spec.policy.on_doubt.as_str()),
            probe_digest: spec.probe_digest,
            door: spec.door.clone(),
            principal: spec.principal.clone(),
            queue: operation.queue.clone(),
            parent: spec.parent.as_ref().map(|parent| parent.key.clone()),
            attempt: Some(operation.attempt),
            fence: operation.fence.0,
            version: operation.version.0,
            max_attempts: spec.policy.max_attempts.map(std::num::NonZero::get),
            fingerprint: spec.fingerprint,
            created_at: Some(operation.created_at),
            started_at: latest.map(|attempt| attempt.started_at),
            settled_at: settled.map(|settled| settled.at),
            lease_until: operation.lease_until(),
            run_at: operation.run_at,
            delivery: operation.delivery.as_str(),
            priority: task.map(|task| task.priority.get()),
            lane: task.and_then(|task| task.lane.clone()),
            key_source: source.map(Source::as_str),
            occurrence: source.map(|_| spec.occurrence),
            decision: source.and_then(|_| Some(Upshot::of(operation)?.as_str())),
            holder: holder.map(|holder| HolderView {
                host: holder.host.clone(),
                pid: holder.pid,
            }),
            resolved: operation.resolved.as_ref().map(ResolvedView::of),
            attempts: None,
            input: None,
            redacted: is_redacted(operation),
            data: None,
        }
    }

    fn tombstone(tombstone: &Tombstone) -> Self {
        let source = Source::of(&tombstone.key);
        Self {
            namespace: tombstone.namespace.clone(),
            key: tombstone.key.clone(),
            client_key: None,
            name: None,
            state: StateKind::Tombstone,
            ok: Some(tombstone.ok),
            effect: Some(tombstone.effect),
            class: None,
            on_doubt: None,
            probe_digest: None,
            door: None,
            principal: None,
            queue: None,
            parent: None,
            attempt: None,
            fence: tombstone.fence.0,
            version: tombstone.version.0,
            max_attempts: None,
            fingerprint: tombstone.fingerprint,
            created_at: None,
            started_at: None,
            settled_at: Some(tombstone.settled_at),
            lease_until: None,
            run_at: None,
            delivery: tombstone.delivery.as_str(),
            priority: None,
            lane: None,
            key_source: source.map(Source::as_str),
            occurrence: source.map(|_| tombstone.occurrence),
            decision: None,
            holder: None,
            resolved: None,
            attempts: None,
            input: None,
            redacted: false,
            data: None,
        }
    }

    /// Returns it as it may be shown: the headers of an answer are stored as they are, as they must be told again.
    #[must_use]
    pub fn shown(mut self, redactor: &Redactor) -> Self {
        if let Some(Data::Answer(answer)) = self.data {
            self.data = Some(Data::Answer(answer.shown(redactor)));
        }
        self
    }
}

/// Says what an operation did, as far as that is known.
fn effect_of(operation: &Operation) -> Option<Effect> {
    if let Some(settled) = operation.settled() {
        return Some(settled.outcome.effect);
    }
    match operation.state.kind() {
        StateKind::Doubtful => Some(Effect::Unknown),
        // Dead always means: not applied.
        StateKind::Dead => Some(Effect::Noop),
        StateKind::Pending
        | StateKind::Running
        | StateKind::Succeeded
        | StateKind::Failed
        | StateKind::Tombstone
        | StateKind::Stub
        | StateKind::Breaker(_) => operation.open_since().map(|_| Effect::Unknown),
    }
}

impl ResolvedView {
    fn of(resolved: &Resolved) -> Self {
        Self {
            by: resolved.by.clone(),
            at: resolved.at,
            note: resolved.note.clone(),
        }
    }
}

impl AttemptView {
    fn of(attempt: &Attempt) -> Self {
        Self {
            attempt: attempt.number,
            fence: attempt.fence.0,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            verdict: attempt.verdict.map(semel_core::VerdictKind::as_str),
            error: attempt.error.clone(),
        }
    }
}

/// One accepted command.
///
/// Serialized, it is the Event object; what is absent is null.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// Its number in the log.
    pub seq: u64,
    /// When it was accepted.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The wall, unless the operation was forgotten.
    #[serde(serialize_with = "as_text_option")]
    pub namespace: Option<Namespace>,
    /// The key, unless it was forgotten.
    #[serde(serialize_with = "as_text_option")]
    pub key: Option<Key>,
    /// What was asked; of a breaker, what became of it.
    pub command: &'static str,
    /// The state afterwards, if anything is stored.
    pub state: Option<&'static str>,
    /// The fence afterwards.
    pub fence: u64,
    /// Who gave an operator's command.
    #[serde(serialize_with = "as_text_option")]
    pub by: Option<Label>,
    /// Why, as they said.
    #[serde(serialize_with = "as_text_option")]
    pub note: Option<Note>,
    /// What it did: a waived doubt, a holder that was gone, a late report.
    #[serde(serialize_with = "event_words")]
    pub events: Vec<Event>,
}

fn event_words<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(|event| event.as_str()))
}

/// Says what was asked. Of breakers only what happened is of interest: most of it nobody asked for.
fn command_of(entry: &Entry) -> &'static str {
    match (&entry.command, entry.events.first()) {
        (Command::Breaker(_), Some(event)) => event.as_str(),
        (command, _) => command.name(),
    }
}

impl EventView {
    /// Shows a log entry of the operation with this name.
    #[must_use]
    pub fn of(logged: &Logged, name: Option<(Namespace, Key)>) -> Self {
        let entry = &logged.entry;
        let (namespace, key) = name.unzip();
        Self {
            seq: logged.seq,
            at: entry.at,
            namespace,
            key,
            command: command_of(entry),
            state: entry.state.map(StateKind::as_str),
            fence: entry.fence.0,
            by: entry.command.by().cloned(),
            note: entry.command.note().cloned(),
            events: entry.events.clone(),
        }
    }
}
