//! `[queues.NAME]`: how the tasks of a queue are tried, how many at once, and where they are sent to.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use semel::core::queue::{Backoff, Rate};
use semel::{Builder, Label, Namespace, OnDoubt, QueueSettings};
use semel_server::{Push, Secret, Url};
use serde::Deserialize;

use super::Settings;
use super::breakers::{self, Breakers};
use super::nearest::only;
use crate::args::values;
use crate::failure::Failure;

/// The members of a queue's table.
const MEMBERS: [&str; 14] = [
    "max_attempts",
    "backoff_base",
    "backoff_cap",
    "on_doubt",
    "concurrency",
    "lane_concurrency",
    "rate",
    "lane_rate",
    "retry_budget",
    "push",
    "push_timeout",
    "push_concurrency",
    "push_secret",
    "breaker",
];

/// The members that say how tasks are sent, and nothing without an address.
const OF_PUSH: [&str; 4] = ["push_timeout", "push_concurrency", "push_secret", "breaker"];

/// The queues that a file names.
pub(super) type Queues = BTreeMap<Label, Queue>;

/// What a file says about a queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    settings: QueueSettings,
    /// How its tasks are sent; the wall is the server's.
    push: Option<Push>,
}

/// A queue as it is written.
#[derive(Debug, Deserialize)]
struct Written {
    max_attempts: Option<NonZeroU32>,
    backoff_base: Option<String>,
    backoff_cap: Option<String>,
    on_doubt: Option<String>,
    concurrency: Option<NonZeroU32>,
    lane_concurrency: Option<NonZeroU32>,
    rate: Option<String>,
    lane_rate: Option<String>,
    retry_budget: Option<String>,
    push: Option<String>,
    push_timeout: Option<String>,
    push_concurrency: Option<usize>,
    push_secret: Option<String>,
    breaker: Option<String>,
}

/// Reads `[queues]`. A secret, and an address that may hold one, are shown by no error.
pub(super) fn queues(
    path: &Path,
    tables: &toml::Table,
    breakers: &Breakers,
) -> Result<Queues, Failure> {
    let mut read = Queues::new();
    for (name, value) in tables {
        let file = path.display();
        let wrong = |text: String| Failure::input(format!("{file}: queues.{name}: {text}"));
        only(value, &MEMBERS, "a queue", &wrong)?;
        let written: Result<Written, _> = value.clone().try_into();
        let written = written.map_err(|error| wrong(error.message().to_owned()))?;
        let label = Label::new(name).map_err(|error| wrong(format!("its name: {error}")))?;
        let alone = OF_PUSH.iter().find(|member| value.get(member).is_some());
        if let (None, Some(member)) = (&written.push, alone) {
            let hint = "say with `push` which URL the tasks are sent to";
            return Err(wrong(format!("`{member}` goes with `push`")).hint(hint));
        }
        let queue = Queue {
            settings: written.read().map_err(wrong)?,
            push: written.push(&label, breakers).map_err(wrong)?,
        };
        read.insert(label, queue);
    }
    Ok(read)
}

impl Written {
    fn read(&self) -> Result<QueueSettings, String> {
        let usual = QueueSettings::default();
        let on_doubt = self.on_doubt.as_deref().map(on_doubt).transpose()?;
        let rate = |member: &str, text: Option<&String>| {
            let read = text.map(|text| text.parse::<Rate>()).transpose();
            read.map_err(|error| format!("{member}: {error}"))
        };
        Ok(QueueSettings {
            max_attempts: self.max_attempts,
            backoff: self.backoff()?,
            on_doubt,
            concurrency: self.concurrency,
            lane_concurrency: self.lane_concurrency,
            rate: rate("rate", self.rate.as_ref())?,
            lane_rate: rate("lane_rate", self.lane_rate.as_ref())?,
            retry_budget: rate("retry_budget", self.retry_budget.as_ref())?
                .unwrap_or(usual.retry_budget),
        })
    }

    fn push(&self, queue: &Label, breakers: &Breakers) -> Result<Option<Push>, String> {
        let Some(url) = &self.push else {
            return Ok(None);
        };
        let url = Url::parse(url).map_err(|error| format!("push: {error}"))?;
        let secret = self.push_secret.as_deref().map(Secret::parse).transpose();
        let secret = secret.map_err(|error| format!("push_secret: {error}"))?;
        let own = format!("queue/{queue}");
        let breaker = breakers::named(self.breaker.as_deref().unwrap_or(&own), breakers);
        Ok(Some(Push {
            namespace: Namespace::default(),
            queue: queue.clone(),
            url,
            secret,
            timeout: self.push_timeout()?,
            concurrency: self.push_concurrency()?,
            breaker: breaker.map_err(|error| format!("breaker: {error}"))?,
        }))
    }

    fn push_timeout(&self) -> Result<Duration, String> {
        let Some(text) = &self.push_timeout else {
            return Ok(Push::TIMEOUT);
        };
        let timeout = values::some_duration(text);
        let timeout = timeout.map_err(|error| format!("push_timeout: {error}"))?;
        if timeout > Push::TIMEOUT_MAX {
            return Err("push_timeout: it is at most 1h".to_owned());
        }
        Ok(timeout)
    }

    fn push_concurrency(&self) -> Result<usize, String> {
        let number = self.push_concurrency.unwrap_or(Push::CONCURRENCY);
        if !(1..=Push::CONCURRENCY_MAX).contains(&number) {
            let most = Push::CONCURRENCY_MAX;
            return Err(format!("push_concurrency: it is from 1 to {most}"));
        }
        Ok(number)
    }

    fn backoff(&self) -> Result<Option<Backoff>, String> {
        if self.backoff_base.is_none() && self.backoff_cap.is_none() {
            return Ok(None);
        }
        let usual = Backoff::default();
        let length = |member: &str, text: Option<&String>| {
            let read = text.map(|text| values::some_duration(text)).transpose();
            read.map_err(|error| format!("{member}: {error}"))
        };
        let base = length("backoff_base", self.backoff_base.as_ref())?;
        let base = base.unwrap_or_else(|| usual.base());
        let cap = length("backoff_cap", self.backoff_cap.as_ref())?;
        let cap = cap.unwrap_or_else(|| usual.cap().max(base));
        let backoff = Backoff::new(base, cap);
        backoff.map(Some).map_err(|error| error.to_string())
    }
}

fn on_doubt(text: &str) -> Result<OnDoubt, String> {
    OnDoubt::parse(text)
        .ok_or_else(|| format!("on_doubt: `{text}` is not one of hold, retry, probe"))
}

impl Settings {
    /// Tells an engine about the queues.
    pub(crate) fn queues_of(&self, builder: Builder) -> Builder {
        let queues = self.queues.iter();
        queues.fold(builder, |builder, (name, queue)| {
            builder.queue(name.clone(), queue.settings)
        })
    }

    /// Returns the queues whose tasks are sent to a URL, those behind the wall that the settings name.
    pub(super) fn pushes(&self) -> Result<Vec<Push>, Failure> {
        let namespace = Namespace::new(self.get("namespace"));
        let namespace = namespace.map_err(|error| Failure::input(error.to_string()))?;
        let pushes = self.queues.values().filter_map(|queue| queue.push.clone());
        Ok(pushes
            .map(|push| Push {
                namespace: namespace.clone(),
                ..push
            })
            .collect())
    }
}
