//! TLS: a certificate and its key from files, read again when they change.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;
use crate::connection::Spoken;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Accepts encrypted connections, always with the newest certificate that could be read.
#[derive(Clone)]
pub(crate) struct Encryption {
    files: Arc<Tls>,
    spoken: Spoken,
    now: Arc<RwLock<Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Encryption").field(&self.files).finish()
    }
}

impl Encryption {
    pub(crate) fn new(files: &Tls, spoken: Spoken) -> Result<Self, String> {
        let config = read(files, spoken)?;
        Ok(Self {
            files: Arc::new(files.clone()),
            spoken,
            now: Arc::new(RwLock::new(Arc::new(config))),
        })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.now.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }

    /// Looks at the files for ever. What cannot be read is said and leaves things as they are.
    pub(crate) async fn keep_fresh(self) {
        let mut seen = changed(&self.files);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = changed(&self.files);
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.files, self.spoken) {
                Ok(config) => {
                    let mut current = self.now.write().unwrap_or_else(PoisonError::into_inner);
                    *current = Arc::new(config);
                    tracing::info!("the certificate was read again");
                }
                Err(error) => tracing::error!(error, "the new certificate cannot be used"),
            }
        }
    }
}

fn changed(files: &Tls) -> [Option<SystemTime>; 2] {
    let at = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    [at(&files.cert), at(&files.key)]
}

fn read(files: &Tls, spoken: Spoken) -> Result<ServerConfig, String> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        format!("{} cannot be used: {error}", path.display())
    };
    let pem = |path: &Path| -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error: io::Error| unreadable(path, &error))
    };
    let certs = CertificateDer::pem_slice_iter(&pem(&files.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(&files.cert, &error))?;
    if certs.is_empty() {
        return Err(unreadable(&files.cert, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(&pem(&files.key)?)
        .map_err(|error| unreadable(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(|error| unreadable(&files.key, &error))?;
    config.alpn_protocols = match spoken {
        Spoken::Http1 => vec![b"http/1.1".to_vec()],
        Spoken::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(config)
}
