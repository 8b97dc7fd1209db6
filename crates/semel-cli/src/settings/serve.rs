//! What the settings mean for a server.

use std::num::NonZeroU32;
use std::path::PathBuf;

use semel::Namespace;
use semel::core::http::Host;
use semel_server::{Auth, Config, Limits, Notify, Secret, Tls, Url};

use super::Settings;
use super::known::optional;
use crate::args::values;
use crate::failure::Failure;

impl Settings {
    /// Returns what a server is told.
    pub(crate) fn server(&self) -> Result<Config, Failure> {
        let number = |name| self.parsed(name, values::number);
        let duration = |name| self.parsed(name, values::duration);
        let rate_limit = number("serve.rate_limit")?;
        let limits = Limits::default();
        Ok(Config {
            auth: match self.get("auth") {
                "required" => Auth::Required,
                _ => Auth::Loopback,
            },
            tls: self.tls()?,
            namespace: self.served_namespace()?,
            hosts: self.hosts()?,
            origins: self.list("serve.origins"),
            rate_limit: u32::try_from(rate_limit).ok().and_then(NonZeroU32::new),
            notify: self.notify()?,
            push: self.pushes()?,
            otlp: self.parsed("serve.otlp", |text| optional(text, Url::parse))?,
            limits: Limits {
                body: self.parsed("serve.body_limit", values::size)?,
                wait: duration("serve.wait_limit")?,
                deadline: duration("serve.deadline")?,
                drain: duration("serve.drain")?,
                connections: number("serve.connections")?,
                streams: number("serve.streams")?,
                ..limits
            },
            ..Config::new(self.parsed("serve.listen", values::listen)?)
        })
    }

    /// Returns the only namespace that is served, where one was asked for.
    fn served_namespace(&self) -> Result<Option<Namespace>, Failure> {
        let named = self.namespace().map(Namespace::new).transpose();
        named.map_err(|error| Failure::input(format!("namespace: {error}")))
    }

    fn hosts(&self) -> Result<Vec<Host>, Failure> {
        let hosts = self.list("serve.hosts");
        let read = hosts.iter().map(|text| {
            let host = Host::parse(text);
            host.map_err(|error| Failure::input(format!("serve.hosts: `{text}`: {error}")))
        });
        read.collect()
    }

    fn notify(&self) -> Result<Notify, Failure> {
        let command = self.get("notify.command");
        Ok(Notify {
            command: (!command.is_empty()).then(|| command.to_owned()),
            webhook: self.parsed("notify.webhook", |text| optional(text, Url::parse))?,
            secret: self.parsed("notify.secret", |text| optional(text, Secret::parse))?,
        })
    }

    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let (cert, key) = (self.get("serve.tls_cert"), self.get("serve.tls_key"));
        match (cert.is_empty(), key.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Ok(Some(Tls {
                cert: PathBuf::from(cert),
                key: PathBuf::from(key),
            })),
            _ => Err(Failure::input(
                "serve.tls_cert and serve.tls_key go together: one of them is missing",
            )),
        }
    }
}
