//! Certificates for tests, made by `openssl`, which comes with PostgreSQL's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::conformance::scratch;
use crate::postgres::Setup;

/// An authority, and the files of those for whom it vouches.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
}

impl Authority {
    /// Makes an authority of this name.
    ///
    /// # Panics
    /// When `openssl` is not installed.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let directory = scratch();
        let authority = Self { directory };
        let subject = format!("/CN={name}");
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            &subject,
        ]);
        authority
    }

    /// Vouches for somebody, who has these alternative names (`DNS:name`, `IP:address`), if any.
    ///
    /// # Panics
    /// When `openssl` fails.
    #[must_use]
    pub fn vouch(&self, name: &str, alternatives: &str) -> Vouched {
        let (key, request, certificate) = (
            format!("{name}.key"),
            format!("{name}.csr"),
            format!("{name}.pem"),
        );
        let subject = format!("/CN={name}");
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            &subject,
        ]);
        let extensions = match alternatives {
            "" => "basicConstraints=CA:FALSE\n".to_owned(),
            names => format!("basicConstraints=CA:FALSE\nsubjectAltName={names}\n"),
        };
        let extended = self.directory.path().join("extensions");
        std::fs::write(&extended, extensions).expect("a file is written");
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            &certificate,
            "-extfile",
            "extensions",
        ]);
        let path = |name: &str| self.directory.path().join(name);
        Vouched {
            certificate: path(&certificate),
            key: path(&key),
        }
    }

    /// Returns the path of the authority's own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Returns the authority as if it were a server.
    #[must_use]
    pub fn itself(&self) -> Vouched {
        Vouched {
            certificate: self.certificate(),
            key: self.directory.path().join("ca.key"),
        }
    }

    fn openssl(&self, arguments: &[&str]) {
        let openssl = Command::new("openssl")
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .expect("openssl is installed (`./test` does it)");
        let said = String::from_utf8_lossy(&openssl.stderr);
        assert!(openssl.status.success(), "openssl {arguments:?}: {said}");
    }
}

/// The files of somebody for whom an authority vouches.
#[derive(Debug)]
pub struct Vouched {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Vouched {
    /// Returns the set-up of a server that listens at 127.0.0.1 and shows this certificate. Its clients
    /// may show one of this authority.
    #[must_use]
    pub fn setup(&self, clients: Option<&Authority>) -> Setup {
        let mut files = vec![self.certificate.clone(), self.key.clone()];
        // Paths are seen from the server's data, which lies beside its files.
        let beside = |path: &Path| {
            let name = path.file_name().expect("it is a file");
            format!("'../{}'", name.to_string_lossy())
        };
        let mut settings = format!(
            "ssl = on\nssl_cert_file = {}\nssl_key_file = {}\n",
            beside(&self.certificate),
            beside(&self.key)
        );
        if let Some(clients) = clients {
            let own = clients.certificate();
            settings.push_str(&format!("ssl_ca_file = {}\n", beside(&own)));
            files.push(own);
        }
        Setup {
            settings,
            files,
            tcp: true,
            ..Setup::default()
        }
    }
}
