//! Looking up at an upstream whether a request through the proxy took effect.

use semel::Effect;
use semel::core::http::lookup::UPSTREAM_KEY;
use semel::core::http::{Place, PlaceError, effect, find_place};
use semel::core::identity::Door;
use semel::core::ledger::Operation;
use semel::core::{Digest, Found, KeyHash};
use semel::http::{HeaderMap, look_up};
use semel_server::Url;
use semel_server::proxy::upstream::{Client, Options};
use semel_server::proxy::{HeaderName, Route};

use crate::failure::Failure;

/// What was found.
#[derive(Debug)]
pub(crate) enum Looked {
    /// It happened: what it did, and what those who ask again are told.
    Done(Effect, Vec<u8>),
    NotDone,
    /// Nobody knows, and this is why.
    Unknown(String),
}

/// Returns the digest of the place where a request of the proxy is looked up; `None` for any other operation.
pub(crate) fn digest(operation: &Operation) -> Option<Digest> {
    let spec = &operation.spec;
    let door = spec.door.as_ref()?;
    let is_request = door.as_str() == Door::Proxy.as_str();
    spec.probe_digest.filter(|_| is_request)
}

/// Finds that place among the routes of this caller's own settings. Nothing of a URL comes from the record, which
/// any client with the scope `write` can make: headers go nowhere else than to an upstream of these settings.
pub(crate) fn place(
    operation: &Operation,
    digest: &Digest,
    routes: &[Route],
) -> Result<Place, Failure> {
    let spec = &operation.spec;
    let lookups = routes.iter().filter_map(|route| {
        let lookup = route.rules.probe.as_ref()?;
        Some((route.rules.target.as_str(), lookup))
    });
    let key = spec.client_key.as_ref().map(|key| key.as_str());
    let found = find_place(lookups, key, digest);
    found.map_err(|error| {
        let (what, hint) = match error {
            PlaceError::NoLookup => (
                "no [[proxy.route]] of your settings has a `probe`",
                "name the proxy's settings with --config PATH, or give a command: --probe='CMD'",
            ),
            PlaceError::OtherPlace => (
                "no `probe` of a [[proxy.route]] in your settings leads to where it is looked up",
                "name the proxy's settings with --config PATH, or give a command: --probe='CMD'",
            ),
            PlaceError::NeedsBody => (
                "no `probe` of a [[proxy.route]] in your settings leads to where it is looked up, as far as that is \
                 known without the request's body, which is not kept",
                "send the request once more through the proxy, which looks it up first, or give a command: \
                 --probe='CMD'",
            ),
        };
        let text = format!("{}: {what}; nothing was sent", spec.key);
        Failure::input(text).hint(hint)
    })
}

/// Reads headers as they are written on the command line. A value is never repeated in an error.
pub(crate) fn headers(written: &[String]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for text in written {
        let wrong = |what: &str| {
            Failure::input(format!("--header: {what}")).hint("write it as in 'Accept: text/plain'")
        };
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| wrong("it has no colon"))?;
        let name = HeaderName::try_from(name.trim());
        let name = name.map_err(|_| wrong("it begins with no name of a header"))?;
        let value = value.trim().parse();
        let value = value.map_err(|_| wrong(&format!("what `{name}` is cannot be sent")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Asks the upstream.
pub(crate) async fn look(operation: &Operation, place: &Place, headers: HeaderMap) -> Looked {
    match found(operation, place, headers).await {
        Ok((Found::Happened, answer)) => {
            let name = operation.spec.name.as_str();
            let method = name.split(' ').next().unwrap_or_default();
            Looked::Done(effect(method, 200), answer)
        }
        Ok((Found::DidNot, _)) => Looked::NotDone,
        Ok((Found::Unclear, _)) => Looked::Unknown("the answer does not tell".to_owned()),
        Err(why) => Looked::Unknown(why),
    }
}

async fn found(
    operation: &Operation,
    place: &Place,
    headers: HeaderMap,
) -> Result<(Found, Vec<u8>), String> {
    let spec = &operation.spec;
    let hash = KeyHash::of(&spec.namespace, &spec.key);
    let key = hash.upstream_key(operation.created_at);
    let url = place.url.replace(UPSTREAM_KEY, &key);
    let scheme = url.find("://").ok_or("its upstream is not known here")? + 3;
    let end = url[scheme..].find(['/', '?']);
    let (origin, path) = url.split_at(end.map_or(url.len(), |end| scheme + end));
    let client = Client::new(&Url::parse(origin)?, Options::default())?;
    look_up(&client, place, path, headers).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_and_no_error_repeats_the_value() {
        let written = ["Authorization: Bearer a:b", "x-tenant:7", "x-tenant: 8"];
        let read = headers(&written.map(str::to_owned)).expect("they are headers");
        assert_eq!(read["authorization"], "Bearer a:b");
        assert_eq!(read.get_all("x-tenant").iter().count(), 2);
        for wrong in [
            "s3cr3t",
            ": s3cr3t",
            "a b: s3cr3t",
            "authorization: s3cr3t\u{7f}",
        ] {
            let failure = headers(&[wrong.to_owned()]).expect_err("it is no header");
            assert!(!failure.message.contains("s3cr3t"), "{}", failure.message);
        }
    }
}
