//! The tools that a server lists: what it says of them, and what that is worth.

use serde_json::Value;

use super::ask::REPEAT_ARGUMENT;
use super::{edit, schema};

/// The largest input schema that is remembered, in bytes: a server may list any number of tools.
const SCHEMA_MAX: usize = 64 * 1024;

/// A tool as its server lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What its server hints at.
    pub annotations: Annotations,
    /// Whether its results are held to a schema.
    pub has_output_schema: bool,
    /// The schema of its arguments, where it is small enough to be remembered.
    pub input_schema: Option<String>,
    /// Arguments that look like idempotency keys of the server's own, as JSON pointers.
    pub native_keys: Vec<String>,
}

/// What a server hints at about a tool; absent hints say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: bool,
    /// Repeating it with the same arguments changes nothing more.
    pub idempotent: bool,
}

/// Names of arguments that carry a key, without case and separators.
const KEY_NAMES: [&str; 7] = [
    "idempotencykey",
    "idempotencytoken",
    "idempotenttoken",
    "clienttoken",
    "clientrequestid",
    "clientrequesttoken",
    "requestid",
];

impl Listed {
    /// Reads the tools in the result of `tools/list`; what has no name is passed over.
    #[must_use]
    pub fn read_all(result: &str) -> Vec<Self> {
        let tools = edit::get(result, &["tools"]).and_then(edit::items);
        let tools = tools.unwrap_or_default();
        tools.into_iter().filter_map(Self::read).collect()
    }

    /// Reads one tool.
    #[must_use]
    pub fn read(tool: &str) -> Option<Self> {
        let input_schema = edit::get(tool, &["inputSchema"]);
        Some(Self {
            name: edit::text(tool, &["name"])?,
            annotations: Annotations {
                read_only: edit::is_true(tool, &["annotations", "readOnlyHint"]),
                idempotent: edit::is_true(tool, &["annotations", "idempotentHint"]),
            },
            has_output_schema: edit::get(tool, &["outputSchema"]).is_some(),
            input_schema: input_schema
                .filter(|schema| schema.len() <= SCHEMA_MAX)
                .map(str::to_owned),
            native_keys: native_keys(input_schema.unwrap_or("{}")),
        })
    }

    /// Says whether arguments certainly do not fit the tool's input schema.
    ///
    /// It is asked only about calls that the server refused with -32602: then the schema explains the refusal, and
    /// nothing ran. A server that reads `"5"` where its schema has a number does not refuse such a call.
    #[must_use]
    pub fn refutes(&self, arguments: Option<&str>) -> bool {
        let Ok(arguments) = serde_json::from_str::<Value>(arguments.unwrap_or("{}")) else {
            return true;
        };
        let schema = self.input_schema.as_deref().unwrap_or("true");
        let schema = serde_json::from_str(schema).unwrap_or(Value::Bool(true));
        !arguments.is_object() || schema::violates(&schema, &arguments)
    }
}

/// What models are told about the argument that asks for a second one.
const REPEAT_SCHEMA: &str = r#"{"type":"string","description":"Only when an answer says so: the key of the earlier call that is to be done once more."}"#;

/// Adds the argument that asks for a second one to the tools that are asked about before they run again;
/// the rest of the list stays what it is.
pub(crate) fn with_repeat_argument(result: &str, is_asked_about: impl Fn(&str) -> bool) -> String {
    let tools = edit::get(result, &["tools"]).and_then(edit::items);
    let tools = tools.unwrap_or_default().into_iter().enumerate();
    let challenged = tools.filter(|(_, tool)| {
        let name = edit::text(tool, &["name"]);
        name.is_some_and(|name| is_asked_about(&name))
    });
    challenged.fold(result.to_owned(), |list, (at, _)| {
        let at = at.to_string();
        let path = ["tools", &at, "inputSchema", "properties", REPEAT_ARGUMENT];
        // A list that cannot be changed is passed on: what the client sends is taken all the same.
        edit::set(&list, &path, REPEAT_SCHEMA).unwrap_or(list)
    })
}

/// Finds the arguments of text, at the top and one step below, that are named like a key.
fn native_keys(schema: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, property) in properties(schema) {
        if is_key(&name, property) {
            found.push(format!("/{}", token(&name)));
        }
        for (inner, below) in properties(property) {
            if is_key(&inner, below) {
                found.push(format!("/{}/{}", token(&name), token(&inner)));
            }
        }
    }
    found
}

fn properties(schema: &str) -> Vec<(String, &str)> {
    let members = edit::get(schema, &["properties"]).and_then(edit::members);
    let members = members.unwrap_or_default().into_iter();
    members.map(|(name, it)| (name.into_owned(), it)).collect()
}

fn is_key(name: &str, property: &str) -> bool {
    let plain = name.chars().filter(|c| c.is_ascii_alphanumeric());
    let plain: String = plain.map(|c| c.to_ascii_lowercase()).collect();
    let is_text = match edit::get(property, &["type"]) {
        Some(kind) => kind.contains("\"string\""),
        None => true,
    };
    is_text && KEY_NAMES.contains(&plain.as_str())
}

fn token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
