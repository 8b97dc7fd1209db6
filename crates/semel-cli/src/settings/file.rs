//! The settings file: `semel.toml`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::breakers;
use super::inbox;
use super::known::Kind;
use super::mcp;
use super::nearest::nearest;
use super::proxy;
use super::queues;
use super::servers;
use super::{SETTINGS, Variable, named, user_directory};
use crate::failure::Failure;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) path: PathBuf,
    pub(super) values: BTreeMap<String, String>,
    pub(super) tools: mcp::Tools,
    pub(super) servers: Vec<servers::Written>,
    pub(super) proxy: proxy::Written,
    pub(super) breakers: breakers::Breakers,
    pub(super) queues: queues::Queues,
    pub(super) inbox: inbox::Inbox,
}

/// Reads the file that was named, or else `./semel.toml`, or else the user's own.
pub(super) fn read(flag: Option<&Path>, variable: Variable<'_>) -> Result<Said, Failure> {
    let asked_for = flag
        .map(Path::to_path_buf)
        .or_else(|| named(variable, "SEMEL_CONFIG").map(PathBuf::from));
    if let Some(path) = asked_for {
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        return parse(path, &text);
    }
    let custom = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".config"
    };
    let own = user_directory(variable, "XDG_CONFIG_HOME", custom)
        .map(|directory| directory.join("semel/semel.toml"));
    for path in [Some(PathBuf::from("semel.toml")), own]
        .into_iter()
        .flatten()
    {
        match std::fs::read_to_string(&path) {
            Ok(text) => return parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(unreadable(&path, &error)),
        }
    }
    Ok(Said::default())
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("{} cannot be read: {error}", path.display()))
}

pub(super) fn parse(path: PathBuf, text: &str) -> Result<Said, Failure> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::input(format!(
            "{}, line {line}: {}",
            path.display(),
            error.message()
        ))
    })?;
    let routes = routes(&path, &mut table)?;
    let profiles = taken(&path, &mut table, "proxy", "profiles")?;
    let tools = taken(&path, &mut table, "mcp", "tools")?;
    let servers = taken(&path, &mut table, "mcp", "servers")?;
    let breakers = breakers::breakers(&path, &tables(&path, &mut table, "breakers")?)?;
    let queues = queues::queues(&path, &tables(&path, &mut table, "queues")?, &breakers)?;
    let inbox = inbox::inbox(&path, &tables(&path, &mut table, "inbox")?)?;
    let proxy = proxy::proxy(&path, &routes, &profiles, &breakers)?;
    let (tools, servers) = (
        mcp::tools(&path, "mcp.tools", &tools)?,
        servers::servers(&path, &servers, &breakers)?,
    );
    let mut values = BTreeMap::new();
    flatten(&path, "", &table, &mut values)?;
    Ok(Said {
        path,
        values,
        tools,
        servers,
        proxy,
        breakers,
        queues,
        inbox,
    })
}

/// Takes out a section whose members have names of their own.
fn tables(path: &Path, table: &mut toml::Table, name: &str) -> Result<toml::Table, Failure> {
    match table.remove(name) {
        Some(toml::Value::Table(tables)) => Ok(tables),
        Some(other) => {
            let (file, found) = (path.display(), other.type_str());
            let text = format!("{file}: `{name}` must be a table; it is a {found}");
            Err(Failure::input(text).hint(format!("write `[{name}.NAME]` above each")))
        }
        None => Ok(toml::Table::new()),
    }
}

/// Takes out the routes of the proxy.
fn routes(path: &Path, table: &mut toml::Table) -> Result<Vec<toml::Value>, Failure> {
    let section = table.get_mut("proxy").and_then(toml::Value::as_table_mut);
    match section.and_then(|section| section.remove("route")) {
        Some(toml::Value::Array(routes)) => Ok(routes),
        Some(other) => {
            let (file, found) = (path.display(), other.type_str());
            let text = format!("{file}: `proxy.route` must be an array of tables; it is a {found}");
            Err(Failure::input(text).hint("write `[[proxy.route]]` above each"))
        }
        None => Ok(vec![]),
    }
}

/// Takes a table out of a section whose members have names of their own: they are no settings that everybody knows.
fn taken(
    path: &Path,
    table: &mut toml::Table,
    section: &str,
    name: &str,
) -> Result<toml::Table, Failure> {
    let found = table.get_mut(section).and_then(toml::Value::as_table_mut);
    match found.and_then(|found| found.remove(name)) {
        Some(toml::Value::Table(taken)) => Ok(taken),
        Some(other) => {
            let (file, found) = (path.display(), other.type_str());
            Err(Failure::input(format!(
                "{file}: `{section}.{name}` must be a table; it is a {found}"
            )))
        }
        None => Ok(toml::Table::new()),
    }
}

/// Writes `[run] lease = "5s"` as `run.lease`; a name that nobody knows is an error.
fn flatten(
    path: &Path,
    prefix: &str,
    table: &toml::Table,
    values: &mut BTreeMap<String, String>,
) -> Result<(), Failure> {
    for (key, value) in table {
        let name = match format!("{prefix}{key}") {
            // A file cannot have `store = "…"` and `[store]`: in the table, the store itself is its URL.
            name if name == "store.url" => "store".to_owned(),
            name => name,
        };
        if let toml::Value::Table(inner) = value {
            let section = format!("{name}.");
            if SETTINGS
                .iter()
                .any(|setting| setting.name.starts_with(&section))
            {
                flatten(path, &section, inner, values)?;
                continue;
            }
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let unknown = Failure::input(format!("{}: unknown setting `{name}`", path.display()));
            let known = SETTINGS.iter().map(|setting| setting.name);
            let known = known.chain([
                "store.url",
                "mcp.tools",
                "mcp.servers",
                "proxy.route",
                "proxy.profiles",
                "breakers",
                "queues",
                "inbox",
            ]);
            return Err(match nearest(&name, known) {
                Some(near) => unknown.hint(format!("did you mean `{near}`?")),
                None => unknown.hint("`semel config show` lists all settings"),
            });
        };
        let text = written(value, setting.kind).ok_or_else(|| {
            let (file, found) = (path.display(), value.type_str());
            let wanted = match setting.kind {
                Kind::List => "an array of strings of one line each",
                Kind::Number => "a whole number",
                Kind::Plain | Kind::Secret => "a string, in quotes",
            };
            Failure::input(format!(
                "{file}: `{name}` must be {wanted}; it is a {found}"
            ))
        })?;
        values.insert(name, text);
    }
    Ok(())
}

/// Returns a value as the environment would have it.
fn written(value: &toml::Value, kind: Kind) -> Option<String> {
    match (value, kind) {
        (toml::Value::Array(items), Kind::List) => {
            let items = items
                .iter()
                .map(|item| item.as_str().filter(|text| !text.contains('\n')));
            Some(items.collect::<Option<Vec<_>>>()?.join("\n"))
        }
        (toml::Value::String(text), Kind::Plain | Kind::Secret) => Some(text.clone()),
        (toml::Value::Integer(number), Kind::Number) => Some(number.to_string()),
        _ => None,
    }
}
