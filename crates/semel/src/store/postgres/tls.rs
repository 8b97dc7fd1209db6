//! TLS to PostgreSQL: who is asked for it, and who the server must prove to be.
//!
//! A URL says it in libpq's words. Without `sslmode`, a server on another machine must prove that it is
//! the one that the URL names (`verify-full`); libpq would take an impostor, or plain text.
//!
//! | `sslmode` | encrypted | the server proves |
//! |---|---|---|
//! | not said, Unix socket | no | nothing: the file system says who may serve there |
//! | not said, loopback | where the server can | nothing |
//! | not said, another machine | always | as `verify-full` |
//! | not said, `sslrootcert` given | always | as `verify-full` |
//! | `disable` | never | nothing |
//! | `prefer` | where the server can; refused for another machine | nothing |
//! | `require` | always | nothing; as `verify-ca` when `sslrootcert` is given |
//! | `verify-ca` | always | that an authority vouches for it, whatever its name |
//! | `verify-full` | always | that an authority vouches for the name in the URL |
//!
//! The authorities are those of `sslrootcert=PATH`, else, or with `sslrootcert=system`, those that the
//! platform trusts. They are read from the platform rather than built in: an administrator's own
//! authority counts, and a withdrawn one goes without a new version of Semel. `sslcert` and `sslkey` are
//! the files of a client's certificate and its key.
//!
//! Passwords are bound to the connection (SCRAM-SHA-256-PLUS) where the server can do it, so that
//! nobody in between can pass them on; `channel_binding=require` insists on it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Distance;
use crate::store::{Result, StoreError};
use crate::tls::{Authorities, Check, certificates, read};

/// The parameter that names the authorities.
pub(super) const ROOTS: &str = "sslrootcert";

/// The word for the platform's authorities, in place of a path.
const SYSTEM: &str = "system";

/// The words of `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => {
                Err("sslmode must be disable, prefer, require, verify-ca or verify-full".to_owned())
            }
        }
    }
}

/// What a URL says about TLS.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) mode: Option<Mode>,
    /// A path, or `system`.
    pub(super) roots: Option<String>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

fn refused(text: impl Into<String>) -> StoreError {
    StoreError::Refused(text.into())
}

impl Asked {
    /// Decides how a server is spoken to.
    pub(super) fn plan(&self, distance: Distance) -> Result<(SslMode, Check)> {
        let mode = match (self.mode, &self.roots) {
            (None, Some(_)) => Some(Mode::VerifyFull),
            (mode, _) => mode,
        };
        let mode = match (mode, distance) {
            (None | Some(Mode::Prefer), Distance::Socket) => Mode::Disable,
            (Some(mode), Distance::Socket) if mode != Mode::Disable => {
                return Err(refused(
                    "the URL asks for TLS, which PostgreSQL does not speak on a Unix socket; leave out \
                     sslmode and sslrootcert, as nobody can listen there",
                ));
            }
            (None, Distance::Loopback) => Mode::Prefer,
            (None, Distance::Network) => Mode::VerifyFull,
            (Some(Mode::Prefer), Distance::Network) => {
                return Err(refused(
                    "sslmode=prefer would send plain text to another machine whenever somebody in \
                     between wishes so; say sslmode=verify-full (the default), or sslmode=disable \
                     if the network in between is trusted",
                ));
            }
            (Some(mode), _) => mode,
        };
        let own = self.roots.as_ref().is_some_and(|roots| roots != SYSTEM);
        if matches!(mode, Mode::Require | Mode::VerifyCa) && !own && self.roots.is_some() {
            return Err(refused(
                "with sslrootcert=system anybody can get a certificate for a name of their own: say \
                 sslmode=verify-full",
            ));
        }
        Ok(match mode {
            Mode::Disable => (SslMode::Disable, Check::Nothing),
            Mode::Prefer => (SslMode::Prefer, Check::Nothing),
            Mode::Require if own => (SslMode::Require, Check::Authority),
            Mode::Require => (SslMode::Require, Check::Nothing),
            Mode::VerifyCa => (SslMode::Require, Check::Authority),
            Mode::VerifyFull => (SslMode::Require, Check::Name),
        })
    }

    /// Makes what speaks TLS, with the files that the URL names.
    pub(super) fn connector(&self, check: Check) -> Result<MakeRustlsConnect> {
        let authorities = Authorities {
            parameter: ROOTS,
            file: self
                .roots
                .as_deref()
                .filter(|it| *it != SYSTEM)
                .map(Path::new),
        };
        let builder = authorities.config(check)?;
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => builder
                .with_client_auth_cert(certificates("sslcert", certificate)?, private_key(key)?)
                .map_err(|error| {
                    refused(format!(
                        "sslcert and sslkey cannot be used together: {error}"
                    ))
                })?,
            (Some(_), None) | (None, Some(_)) => {
                return Err(refused("sslcert and sslkey go together: name both or none"));
            }
        };
        Ok(MakeRustlsConnect::new(config))
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    use std::os::unix::fs::MetadataExt as _;
    let bytes = read("sslkey", path)?;
    let found = path.metadata().map_err(|error| {
        refused(format!(
            "sslkey: {} cannot be looked at: {error}",
            path.display()
        ))
    })?;
    // As libpq has it: a group may be let in to what the system's administrator owns.
    let others = if found.uid() == 0 { 0o037 } else { 0o077 };
    if found.mode() & others != 0 {
        return Err(refused(format!(
            "sslkey: others can read {}; say `chmod 600` to it",
            path.display()
        )));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        refused(format!(
            "sslkey: {} holds no key that can be read (PEM, not encrypted)",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_proves_its_name_unless_the_url_says_otherwise() {
        use Distance::{Loopback, Network, Socket};
        let (plain, unproved) = (
            Some((SslMode::Disable, Check::Nothing)),
            Some((SslMode::Require, Check::Nothing)),
        );
        let maybe = Some((SslMode::Prefer, Check::Nothing));
        let (authority, name) = (
            Some((SslMode::Require, Check::Authority)),
            Some((SslMode::Require, Check::Name)),
        );
        // The mode and roots that were said; then the plan for a socket, loopback and the network.
        for (mode, roots, plans) in [
            (None, None, [plain, maybe, name]),
            (None, Some("ca.pem"), [None, name, name]),
            (None, Some("system"), [None, name, name]),
            (Some("disable"), None, [plain, plain, plain]),
            (Some("disable"), Some("ca.pem"), [plain, plain, plain]),
            (Some("prefer"), None, [plain, maybe, None]),
            (Some("require"), None, [None, unproved, unproved]),
            (
                Some("require"),
                Some("ca.pem"),
                [None, authority, authority],
            ),
            (Some("require"), Some("system"), [None, None, None]),
            (Some("verify-ca"), None, [None, authority, authority]),
            (
                Some("verify-ca"),
                Some("ca.pem"),
                [None, authority, authority],
            ),
            (Some("verify-ca"), Some("system"), [None, None, None]),
            (Some("verify-full"), None, [None, name, name]),
            (Some("verify-full"), Some("ca.pem"), [None, name, name]),
        ] {
            let asked = Asked {
                mode: mode.map(|mode| mode.parse().expect("a mode")),
                roots: roots.map(ToOwned::to_owned),
                ..Asked::default()
            };
            for (distance, plan) in [Socket, Loopback, Network].into_iter().zip(plans) {
                let said = format!("{mode:?} {roots:?} {distance:?}");
                assert_eq!(asked.plan(distance).ok(), plan, "{said}");
            }
        }
    }
}
