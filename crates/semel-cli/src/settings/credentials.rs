//! Which credentials say whose request it is: `credentials` and `ignored_cookies` of the proxy, of a route, and of the
//! MCP gateway.

use semel::core::http::{CookiePattern, CredentialRule, CredentialSource, Profile};

use super::{Origin, Settings};

/// Stands in a list for everything that would count without it.
const DEFAULT: &str = "default";

/// What a route says about credentials, as it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenCredentials {
    pub(super) sources: Option<Vec<String>>,
    pub(super) ignored_cookies: Option<Vec<String>>,
}

/// Reads the sources of the setting; `default` stands for the usual ones.
pub(super) fn sources<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<CredentialSource>, String> {
    let sources = with_default(texts, &CredentialRule::default().sources, |text| {
        CredentialSource::parse(text)
    })?;
    // Without any, all callers would share their keys and answers.
    if sources.is_empty() {
        return Err("name at least one header, or leave the setting out".to_owned());
    }
    Ok(sources)
}

/// Reads the cookies of the setting; `default` stands for the usual ones.
pub(super) fn cookies<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<CookiePattern>, String> {
    let usual = CredentialRule::default().ignored_cookies;
    with_default(texts, &usual, CookiePattern::parse)
}

fn with_default<'a, T: Clone, E: ToString>(
    texts: impl IntoIterator<Item = &'a str>,
    usual: &[T],
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, String> {
    let mut all = vec![];
    for text in texts {
        if text == DEFAULT {
            all.extend_from_slice(usual);
        } else {
            all.push(parse(text).map_err(|error| error.to_string())?);
        }
    }
    Ok(all)
}

impl WrittenCredentials {
    /// Checks what is written, before it is known what `default` stands for.
    pub(super) fn check(&self) -> Result<(), String> {
        self.rule(&CredentialRule::default(), &Profile::semel())
            .map(drop)
    }

    /// Returns what counts for a route with this profile; `usual` is what counts for all.
    fn rule(&self, usual: &CredentialRule, profile: &Profile) -> Result<CredentialRule, String> {
        let mut rule = usual.clone();
        rule.sources.extend(profile.credentials.clone());
        if let Some(texts) = &self.sources {
            let texts = texts.iter().map(String::as_str);
            let read = with_default(texts, &rule.sources, CredentialSource::parse);
            rule.sources = read.map_err(|error| format!("credentials: {error}"))?;
        }
        if let Some(texts) = &self.ignored_cookies {
            let texts = texts.iter().map(String::as_str);
            let read = with_default(texts, &rule.ignored_cookies, CookiePattern::parse);
            rule.ignored_cookies = read.map_err(|error| format!("ignored_cookies: {error}"))?;
        }
        Ok(rule)
    }
}

/// A list of a route as `semel config show` tells it.
#[derive(Debug)]
pub(crate) struct RouteList {
    pub(crate) name: String,
    pub(crate) items: Vec<String>,
    pub(crate) origin: Origin,
    pub(crate) about: &'static str,
}

impl Settings {
    /// Returns what counts for a route; the settings were checked when they were loaded.
    pub(super) fn credential_rule(
        &self,
        written: &WrittenCredentials,
        profile: &Profile,
    ) -> CredentialRule {
        let usual = self.listed_rule("proxy.credentials", "proxy.ignored_cookies");
        written.rule(&usual, profile).unwrap_or(usual)
    }

    /// Returns what counts for clients of the MCP gateway.
    pub(crate) fn mcp_credentials(&self) -> CredentialRule {
        self.listed_rule("mcp.credentials", "mcp.ignored_cookies")
    }

    /// Returns what two settings say, which were checked when they were loaded.
    fn listed_rule(&self, named: &str, ignored: &str) -> CredentialRule {
        let (named, ignored) = (self.list(named), self.list(ignored));
        let usual = CredentialRule::default();
        CredentialRule {
            sources: sources(named.iter().map(String::as_str)).unwrap_or(usual.sources),
            ignored_cookies: cookies(ignored.iter().map(String::as_str))
                .unwrap_or(usual.ignored_cookies),
        }
    }

    /// Returns what counts for each route of the file.
    pub(crate) fn route_lists(&self) -> Vec<RouteList> {
        let mut lists = vec![];
        for (number, route) in self.proxy.routes().enumerate() {
            let rule = self.credential_rule(&route.credentials, &route.route.rules.profile);
            let place = format!("proxy.route.{}", number + 1);
            let origin = |setting: &str, is_own: bool| match &self.file {
                Some(path) if is_own => Origin::File(path.clone()),
                Some(_) | None => self.origin(setting).clone(),
            };
            let has_own = |written: &Option<Vec<String>>| written.is_some();
            lists.push(RouteList {
                name: format!("{place}.credentials"),
                items: rule.sources.iter().map(ToString::to_string).collect(),
                origin: origin("proxy.credentials", has_own(&route.credentials.sources)),
                about: "what says whose request it is, at this route",
            });
            lists.push(RouteList {
                name: format!("{place}.ignored_cookies"),
                items: rule
                    .ignored_cookies
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                origin: origin(
                    "proxy.ignored_cookies",
                    has_own(&route.credentials.ignored_cookies),
                ),
                about: "cookies that say nothing about the caller, at this route",
            });
        }
        lists
    }
}
