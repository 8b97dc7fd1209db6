//! Reaching a server: its addresses, TLS, and the first words of HTTP.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::url::{Address, ROOTS, Url};
use crate::store::{Result, StoreError};
use crate::tls::{Authorities, Check, advice};
use crate::within;

/// A connection that requests can be sent on.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// How long a server may take to let us in: one that is there answers in milliseconds, and callers are
/// to hear soon of one that is not.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long each address of a server's name may take, so that one that is gone leaves time for the next.
const ADDRESS_WAIT: Duration = Duration::from_secs(2);

/// How one server is reached.
pub(super) struct Connector {
    url: Url,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.url).finish()
    }
}

impl Connector {
    pub(super) fn new(url: Url) -> Result<Self> {
        let tls = match &url.address {
            Address::Tcp {
                host, tls: true, ..
            } => {
                let authorities = Authorities {
                    parameter: ROOTS,
                    file: url.roots.as_deref(),
                };
                let config: ClientConfig = authorities.config(Check::Name)?.with_no_client_auth();
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    StoreError::Refused(format!("`{host}` is no name that a certificate can have"))
                })?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            Address::Tcp { tls: false, .. } | Address::Socket(_) => None,
        };
        Ok(Self { url, tls })
    }

    /// Opens a connection. Nothing has been asked on it when this fails.
    pub(super) async fn connect(&self) -> Result<Connection> {
        match within(CONNECT_WAIT, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(StoreError::Unavailable(format!(
                "the server {} did not answer within {} s",
                self.url.host(),
                CONNECT_WAIT.as_secs()
            ))),
        }
    }

    async fn open(&self) -> Result<Connection> {
        let (host, port) = match &self.url.address {
            Address::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                return speak(stream.map_err(|error| {
                    let hint = "is it running, and is the path right?";
                    StoreError::Unavailable(format!(
                        "the server at {} cannot be reached: {error}; {hint}",
                        path.display()
                    ))
                })?)
                .await;
            }
            Address::Tcp { host, port, .. } => (host.as_str(), *port),
        };
        let stream = dial(host, port)
            .await
            .map_err(|error| self.unreached(&error))?;
        // A request is one small write; waiting for more would only delay it.
        stream
            .set_nodelay(true)
            .map_err(|error| self.unreached(&error))?;
        let Some((connector, name)) = &self.tls else {
            return speak(stream).await;
        };
        let secured = connector.connect(name.clone(), stream).await;
        speak(secured.map_err(|error| self.unproven(&error))?).await
    }

    fn unreached(&self, error: &io::Error) -> StoreError {
        let host = self.url.host();
        StoreError::Unavailable(format!(
            "the server {host} cannot be reached: {error}; is it running (`semel serve`), and are host \
             and port right?"
        ))
    }

    fn unproven(&self, error: &io::Error) -> StoreError {
        let text = format!("no TLS with the server {}: {error}", self.url.host());
        let handshake = error
            .get_ref()
            .and_then(|it| it.downcast_ref::<rustls::Error>());
        match handshake.and_then(|handshake| advice(handshake, ROOTS)) {
            Some(advice) => StoreError::Refused(format!("{text}; {advice}")),
            None => StoreError::Unavailable(format!("{text}; does it speak TLS there?")),
        }
    }
}

/// Tries each address of a name.
async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in lookup_host((host, port)).await? {
        match timeout(ADDRESS_WAIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
        }
    }
    Err(last)
}

/// Starts to speak HTTP.
async fn speak(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Connection> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| {
        StoreError::Unavailable(format!("the server cannot be spoken to: {error}"))
    })?;
    // What goes wrong on it is told to whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
