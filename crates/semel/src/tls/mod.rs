//! TLS as a client: whom to trust, and what a server must prove.

#![cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "a remote server always proves its name")
)]

mod proof;

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use self::proof::Verifier;
pub(crate) use self::proof::{Check, advice};
use crate::store::{Result, StoreError};

fn refused(text: impl Into<String>) -> StoreError {
    StoreError::Refused(text.into())
}

/// Whose word counts for a server's certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authorities<'a> {
    /// The parameter of the URL that names a file of them.
    pub(crate) parameter: &'a str,
    /// The file; without it, those that the platform trusts. They are read from the platform rather
    /// than built in: an administrator's own authority counts, and a withdrawn one goes without a new
    /// version of Semel.
    pub(crate) file: Option<&'a Path>,
}

impl Authorities<'_> {
    /// Starts a configuration in which a server must prove this much.
    pub(crate) fn config(
        self,
        check: Check,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
        let provider = Arc::new(ring::default_provider());
        let given = match (check, self.file) {
            (Check::Nothing, _) => vec![],
            (Check::Authority | Check::Name, None) => self.platform()?,
            (Check::Authority | Check::Name, Some(path)) => certificates(self.parameter, path)?,
        };
        let verifier = self.verifier(check, given, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(format!("TLS cannot be set up: {error}")))?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier)))
    }

    fn verifier(
        self,
        check: Check,
        given: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier> {
        let algorithms = provider.signature_verification_algorithms;
        if check == Check::Nothing {
            return Ok(Verifier::nothing(algorithms));
        }
        let mut roots = RootCertStore::empty();
        // A platform's list may hold an old one that cannot be read; the others count.
        let (added, _) = roots.add_parsable_certificates(given.iter().cloned());
        if added == 0 {
            return Err(refused(format!(
                "{} has no certificate that can be used for an authority",
                self.parameter
            )));
        }
        Ok(Verifier::new(check, roots, given, algorithms))
    }

    /// Reads the authorities that the platform trusts.
    fn platform(self) -> Result<Vec<CertificateDer<'static>>> {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            return Err(refused(format!(
                "this system trusts no certificate authority: install its list (Debian: \
                 ca-certificates), or name the authority of the server with {}=PATH in the URL",
                self.parameter
            )));
        }
        Ok(found.certs)
    }
}

/// Reads a file that a parameter of the URL names.
pub(crate) fn read(parameter: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        refused(format!(
            "{parameter}: {} cannot be read: {error}",
            path.display()
        ))
    })
}

/// Reads the certificates in a file that a parameter of the URL names.
pub(crate) fn certificates(parameter: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(parameter, path)?;
    let read = CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<Vec<_>, _>>();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) | Err(PemError::NoItemsFound) => Err(refused(format!(
            "{parameter}: {} holds no certificate (PEM, `-----BEGIN CERTIFICATE-----`)",
            path.display()
        ))),
        Err(error) => Err(refused(format!(
            "{parameter}: {} is no PEM file that can be read: {error}",
            path.display()
        ))),
    }
}
