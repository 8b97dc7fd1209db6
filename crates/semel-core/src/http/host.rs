//! Host fields: for which server a request is (RFC 9110, section 7.2), read strictly.
//!
//! A server on loopback trusts its callers by the name that they use for it, so a text that two parsers read
//! differently is refused instead of repaired.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// The longest name (RFC 1035), without a trailing dot.
const NAME_MAX: usize = 253;

/// The longest part of a name between two dots.
const LABEL_MAX: usize = 63;

/// A host as a Host field, a `:authority` or an origin names it: a name or an address, and a port.
///
/// Accepted are `name`, `name.` (one trailing dot: the same name), `192.0.2.1`, `[2001:db8::1]`, each with `:PORT` from
/// 1 to 65535 or without. Everything else is refused: user names, empty ports, spaces, lists, zone ids, open
/// brackets, and names that end in a number without being an IPv4 address (`127.1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    name: HostName,
    port: Option<u16>,
}

/// What a host is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HostName {
    /// In lower case and without its trailing dot.
    Name {
        text: String,
        has_dot: bool,
    },
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// A text that names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no host: a host is written `name`, `192.0.2.1` or `[::1]`, and `:PORT` may follow")]
pub struct HostError;

impl Host {
    /// Reads a host.
    ///
    /// # Errors
    /// Refuses what is no host, or none that everybody reads the same way.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or(HostError)?;
            let address = address.parse().map_err(|_| HostError)?;
            let port = match rest {
                "" => None,
                rest => Some(port(rest.strip_prefix(':').ok_or(HostError)?)?),
            };
            let name = HostName::V6(address);
            return Ok(Self { name, port });
        }
        let (text, port) = match text.split_once(':') {
            Some((text, digits)) => (text, Some(port(digits)?)),
            None => (text, None),
        };
        Ok(Self {
            name: name(text)?,
            port,
        })
    }

    /// Returns the port that is named.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Says whether it names the machine that the request came from: `localhost`, or a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.name {
            HostName::Name { text, .. } => text == "localhost",
            HostName::V4(address) => address.is_loopback(),
            HostName::V6(address) => address.is_loopback(),
        }
    }

    /// Says whether a request for this host is meant by a known one: the same name, at any port unless the known one
    /// names a port.
    #[must_use]
    pub fn is_meant_by(&self, known: &Self) -> bool {
        let is_same = match (&self.name, &known.name) {
            (HostName::Name { text: one, .. }, HostName::Name { text: other, .. }) => one == other,
            (one, other) => one == other,
        };
        is_same && (known.port.is_none() || known.port == self.port)
    }

    /// Returns the host without its port.
    #[must_use]
    pub fn without_port(&self) -> Self {
        Self {
            name: self.name.clone(),
            port: None,
        }
    }

    /// Returns the host at a port that is said, whether it is the usual one or not.
    pub(super) fn at_port(&self, usual: u16) -> Self {
        Self {
            name: self.name.clone(),
            port: Some(self.port.unwrap_or(usual)),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            HostName::Name { text, has_dot } => {
                write!(f, "{text}{}", if *has_dot { "." } else { "" })?;
            }
            HostName::V4(address) => write!(f, "{address}")?,
            HostName::V6(address) => write!(f, "[{address}]")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn port(digits: &str) -> Result<u16, HostError> {
    // `u16::from_str` takes a plus sign as well.
    let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    let port = digits.parse().map_err(|_| HostError)?;
    (is_number && port != 0).then_some(port).ok_or(HostError)
}

fn name(text: &str) -> Result<HostName, HostError> {
    if let Ok(address) = text.parse() {
        return Ok(HostName::V4(address));
    }
    let (text, has_dot) = match text.strip_suffix('.') {
        Some(text) => (text, true),
        None => (text, false),
    };
    // Service names of containers have underscores.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label =
        |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(is_plain);
    // Browsers read what ends in a number as an IPv4 address, in forms that others do not know.
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let ends_in_number = text.rsplit('.').next().is_none_or(is_number);
    if text.len() > NAME_MAX || !text.split('.').all(is_label) || ends_in_number {
        return Err(HostError);
    }
    let text = text.to_ascii_lowercase();
    Ok(HostName::Name { text, has_dot })
}
