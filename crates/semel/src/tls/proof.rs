//! What a server must prove before anything is sent to it, and what to do when it cannot.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// How much a server must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Nothing,
    /// That an authority vouches for it.
    Authority,
    /// That an authority vouches for its name.
    Name,
}

/// Looks at a server's certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    check: Check,
    roots: RootCertStore,
    given: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// Takes any server.
    pub(crate) fn nothing(algorithms: WebPkiSupportedAlgorithms) -> Self {
        let roots = RootCertStore::empty();
        Self::new(Check::Nothing, roots, vec![], algorithms)
    }

    /// Takes servers for which one of these authorities vouches.
    pub(crate) const fn new(
        check: Check,
        roots: RootCertStore,
        given: Vec<CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self {
            check,
            roots,
            given,
            algorithms,
        }
    }

    /// Follows the signatures up to an authority. A certificate that was itself given as one is known:
    /// many servers have one that they signed themselves.
    fn is_vouched_for(
        &self,
        shown: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let followed = verify_server_cert_signed_by_trust_anchor(
            parsed,
            &self.roots,
            between,
            now,
            self.algorithms.all,
        );
        match followed {
            // Its time is checked before this is said.
            Err(error) if is_authority(&error) && self.given.contains(shown) => Ok(()),
            followed => followed,
        }
    }
}

/// Says whether a server was refused because it showed the certificate of an authority as its own.
fn is_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            other.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.check != Check::Nothing {
            let parsed = ParsedCertificate::try_from(shown)?;
            self.is_vouched_for(shown, &parsed, between, now)?;
            if self.check == Check::Name {
                verify_server_name(&parsed, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, shown, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, shown, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Says what to do about a server that did not prove enough; nothing where trying again may do. The URL's
/// parameter `roots` names the authorities.
pub(crate) fn advice(error: &Error, roots: &str) -> Option<String> {
    Some(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "nobody that is trusted here vouches for the server: name the file of its authority's \
             certificate with {roots}=PATH in the URL"
        ),
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) => other_name(&expected.to_str(), presented),
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew the server's certificate, or set the clock of this machine right".to_owned(),
        Error::InvalidCertificate(_) if is_authority(error) => format!(
            "the server shows the certificate of an authority: if it is its own, name that very \
             certificate with {roots}=PATH in the URL"
        ),
        Error::InvalidCertificate(_) => {
            "the server's certificate cannot be used: look at it with `openssl x509 -text`"
                .to_owned()
        }
        Error::PeerIncompatible(_) => "the server must speak TLS 1.2 or newer".to_owned(),
        _ => return None,
    })
}

fn other_name(expected: &str, presented: &[String]) -> String {
    if presented.is_empty() {
        format!(
            "the server's certificate has no subjectAltName: it must name `{expected}` there (a common \
             name does not count)"
        )
    } else {
        format!(
            "the URL must have a host for which the server's certificate is made, or the certificate \
             must name `{expected}`"
        )
    }
}
