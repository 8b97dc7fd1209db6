//! Where values come from: a flag, the environment, a file, or the default, in that order.

mod breakers;
mod credentials;
mod file;
pub(crate) mod inbox;
mod known;
mod mcp;
mod nearest;
mod price;
mod proxy;
mod queues;
mod redact;
mod secret;
mod serve;
mod servers;

pub(crate) use self::known::{Kind, SETTINGS, Setting};
pub(crate) use self::nearest::nearest;
pub(crate) use self::secret::without_password;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use semel::core::http::CredentialRule;
use semel::{CopyPolicy, Lease, Retention};

use crate::args::{Args, Global, values};
use crate::failure::Failure;

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(&'static str),
    Env(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The value of every setting.
#[derive(Debug)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Value>,
    /// How single tools of MCP servers are treated.
    tools: mcp::Tools,
    /// The servers behind the gateway for MCP.
    servers: Vec<servers::Written>,
    /// The routes of the proxy.
    proxy: proxy::Written,
    /// What breakers bear.
    breakers: breakers::Breakers,
    /// How tasks are tried.
    queues: queues::Queues,
    /// Whose webhooks are received.
    inbox: inbox::Inbox,
    /// The file that was read, if there is one.
    file: Option<PathBuf>,
    /// The file that was asked for.
    asked_for: Option<PathBuf>,
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    pub(crate) fn load(args: &Args) -> Result<Self, Failure> {
        Self::resolve(&args.global, args.verb.said(), &|name| {
            std::env::var_os(name)
        })
    }

    /// Finds each value; `said` is what the verb's own flags set.
    fn resolve(
        global: &Global,
        said: Option<(&'static str, &'static str, &String)>,
        variable: Variable<'_>,
    ) -> Result<Self, Failure> {
        let file = file::read(global.config.as_deref(), variable)?;
        let mut values = BTreeMap::new();
        for setting in &SETTINGS {
            let flag = match setting.name {
                "store" => global.store.as_ref().map(|text| (text, "--store")),
                "namespace" => global.namespace.as_ref().map(|text| (text, "--namespace")),
                "token" => global.token.as_ref().map(|text| (text, "--token")),
                name => said
                    .filter(|(setting, ..)| *setting == name)
                    .map(|(_, flag, text)| (text, flag)),
            };
            let value = if let Some((text, flag)) = flag {
                let (text, origin) = (text.clone(), Origin::Flag(flag));
                Value { text, origin }
            } else if let Some(text) = named(variable, setting.env) {
                let text = text
                    .into_string()
                    .map_err(|_| Failure::input(format!("{} is not valid UTF-8", setting.env)))?;
                let origin = Origin::Env(setting.env);
                Value { text, origin }
            } else if let Some(text) = file.values.get(setting.name) {
                let origin = Origin::File(file.path.clone());
                Value {
                    text: text.clone(),
                    origin,
                }
            } else {
                let text = match setting.name {
                    "store" => default_store(variable)?,
                    "mcp.credentials" | "proxy.credentials" => CredentialRule::SOURCES.join("\n"),
                    "mcp.ignored_cookies" | "proxy.ignored_cookies" => {
                        CredentialRule::IGNORED_COOKIES.join("\n")
                    }
                    _ => setting.default.to_owned(),
                };
                Value {
                    text,
                    origin: Origin::Default,
                }
            };
            (setting.check)(&value.text).map_err(|message| {
                let (name, origin) = (setting.name, &value.origin);
                Failure::input(format!("{name} ({origin}): {message}"))
            })?;
            values.insert(setting.name, value);
        }
        Ok(Self {
            values,
            tools: file.tools,
            servers: file.servers,
            proxy: file.proxy,
            breakers: file.breakers,
            queues: file.queues,
            inbox: file.inbox,
            file: (!file.path.as_os_str().is_empty()).then_some(file.path),
            asked_for: global.config.clone(),
        })
    }

    /// Returns the file that was read, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the file again, which may be another one by now, and returns whose webhooks it says are received.
    pub(crate) fn reread_inbox(&self) -> Result<inbox::Inbox, Failure> {
        let variable = |name: &str| std::env::var_os(name);
        let said = file::read(self.asked_for.as_deref(), &variable)?;
        Ok(said.inbox)
    }

    /// Checks a text as if it were the file, and returns whose webhooks it says are received.
    pub(crate) fn checked_inbox(path: &Path, text: &str) -> Result<inbox::Inbox, Failure> {
        Ok(file::parse(path.to_path_buf(), text)?.inbox)
    }

    /// Returns the value of a setting.
    pub(crate) fn value(&self, setting: &Setting) -> &Value {
        &self.values[setting.name]
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        &self.values[name].text
    }

    /// Returns the items of a list.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        self.get(name).lines().map(str::to_owned).collect()
    }

    /// Returns where a value came from.
    pub(crate) fn origin(&self, name: &str) -> &Origin {
        &self.values[name].origin
    }

    /// Returns the namespace, if one was asked for.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let value = &self.values["namespace"];
        (value.origin != Origin::Default).then_some(value.text.as_str())
    }

    /// Returns the store's URL.
    pub(crate) fn store(&self) -> &str {
        self.get("store")
    }

    /// Returns what becomes of a store whose file was copied.
    pub(crate) fn copied(&self) -> CopyPolicy {
        let name = self.get("store.copied");
        let policy = CopyPolicy::ALL
            .into_iter()
            .find(|policy| policy.as_str() == name);
        // It was checked when it was loaded.
        policy.unwrap_or_default()
    }

    /// Returns the store's URL as it may be shown.
    pub(crate) fn shown_store(&self) -> String {
        without_password(self.store())
    }

    /// Returns a setting that was checked when it was loaded.
    fn parsed<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        parse(self.get(name)).map_err(Failure::input)
    }

    pub(crate) fn lease(&self) -> Result<Lease, Failure> {
        self.parsed("run.lease", values::lease)
    }

    pub(crate) fn wait(&self) -> Result<std::time::Duration, Failure> {
        self.parsed("run.wait", values::duration)
    }

    pub(crate) fn doubt_limit(&self) -> Result<std::time::Duration, Failure> {
        self.parsed("doctor.doubt_limit", values::duration)
    }

    pub(crate) fn retention(&self) -> Result<Retention, Failure> {
        self.parsed("run.retention", values::retention)
    }
}

/// Returns an environment variable that says something.
fn named(variable: Variable<'_>, name: &str) -> Option<OsString> {
    variable(name).filter(|value| !value.is_empty())
}

fn default_store(variable: Variable<'_>) -> Result<String, Failure> {
    let custom = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".local/share"
    };
    let directory = user_directory(variable, "XDG_DATA_HOME", custom).ok_or_else(|| {
        Failure::input("there is no home directory; say where the store is with --store")
    })?;
    Ok(format!(
        "sqlite:{}",
        directory.join("semel/semel.db").display()
    ))
}

/// Returns one of the user's directories, as the system's custom is.
fn user_directory(variable: Variable<'_>, xdg: &str, custom: &str) -> Option<PathBuf> {
    let path = |name| named(variable, name).map(PathBuf::from);
    path(xdg)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(path("HOME")?.join(Path::new(custom))))
}

#[cfg(test)]
mod tests;
