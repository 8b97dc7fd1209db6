//! What the settings mean for the proxy: `[[proxy.route]]` says where requests go and how they are treated,
//! `[proxy.profiles.NAME]` is a profile of one's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel::core::http::status::parse_range;
use semel::core::http::{
    AfterExpiry, Compare, Extent, Lookup, Meaning, Members, Profile, Spelling,
};
use semel::core::identity::Pointer;
use semel::http::{DeriveFrom, Forward, Keyless, Rules, Sameness};
use semel::{Class, OnDoubt};
use semel_server::Url;
use semel_server::proxy::upstream::{Client, Options, Version};
use semel_server::proxy::{HeaderName, Matches, Method, Route};
use serde::Deserialize;

use super::Settings;
use super::breakers::{self, Breakers};
use super::credentials::WrittenCredentials;
use super::nearest::only;
use super::price::price;
use crate::args::values;
use crate::failure::Failure;

/// The members of a route's table.
const MEMBERS: [&str; 31] = [
    "upstream",
    "host",
    "path",
    "methods",
    "profile",
    "keyless",
    "key_headers",
    "key_members",
    "dated_keys",
    "credentials",
    "ignored_cookies",
    "derive_headers",
    "derive_members",
    "fingerprint",
    "forward",
    "honours_keys",
    "on_doubt",
    "retry_within",
    "probe",
    "timeout",
    "wait",
    "lease",
    "retention",
    "pace",
    "price",
    "request_limit",
    "answer_limit",
    "connections",
    "http",
    "preserve_host",
    "breaker",
];

/// The members of a profile's table.
const PROFILE_MEMBERS: [&str; 15] = [
    "base",
    "keys",
    "key_members",
    "requires_key",
    "methods",
    "wait",
    "missing",
    "in_flight",
    "mismatch",
    "in_doubt",
    "expired",
    "statuses",
    "on_doubt",
    "scope",
    "replayed",
];

/// The most routes of a proxy: each request is compared with them one after the other.
const ROUTES_MAX: usize = 1_000;

/// What a file says of the proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    routes: Vec<RouteSettings>,
    profiles: BTreeMap<String, Profile>,
}

/// A route, and what it says about credentials: what those of all routes are is known when all settings are.
#[derive(Clone, Debug)]
pub(super) struct RouteSettings {
    pub(super) route: Route,
    pub(super) credentials: WrittenCredentials,
}

impl Written {
    pub(super) fn routes(&self) -> impl Iterator<Item = &RouteSettings> {
        self.routes.iter()
    }
}

/// A route as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenRoute {
    upstream: String,
    host: Option<String>,
    path: Option<String>,
    methods: Vec<String>,
    profile: Option<String>,
    keyless: Option<String>,
    key_headers: Option<Vec<String>>,
    key_members: Option<Vec<String>>,
    dated_keys: bool,
    credentials: Option<Vec<String>>,
    ignored_cookies: Option<Vec<String>>,
    derive_headers: Vec<String>,
    derive_members: Vec<String>,
    fingerprint: WrittenSameness,
    forward: Option<String>,
    honours_keys: bool,
    on_doubt: Option<String>,
    retry_within: Option<String>,
    probe: Option<WrittenProbe>,
    timeout: Option<String>,
    wait: Option<String>,
    lease: Option<String>,
    retention: Option<String>,
    pace: bool,
    request_limit: Option<String>,
    answer_limit: Option<String>,
    connections: Option<usize>,
    http: Option<String>,
    preserve_host: bool,
    breaker: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenSameness {
    bytes: bool,
    headers: Vec<String>,
    only: Vec<String>,
    except: Vec<String>,
    host: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProbe {
    path: String,
    found: Option<String>,
    after: Option<String>,
}

/// A profile as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenProfile {
    base: Option<String>,
    keys: Option<String>,
    key_members: Option<Vec<String>>,
    requires_key: Option<bool>,
    methods: Option<BTreeMap<String, String>>,
    wait: Option<String>,
    missing: Option<u16>,
    in_flight: Option<u16>,
    mismatch: Option<u16>,
    in_doubt: Option<u16>,
    expired: Option<toml::Value>,
    statuses: BTreeMap<String, String>,
    on_doubt: Option<String>,
    scope: Option<String>,
    replayed: Option<String>,
}

/// Reads `[[proxy.route]]` and `[proxy.profiles]`.
pub(super) fn proxy(
    path: &Path,
    routes: &[toml::Value],
    profiles: &toml::Table,
    breakers: &Breakers,
) -> Result<Written, Failure> {
    let mut written = Written::default();
    for (name, value) in profiles {
        let place = format!("proxy.profiles.{name}");
        let wrong = |text: String| Failure::input(format!("{}: {place}: {text}", path.display()));
        only(value, &PROFILE_MEMBERS, "a profile", &wrong)?;
        if Profile::named(name).is_some() {
            let text = "there is a profile of this name; choose another one";
            return Err(wrong(text.to_owned()));
        }
        let read: Result<WrittenProfile, _> = value.clone().try_into();
        let read = read.map_err(|error| wrong(error.message().to_owned()))?;
        let profile = read.read(name).map_err(wrong)?;
        written.profiles.insert(name.clone(), profile);
    }
    if routes.len() > ROUTES_MAX {
        let (file, count) = (path.display(), routes.len());
        return Err(Failure::input(format!(
            "{file}: proxy.route: {count} routes; there may be {ROUTES_MAX}"
        )));
    }
    for (number, value) in routes.iter().enumerate() {
        let (file, number) = (path.display(), number + 1);
        let wrong = |text: String| Failure::input(format!("{file}: proxy.route {number}: {text}"));
        only(value, &MEMBERS, "a route", &wrong)?;
        let read: Result<WrittenRoute, _> = value.clone().try_into();
        let read = read.map_err(|error| wrong(error.message().to_owned()))?;
        let mut route = read.read(&written.profiles, breakers).map_err(wrong)?;
        let cost = value.get("price").map(|value| price(value, &wrong));
        route.route.rules.price = cost.transpose()?;
        written.routes.push(route);
    }
    Ok(written)
}

fn profile(name: &str, own: &BTreeMap<String, Profile>) -> Result<Profile, String> {
    let found = own.get(name).cloned().or_else(|| Profile::named(name));
    found.ok_or_else(|| {
        let own = own.keys().map(String::as_str);
        let names: Vec<_> = Profile::NAMES.into_iter().chain(own).collect();
        format!("`{name}` is no profile; there are {}", names.join(", "))
    })
}

fn word<T>(
    member: &str,
    word: &str,
    parse: impl Fn(&str) -> Option<T>,
    words: &[&str],
) -> Result<T, String> {
    parse(word).ok_or_else(|| format!("{member}: `{word}` is not one of {}", words.join(", ")))
}

fn on_doubt(text: &str) -> Result<OnDoubt, String> {
    word(
        "on_doubt",
        text,
        OnDoubt::parse,
        &["hold", "retry", "probe"],
    )
}

fn keyless(text: &str) -> Result<Keyless, String> {
    word("keyless", text, Keyless::parse, &Keyless::WORDS)
}

fn headers(member: &str, names: &[String]) -> Result<Vec<HeaderName>, String> {
    let named = names.iter().map(|name| {
        let read = HeaderName::try_from(name);
        read.map_err(|_| format!("{member}: `{name}` is no name of a header"))
    });
    named.collect()
}

fn pointers(member: &str, texts: &[String]) -> Result<Vec<Pointer>, String> {
    let read = texts.iter().map(|text| {
        let pointer = Pointer::new(text).map_err(|error| format!("{member}: {error}"))?;
        match pointer.tokens() {
            [] => Err(format!("{member}: an empty pointer is the whole body")),
            _ => Ok(pointer),
        }
    });
    read.collect()
}

fn duration(member: &str, text: Option<&String>) -> Result<Option<Duration>, String> {
    let read = text.map(|text| values::duration(text));
    read.transpose()
        .map_err(|error| format!("{member}: {error}"))
}

impl WrittenRoute {
    fn read(
        self,
        profiles: &BTreeMap<String, Profile>,
        breakers: &Breakers,
    ) -> Result<RouteSettings, String> {
        if self.upstream.is_empty() {
            return Err("`upstream` is missing: the URL where its requests go".to_owned());
        }
        let mut matches = Matches::all();
        if let Some(host) = &self.host {
            matches = matches.host(host)?;
        }
        if let Some(path) = &self.path {
            matches = matches.path(path)?;
        }
        let methods: Result<Vec<_>, _> = self.methods.iter().map(|it| it.parse()).collect();
        let methods: Vec<Method> = methods.map_err(|_| "methods: one is none".to_owned())?;
        let options = Options {
            version: match self.http.as_deref() {
                None | Some("auto") => Version::Auto,
                Some("1") => Version::Http1,
                Some("2") => Version::Http2,
                Some(other) => return Err(format!("http: `{other}` is not `auto`, `1` or `2`")),
            },
            preserve_host: self.preserve_host,
            ..Options::default()
        };
        let options = Options {
            connections_max: self.connections.unwrap_or(options.connections_max),
            ..options
        };
        let (target, client) = upstream(&self.upstream, options)?;
        let credentials = WrittenCredentials {
            sources: self.credentials.clone(),
            ignored_cookies: self.ignored_cookies.clone(),
        };
        credentials.check()?;
        let route = Route {
            matches: matches.methods(methods),
            rules: self.rules(target, profiles, breakers)?,
            upstream: client,
        };
        Ok(RouteSettings { route, credentials })
    }

    fn rules(
        self,
        target: String,
        profiles: &BTreeMap<String, Profile>,
        breakers: &Breakers,
    ) -> Result<Rules, String> {
        let ordinary = Rules::default();
        let mut profile = match &self.profile {
            Some(name) => profile(name, profiles)?,
            None => ordinary.profile,
        };
        if let Some(wait) = duration("wait", self.wait.as_ref())? {
            profile.wait = wait;
        }
        if let Some(texts) = &self.key_members {
            profile.key_members = pointers("key_members", texts)?;
        }
        let on_doubt = self.on_doubt.as_deref().map(on_doubt).transpose()?;
        let probe = self.probe.map(WrittenProbe::read).transpose()?;
        if probe.is_some() && on_doubt.is_some_and(|it| it != OnDoubt::Probe) {
            return Err("`probe` is for `on_doubt = \"probe\"`".to_owned());
        }
        if probe.is_none() && on_doubt == Some(OnDoubt::Probe) {
            return Err("`on_doubt = \"probe\"` needs a `probe`".to_owned());
        }
        let mut limits = ordinary.limits;
        if let Some(text) = &self.request_limit {
            let bytes = values::large_size(text);
            limits.request = bytes.map_err(|error| format!("request_limit: {error}"))? as u64;
        }
        if let Some(text) = &self.answer_limit {
            let bytes = values::size(text);
            limits.answer = bytes.map_err(|error| format!("answer_limit: {error}"))?;
        }
        let lease = self.lease.as_deref().map(values::lease).transpose();
        let retention = self.retention.as_deref().map(values::retention).transpose();
        Ok(Rules {
            target,
            profile,
            credentials: None,
            key_headers: match &self.key_headers {
                Some(names) if names.is_empty() => {
                    return Err("key_headers: there must be one".to_owned());
                }
                Some(names) => headers("key_headers", names)?,
                None => ordinary.key_headers,
            },
            dated_keys: self.dated_keys,
            keyless: match &self.keyless {
                Some(word) => keyless(word)?,
                None => ordinary.keyless,
            },
            derive_from: DeriveFrom {
                headers: headers("derive_headers", &self.derive_headers)?,
                members: pointers("derive_members", &self.derive_members)?,
            },
            sameness: self.fingerprint.read()?,
            forward: match &self.forward {
                Some(text) => word("forward", text, Forward::parse, &Forward::WORDS)?,
                None => ordinary.forward,
            },
            // Who honours the key that it is sent can be asked again.
            on_doubt: on_doubt.or_else(|| self.honours_keys.then_some(OnDoubt::Retry)),
            retry_within: duration("retry_within", self.retry_within.as_ref())?,
            probe,
            timeout: match &self.timeout {
                Some(text) => {
                    values::some_duration(text).map_err(|error| format!("timeout: {error}"))?
                }
                None => ordinary.timeout,
            },
            lease: lease
                .map_err(|error| format!("lease: {error}"))?
                .unwrap_or(ordinary.lease),
            retention: retention
                .map_err(|error| format!("retention: {error}"))?
                .unwrap_or(ordinary.retention),
            keeps_pace: self.pace,
            price: None,
            breaker: match &self.breaker {
                Some(name) => Some(
                    breakers::named(name, breakers).map_err(|error| format!("breaker: {error}"))?,
                ),
                None => None,
            },
            limits,
        })
    }
}

impl WrittenSameness {
    fn read(self) -> Result<Sameness, String> {
        Ok(Sameness {
            compare: if self.bytes {
                Compare::Bytes
            } else {
                Compare::ByType
            },
            headers: headers("fingerprint.headers", &self.headers)?,
            members: Members {
                only: pointers("fingerprint.only", &self.only)?,
                except: pointers("fingerprint.except", &self.except)?,
            },
            host: self.host,
        })
    }
}

impl WrittenProbe {
    fn read(self) -> Result<Lookup, String> {
        if !self.path.starts_with('/') {
            return Err("probe.path begins with a slash".to_owned());
        }
        let found = self.found.as_deref().map(Pointer::new).transpose();
        Ok(Lookup {
            path: self.path,
            found: found.map_err(|error| format!("probe.found: {error}"))?,
            after: duration("probe.after", self.after.as_ref())?.unwrap_or_default(),
        })
    }
}

impl WrittenProfile {
    fn read(self, name: &str) -> Result<Profile, String> {
        let base = self.base.as_deref().unwrap_or("semel");
        let mut profile = Profile::named(base).ok_or_else(|| {
            let names = Profile::NAMES.join(", ");
            format!("base: `{base}` is none of {names}")
        })?;
        name.clone_into(&mut profile.name);
        if let Some(text) = &self.keys {
            profile.spelling = match text.as_str() {
                "quoted" => Spelling::Quoted,
                "any" => Spelling::QuotedOrBare,
                other => return Err(format!("keys: `{other}` is neither `quoted` nor `any`")),
            };
        }
        if let Some(texts) = &self.key_members {
            profile.key_members = pointers("key_members", texts)?;
        }
        if let Some(required) = self.requires_key {
            profile.requires_key = required;
        }
        if let Some(methods) = &self.methods {
            let methods = methods.iter().map(|(method, class)| {
                let read = word("methods", class, Class::parse, &["idempotent", "unsafe"])?;
                Ok((method.clone(), read))
            });
            profile.methods = methods.collect::<Result<_, String>>()?;
        }
        if let Some(wait) = duration("wait", self.wait.as_ref())? {
            profile.wait = wait;
        }
        let refusals = &mut profile.refusals;
        for (place, status) in [
            (&mut refusals.missing, self.missing),
            (&mut refusals.in_flight, self.in_flight),
            (&mut refusals.mismatch, self.mismatch),
            (&mut refusals.in_doubt, self.in_doubt),
        ] {
            if let Some(status) = status {
                *place = refusing(status)?;
            }
        }
        match &self.expired {
            None => {}
            Some(toml::Value::String(word)) if word == "fresh" => {
                profile.refusals.expired = AfterExpiry::Fresh;
            }
            Some(toml::Value::Integer(status)) => {
                let status = u16::try_from(*status).unwrap_or_default();
                profile.refusals.expired = AfterExpiry::Refuse(refusing(status)?);
            }
            Some(_) => return Err("expired: a status, or \"fresh\"".to_owned()),
        }
        let statuses = self.statuses.iter().map(|(range, meaning)| {
            let read = parse_range(range);
            let range = read.ok_or_else(|| {
                format!("statuses: `{range}` is no range: write `429`, `500-599` or `5xx`")
            })?;
            let words = ["outcome", "release", "doubt"];
            Ok((range, word("statuses", meaning, Meaning::parse, &words)?))
        });
        let statuses = statuses.collect::<Result<Vec<_>, String>>()?;
        profile.statuses = profile.statuses.with(statuses);
        if let Some(text) = &self.on_doubt {
            profile.on_doubt = Some(on_doubt(text)?);
        }
        if let Some(scope) = &self.scope {
            profile.extent = match scope.as_str() {
                "upstream" => Extent::Upstream,
                "path" => Extent::Path,
                other => return Err(format!("scope: `{other}` is neither `upstream` nor `path`")),
            };
        }
        if let Some(name) = self.replayed {
            let name = HeaderName::try_from(&name);
            let name = name.map_err(|_| "replayed: it is no name of a header".to_owned())?;
            profile.replayed = name.as_str().to_owned();
        }
        Ok(profile)
    }
}

fn refusing(status: u16) -> Result<u16, String> {
    let is_one = (400..=599).contains(&status);
    is_one
        .then_some(status)
        .ok_or_else(|| format!("{status}: a refusal has a status from 400 to 599"))
}

/// Makes the way to an upstream; returns what names it in the scope of keys as well.
fn upstream(text: &str, options: Options) -> Result<(String, Arc<Client>), String> {
    let url = Url::parse(text).map_err(|error| format!("upstream: {error}"))?;
    let client = Client::new(&url, options).map_err(|error| format!("upstream: {error}"))?;
    Ok((text.trim_end_matches('/').to_owned(), Arc::new(client)))
}

impl Settings {
    /// Returns the routes that the file names.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let routes = self.proxy.routes.iter().cloned();
        routes.map(|written| self.credited(written)).collect()
    }

    /// Returns the one route to an upstream that was named.
    pub(crate) fn route(
        &self,
        to: &str,
        profile_name: Option<&str>,
        without: Option<&str>,
        breaker: Option<&str>,
    ) -> Result<Route, Failure> {
        let written = WrittenRoute {
            upstream: to.to_owned(),
            profile: profile_name.map(str::to_owned),
            keyless: without.map(str::to_owned),
            breaker: breaker.map(str::to_owned),
            ..WrittenRoute::default()
        };
        let read = written.read(&self.proxy.profiles, &self.breakers);
        read.map(|written| self.credited(written))
            .map_err(Failure::input)
    }

    /// Returns a route that knows which credentials count.
    fn credited(&self, written: RouteSettings) -> Route {
        let RouteSettings {
            mut route,
            credentials,
        } = written;
        let rule = self.credential_rule(&credentials, &route.rules.profile);
        route.rules.credentials = Some(rule);
        route
    }
}
