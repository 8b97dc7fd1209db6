//! `[inbox.NAME]`: whose webhooks are received, and what becomes of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use semel::core::queue::Priority;
use semel::core::webhook::{
    Algorithm, Encoding, IdFrom, Keyed, Proof, Scheme, Secret, SourceName, Template, Tolerance,
};
use semel::{Label, Namespace, Retention};
use semel_server::inbox::{self as received, BODY_MAX, Sources};
use serde::Deserialize;

use super::Settings;
use super::nearest::only;
use crate::args::values;
use crate::failure::Failure;

/// The members of a source's table.
const MEMBERS: [&str; 17] = [
    "scheme",
    "secrets",
    "queue",
    "lane",
    "priority",
    "headers",
    "id",
    "tolerance",
    "retention",
    "max_body",
    "namespace",
    "header",
    "prefix",
    "algorithm",
    "encoding",
    "signed",
    "timestamp_header",
];

/// Those that describe an HMAC.
const HMAC_MEMBERS: [&str; 6] = [
    "header",
    "prefix",
    "algorithm",
    "encoding",
    "signed",
    "timestamp_header",
];

/// The most sources: each has its own line in the metrics.
const SOURCES_MAX: usize = 256;

/// The largest file that can hold a secret: what is larger was named by mistake.
const SECRET_FILE_MAX: u64 = 4_096;

/// The sources that a file names.
pub(crate) type Inbox = BTreeMap<SourceName, Source>;

/// Whose webhooks are received, and what becomes of them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: SourceName,
    pub(crate) scheme: Scheme,
    pub(crate) secrets: Vec<SecretFrom>,
    pub(crate) queue: Label,
    /// Lanes take turns: a sender's flood does not hold up another sender.
    pub(crate) lane: Label,
    pub(crate) priority: Priority,
    /// Headers that workers get beside the usual ones.
    pub(crate) headers: Vec<String>,
    pub(crate) id: IdFrom,
    pub(crate) tolerance: Tolerance,
    pub(crate) retention: Retention,
    pub(crate) max_body: usize,
    /// Where its tasks live; without one where the server's own are.
    pub(crate) namespace: Option<Namespace>,
}

/// Where a secret comes from: it is never in the file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretFrom {
    Env(String),
    File(PathBuf),
}

impl fmt::Display for SecretFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// A source as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    scheme: Option<String>,
    secrets: Vec<String>,
    queue: Option<String>,
    lane: Option<String>,
    priority: Option<i64>,
    headers: Vec<String>,
    id: Option<String>,
    tolerance: Option<String>,
    retention: Option<String>,
    max_body: Option<String>,
    namespace: Option<String>,
    header: Option<String>,
    prefix: Option<String>,
    algorithm: Option<String>,
    encoding: Option<String>,
    signed: Option<String>,
    timestamp_header: Option<String>,
}

/// Reads `[inbox]`. No error shows what may be a secret.
pub(super) fn inbox(path: &Path, tables: &toml::Table) -> Result<Inbox, Failure> {
    let file = path.display();
    if tables.len() > SOURCES_MAX {
        let count = tables.len();
        return Err(Failure::input(format!(
            "{file}: inbox: {count} sources; there may be {SOURCES_MAX}"
        )));
    }
    let mut read = Inbox::new();
    for (name, value) in tables {
        let wrong = |text: String| Failure::input(format!("{file}: inbox.{name}: {text}"));
        only(value, &MEMBERS, "a source", &wrong)?;
        let named = SourceName::new(name).map_err(|error| wrong(error.to_string()))?;
        // What serde says of a text that is no list would show the text.
        if value.get("secrets").is_some_and(|it| !it.is_array()) {
            let text = "secrets: an array is needed, such as [\"env:STRIPE_SECRET\"]";
            return Err(wrong(text.to_owned()));
        }
        let written: Result<Written, _> = value.clone().try_into();
        let written = written.map_err(|error| wrong(error.message().to_owned()))?;
        let source = written.read(named.clone(), path).map_err(wrong)?;
        read.insert(named, source);
    }
    Ok(read)
}

impl Written {
    fn read(self, name: SourceName, path: &Path) -> Result<Source, String> {
        let scheme = self.scheme()?;
        let id = match &self.id {
            Some(text) => IdFrom::parse(text).map_err(|error| format!("id: {error}"))?,
            None => scheme.usual_id().ok_or_else(|| {
                "`id` is missing: where the sender's id is, as `header:X-Event-Id` or `/event/id`"
                    .to_owned()
            })?,
        };
        if id == IdFrom::Signed && scheme != Scheme::Standard {
            return Err("id: only Standard Webhooks sign an id".to_owned());
        }
        let queue = self.queue.as_deref().map(Label::new);
        let queue = queue.ok_or("`queue` is missing: whose workers get its webhooks")?;
        let secrets = self.secrets.iter().map(|text| secret_from(text, path));
        let secrets: Vec<_> = secrets.collect::<Result<_, _>>()?;
        // Whether they can be read is found out by those who need them.
        let stand_ins = secrets.iter().map(|_| stand_in());
        let tolerance = self.tolerance(&scheme)?;
        Proof::new(scheme.clone(), stand_ins.collect(), tolerance)
            .map_err(|error| error.to_string())?;
        let namespace = self.namespace.as_deref().map(Namespace::new).transpose();
        let lane = Label::new(self.lane.as_deref().unwrap_or_else(|| name.as_str()));
        let priority = Priority::new(self.priority.unwrap_or_default());
        let headers = self.headers.iter().map(|name| header_name("headers", name));
        Ok(Source {
            name,
            retention: self.retention(&scheme)?,
            max_body: self.max_body()?,
            queue: queue.map_err(|error| format!("queue: {error}"))?,
            lane: lane.map_err(|error| format!("lane: {error}"))?,
            priority: priority.map_err(|error| format!("priority: {error}"))?,
            headers: headers.collect::<Result<_, _>>()?,
            namespace: namespace.map_err(|error| format!("namespace: {error}"))?,
            scheme,
            secrets,
            id,
            tolerance,
        })
    }

    fn scheme(&self) -> Result<Scheme, String> {
        let word = self.scheme.as_deref();
        let word = word.ok_or_else(|| {
            let words = Scheme::WORDS.join(", ");
            format!("`scheme` is missing: how the sender signs, one of {words}")
        })?;
        let said = [
            &self.header,
            &self.prefix,
            &self.algorithm,
            &self.encoding,
            &self.signed,
            &self.timestamp_header,
        ];
        let said = said.iter().zip(HMAC_MEMBERS).find(|(it, _)| it.is_some());
        match (word, said) {
            ("hmac", _) => self.keyed().map(Scheme::Hmac),
            (_, Some((_, member))) => Err(format!("`{member}` is for `scheme = \"hmac\"`")),
            ("standard", None) => Ok(Scheme::Standard),
            ("stripe", None) => Ok(Scheme::Stripe),
            ("github", None) => Ok(Scheme::Github),
            ("slack", None) => Ok(Scheme::Slack),
            ("none", None) => Ok(Scheme::None),
            (other, None) => Err(format!(
                "scheme: `{other}` is not one of {}",
                Scheme::WORDS.join(", ")
            )),
        }
    }

    fn keyed(&self) -> Result<Keyed, String> {
        let header = self.header.as_deref();
        let header = header.ok_or("`header` is missing: the header with the signature")?;
        let timestamp = self.timestamp_header.as_deref();
        let timestamp = timestamp.map(|name| header_name("timestamp_header", name));
        let signed = match &self.signed {
            Some(text) => Template::new(text).map_err(|error| format!("signed: {error}"))?,
            None if timestamp.is_some() => Template::dated(),
            None => Template::body(),
        };
        let algorithm = self.algorithm.as_deref().unwrap_or("sha256");
        let encoding = self.encoding.as_deref().unwrap_or("hex");
        Ok(Keyed {
            header: header_name("header", header)?,
            prefix: self.prefix.clone().unwrap_or_default(),
            algorithm: Algorithm::parse(algorithm)
                .ok_or_else(|| format!("algorithm: `{algorithm}` is not one of sha256, sha512"))?,
            encoding: Encoding::parse(encoding)
                .ok_or_else(|| format!("encoding: `{encoding}` is not one of hex, base64"))?,
            signed,
            timestamp: timestamp.transpose()?,
        })
    }

    fn tolerance(&self, scheme: &Scheme) -> Result<Tolerance, String> {
        let Some(text) = &self.tolerance else {
            return Ok(Tolerance::DEFAULT);
        };
        if !scheme.is_dated() {
            let word = scheme.as_str();
            return Err(format!(
                "tolerance: signatures of `{word}` do not say when they were made"
            ));
        }
        let length = values::duration(text).map_err(|error| format!("tolerance: {error}"))?;
        Tolerance::new(length).map_err(|error| format!("tolerance: {error}"))
    }

    fn retention(&self, scheme: &Scheme) -> Result<Retention, String> {
        let Some(text) = &self.retention else {
            return Ok(Retention::DEFAULT);
        };
        let retention = values::retention(text).map_err(|error| format!("retention: {error}"))?;
        let horizon = scheme.horizon();
        if retention.length() < horizon {
            let (word, hours) = (scheme.as_str(), horizon.as_secs().div_ceil(3_600));
            return Err(format!(
                "retention: a sender with the scheme `{word}` may come back for {hours} h, so what it sent is kept at least that long"
            ));
        }
        Ok(retention)
    }

    fn max_body(&self) -> Result<usize, String> {
        let Some(text) = &self.max_body else {
            return Ok(BODY_MAX);
        };
        let size = values::size(text).map_err(|error| format!("max_body: {error}"))?;
        if !(1..=BODY_MAX).contains(&size) {
            return Err(format!(
                "max_body: at most {BODY_MAX} bytes, as a task can hold no more"
            ));
        }
        Ok(size)
    }
}

fn header_name(member: &str, name: &str) -> Result<String, String> {
    match IdFrom::parse(&format!("header:{name}")) {
        Ok(IdFrom::Header(name)) => Ok(name),
        Ok(_) | Err(_) => Err(format!("{member}: `{name}` is no name of a header")),
    }
}

fn stand_in() -> Secret {
    Secret::plain("something").expect("it is long enough")
}

/// Reads where a secret comes from. What is neither may be the secret itself: it is not shown.
fn secret_from(text: &str, config: &Path) -> Result<SecretFrom, String> {
    if let Some(name) = text.strip_prefix("env:") {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        let name = is_name.then(|| SecretFrom::Env(name.to_owned()));
        return name.ok_or_else(|| "secrets: `env:` is followed by a variable's name".to_owned());
    }
    match text.strip_prefix("file:") {
        None | Some("") => Err(
            "secrets: each is `env:NAME`, an environment variable, or `file:PATH`; a secret itself does not belong here"
                .to_owned(),
        ),
        // A file is looked for beside the settings, wherever the command is started.
        Some(file) => {
            let beside = config.parent().unwrap_or_else(|| Path::new(""));
            Ok(SecretFrom::File(beside.join(file)))
        }
    }
}

impl SecretFrom {
    /// Reads the secret; no error shows anything of it.
    fn read(&self) -> Result<String, String> {
        match self {
            Self::Env(name) => match std::env::var(name) {
                Ok(text) if text.is_empty() => Err(format!("{self}: the variable is empty")),
                Ok(text) => Ok(text),
                Err(std::env::VarError::NotPresent) => Err(format!("{self}: it is not set")),
                Err(std::env::VarError::NotUnicode(_)) => Err(format!("{self}: it is no text")),
            },
            Self::File(path) => {
                let wrong = |error: std::io::Error| format!("{self}: {error}");
                let size = std::fs::metadata(path).map_err(wrong)?.len();
                if size > SECRET_FILE_MAX {
                    return Err(format!("{self}: it is too large for a secret"));
                }
                let text = std::fs::read_to_string(path).map_err(wrong)?;
                // Editors and shells end a file with a line's end.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if text.contains(['\n', '\r']) {
                    return Err(format!("{self}: a secret has one line"));
                }
                Ok(text.to_owned())
            }
        }
    }
}

impl Source {
    /// Says what is wrong with the first secret that no server could use, as far as that can be found out here: a variable
    /// that is not set may be set where the server runs.
    pub(crate) fn unusable_secret(&self) -> Option<String> {
        let known = |from: &&SecretFrom| match from {
            SecretFrom::Env(name) => std::env::var_os(name).is_some(),
            SecretFrom::File(_) => true,
        };
        let wrong = |from| self.secret(from).err();
        self.secrets.iter().filter(known).find_map(wrong)
    }

    /// Reads one secret.
    fn secret(&self, from: &SecretFrom) -> Result<Secret, String> {
        let secret = from.read().and_then(|text| {
            let secret = self.scheme.secret(&text);
            secret.map_err(|error| format!("{from}: {error}"))
        });
        secret.map_err(|text| format!("inbox.{}: secrets: {text}", self.name))
    }

    /// Reads the secrets, and makes what a server needs.
    pub(crate) fn received(&self, namespace: &Namespace) -> Result<received::Source, Failure> {
        let (source, wrong) = self.as_far_as_readable(namespace);
        match wrong.into_iter().next() {
            None => Ok(source),
            Some(text) => Err(Failure::input(text)),
        }
    }

    /// Makes what a server needs of the secrets that can be read, and says what is wrong with the others. A secret that is
    /// gone counts no more, also when it was the only one: then nothing is taken for its sender's.
    fn as_far_as_readable(&self, namespace: &Namespace) -> (received::Source, Vec<String>) {
        let name = &self.name;
        let (mut secrets, mut wrong) = (vec![], vec![]);
        for from in &self.secrets {
            match self.secret(from) {
                Ok(secret) => secrets.push(secret),
                Err(text) => wrong.push(text),
            }
        }
        let proof = Proof::new(self.scheme.clone(), secrets, self.tolerance);
        let proof = proof.unwrap_or_else(|error| {
            if wrong.is_empty() {
                wrong.push(format!("inbox.{name}: secrets: {error}"));
            }
            Proof::of_nobody(self.scheme.clone(), self.tolerance)
        });
        let source = received::Source {
            name: name.clone(),
            proof,
            id: self.id.clone(),
            queue: self.queue.clone(),
            lane: self.lane.clone(),
            priority: self.priority,
            headers: self.headers.clone(),
            namespace: self.namespace.clone().unwrap_or_else(|| namespace.clone()),
            retention: self.retention,
            body_max: self.max_body,
        };
        (source, wrong)
    }
}

impl Settings {
    /// Returns the sources of webhooks that the file names.
    pub(crate) const fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns one of them.
    pub(crate) fn inbox_source(&self, name: &str) -> Result<&Source, Failure> {
        let known = SourceName::new(name).ok();
        let source = known.and_then(|name| self.inbox.get(&name));
        source.ok_or_else(|| {
            Failure::not_found(format!("{name}: there is no such source"))
                .hint("`semel inbox list` shows what there is")
        })
    }
}

/// Makes what a server needs of all sources, and says what is wrong with some: a source without a usable secret takes
/// nothing, and the others are none the worse for it.
pub(crate) fn readable(inbox: &Inbox, namespace: &Namespace) -> (Sources, Vec<String>) {
    let read = inbox
        .values()
        .map(|source| source.as_far_as_readable(namespace));
    let (sources, wrong): (Vec<_>, Vec<_>) = read.unzip();
    let wrong = wrong.into_iter().flatten().collect();
    (sources.into_iter().collect(), wrong)
}

#[cfg(test)]
mod tests;
