//! What a child is told about the operation that it is part of.

use std::process::Command;

use semel::trace::{self, Trace};
use semel::{Key, Namespace, Permit};

use crate::commands::run::inject;
use crate::settings::without_password;

/// How a command names the operation that it is a step of.
const PARENT: &str = "SEMEL_PARENT";

/// An operation as its child sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) key: &'a Key,
    pub(crate) namespace: &'a Namespace,
    pub(crate) parent: Option<&'a Key>,
    /// The store, as a child in another directory can find it.
    pub(crate) store: &'a str,
}

impl Identity<'_> {
    /// Tells a check which operation it is about, before there is an attempt.
    pub(crate) fn name_for(&self, command: &mut Command) {
        command
            .env("SEMEL_KEY", self.key.as_str())
            .env("SEMEL_NAMESPACE", self.namespace.as_str())
            .env_remove("SEMEL_FENCE")
            .env_remove("SEMEL_ATTEMPT")
            .env_remove(inject::VARIABLE);
        self.tell_where(command);
    }

    /// Tells a child which operation it is part of.
    pub(crate) fn tell(&self, command: &mut Command, permit: &Permit) {
        command
            .env("SEMEL_KEY", self.key.as_str())
            .env("SEMEL_ATTEMPT", permit.attempt().to_string())
            .env("SEMEL_FENCE", permit.fence().0.to_string())
            .env("SEMEL_NAMESPACE", self.namespace.as_str())
            .env_remove(inject::VARIABLE)
            .env_remove(PARENT);
        self.tell_where(command);
        if let Some(parent) = self.parent {
            command.env(PARENT, parent.as_str());
        }
    }

    /// Tells a child where the ledger is, unless that would tell it a password that it has not got; and its own place
    /// in the trace that this process is part of.
    fn tell_where(&self, command: &mut Command) {
        if without_password(self.store) == self.store {
            command.env("SEMEL_STORE", self.store);
        }
        if let Some(trace) = Trace::of_process() {
            command.env(trace::VARIABLE, trace.to_string());
        }
    }
}
