//! The ways in which things are told.

use semel::{Class, Timestamp};

use super::command::Command;
use super::message::Message;
use super::webhook::Webhook;
use crate::config::Notify;

/// A way in which things are told.
#[derive(Debug)]
pub(crate) enum Channel {
    Command(Command),
    Webhook(Webhook),
}

/// What came of telling something.
#[derive(Debug)]
pub(super) enum Told {
    Yes,
    /// It was not taken, so nobody knows of it.
    No(String),
    /// Nobody can say.
    Unknown(String),
}

impl Channel {
    /// Makes the channels that are set.
    pub(crate) fn all(notify: &Notify) -> Result<Vec<Self>, String> {
        let mut channels = vec![];
        if let Some(line) = &notify.command {
            channels.push(Self::Command(Command::new(line)));
        }
        if let Some(url) = &notify.webhook {
            let webhook = Webhook::new(url.clone(), notify.secret.clone())?;
            channels.push(Self::Webhook(webhook));
        }
        Ok(channels)
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Says what telling it again does: a webhook's receiver knows it by its id, and nobody knows what a
    /// command does.
    pub(super) const fn class(&self) -> Class {
        match self {
            Self::Command(_) => Class::Unsafe,
            Self::Webhook(_) => Class::Idempotent,
        }
    }

    pub(super) async fn tell(&self, id: &str, message: &Message, now: Timestamp) -> Told {
        let json = match serde_json::to_vec(message) {
            Ok(json) => json,
            Err(error) => return Told::No(format!("it cannot be written: {error}")),
        };
        match self {
            Self::Command(command) => command.tell(id, message, json).await,
            Self::Webhook(webhook) => webhook.tell(id, json, now).await,
        }
    }
}
