//! What the settings mean for the gateway: `[mcp]`, and a table for each tool.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use semel::core::identity::Pointer;
use semel::{Class, Effect, OnDoubt};
use semel_server::mcp::{Cancel, ToolPolicy, UpstreamPolicy, Verify};
use serde::Deserialize;

use super::Settings;
use super::nearest::only;
use crate::args::values;
use crate::failure::Failure;

/// What a file says of tools: `[mcp.tools.NAME]`.
pub(super) type Tools = BTreeMap<String, ToolPolicy>;

/// The members of a tool's table.
const MEMBERS: [&str; 12] = [
    "class",
    "challenge",
    "key_from",
    "fingerprint_ignore",
    "inject",
    "verify",
    "require_plan",
    "effect",
    "cancel",
    "on_doubt",
    "retry_within",
    "timeout",
];

/// A tool as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    class: Option<String>,
    challenge: bool,
    key_from: Vec<String>,
    fingerprint_ignore: Vec<String>,
    inject: Option<String>,
    verify: Option<WrittenVerify>,
    require_plan: bool,
    effect: Option<String>,
    cancel: Option<String>,
    on_doubt: Option<String>,
    retry_within: Option<String>,
    timeout: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenVerify {
    tool: String,
    #[serde(default)]
    arguments: toml::Table,
    pointer: String,
    equals: Option<toml::Value>,
    after: Option<String>,
}

/// Reads `[mcp.tools]`, or those of one server; `place` says which.
pub(super) fn tools(path: &Path, place: &str, table: &toml::Table) -> Result<Tools, Failure> {
    let mut tools = Tools::new();
    for (name, value) in table {
        let wrong =
            |text: String| Failure::input(format!("{}: {place}.{name}: {text}", path.display()));
        only(value, &MEMBERS, "a tool", &wrong)?;
        let written: Written = value
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
        tools.insert(name.clone(), written.read().map_err(wrong)?);
    }
    Ok(tools)
}

impl Written {
    fn read(self) -> Result<ToolPolicy, String> {
        let pointers = |texts: Vec<String>| -> Result<Vec<Pointer>, String> {
            texts.iter().map(|text| pointer(text)).collect()
        };
        let duration = |text: Option<String>| {
            text.map(|text| values::some_duration(&text).map_err(|error| error.to_string()))
                .transpose()
        };
        Ok(ToolPolicy {
            class: self.class.map(|word| class(&word)).transpose()?,
            challenge: self.challenge,
            key_from: pointers(self.key_from)?,
            fingerprint_ignore: pointers(self.fingerprint_ignore)?,
            inject: self.inject.map(|text| pointer(&text)).transpose()?,
            verify: self.verify.map(WrittenVerify::read).transpose()?,
            require_plan: self.require_plan,
            effect: self
                .effect
                .map(|word| Effect::parse(&word).ok_or_else(|| format!("`{word}` is no effect")))
                .transpose()?,
            cancel: match self.cancel.as_deref() {
                None | Some("drain") => Cancel::Drain,
                Some("forward") => Cancel::Forward,
                Some(other) => {
                    return Err(format!(
                        "cancel: `{other}` is neither `drain` nor `forward`"
                    ));
                }
            },
            on_doubt: self
                .on_doubt
                .map(|word| {
                    OnDoubt::parse(&word).ok_or_else(|| {
                        format!("on_doubt: `{word}` is not `hold`, `retry` or `probe`")
                    })
                })
                .transpose()?,
            retry_within: duration(self.retry_within)?,
            timeout: duration(self.timeout)?,
        })
    }
}

impl WrittenVerify {
    fn read(self) -> Result<Verify, String> {
        let arguments =
            serde_json::to_string(&self.arguments).map_err(|error| error.to_string())?;
        let equals = self.equals.map(|value| serde_json::to_string(&value));
        let equals = equals.transpose().map_err(|error| error.to_string())?;
        let pointer = pointer(&self.pointer)?;
        let verify = Verify::new(&self.tool, &arguments, pointer, equals.as_deref());
        let verify = verify.map_err(|error| format!("verify: {error}"))?;
        Ok(match self.after {
            Some(after) => {
                let after = values::duration(&after);
                verify.after(after.map_err(|error| format!("verify: after: {error}"))?)
            }
            None => verify,
        })
    }
}

fn pointer(text: &str) -> Result<Pointer, String> {
    Pointer::new(text).map_err(|error| format!("`{text}`: {error}"))
}

fn class(word: &str) -> Result<Class, String> {
    Class::parse(word)
        .ok_or_else(|| format!("class: `{word}` is not `safe`, `idempotent` or `unsafe`"))
}

impl Settings {
    /// Returns how the tools of a server are treated.
    pub(crate) fn mcp_policy(&self, trusts: bool) -> Result<UpstreamPolicy, Failure> {
        let ordinary = UpstreamPolicy::default();
        let paths = |name: &str, ordinary: Vec<Vec<String>>| {
            let list = self.list(name);
            if list.is_empty() {
                return Ok(ordinary);
            }
            // A path of one name is that name: most of them hold a slash.
            list.iter()
                .map(|text| serde_json::from_str(text).or_else(|_| Ok(vec![text.clone()])))
                .collect::<Result<_, Failure>>()
        };
        let lost_texts = self.list("mcp.lost_texts");
        Ok(UpstreamPolicy {
            trust_annotations: trusts || self.get("mcp.trust_annotations") == "on",
            default_class: self.parsed("mcp.class", class)?,
            call_id: paths("mcp.call_ids", ordinary.call_id)?,
            conversation: paths("mcp.conversations", ordinary.conversation)?,
            lost_texts: if lost_texts.is_empty() {
                ordinary.lost_texts
            } else {
                lost_texts
            },
            tools: self.tools.clone(),
            ..ordinary
        })
    }

    /// Returns how long the gateway waits: for an identical call, for the server, for what is under way
    /// when it ends.
    pub(crate) fn mcp_times(&self) -> Result<[Duration; 3], Failure> {
        Ok([
            self.parsed("mcp.wait", values::duration)?,
            self.parsed("mcp.timeout", values::some_duration)?,
            self.parsed("mcp.drain", values::duration)?,
        ])
    }
}
