//! Requests that the server makes itself: a connection for each, no redirects, no hidden retries.

use std::fmt;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;

use crate::dial::Dialer;
use crate::listener::Stream;

/// How long the other side may take to be reached.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long it may take to answer, once it has the request.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// An `http://` or `https://` address to send to. It may hold a secret in its path, so only its host is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({})", self.place())
    }
}

impl Url {
    /// Reads an address.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) | None => return Err("it begins with http:// or https://".to_owned()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        if place.contains('@') {
            return Err("a user and a password do not go into the address".to_owned());
        }
        let plain = |c: char| c.is_ascii_graphic() && c != '#';
        if !path.chars().all(plain) {
            return Err("it has a character that has to be escaped, or a `#`".to_owned());
        }
        let (host, port) = host_and_port(place, if tls { 443 } else { 80 })
            .ok_or_else(|| "it has the form https://HOST:PORT/PATH".to_owned())?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            tls,
            host,
            port,
            path: format!("{slash}{path}"),
        })
    }

    /// Returns the whole address, which may hold a secret: it names a server in hashes only.
    pub(crate) fn whole(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.place(), self.path)
    }

    /// Returns where it leads, without what may be secret.
    pub(crate) fn place(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// Returns what goes into the Host header: the usual port is not said, as many do not expect it.
    pub(crate) fn host(&self) -> String {
        let usual = if self.tls { ":443" } else { ":80" };
        let place = self.place();
        place.strip_suffix(usual).unwrap_or(&place).to_owned()
    }

    /// Says whether connections to it are encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Returns the name or the number of the machine.
    pub(crate) fn name(&self) -> &str {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path and what follows it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

fn host_and_port(place: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        // An IPv6 address has colons of its own.
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = (!rest.is_empty()).then(|| rest.strip_prefix(':'));
            (host, port.map_or(Some(None), |port| port.map(Some))?)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return None;
    }
    let port = port.map_or(Some(usual), |port| port.parse().ok())?;
    (port != 0).then(|| (host.to_owned(), port))
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Lost {
    /// Whether the other side may have got the request.
    pub(crate) sent: bool,
    pub(crate) error: String,
}

impl Lost {
    pub(crate) fn unsent(error: impl fmt::Display) -> Self {
        let error = error.to_string();
        Self { sent: false, error }
    }

    pub(crate) fn sent(error: impl fmt::Display) -> Self {
        let error = error.to_string();
        Self { sent: true, error }
    }
}

/// Sends to one address.
pub(crate) struct Outbound {
    url: Url,
    dialer: Dialer,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbound").field(&self.url).finish()
    }
}

impl Outbound {
    /// Gets ready: the other side's certificate is checked against the authorities of this system.
    pub(crate) fn new(url: Url) -> Result<Self, String> {
        let dialer = Dialer::new(&url)?;
        Ok(Self { url, dialer })
    }

    /// Sends JSON and waits for the status of the answer; what the answer says is not read.
    pub(crate) async fn post(
        &self,
        headers: &[(HeaderName, HeaderValue)],
        json: Bytes,
    ) -> Result<StatusCode, Lost> {
        let mut request = Request::post(&self.url.path)
            .header(header::HOST, self.url.host())
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("semel/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(json))
            .map_err(Lost::unsent)?;
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        let stream = self.connect().await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(Lost::unsent)?;
        let connection = tokio::spawn(connection);
        let answer = tokio::time::timeout(ANSWER_MAX, sender.try_send_request(request)).await;
        connection.abort();
        match answer {
            Ok(Ok(answer)) => Ok(answer.status()),
            Ok(Err(mut error)) => Err(Lost {
                sent: error.take_message().is_none(),
                error: error.into_error().to_string(),
            }),
            Err(_) => {
                let seconds = ANSWER_MAX.as_secs();
                Err(Lost::sent(format!(
                    "there was no answer within {seconds} s"
                )))
            }
        }
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    /// Opens a connection. Nothing was asked on it when this fails.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Stream>, Lost> {
        let place = self.url.place();
        match tokio::time::timeout(CONNECT_MAX, self.dialer.open(|tcp| tcp)).await {
            Ok(Ok(dialed)) => Ok(dialed.stream),
            Ok(Err(error)) => Err(Lost::unsent(format!("{place} cannot be reached: {error}"))),
            Err(_) => Err(Lost::unsent(format!("{place} did not let us in"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_it_leads() {
        for (text, tls, host, port, path) in [
            ("http://a", false, "a", 80, "/"),
            ("https://a.example/b?c=d", true, "a.example", 443, "/b?c=d"),
            ("https://a?c", true, "a", 443, "/?c"),
            ("http://127.0.0.1:9/x", false, "127.0.0.1", 9, "/x"),
            ("http://[::1]:9/x", false, "::1", 9, "/x"),
            ("https://[::1]", true, "::1", 443, "/"),
        ] {
            let url = Url::parse(text).expect(text);
            let found = (url.tls, url.host.as_str(), url.port, url.path.as_str());
            assert_eq!(found, (tls, host, port, path), "{text}");
        }
        for text in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http://a:0",
            "http://a:b",
            "http://a b",
            "http://[::1",
            "http://[::1]x",
            "http://u:p@a",
            "http://a/#b",
            "http://a/ü",
            "http://a/\r\nb: c",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let url = Url::parse("https://hooks.example/T0/secret").expect("it is right");
        assert_eq!(format!("{url:?}"), "Url(hooks.example:443)");
    }
}
