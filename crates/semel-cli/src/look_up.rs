//! Looking up at an upstream whether a request through the proxy took effect.

use semel::core::http::lookup::UPSTREAM_KEY;
use semel::core::http::{Place, effect};
use semel::core::identity::Door;
use semel::core::ledger::Operation;
use semel::core::{Found, KeyHash};
use semel::http::{HeaderMap, look_up};
use semel::{Effect, Probe};
use semel_server::Url;
use semel_server::proxy::HeaderName;
use semel_server::proxy::upstream::{Client, Options};

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

/// Returns where it can be looked up what became of an operation; `None` where its probe is a command.
pub(crate) fn place(operation: &Operation) -> Option<Place> {
    let spec = &operation.spec;
    let door = spec.door.as_ref()?;
    let is_request = door.as_str() == Door::Proxy.as_str();
    let probe = spec.probe.as_ref().filter(|_| is_request);
    probe.map(Probe::as_str).and_then(Place::read)
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
