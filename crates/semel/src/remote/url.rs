//! What the URL of a remote store says.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::store::{Result, StoreError};

/// The parameter that names the authorities of a server's certificate.
pub(super) const ROOTS: &str = "ca";

/// The connections that a process may have to its server, unless the URL says otherwise: a server
/// commits in groups, so a few dozen callers at once are better served than a few.
const CONNECTIONS: usize = 32;

/// The most connections that a URL may ask for.
const CONNECTIONS_MAX: usize = 256;

/// Where a server is, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) address: Address,
    /// What comes before `/v1/engine`.
    pub(super) prefix: String,
    pub(super) connections: usize,
    pub(super) roots: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp { host: String, port: u16, tls: bool },
    Socket(PathBuf),
}

fn refused(text: impl Into<String>) -> StoreError {
    StoreError::Refused(text.into())
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("http+unix:") {
            if !path.starts_with('/') {
                return Err(refused("http+unix: takes the whole path of a socket"));
            }
            return Ok(Self {
                address: Address::Socket(path.into()),
                prefix: String::new(),
                connections: CONNECTIONS,
                roots: None,
            });
        }
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) | None => return Err(refused("it begins with http:// or https://")),
        };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.find('/') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        };
        if text.contains('#') {
            return Err(refused("a store's URL has no `#`"));
        }
        if authority.contains('@') {
            return Err(refused(
                "a token does not go into the URL, where others see it: say it with SEMEL_TOKEN or \
                 --token",
            ));
        }
        let (host, port) = host_and_port(authority, if tls { 443 } else { 80 })?;
        let mut url = Self {
            address: Address::Tcp { host, port, tls },
            prefix: prefix(path)?,
            connections: CONNECTIONS,
            roots: None,
        };
        for parameter in parameters.split('&').filter(|it| !it.is_empty()) {
            url.set(parameter, tls)?;
        }
        Ok(url)
    }

    fn set(&mut self, parameter: &str, tls: bool) -> Result<()> {
        match parameter.split_once('=') {
            Some(("connections", number)) => {
                let number = number.parse().ok();
                let fits = |number: &usize| (1..=CONNECTIONS_MAX).contains(number);
                self.connections = number.filter(fits).ok_or_else(|| {
                    refused(format!(
                        "connections is a number from 1 to {CONNECTIONS_MAX}"
                    ))
                })?;
            }
            Some((ROOTS, path)) if tls && !path.is_empty() => self.roots = Some(path.into()),
            Some((ROOTS, _)) => {
                return Err(refused("ca=PATH names a file, and goes with https:// only"));
            }
            Some(_) | None => {
                return Err(refused(
                    "the URL has a parameter that is not known; there are connections=N and ca=PATH",
                ));
            }
        }
        Ok(())
    }

    /// Says whether what is sent can be read on its way by nobody but this machine and the server.
    pub(super) fn is_private(&self) -> bool {
        match &self.address {
            Address::Socket(_) | Address::Tcp { tls: true, .. } => true,
            Address::Tcp { host, .. } => is_loopback(host),
        }
    }

    /// Returns what goes into the `Host` header.
    pub(super) fn host(&self) -> String {
        match &self.address {
            Address::Socket(_) => "localhost".to_owned(),
            Address::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback())
}

fn host_and_port(authority: &str, usual: u16) -> Result<(String, u16)> {
    let wrong = || refused("it has the form http://HOST:PORT");
    let (host, port) = match authority.strip_prefix('[') {
        // An IPv6 address has colons of its own.
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(port),
                None if rest.is_empty() => None,
                None => return Err(wrong()),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(wrong());
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0),
        None => Some(usual),
    };
    Ok((host.to_owned(), port.ok_or_else(wrong)?))
}

fn prefix(path: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
    if !path.chars().all(plain) {
        return Err(refused("its path has a character that has to be escaped"));
    }
    Ok(path.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool) -> Address {
        let host = host.to_owned();
        Address::Tcp { host, port, tls }
    }

    #[test]
    fn a_url_says_where_the_server_is() {
        for (text, address, prefix, host) in [
            (
                "http://127.0.0.1:7363",
                tcp("127.0.0.1", 7363, false),
                "",
                "127.0.0.1:7363",
            ),
            (
                "http://localhost/",
                tcp("localhost", 80, false),
                "",
                "localhost:80",
            ),
            (
                "https://semel.example/a/b/",
                tcp("semel.example", 443, true),
                "/a/b",
                "semel.example:443",
            ),
            ("https://[::1]:9", tcp("::1", 9, true), "", "[::1]:9"),
            ("http://[::1]", tcp("::1", 80, false), "", "[::1]:80"),
            (
                "http+unix:/run/semel.sock",
                Address::Socket("/run/semel.sock".into()),
                "",
                "localhost",
            ),
        ] {
            let url = Url::parse(text).expect("it is right");
            assert_eq!((&url.address, url.prefix.as_str()), (&address, prefix));
            assert_eq!(url.host(), host);
        }
        let url = Url::parse("https://a/?connections=4&ca=/etc/ca.pem").expect("it is right");
        assert_eq!(
            (url.connections, url.roots),
            (4, Some("/etc/ca.pem".into()))
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in [
            "http://",
            "http://a:0",
            "http://a:65536",
            "http://a:b",
            "http://a b",
            "http://[::1",
            "http://[a]",
            "http://[::1]x",
            "http://semel_token@a",
            "http://a/b?c",
            "http://a?connections=0",
            "http://a?connections=257",
            "http://a?ca=/etc/ca.pem",
            "https://a?ca=",
            "http://a/ü",
            "http://a#b",
            "http+unix:run/semel.sock",
            "ftp://a",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_for_nobody_on_the_way() {
        for (text, private) in [
            ("http://127.0.0.1:1", true),
            ("http://127.9.9.9:1", true),
            ("http://LOCALHOST:1", true),
            ("http://[::1]:1", true),
            ("http+unix:/a", true),
            ("https://a:1", true),
            ("http://a:1", false),
            ("http://10.0.0.1:1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(
                Url::parse(text).expect("it is right").is_private(),
                private,
                "{text}"
            );
        }
    }
}
