//! What is configured about a server and its tools.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::core::identity::{Door, InFlight, Pointer};
use semel::{Class, Effect, OnDoubt};

use super::listed::Annotations;
use super::verify::Verify;

/// Names of members from the outermost on, within `_meta`.
pub type MetaPath = Vec<String>;

/// What is configured about a server.
#[derive(Clone, Debug)]
pub struct UpstreamPolicy {
    /// Whether what the server says about its tools is believed.
    pub trust_annotations: bool,
    /// The class of tools that nothing else is known of.
    pub default_class: Class,
    /// Where harnesses put a call id that stays the same across their retries; the first that is
    /// there counts.
    pub call_id: Vec<MetaPath>,
    /// Where clients put a hint which conversation a call belongs to.
    pub conversation: Vec<MetaPath>,
    /// Headers with such a hint, in lower case.
    pub conversation_headers: Vec<String>,
    /// Texts of failures behind which the effect may have happened: the tool lost the connection to
    /// what it works on. Case does not matter.
    pub lost_texts: Vec<String>,
    /// What is configured about its tools, by name.
    pub tools: BTreeMap<String, ToolPolicy>,
}

/// What servers say when they lost the connection to what they work on: they make a failure of what
/// they do not know.
const LOST_TEXTS: [&str; 17] = [
    "timed out",
    "timeout",
    "etimedout",
    "econnreset",
    "econnaborted",
    "epipe",
    "broken pipe",
    "socket hang up",
    "fetch failed",
    "connection reset",
    "connection closed",
    "connection lost",
    "deadline exceeded",
    "502",
    "503",
    "504",
    "bad gateway",
];

/// Call ids that harnesses are known to send.
const CALL_IDS: [&[&str]; 2] = [&["claudecode/toolUseId"], &["callId"]];

/// Names of conversations that clients are known to send.
const CONVERSATIONS: [&[&str]; 4] = [
    &["threadId"],
    &["antigravity.google/conversation_id"],
    &["ai.opencode/sessionID"],
    &["com.zcode/request-context", "session_id"],
];

const CONVERSATION_HEADERS: [&str; 1] = ["x-openhands-conversation-id"];

impl Default for UpstreamPolicy {
    fn default() -> Self {
        let path = |path: &&[&str]| path.iter().map(|&name| name.to_owned()).collect();
        Self {
            trust_annotations: false,
            default_class: Class::Unsafe,
            call_id: CALL_IDS.iter().map(path).collect(),
            conversation: CONVERSATIONS.iter().map(path).collect(),
            conversation_headers: CONVERSATION_HEADERS.map(str::to_owned).to_vec(),
            lost_texts: LOST_TEXTS.map(str::to_owned).to_vec(),
            tools: BTreeMap::new(),
        }
    }
}

/// What is configured about a tool.
#[derive(Clone, Debug)]
pub struct ToolPolicy {
    /// What repeating it would do.
    pub class: Option<Class>,
    /// Whether an identical call is asked about before it runs again.
    pub challenge: bool,
    /// The arguments that name the business at hand: the same values are the same operation.
    pub key_from: Vec<Pointer>,
    /// The arguments that make no difference, such as a reason in free words.
    pub fingerprint_ignore: Vec<Pointer>,
    /// The argument for the server's own idempotency key, which is overwritten with one value for
    /// each operation.
    pub inject: Option<Pointer>,
    /// How to find out whether a doubted call took effect.
    pub verify: Option<Verify>,
    /// Whether it runs only with the token of a preview.
    pub require_plan: bool,
    /// What it does when it succeeds, unless its result says so itself.
    pub effect: Option<Effect>,
    /// What becomes of a call that its client cancels.
    pub cancel: Cancel,
    /// What becomes of a doubt.
    pub on_doubt: Option<OnDoubt>,
    /// How long doubts may be sent again: at most as long as the server remembers its keys.
    pub retry_within: Option<Duration>,
    /// How long a call may take before it is given up as a doubt.
    pub timeout: Option<Duration>,
}

/// Says what becomes of a call that its client cancels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cancel {
    /// It goes on, and its outcome is kept for whoever asks again.
    #[default]
    Drain,
    /// The server is told; where it does not answer any more, nobody knows what happened.
    Forward,
}

/// Says where a tool's class comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The configuration of the tool.
    Config,
    /// What the server says of it, where that is believed.
    Annotation,
    /// Nothing is known of it.
    Default,
}

impl Why {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Annotation => "annotation",
            Self::Default => "default",
        }
    }
}

impl UpstreamPolicy {
    /// Returns what is configured about a tool; nothing is a configuration, too.
    #[must_use]
    pub fn tool(&self, name: &str) -> &ToolPolicy {
        static NOTHING: ToolPolicy = ToolPolicy::NOTHING;
        self.tools.get(name).unwrap_or(&NOTHING)
    }

    /// Says which class a tool has and why; `listed` is what its server says, where it was asked.
    #[must_use]
    pub fn class_of(&self, tool: &str, listed: Option<&Annotations>) -> (Class, Why) {
        if let Some(class) = self.tool(tool).class {
            return (class, Why::Config);
        }
        match listed.filter(|_| self.trust_annotations) {
            Some(hints) if hints.read_only => (Class::Safe, Why::Annotation),
            Some(hints) if hints.idempotent => (Class::Idempotent, Why::Annotation),
            Some(_) | None => (self.default_class, Why::Default),
        }
    }
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl ToolPolicy {
    const NOTHING: Self = Self {
        class: None,
        challenge: false,
        key_from: Vec::new(),
        fingerprint_ignore: Vec::new(),
        inject: None,
        verify: None,
        require_plan: false,
        effect: None,
        cancel: Cancel::Drain,
        on_doubt: None,
        retry_within: None,
        timeout: None,
    };

    /// Says what becomes of a doubt: as configured; else it is looked up where that is possible, and
    /// sent again where the server has a key to know it by.
    #[must_use]
    pub fn on_doubt(&self, class: Class) -> OnDoubt {
        let by_class = || semel::core::Policy::direct(class).on_doubt;
        match (self.on_doubt, &self.verify, &self.inject) {
            (Some(configured), _, _) => configured,
            (None, Some(_), _) => OnDoubt::Probe,
            (None, None, Some(_)) => OnDoubt::Retry,
            (None, None, None) => by_class(),
        }
    }

    /// Says what becomes of a call while an identical one is in flight.
    #[must_use]
    pub const fn in_flight(&self) -> InFlight {
        if self.challenge {
            InFlight::Challenge
        } else {
            Door::Mcp.in_flight()
        }
    }
}
