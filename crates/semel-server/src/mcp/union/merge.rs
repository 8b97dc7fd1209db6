//! One answer of several: what servers say of themselves, and their lists.

use std::borrow::Cow;

use serde_json::json;

use super::super::edit;
use super::super::message::quoted;

/// The deepest that two objects are made one; below it the first one's stays.
const DEPTH_MAX: usize = 8;

/// The first version of the protocol without sessions; versions are dates.
pub(super) const FIRST_WITHOUT_SESSIONS: &str = "2026-07-28";

/// What a server said of itself.
#[derive(Clone, Debug)]
pub(super) struct Said<'a> {
    pub(super) server: &'a str,
    /// The result, as it was written.
    pub(super) result: &'a str,
}

/// A server that is left out, and why.
#[derive(Clone, Debug)]
pub(super) struct LeftOut<'a> {
    pub(super) server: &'a str,
    pub(super) why: String,
}

/// Makes two values one: an object has the members of both, what one of them has is there.
pub(super) fn both(left: &str, right: &str) -> String {
    merged(left, right, DEPTH_MAX)
}

fn merged(left: &str, right: &str, depth: usize) -> String {
    let objects = edit::members(left).zip(edit::members(right));
    let Some((mut all, more)) = objects.filter(|_| depth > 0) else {
        return if right == "true" { right } else { left }.to_owned();
    };
    let mut owned: Vec<(Cow<'_, str>, String)> = all
        .drain(..)
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    for (name, value) in more {
        match owned.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = merged(known, value, depth - 1),
            None => owned.push((name, value.to_owned())),
        }
    }
    let members = owned.iter();
    let members = members.map(|(name, value)| format!("{}:{value}", quoted(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Makes one answer to `initialize`: what all can do together, in the newest version that all of them agreed to.
pub(super) fn initialized(said: &[Said<'_>], left_out: &[LeftOut<'_>]) -> String {
    let versions = said
        .iter()
        .filter_map(|said| edit::text(said.result, &["protocolVersion"]));
    let version = versions.min().unwrap_or_default();
    let (capabilities, info) = (capabilities(said), server_info());
    let (version, instructions) = (quoted(&version), quoted(&instructions(said, left_out)));
    format!(
        r#"{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{info},"instructions":{instructions}}}"#
    )
}

/// Makes one answer to `server/discover`; the versions are those that all of them know.
pub(super) fn discovered(said: &[Said<'_>], left_out: &[LeftOut<'_>]) -> String {
    let known: Vec<_> = said.iter().map(|said| versions(said.result)).collect();
    let mut shared = known.first().cloned().unwrap_or_default();
    shared.retain(|version| known.iter().all(|known| known.contains(version)));
    let results = said.iter().map(|said| said.result);
    let (capabilities, info, caching) = (capabilities(said), server_info(), caching(results));
    let (shared, instructions) = (json!(shared), quoted(&instructions(said, left_out)));
    format!(
        r#"{{"resultType":"complete","supportedVersions":{shared},"capabilities":{capabilities},"instructions":{instructions}{caching},"_meta":{{"io.modelcontextprotocol/serverInfo":{info}}}}}"#
    )
}

/// Returns the versions that a server of the newer kind names.
pub(super) fn versions(result: &str) -> Vec<String> {
    let versions = edit::get(result, &["supportedVersions"]).and_then(edit::items);
    let versions = versions.unwrap_or_default().into_iter();
    versions
        .filter_map(|version| serde_json::from_str(version).ok())
        .collect()
}

/// Says whether a server of the newer kind knows the older one, too.
pub(super) fn has_sessions(result: &str) -> bool {
    let versions = versions(result);
    versions
        .iter()
        .any(|version| version.as_str() < FIRST_WITHOUT_SESSIONS)
}

/// Returns how long lists hold: as long as the one that holds the shortest, for whoever may keep all of them.
pub(super) fn caching<'a>(results: impl Iterator<Item = &'a str> + Clone) -> String {
    let times = results.clone();
    let times = times.map(|result| edit::get(result, &["ttlMs"])?.parse::<u64>().ok());
    let shortest = times.flatten().min().unwrap_or_default();
    let mut scopes = results.map(|result| edit::text(result, &["cacheScope"]));
    let is_public = scopes.all(|scope| scope.as_deref() == Some("public"));
    let scope = if is_public { "public" } else { "private" };
    format!(r#","ttlMs":{shortest},"cacheScope":"{scope}""#)
}

fn capabilities(said: &[Said<'_>]) -> String {
    let each = said.iter();
    let each = each.map(|said| edit::get(said.result, &["capabilities"]).unwrap_or("{}"));
    each.fold("{}".to_owned(), |all, more| both(&all, more))
}

fn server_info() -> serde_json::Value {
    json!({"name": "semel", "version": env!("CARGO_PKG_VERSION")})
}

fn instructions(said: &[Said<'_>], left_out: &[LeftOut<'_>]) -> String {
    let names: Vec<_> = said.iter().map(|said| said.server).collect();
    let mut text = format!(
        "Several servers are behind this endpoint: {}. What two of them have under one name has the server's name and \
         `_` before it.",
        names.join(", ")
    );
    for LeftOut { server, why } in left_out {
        text.push_str(&format!("\n\nThe server {server} is left out: {why}."));
    }
    for Said { server, result } in said {
        if let Some(own) = edit::text(result, &["instructions"]) {
            text.push_str(&format!("\n\n# {server}\n\n{own}"));
        }
    }
    text
}
