//! What became of the requests that came through the proxy.

use std::time::Duration;

use semel::http::Became;

use super::histogram::Histogram;
use super::known;
use super::text::Text;
use super::{NOWHERE, Words};
use crate::http::codes;

/// Codes that only the proxy's own refusals have.
const CODES: [&str; 2] = ["not_sent", "lost"];

/// Counts the requests of each route of the proxy.
#[derive(Debug)]
pub(crate) struct Proxied {
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Route {
    name: String,
    became: Words,
    took: Histogram,
}

impl Route {
    fn new(name: &str) -> Self {
        let words = Became::ALL.map(Became::as_str);
        // A refusal is counted by its code.
        let words = words.into_iter().filter(|word| *word != REFUSED);
        Self {
            name: name.to_owned(),
            became: Words::new(words.chain(codes()).chain(CODES)),
            took: Histogram::default(),
        }
    }
}

const REFUSED: &str = Became::Refused.as_str();

impl Proxied {
    /// Begins to count for these routes; those of one name are counted together.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut names: Vec<&str> = names.chain([NOWHERE]).collect();
        names.sort_unstable();
        names.dedup();
        Self {
            routes: names.into_iter().map(Route::new).collect(),
        }
    }

    /// Counts a request by its route, and by what became of it: a word, or the code of a refusal.
    pub(crate) fn answered(&self, route: Option<&str>, became: &str, took: Duration) {
        let name = route.unwrap_or(NOWHERE);
        if let Some(route) = self.routes.iter().find(|route| route.name == name) {
            route.became.add(became);
            route.took.add(took);
        }
    }
}

/// Writes what was counted; where there is no proxy, only what it would be.
pub(super) fn write(text: &mut Text, proxied: Option<&Proxied>) {
    let routes = || proxied.into_iter().flat_map(|proxied| &proxied.routes);
    text.metric(&known::PROXY_REQUESTS);
    for route in routes() {
        for (word, count) in route.became.read().filter(|(_, count)| *count > 0) {
            let labels = [("route", route.name.as_str()), ("became", word)];
            text.sample(&known::PROXY_REQUESTS, &labels, count);
        }
    }
    text.metric(&known::PROXY_SECONDS);
    for route in routes() {
        let labels = [("route", route.name.as_str())];
        text.histogram(&known::PROXY_SECONDS, &labels, &route.took.read());
    }
}
