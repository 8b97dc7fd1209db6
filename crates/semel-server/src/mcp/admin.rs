//! The gateway's own tools, for hosts whose people have no terminal. Off unless asked for.

/// A tool of the gateway's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTool {
    pub(crate) name: &'static str,
    /// As it is listed.
    pub(crate) listed: &'static str,
}

pub(crate) const STATUS: &str = "semel_status";
pub(crate) const LIST: &str = "semel_list";
pub(crate) const RESOLVE: &str = "semel_resolve";

/// All of them.
pub(crate) const TOOLS: [OwnTool; 3] = [
    OwnTool {
        name: STATUS,
        listed: r#"{"name":"semel_status","title":"What became of a call","description":"Says what is known of a call that went through semel: whether it took effect, when, and with what answer.","inputSchema":{"type":"object","properties":{"key":{"type":"string","description":"The key that semel named."}},"required":["key"]},"annotations":{"readOnlyHint":true}}"#,
    },
    OwnTool {
        name: LIST,
        listed: r#"{"name":"semel_list","title":"Recent calls","description":"Lists recent calls of this server's tools, the newest first; with state doubtful those of which nobody knows whether they took effect.","inputSchema":{"type":"object","properties":{"state":{"type":"string","enum":["pending","running","succeeded","failed","doubtful","dead"]},"limit":{"type":"integer","minimum":1,"maximum":50}}},"annotations":{"readOnlyHint":true}}"#,
    },
    OwnTool {
        name: RESOLVE,
        listed: r#"{"name":"semel_resolve","title":"Settle a doubt","description":"Settles a call of which nobody knew whether it took effect. Use it only after you looked, or the person told you.","inputSchema":{"type":"object","properties":{"key":{"type":"string","description":"The key that semel named."},"happened":{"type":"boolean","description":"Whether it took effect."},"note":{"type":"string","description":"How that is known."}},"required":["key","happened"]},"annotations":{"destructiveHint":false,"idempotentHint":true}}"#,
    },
];
