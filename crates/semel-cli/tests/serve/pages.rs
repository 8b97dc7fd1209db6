//! What browsers and broken clients say about where a request comes from, and which of it a door on this machine takes:
//! one table for the API, the inbox and the MCP gateway.

use crate::http::Asked;

/// The origin that the settings trust.
pub(crate) const TRUSTED: &str = "https://ops.example";

/// The settings that trust it.
pub(crate) const SETTINGS: &str = "[serve]\norigins = [\"https://ops.example\"]\n";

/// What one request says about where it comes from, and whether it may come in.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) is_trusted: bool,
    pub(crate) passes: bool,
}

impl PageRequest {
    pub(crate) fn in_request(&self, asked: Asked) -> Asked {
        let headers = self.headers.iter();
        headers.fold(asked, |asked, (name, value)| asked.header(name, value))
    }
}

/// Returns every pair of an `Origin` and a `Sec-Fetch-Site`, for a server that is spoken to at a port.
pub(crate) fn said(port: u16) -> Vec<PageRequest> {
    let host = format!("localhost:{port}");
    let own = format!("http://{host}");
    let origins = [
        None,
        Some(own.clone()),
        Some(TRUSTED.to_owned()),
        Some("null".to_owned()),
        Some("http://evil.example".to_owned()),
        Some(format!("http://evil.example:{port}")),
        // Another port, another name and another scheme are other origins.
        Some("http://localhost".to_owned()),
        Some("http://localhost:1".to_owned()),
        Some(format!("http://127.0.0.1:{port}")),
        Some(format!("https://{host}")),
        Some(format!("{own}/")),
        Some("nonsense".to_owned()),
    ];
    let sites = [
        None,
        Some("same-origin"),
        Some("none"),
        Some("same-site"),
        Some("cross-site"),
        Some("nonsense"),
    ];
    let mut all = vec![];
    for origin in &origins {
        for site in sites {
            let is_trusted = origin.as_deref() == Some(TRUSTED);
            let is_ours = origin.as_ref().is_none_or(|origin| *origin == own);
            let is_same = matches!(site, None | Some("same-origin" | "none"));
            let mut headers = vec![("Host", host.clone())];
            headers.extend(origin.clone().map(|origin| ("Origin", origin)));
            headers.extend(site.map(|site| ("Sec-Fetch-Site", site.to_owned())));
            headers.push(("Sec-Fetch-Mode", "cors".to_owned()));
            all.push(PageRequest {
                headers,
                is_trusted,
                passes: is_trusted || (is_ours && is_same),
            });
        }
    }
    all
}

/// Texts that are no host, or none that every parser reads the same way.
pub(crate) const NO_HOSTS: [&str; 24] = [
    "",
    "localhost:",
    "localhost:0",
    "localhost:99999",
    "localhost:65536",
    "localhost:+80",
    "localhost:80:80",
    "localhost:http",
    "local host",
    "localhost, evil.example",
    "localhost/x",
    "localhost#x",
    "evil.example@localhost",
    "user:word@localhost",
    "localhost..",
    ".localhost",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "::1",
    "[::1",
    "[::1]x",
    "[::1]:99999",
    "[fe80::1%25eth0]",
];
