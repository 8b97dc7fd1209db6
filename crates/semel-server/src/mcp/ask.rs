//! A `tools/call` as it is judged: who asks for what, and by what it can be recognised.

use std::borrow::Cow;
use std::fmt;

use axum::http::{HeaderMap, HeaderValue};
use semel::core::canonical;
use semel::core::identity::{BusinessKey, Call, ClientText, Door, Pointer, Scope};
use semel::core::{Fingerprint, Input, TextError};
use semel::{Key, Label};

use super::edit::{self, EditError};
use super::message::{Malformed, Message, quoted};
use super::policy::{MetaPath, ToolPolicy, UpstreamPolicy};
use super::seal::{Purpose, Seal};

/// The member of `_meta` with the caller's own key.
pub(crate) const KEY: &str = "dev.semel/key";
/// The member of `_meta` that names the operation to be done once more.
pub(crate) const REPEAT: &str = "dev.semel/repeat";
/// The argument that says the same, for models; it is not passed on.
pub(crate) const REPEAT_ARGUMENT: &str = "semel_repeat";
/// The member of `_meta` that asks what would happen.
pub(crate) const PREVIEW: &str = "dev.semel/preview";
/// The member of `_meta` with the token of a preview.
pub(crate) const PLAN: &str = "dev.semel/plan";

const KEY_HEADER: &str = "idempotency-key";
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The extension by which a request may be answered with a task.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Which half of the protocol's history a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25: a session begins with `initialize`.
    Legacy,
    /// From 2026-07-28 on: each request says for itself what it needs.
    Modern,
}

/// What a client can be asked and given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// It shows forms to a person.
    pub(crate) elicitation: bool,
    /// It takes a task for an answer.
    pub(crate) tasks: bool,
}

impl Capabilities {
    /// Reads what a client declares.
    pub(crate) fn read(json: &str) -> Self {
        let elicitation = edit::get(json, &["elicitation"]).and_then(edit::members);
        Self {
            // Without any mode it is the oldest one, forms.
            elicitation: elicitation
                .is_some_and(|modes| modes.is_empty() || modes.iter().any(|(it, _)| it == "form")),
            tasks: edit::get(json, &["extensions", TASKS]).is_some(),
        }
    }
}

/// What a session knows of its client before a call comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// What it speaks.
    pub(crate) era: Era,
    /// What it declared when the session began.
    pub(crate) capabilities: Capabilities,
}

impl Client {
    /// Reads what a request says of its client in `_meta`; of the rest the session knows.
    pub(crate) fn with(self, meta: &str) -> Self {
        let is_modern = edit::get(meta, &[PROTOCOL_VERSION]).is_some();
        let declared = edit::get(meta, &[CLIENT_CAPABILITIES]).map(Capabilities::read);
        Self {
            era: if is_modern { Era::Modern } else { self.era },
            capabilities: declared.unwrap_or(self.capabilities),
        }
    }
}

/// A call of a tool.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The tool.
    pub(crate) name: Label,
    /// What it is given, as it was written.
    pub(crate) arguments: Option<String>,
    /// Whether it goes on with a call that asked for input.
    pub(crate) is_continuation: bool,
    /// What the one that asked for input wants to have back.
    pub(crate) request_state: Option<String>,
    /// The input, as it was written.
    pub(crate) input_responses: Option<String>,
    /// Whether it wants to know what would happen, and nothing more.
    pub(crate) is_preview: bool,
    /// The token of a preview.
    pub(crate) plan: Option<String>,
    /// By what progress is told, as it was written.
    pub(crate) progress_token: Option<String>,
    /// Whether it asks for a task as its answer (2025-11-25).
    pub(crate) wants_task: bool,
    /// What its client speaks.
    pub(crate) era: Era,
    /// What its client can be asked and given.
    pub(crate) capabilities: Capabilities,
    params: String,
}

impl fmt::Debug for Ask {
    /// Shows which tool is called and not what it is given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Says why a call cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It has no parameters, or they are no object.
    #[error("`tools/call` has an object `params`")]
    NoParams,
    /// It names no tool.
    #[error("`params.name` is a text")]
    NoName,
    /// The name cannot be kept.
    #[error("`params.name`: {0}")]
    Name(TextError),
    /// The parameters have no single meaning.
    #[error("`params` do not read the same to everybody: {0}")]
    Ambiguous(canonical::Error),
    /// The arguments are too large to be recognised again.
    #[error("`params.arguments` has {size} bytes; a recorded call may have {limit}")]
    TooLarge {
        /// How many bytes there are.
        size: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A key breaks its rule.
    #[error("{place}: {why}")]
    Key {
        /// Where it was given.
        place: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl Refused {
    /// Returns the stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::NoParams | Self::NoName | Self::Name(_) | Self::Ambiguous(_) => "invalid_input",
            Self::TooLarge { .. } => "too_large",
            Self::Key { .. } => "invalid_key",
        }
    }
}

impl From<canonical::Error> for Refused {
    fn from(error: canonical::Error) -> Self {
        match error {
            canonical::Error::TooLarge { size, limit } => Self::TooLarge { size, limit },
            other => Self::Ambiguous(other),
        }
    }
}

impl Ask {
    /// Reads the parameters of a call. Whatever tool it is for, they must read the same to everybody:
    /// a name that is there twice would be judged as one tool and carried out as another.
    pub(crate) fn read(params: Option<&str>, client: Client) -> Result<Self, Refused> {
        let params = params.ok_or(Refused::NoParams)?;
        edit::check(params)?;
        let members = edit::members(params).ok_or(Refused::NoParams)?;
        let raw = |wanted: &str| {
            let found = members.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| *value).filter(|it| *it != "null")
        };
        let name: Option<String> = raw("name").and_then(|name| serde_json::from_str(name).ok());
        let name = Label::new(&name.ok_or(Refused::NoName)?).map_err(Refused::Name)?;
        let meta = raw("_meta").unwrap_or("{}");
        let client = client.with(meta);
        Ok(Self {
            name,
            arguments: raw("arguments").map(str::to_owned),
            is_continuation: raw("requestState").is_some() || raw("inputResponses").is_some(),
            request_state: raw("requestState").and_then(|it| serde_json::from_str(it).ok()),
            input_responses: raw("inputResponses").map(str::to_owned),
            is_preview: edit::is_true(meta, &[PREVIEW]),
            plan: edit::text(meta, &[PLAN]),
            progress_token: edit::get(meta, &["progressToken"]).map(str::to_owned),
            wants_task: raw("task").is_some(),
            era: client.era,
            capabilities: client.capabilities,
            params: params.to_owned(),
        })
    }

    /// Returns the conversation that the call belongs to, where its client hints at one.
    pub(crate) fn conversation(
        &self,
        headers: &HeaderMap,
        policy: &UpstreamPolicy,
    ) -> Option<String> {
        let in_meta = self.meta_text(&policy.conversation);
        let named = policy.conversation_headers.iter();
        let mut in_headers = named.filter_map(|name| headers.get(name)?.to_str().ok());
        in_meta
            .or_else(|| in_headers.next().map(str::to_owned))
            .filter(|hint| !hint.is_empty())
    }

    /// Returns what identity needs to know of the call.
    pub(crate) fn call(
        &self,
        scope: Scope,
        headers: &HeaderMap,
        policy: &UpstreamPolicy,
    ) -> Result<Call, Refused> {
        let tool = policy.tool(self.name.as_str());
        let input = self.input(tool);
        let arguments = self.arguments.as_deref().unwrap_or("{}");
        let business = BusinessKey::of(&self.name, &tool.key_from, arguments.as_bytes());
        let call_id = self.meta_text(&policy.call_id);
        Ok(Call {
            door: Door::Mcp,
            scope,
            explicit: self.explicit(headers)?,
            // What a harness sends beside the call is not the caller's fault: it is passed over.
            call_id: call_id.and_then(|id| ClientText::new(&id).ok()),
            business: business?,
            fingerprint: Fingerprint::of(&self.name, Input::Json(input.as_bytes()))?,
            in_flight: tool.in_flight(),
            repeat_of: self.repeat_of()?,
        })
    }

    /// Returns what the fingerprint is of: the arguments without what makes no difference, which a
    /// key is that the model made up and that is overwritten.
    pub(crate) fn input(&self, tool: &ToolPolicy) -> String {
        let mut input = self.arguments.clone().unwrap_or_else(|| "{}".to_owned());
        let mut without = |path: &[String]| {
            if let Ok(Cow::Owned(rest)) = edit::blank(&input, path) {
                input = rest;
            }
        };
        without(&[REPEAT_ARGUMENT.to_owned()]);
        let ignored = tool.fingerprint_ignore.iter().chain(&tool.inject);
        ignored.for_each(|pointer| without(pointer.tokens()));
        input
    }

    /// Returns the request as its server gets it: without what is said to the gateway, and with the
    /// key that is pinned. Where there is nothing of it, it is the same to the last byte.
    pub(crate) fn forwarded(
        &self,
        request: &Message,
        pin: Option<(&Pointer, &str)>,
    ) -> Result<Message, Unforwardable> {
        let mut params: Option<String> = None;
        let mut without = |path: &[&str]| {
            let current = params.as_deref().unwrap_or(&self.params);
            if let Cow::Owned(rest) = edit::remove(current, path)? {
                params = Some(rest);
            }
            Ok::<_, EditError>(())
        };
        without(&["arguments", REPEAT_ARGUMENT])?;
        if self.answers_gateway() {
            without(&["requestState"])?;
            without(&["inputResponses"])?;
        }
        if let Some((pointer, value)) = pin {
            let mut path = vec!["arguments"];
            path.extend(pointer.tokens().iter().map(String::as_str));
            let current = params.as_deref().unwrap_or(&self.params);
            params = Some(edit::set(current, &path, &quoted(value))?);
        }
        match params {
            Some(params) => Ok(request.with_params(&params)?),
            None => Ok(request.clone()),
        }
    }

    /// Says whether the call brings what a person said to the gateway's own question: its server knows
    /// nothing of that.
    fn answers_gateway(&self) -> bool {
        let state = self.request_state.as_deref();
        state.is_some_and(|state| Seal::is_for(state, Purpose::Question))
    }

    /// Finds the caller's own key: in `_meta`, beside the arguments, or in a header.
    fn explicit(&self, headers: &HeaderMap) -> Result<Option<ClientText>, Refused> {
        let places = [
            ("`_meta[\"dev.semel/key\"]`", &["_meta", KEY][..]),
            ("`params.idempotencyKey`", &["idempotencyKey"]),
        ];
        for (place, path) in places {
            let Some(raw) = edit::get(&self.params, path).filter(|it| *it != "null") else {
                continue;
            };
            let text: Option<String> = serde_json::from_str(raw).ok();
            let text = text.ok_or_else(|| invalid(place, "a key is a text"))?;
            return client_text(place, &text).map(Some);
        }
        let place = "the header `Idempotency-Key`";
        let mut values = headers.get_all(KEY_HEADER).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => {
                let text = header_key(value).map_err(|why| invalid(place, why))?;
                client_text(place, &text).map(Some)
            }
            (Some(_), Some(_)) => Err(invalid(place, "it is there twice")),
        }
    }

    fn repeat_of(&self) -> Result<Option<Key>, Refused> {
        let places = [
            ("`_meta[\"dev.semel/repeat\"]`", ["_meta", REPEAT]),
            (
                "the argument `semel_repeat`",
                ["arguments", REPEAT_ARGUMENT],
            ),
        ];
        for (place, path) in places {
            let Some(raw) = edit::get(&self.params, &path) else {
                continue;
            };
            let text: Option<String> = serde_json::from_str(raw).ok();
            // Models fill in what they need not: nothing is said by it.
            let is_empty = raw == "null" || text.as_deref() == Some("");
            if is_empty {
                continue;
            }
            let text = text.ok_or_else(|| invalid(place, "a key is a text"))?;
            let key = Key::new(&text).map_err(|error| invalid(place, error))?;
            return Ok(Some(key));
        }
        Ok(None)
    }

    /// Returns the first text at one of the places in `_meta`.
    fn meta_text(&self, paths: &[MetaPath]) -> Option<String> {
        let meta = edit::get(&self.params, &["_meta"])?;
        let mut texts = paths.iter().filter_map(|path| edit::text(meta, path));
        texts.find(|text| !text.is_empty())
    }
}

/// Says why a call cannot be passed on as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unforwardable {
    /// The key has no place in the arguments.
    #[error("the configured place for a key does not fit the arguments: {0}")]
    NoPlace(#[from] EditError),
    /// The message would break a rule.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

fn invalid(place: &'static str, why: impl ToString) -> Refused {
    Refused::Key {
        place,
        why: why.to_string(),
    }
}

fn client_text(place: &'static str, text: &str) -> Result<ClientText, Refused> {
    ClientText::new(text).map_err(|error| invalid(place, error))
}

/// Reads a key from a header: a structured field's string, or bare.
fn header_key(value: &HeaderValue) -> Result<String, &'static str> {
    let text = value
        .to_str()
        .map_err(|_| "a key is printable ASCII")?
        .trim();
    let Some(quoted) = text.strip_prefix('"') else {
        let is_bare = !text.contains(['"', ',', ';', ' ', '\t']);
        return if is_bare {
            Ok(text.to_owned())
        } else {
            Err("a key with `\"`, `,`, `;` or a space in it stands in double quotes")
        };
    };
    let mut key = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next() {
            Some('"') if rest.as_str().is_empty() => return Ok(key),
            Some('"') => return Err("nothing may follow the closing quote"),
            Some('\\') => match rest.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err("`\\` stands before `\"` and `\\` only"),
            },
            Some(plain) => key.push(plain),
            None => return Err("the closing quote is missing"),
        }
    }
}
