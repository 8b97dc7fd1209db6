//! The servers behind the gateway: a table `[mcp.servers.NAME]` for each.

use std::path::Path;

use semel::breaker::Target;
use semel_server::Url;
use semel_server::mcp::{Command, Environment, Served, Server};

use super::Settings;
use super::breakers::{self, Breakers};
use super::mcp::{self, Tools};
use super::nearest::only;
use crate::failure::Failure;

/// The members of a server's table.
const MEMBERS: [&str; 7] = [
    "command", "args", "env", "url", "headers", "tools", "breaker",
];

/// The longest name of a server: it stands before the names of tools, which may have 128 characters.
const NAME_MAX: usize = 32;

/// The most servers behind one gateway: each client may have to start all of them.
const SERVERS_MAX: usize = 64;

/// A server that a file names.
#[derive(Debug)]
pub(super) struct Written {
    name: String,
    server: Server,
    /// How its own tools are treated.
    tools: Tools,
    /// What keeps calls from it while it fails.
    breaker: Option<Target>,
}

/// Reads `[mcp.servers]`. Values of `env` and `headers` may be secret: no error shows them.
pub(super) fn servers(
    path: &Path,
    table: &toml::Table,
    breakers: &Breakers,
) -> Result<Vec<Written>, Failure> {
    if table.len() > SERVERS_MAX {
        let (file, count) = (path.display(), table.len());
        return Err(Failure::input(format!(
            "{file}: mcp.servers: {count} servers; there may be {SERVERS_MAX}"
        )));
    }
    let each = table.iter();
    each.map(|(name, value)| server(path, name, value, breakers))
        .collect()
}

fn server(
    path: &Path,
    name: &str,
    value: &toml::Value,
    breakers: &Breakers,
) -> Result<Written, Failure> {
    let place = format!("mcp.servers.{name}");
    let wrong = |text: String| Failure::input(format!("{}: {place}: {text}", path.display()));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        return Err(wrong(format!(
            "a server's name has 1 to {NAME_MAX} letters, digits, `-` or `_`"
        )));
    }
    only(value, &MEMBERS, "a server", &wrong)?;
    let nothing = toml::Table::new();
    let members = value.as_table().unwrap_or(&nothing);
    let server = match (members.get("command"), members.get("url")) {
        (Some(command), None) => by_command(command, members),
        (None, Some(url)) => by_url(url, members),
        (Some(_), Some(_)) => Err("it has `command` and `url`: it is one or the other".to_owned()),
        (None, None) => Err("it has neither `command` nor `url`".to_owned()),
    };
    let tools = match members.get("tools") {
        Some(toml::Value::Table(tools)) => mcp::tools(path, &format!("{place}.tools"), tools)?,
        Some(other) => {
            let found = other.type_str();
            return Err(wrong(format!("`tools` must be a table; it is a {found}")));
        }
        None => Tools::default(),
    };
    let breaker = members.get("breaker").map(|value| {
        let named = text("breaker", value)?;
        breakers::named(&named, breakers).map_err(|error| format!("`breaker`: {error}"))
    });
    Ok(Written {
        name: name.to_owned(),
        server: server.map_err(wrong)?,
        tools,
        breaker: breaker.transpose().map_err(wrong)?,
    })
}

fn by_command(command: &toml::Value, members: &toml::Table) -> Result<Server, String> {
    if members.contains_key("headers") {
        return Err("`headers` are for a server with a `url`".to_owned());
    }
    let program = text("command", command)?;
    let arguments = match members.get("args") {
        Some(toml::Value::Array(items)) => {
            let items = items.iter();
            items
                .map(|item| text("args", item))
                .collect::<Result<_, _>>()?
        }
        Some(other) => return Err(must_be("args", "an array of strings", other)),
        None => vec![],
    };
    let environment = pairs("env", members)?;
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if let Some((name, _)) = environment.iter().find(|(name, _)| !is_name(name)) {
        return Err(format!("`env`: `{name}` is no name of a variable"));
    }
    Ok(Server::Command(Command {
        program,
        arguments,
        environment: Environment(environment),
    }))
}

fn by_url(url: &toml::Value, members: &toml::Table) -> Result<Server, String> {
    for member in ["args", "env"] {
        if members.contains_key(member) {
            return Err(format!("`{member}` is for a server with a `command`"));
        }
    }
    let url = Url::parse(&text("url", url)?).map_err(|error| format!("`url`: {error}"))?;
    let headers = pairs("headers", members)?;
    Server::at(url, &headers).map_err(|error| format!("`headers`: {error}"))
}

fn text(member: &str, value: &toml::Value) -> Result<String, String> {
    let text = value.as_str();
    let text = text.ok_or_else(|| must_be(member, "a string, in quotes", value))?;
    if text.contains('\0') {
        return Err(format!("`{member}` has a NUL in it"));
    }
    Ok(text.to_owned())
}

fn pairs(member: &str, members: &toml::Table) -> Result<Vec<(String, String)>, String> {
    match members.get(member) {
        Some(toml::Value::Table(pairs)) => pairs
            .iter()
            .map(|(name, value)| Ok((name.clone(), text(&format!("{member}.{name}"), value)?)))
            .collect(),
        Some(other) => Err(must_be(member, "a table of strings", other)),
        None => Ok(vec![]),
    }
}

fn must_be(member: &str, wanted: &str, value: &toml::Value) -> String {
    let found = value.type_str();
    format!("`{member}` must be {wanted}; it is a {found}")
}

impl Settings {
    /// Returns the servers that the file names, with how their tools are treated: what is said of a tool at its server
    /// holds there instead of what is said of all tools of that name.
    pub(crate) fn mcp_servers(&self, trusts: bool) -> Result<Vec<Served>, Failure> {
        let policy = self.mcp_policy(trusts)?;
        let servers = self.servers.iter().map(|written| {
            let mut policy = policy.clone();
            policy.tools.extend(written.tools.clone());
            Served {
                server: written.server.clone(),
                name: written.name.clone(),
                policy,
                breaker: written.breaker.clone(),
            }
        });
        Ok(servers.collect())
    }
}
