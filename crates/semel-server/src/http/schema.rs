//! The shapes of the answers, for the API's description: receipts, records and events are made by the
//! library, which knows nothing of OpenAPI.
#![expect(dead_code, reason = "these are only described, never made")]

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A stable code; each has a page at `/errors/{code}`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    InFlight,
    BreakerOpen,
    InDoubt,
    KeyReused,
    Dead,
    Expired,
    Fenced,
    InvalidKey,
    InvalidInput,
    TooLarge,
    NotFound,
    Unauthorized,
    Forbidden,
    RateLimited,
    StoreUnavailable,
    StoreUnusable,
    Internal,
}

/// Where an operation stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Pending,
    Running,
    Succeeded,
    Failed,
    Doubtful,
    Dead,
    Tombstone,
    Stub,
}

/// What repeating an action would do.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    Idempotent,
    Unsafe,
}

/// A state that can be asked for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AskedState)]
pub(crate) enum Asked {
    Pending,
    Running,
    Succeeded,
    Failed,
    Doubtful,
    Dead,
    Tombstone,
}

/// What happened to the world, or in a dry run what would.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    Created,
    Updated,
    Deleted,
    Noop,
    WouldCreate,
    WouldUpdate,
    WouldDelete,
    Unknown,
}

/// The answer to an attempt.
#[derive(Serialize, ToSchema)]
pub(crate) struct Receipt {
    /// Whether the operation ended in success.
    ok: bool,
    /// What this call did: a replay did nothing.
    effect: Effect,
    /// Whether the answer is that of an earlier attempt.
    replayed: bool,
    /// What the replayed attempt did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    original_effect: Option<Effect>,
    /// What a retried operation's earlier attempts did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    previous_effect: Option<Effect>,
    /// The policies that stand, where this call asked for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    policy_kept: Option<String>,
    /// What a dry run of a begin would be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decision: Option<String>,
    /// Whether nothing was done, and this is only what would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    dry_run: Option<bool>,
    /// What a dry run would change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    changes: Option<Vec<String>>,
    /// Why, in words.
    reason: Option<String>,
    namespace: String,
    key: String,
    name: Option<String>,
    state: State,
    /// The number of the attempt.
    attempt: Option<u32>,
    /// The fence of the newest attempt.
    fence: u64,
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[schema(format = DateTime)]
    settled_at: Option<String>,
    /// Whether a rule took something out of the answer; left out where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    redacted: Option<bool>,
    /// What the action answered.
    data: Option<Value>,
}

/// The answer to a webhook.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Received {
    /// What became of it.
    Receipt(Box<Receipt>),
    /// What Slack asked to hear.
    Challenge(Challenge),
}

/// What Slack asks an address to say before it sends anything there.
#[derive(Serialize, ToSchema)]
pub(crate) struct Challenge {
    challenge: String,
}

/// An operation; lists leave `attempts` and `data` out.
#[derive(Serialize, ToSchema)]
pub(crate) struct Record {
    namespace: String,
    key: String,
    client_key: Option<String>,
    name: Option<String>,
    state: State,
    ok: Option<bool>,
    effect: Option<Effect>,
    class: Option<String>,
    on_doubt: Option<String>,
    /// The SHA-256 of the probe that finds out whether a doubted effect happened.
    probe_digest: Option<String>,
    door: Option<String>,
    principal: Option<String>,
    queue: Option<String>,
    parent: Option<String>,
    attempt: Option<u32>,
    fence: u64,
    /// How many commands were accepted; operators' calls name it.
    version: u64,
    max_attempts: Option<u32>,
    fingerprint: String,
    #[schema(format = DateTime)]
    created_at: Option<String>,
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[schema(format = DateTime)]
    settled_at: Option<String>,
    #[schema(format = DateTime)]
    lease_until: Option<String>,
    #[schema(format = DateTime)]
    run_at: Option<String>,
    delivery: String,
    /// Which of the tasks that wait goes first; left out where it is no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    priority: Option<i32>,
    /// Whose task it is; left out where it is no task, or nobody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lane: Option<String>,
    /// What its worker is given, without secrets; left out of lists, and where it is no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// What the key was made from, where a door scopes keys: `explicit`, `call_id`, `business` or
    /// `fingerprint`; left out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key_source: Option<String>,
    /// Which of several intended repeats it is, where a door tells them apart; left out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    occurrence: Option<u32>,
    /// What has become of it, in the words of a door that scopes keys: `executed`, `resolved`, `in_doubt`,
    /// `in_progress` or `not_done`; left out elsewhere, and where the record does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decision: Option<String>,
    holder: Option<Holder>,
    resolved: Option<Resolved>,
    /// Whether a rule took something out of the answer; left out where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    redacted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    attempts: Option<Vec<Attempt>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

/// The process that holds an attempt.
#[derive(Serialize, ToSchema)]
pub(crate) struct Holder {
    host: String,
    pid: u32,
}

/// Who settled a doubt.
#[derive(Serialize, ToSchema)]
pub(crate) struct Resolved {
    by: String,
    #[schema(format = DateTime)]
    at: String,
    note: Option<String>,
}

/// One try.
#[derive(Serialize, ToSchema)]
pub(crate) struct Attempt {
    attempt: u32,
    fence: u64,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    verdict: Option<String>,
    error: Option<String>,
}

/// One accepted command.
#[derive(Serialize, ToSchema)]
pub(crate) struct Event {
    seq: u64,
    #[schema(format = DateTime)]
    at: String,
    namespace: Option<String>,
    key: Option<String>,
    command: String,
    state: Option<EventState>,
    fence: u64,
    by: Option<String>,
    note: Option<String>,
    events: Vec<String>,
}

/// Where an operation or a breaker stood after an event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventState {
    Pending,
    Running,
    Succeeded,
    Failed,
    Doubtful,
    Dead,
    Tombstone,
    Stub,
    Closed,
    Open,
    HalfOpen,
}

/// Where a breaker stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The thresholds of a breaker.
#[derive(Serialize, ToSchema)]
pub(crate) struct BreakerSettings {
    failure_rate: f64,
    minimum: u32,
    window_ms: u64,
    failures: Option<u32>,
    cool_down_ms: u64,
    cool_down_max_ms: u64,
}

/// The breaker of a target.
#[derive(Serialize, ToSchema)]
pub(crate) struct Breaker {
    namespace: String,
    name: String,
    state: BreakerState,
    #[schema(format = DateTime)]
    since: String,
    /// When a call may be tried that is refused now.
    #[schema(format = DateTime)]
    retry_at: Option<String>,
    calls: u32,
    failures: u32,
    failures_in_row: u32,
    times_opened: u32,
    by: Option<String>,
    note: Option<String>,
    settings: BreakerSettings,
    fence: u64,
    version: u64,
}

/// All breakers of a namespace, by their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct Breakers {
    items: Vec<Breaker>,
    next: Option<String>,
}

/// A breaker after an order.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangedBreaker {
    ok: bool,
    dry_run: Option<bool>,
    effect: Effect,
    #[serde(flatten)]
    breaker: Breaker,
}

/// A page of operations, the newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Records {
    items: Vec<Record>,
    /// What to give as `after` for the next page.
    next: Option<String>,
}

/// A page of events, the oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Events {
    items: Vec<Event>,
    /// What to give as `after` for the next page.
    next: Option<String>,
}
