//! Calls whose members depend on their verdict, as the API's description has them: one shape for each
//! verdict, so that what a description allows is what the server takes.
#![expect(dead_code, reason = "these are only described, never made")]

use serde_json::Value;
use utoipa::ToSchema;

use super::words::EffectWord;

/// Says that it was done.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
enum Done {
    Done,
}

/// Says that it was not done.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
enum NotDone {
    NotDone,
}

/// Says that nobody knows.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
enum Unknown {
    Unknown,
}

/// What an attempt learned.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Report {
    Done(ReportDone),
    NotDone(ReportNotDone),
    Unknown(ReportUnknown),
}

/// It took effect, or failed for good.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportDone {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    attempt_id: String,
    /// The fence of the grant.
    fence: u64,
    #[schema(inline)]
    verdict: Done,
    /// Whether it ended in success.
    #[schema(default = true)]
    ok: Option<bool>,
    /// What it did: `updated` where nothing is said of a success, `unknown` of a failure.
    effect: Option<EffectWord>,
    /// What it answered.
    data: Option<Value>,
    /// Only says what would happen.
    #[schema(default = false, required = false)]
    dry_run: bool,
}

/// It certainly took no effect: it may be tried again.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportNotDone {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    attempt_id: String,
    /// The fence of the grant.
    fence: u64,
    #[schema(inline)]
    verdict: NotDone,
    /// What went wrong.
    error: Option<String>,
    /// Whether trying again is pointless: the operation is dead at once.
    reject: Option<bool>,
    /// How long a task of a queue waits before its next attempt, at least: what a target said in its `Retry-After`.
    #[schema(maximum = 604_800_000_u64)]
    retry_after_ms: Option<u64>,
    /// Only says what would happen.
    #[schema(default = false, required = false)]
    dry_run: bool,
}

/// Nobody knows whether it took effect.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportUnknown {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    attempt_id: String,
    /// The fence of the grant.
    fence: u64,
    #[schema(inline)]
    verdict: Unknown,
    /// What went wrong.
    error: Option<String>,
    /// Only says what would happen.
    #[schema(default = false, required = false)]
    dry_run: bool,
}

/// What was found out about a doubt.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Resolution {
    Done(ResolveDone),
    NotDone(ResolveNotDone),
}

/// The effect happened, or the action failed.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveDone {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    /// The version of the record that was decided on.
    version: u64,
    #[schema(inline)]
    verdict: Done,
    /// Whether it ended in success.
    #[schema(default = true)]
    ok: Option<bool>,
    /// What it did.
    effect: Option<EffectWord>,
    /// What it answered.
    data: Option<Value>,
    /// Why.
    #[schema(
        min_length = 1,
        max_length = 1024,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    note: Option<String>,
    /// Only says what would happen.
    #[schema(default = false, required = false)]
    dry_run: bool,
}

/// The effect did not happen.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveNotDone {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    key: String,
    /// The version of the record that was decided on.
    version: u64,
    #[schema(inline)]
    verdict: NotDone,
    /// Why.
    #[schema(
        min_length = 1,
        max_length = 1024,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    note: Option<String>,
    /// Only says what would happen.
    #[schema(default = false, required = false)]
    dry_run: bool,
}
