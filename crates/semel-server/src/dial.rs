//! Connections to other servers, encrypted where their address says so.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::listener::Stream;
use crate::outbound::Url;

/// How long each address of a name may take while there is another, so that one that is gone leaves time for the next.
const ADDRESS_MAX: Duration = Duration::from_secs(2);

/// How long a connection may be silent before the other side is asked whether it is there.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// Opens connections to one place.
pub(crate) struct Dialer {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_encrypted = self.tls.is_some();
        f.debug_struct("Dialer")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("is_encrypted", &is_encrypted)
            .finish()
    }
}

/// A connection that was opened.
pub(crate) struct Dialed {
    pub(crate) stream: Box<dyn Stream>,
    /// What both sides agreed to speak, where they said so (ALPN).
    pub(crate) protocol: Option<Vec<u8>>,
}

impl Dialer {
    /// Gets ready: the other side's certificate is checked against the authorities of this system.
    pub(crate) fn new(url: &Url) -> Result<Self, String> {
        if url.is_encrypted() {
            Self::trusting(url, trust()?)
        } else {
            Ok(Self {
                host: url.name().to_owned(),
                port: url.port(),
                tls: None,
            })
        }
    }

    /// Gets ready to speak TLS with what is trusted and offered here.
    pub(crate) fn trusting(url: &Url, config: ClientConfig) -> Result<Self, String> {
        let host = url.name().to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|_| format!("`{host}` is no name that a certificate can have"))?;
        Ok(Self {
            host,
            port: url.port(),
            tls: Some((TlsConnector::from(Arc::new(config)), name)),
        })
    }

    /// Opens a connection; whatever is written on it goes through what `wrap` makes of its socket.
    pub(crate) async fn open<S: Stream + 'static>(
        &self,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<Dialed> {
        let stream = wrap(self.reach().await?);
        let Some((tls, name)) = &self.tls else {
            return Ok(Dialed {
                stream: Box::new(stream),
                protocol: None,
            });
        };
        let stream = tls.connect(name.clone(), stream).await?;
        let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Dialed {
            stream: Box::new(stream),
            protocol,
        })
    }

    async fn reach(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        let found = lookup_host((self.host.as_str(), self.port)).await?;
        let mut addresses = found.peekable();
        while let Some(address) = addresses.next() {
            let connecting = TcpStream::connect(address);
            let connected = if addresses.peek().is_some() {
                tokio::time::timeout(ADDRESS_MAX, connecting).await
            } else {
                Ok(connecting.await)
            };
            match connected {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    // Whoever vanished without a word is noticed, however long an answer may take.
                    set_socket_keepalive(&stream, true)?;
                    set_tcp_keepidle(&stream, SILENT_MAX)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
            }
        }
        Err(last)
    }
}

/// Trusts whom this system trusts.
pub(crate) fn trust() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "this system trusts no certificate authority: install its list \
                    (Debian: ca-certificates), or name one with SSL_CERT_FILE"
                .to_owned(),
        );
    }
    trusting(roots)
}

/// Trusts these authorities.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
