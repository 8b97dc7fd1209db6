//! What a URL says: `postgres://USER:PASSWORD@HOST:PORT,…/DATABASE?PARAMETER=VALUE&…`, as libpq's users
//! know it.
//!
//! What is not known is refused rather than passed over: whoever misspells `sslmode` must not get
//! another one. Nothing of a URL is shown that may be part of a password.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::fault::told;
use super::tls::Asked;
use crate::store::{Result, StoreError};

/// The connections of a node unless the URL says otherwise: enough to read beside a write, and few
/// enough for a dozen nodes on a server as it comes, which takes 100.
const CONNECTIONS: usize = 8;

/// The most connections that may be asked for: with more, a server loses more than it gains.
const CONNECTIONS_MAX: usize = 64;

/// The port of a server where none is said.
const PORT: u16 = 5432;

/// How a URL is written.
const FORM: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE";

/// The parameters that `tokio_postgres` reads.
const PASSED_ON: [&str; 12] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
];

/// The parameters that are read here.
const OURS: [&str; 9] = [
    "host",
    "hostaddr",
    "port",
    "connections",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "target_session_attrs",
];

/// What a URL asks for.
#[derive(Debug)]
pub(super) struct Url {
    /// One for each server, in the URL's order.
    pub(super) servers: Vec<Config>,
    pub(super) tls: Asked,
    /// The most connections of a node.
    pub(super) connections: usize,
}

fn refused(text: impl Into<String>) -> StoreError {
    StoreError::Refused(format!("the store's URL cannot be used: {}", text.into()))
}

impl Url {
    /// Reads a URL.
    pub(super) fn read(url: &str) -> Result<Self> {
        let parts = Parts::of(url)?;
        let (mut tls, mut connections) = (Asked::default(), CONNECTIONS);
        let mut places = Places::of(parts.hosts)?;
        let mut passed = Vec::new();
        for pair in parts.parameters.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = parts.pair(pair)?;
            match name.as_str() {
                "sslmode" => tls.mode = Some(value.parse().map_err(|text: String| refused(text))?),
                "sslrootcert" => tls.roots = Some(value),
                "sslcert" => tls.certificate = Some(value.into()),
                "sslkey" => tls.key = Some(value.into()),
                "connections" => connections = read_connections(&value)?,
                "host" => places.name(&value)?,
                "hostaddr" => places.address(&value)?,
                "port" => places.port(&value)?,
                // Another one would be overruled: a standby lags behind, and what it says about a
                // key must not lead to an answer.
                "target_session_attrs" if value == "read-write" => {}
                "target_session_attrs" => {
                    return Err(refused(
                        "target_session_attrs must be read-write, which is also the default: a \
                         ledger is read from where it is written",
                    ));
                }
                _ => passed.push(pair),
            }
        }
        let base = format!(
            "postgres://{}/{}?{}",
            parts.login,
            parts.database,
            passed.join("&")
        );
        let base: Config = base
            .parse()
            .map_err(|error| refused(format!("{}; {FORM}", told(&error))))?;
        Ok(Self {
            servers: places.servers(&base)?,
            tls,
            connections,
        })
    }
}

fn read_connections(text: &str) -> Result<usize> {
    let connections = text.parse().ok();
    connections
        .filter(|connections| (1..=CONNECTIONS_MAX).contains(connections))
        .ok_or_else(|| {
            refused(format!(
                "connections must be a number from 1 to {CONNECTIONS_MAX}"
            ))
        })
}

/// A URL, cut where its parts meet.
struct Parts<'a> {
    /// User and password with their `@`, or nothing.
    login: &'a str,
    hosts: &'a str,
    database: &'a str,
    parameters: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self> {
        let schemes = ["postgres://", "postgresql://"];
        let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or_else(|| refused(FORM))?;
        // With a second one nobody can tell where a password ends, and a part of it would be taken
        // for a host, which is shown.
        let (login, rest) = match rest.find('@') {
            Some(end) => rest.split_at(end + 1),
            None => ("", rest),
        };
        if rest.contains('@') || login.contains('?') {
            return Err(refused(
                "a `@` or `?` within a password, a name or a value is written %40 or %3F",
            ));
        }
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        Ok(Self {
            login,
            hosts,
            database,
            parameters,
        })
    }

    /// Reads a parameter. The name of an unknown one is shown unless it may be the rest of a password.
    fn pair(&self, pair: &str) -> Result<(String, String)> {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            refused("a parameter has no value: write NAME=VALUE, and `&` in a value as %26")
        })?;
        let name = decoded(name)?;
        let known = PASSED_ON.iter().chain(&OURS);
        if known.clone().any(|known| *known == name) {
            return Ok((name, decoded(value)?));
        }
        let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let shown = if plain && !self.parameters.contains("password") {
            format!("there is no parameter `{name}`")
        } else {
            "it has an unknown parameter (`&` in a value is written %26)".to_owned()
        };
        let mut known: Vec<_> = known.copied().collect();
        known.sort_unstable();
        Err(refused(format!("{shown}; known are {}", known.join(", "))))
    }
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into)
        .map_err(|_| refused("it has a `%` sequence that is no text"))
}

/// Where the servers are.
#[derive(Default)]
struct Places {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
}

impl Places {
    /// Reads the hosts that stand before the database.
    fn of(hosts: &str) -> Result<Self> {
        let mut places = Self::default();
        let chunks = hosts.split(',').filter(|_| !hosts.is_empty());
        for chunk in chunks {
            let (name, port) = match chunk.strip_prefix('[') {
                Some(chunk) => {
                    let (name, port) = chunk
                        .split_once(']')
                        .ok_or_else(|| refused("an address has no `]`"))?;
                    (name, port.strip_prefix(':'))
                }
                None => match chunk.split_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (chunk, None),
                },
            };
            places.names.push(decoded(name)?);
            match port {
                Some(port) => places.ports.push(read_port(port)?),
                // One that is said for one host is said for none of the others.
                None if hosts.contains(',') => places.ports.push(PORT),
                None => {}
            }
        }
        Ok(places)
    }

    fn name(&mut self, value: &str) -> Result<()> {
        if !self.names.is_empty() {
            return Err(refused("it names the host twice"));
        }
        self.names = value.split(',').map(ToOwned::to_owned).collect();
        Ok(())
    }

    fn address(&mut self, value: &str) -> Result<()> {
        let addresses = value.split(',').map(str::parse);
        let addresses = addresses.collect::<std::result::Result<_, _>>();
        self.addresses = addresses.map_err(|_| refused("hostaddr is no address"))?;
        Ok(())
    }

    fn port(&mut self, value: &str) -> Result<()> {
        if !self.ports.is_empty() {
            return Err(refused("it names the port twice"));
        }
        self.ports = value.split(',').map(read_port).collect::<Result<_>>()?;
        Ok(())
    }

    fn servers(&self, base: &Config) -> Result<Vec<Config>> {
        let count = self.names.len().max(self.addresses.len());
        if count == 0 {
            return Err(refused(format!(
                "it names no host; {FORM}, or host=/run/postgresql for a local socket"
            )));
        }
        let fits = |length: usize| length == 0 || length == count;
        if !fits(self.names.len()) || !fits(self.addresses.len()) {
            return Err(refused("host and hostaddr differ in number"));
        }
        if !fits(self.ports.len()) && self.ports.len() != 1 {
            return Err(refused("hosts and ports differ in number"));
        }
        let server = |index: usize| {
            let mut server = base.clone();
            // An address that stands alone is also what a certificate is to name.
            match (self.names.get(index), self.addresses.get(index)) {
                (Some(name), _) => server.host(name),
                (None, Some(address)) => server.host(address.to_string()),
                (None, None) => &mut server,
            };
            if let Some(address) = self.addresses.get(index) {
                server.hostaddr(*address);
            }
            let port = self.ports.get(index).or_else(|| self.ports.first());
            server.port(port.copied().unwrap_or(PORT));
            server
        };
        Ok((0..count).map(server).collect())
    }
}

fn read_port(text: &str) -> Result<u16> {
    text.parse().map_err(|_| refused("a port is no number"))
}

/// How far away a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// On this machine, through a file.
    Socket,
    /// On this machine.
    Loopback,
    Network,
}

impl Distance {
    pub(super) fn of(server: &Config) -> Self {
        // An address is what is connected to, whatever the name beside it.
        if let [address] = server.get_hostaddrs() {
            return if address.is_loopback() {
                Self::Loopback
            } else {
                Self::Network
            };
        }
        match server.get_hosts() {
            [Host::Unix(_)] => Self::Socket,
            [Host::Tcp(name)] if name == "localhost" => Self::Loopback,
            [Host::Tcp(name)] if name.parse().is_ok_and(|a: IpAddr| a.is_loopback()) => {
                Self::Loopback
            }
            _ => Self::Network,
        }
    }
}

/// Names a server, for people.
pub(super) fn name_of(server: &Config) -> String {
    let port = server.get_ports().first().copied().unwrap_or(PORT);
    match (server.get_hosts(), server.get_hostaddrs()) {
        ([Host::Unix(path)], _) => format!("{} (port {port})", path.display()),
        ([Host::Tcp(name)], _) if name.contains(':') => format!("[{name}]:{port}"),
        ([Host::Tcp(name)], _) => format!("{name}:{port}"),
        _ => format!("port {port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(url: &str) -> Vec<String> {
        let read = Url::read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        read.servers.iter().map(name_of).collect()
    }

    #[test]
    fn every_server_is_read_with_its_port() {
        for (url, wanted) in [
            ("postgres://a@db/x", vec!["db:5432"]),
            ("postgresql://db:6432", vec!["db:6432"]),
            ("postgres://a:p%40@[::1]:7/x", vec!["[::1]:7"]),
            ("postgres://a,b:7/x", vec!["a:5432", "b:7"]),
            ("postgres://a/x?port=7", vec!["a:7"]),
            ("postgres:///x?host=a,b&port=7", vec!["a:7", "b:7"]),
            ("postgres:///x?host=a,b&port=7,8", vec!["a:7", "b:8"]),
            ("postgres:///x?hostaddr=10.0.0.1", vec!["10.0.0.1:5432"]),
            ("postgres:///x?host=/run/pg", vec!["/run/pg (port 5432)"]),
            ("postgres://%2Frun%2Fpg/x", vec!["/run/pg (port 5432)"]),
        ] {
            assert_eq!(names(url), wanted, "{url}");
        }
    }

    #[test]
    fn what_is_said_twice_or_not_known_is_refused_and_no_password_is_shown() {
        for (url, said) in [
            ("mysql://a@db/x", "postgres://USER"),
            ("postgres://a:s3cret@/x", "no host"),
            ("postgres://a:s3@cret@db/x", "%40"),
            ("postgres://a:s3?cret@db/x", "%40"),
            ("postgres://a:s3cret@db/x?host=other", "host twice"),
            ("postgres://a:s3cret@db:1/x?port=2", "port twice"),
            ("postgres://a:s3cret@db:s3cret/x", "port is no number"),
            ("postgres://a,b/x?hostaddr=10.0.0.1", "differ in number"),
            ("postgres://a:s3cret@db/x?sslmod=require", "`sslmod`; known"),
            ("postgres://a:s3cret@db/x?sslmode=on", "verify-full"),
            ("postgres://a:s3cret@db/x?sslpassword=s3cret", "unknown"),
            ("postgres://db/x?password=a&s3cret=b", "unknown parameter"),
            ("postgres://db/x?password=a&s3cret", "has no value"),
            ("postgres://db/x?p%61ssword=%ff", "is no text"),
            ("postgres://db/x?connections=0", "from 1 to 64"),
            ("postgres://db/x?connections=65", "from 1 to 64"),
            ("postgres://db/x?connections=s3cret", "from 1 to 64"),
            ("postgres://db/x?connect_timeout=s3cret", "connect_timeout"),
            ("postgres://db/x?target_session_attrs=any", "read-write"),
        ] {
            let Err(StoreError::Refused(text)) = Url::read(url) else {
                panic!("{url} is taken");
            };
            assert!(text.contains(said), "{url}: {text}");
            assert!(!text.contains("s3") && !text.contains("cret"), "{text}");
        }
    }

    #[test]
    fn what_stays_on_this_machine_is_known() {
        for (url, distance) in [
            ("postgres://a@localhost/db", Distance::Loopback),
            ("postgres://a@127.0.0.1/db", Distance::Loopback),
            ("postgres://a@[::1]/db", Distance::Loopback),
            ("postgres:///db?host=/run/postgresql", Distance::Socket),
            ("postgres://a@db.example.org/db", Distance::Network),
            ("postgres://a@10.0.0.1/db", Distance::Network),
            (
                "postgres://a@localhost/db?hostaddr=10.0.0.1",
                Distance::Network,
            ),
            ("postgres://a@db/db?hostaddr=127.0.0.1", Distance::Loopback),
        ] {
            let read = Url::read(url).expect("a URL");
            assert_eq!(Distance::of(&read.servers[0]), distance, "{url}");
        }
    }
}
