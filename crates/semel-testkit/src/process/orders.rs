//! What an agent is to do, as its command line says it.

use std::path::PathBuf;
use std::time::Duration;

use semel::Lease;

use super::{CrashPoint, Scene};
use crate::sim::Bug;

/// Which operations an agent carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// These, each task in an order of its own.
    These(Vec<String>),
    /// Ever new ones that begin so, for this long.
    New(String, Duration),
    /// The keys of a [crowd](super::crowd_key), this many. All callers take them in nearly the same
    /// order, so that they meet; each takes one of so many.
    Crowd(usize, u64),
}

/// What an agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The store, if it is a file.
    pub store: PathBuf,
    /// The URL of the database that holds the store instead.
    pub server: Option<String>,
    /// Where effects happen.
    pub sink: PathBuf,
    /// Where the answers are remembered.
    pub told: PathBuf,
    /// Which operations.
    pub keys: Keys,
    /// How many callers work at once.
    pub tasks: usize,
    /// How many threads they have; one thread takes the writer's path, several the direct one.
    pub threads: usize,
    /// For how long an attempt may be silent.
    pub lease: Duration,
    /// For how long a caller waits for another one's attempt.
    pub wait: Duration,
    /// How long an effect takes at most, and its report.
    pub linger: Duration,
    /// For how long a caller asks again while the store is not available.
    pub insist: Duration,
    /// At which moment the agent dies, and at its how manieth coming.
    pub crash: Option<(CrashPoint, usize)>,
    /// At which moment the agent stops itself, and at its how manieth coming; whoever continues it
    /// hears what a renewal is answered then.
    pub stop: Option<(CrashPoint, usize)>,
    /// Where every call and its return is written, with the time.
    pub history: Option<PathBuf>,
    /// Whether to remember what this process takes for the time.
    pub say_time: bool,
    /// What this agent does wrong.
    pub bug: Option<Bug>,
    /// Whether to wait, with the store open, for the end of the input.
    pub barrier: bool,
    /// How large a file may become: what a full disk looks like to this process alone.
    pub file_limit: Option<u64>,
    /// A file that fills the disk.
    pub ballast: Option<PathBuf>,
    /// After how many errors the limit is lifted and the ballast removed.
    pub lift_after: Option<usize>,
    /// What the order of the keys is drawn from.
    pub seed: u64,
}

impl Orders {
    /// Makes orders for one caller in this scene.
    #[must_use]
    pub fn new(scene: &Scene, keys: Keys) -> Self {
        Self {
            store: scene.store(),
            server: scene.server().map(str::to_owned),
            sink: scene.path().join("sink"),
            told: scene.path().join("told"),
            keys,
            tasks: 1,
            threads: 1,
            lease: Lease::DEFAULT.length(),
            wait: Duration::ZERO,
            linger: Duration::ZERO,
            insist: Duration::ZERO,
            crash: None,
            stop: None,
            history: None,
            say_time: false,
            bug: None,
            barrier: false,
            file_limit: None,
            ballast: None,
            lift_after: None,
            seed: 0,
        }
    }

    /// Writes the orders as arguments.
    #[must_use]
    pub fn to_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("store={}", self.store.display()),
            format!("sink={}", self.sink.display()),
            format!("told={}", self.told.display()),
            format!("tasks={}", self.tasks),
            format!("threads={}", self.threads),
            format!("lease_ms={}", self.lease.as_millis()),
            format!("wait_ms={}", self.wait.as_millis()),
            format!("linger_ms={}", self.linger.as_millis()),
            format!("insist_ms={}", self.insist.as_millis()),
            format!("barrier={}", self.barrier),
            format!("say_time={}", self.say_time),
            format!("seed={}", self.seed),
        ];
        match &self.keys {
            Keys::These(keys) => args.push(format!("keys={}", keys.join(","))),
            Keys::New(prefix, lasting) => {
                args.push(format!("new={prefix},{}", lasting.as_millis()));
            }
            Keys::Crowd(count, share) => args.push(format!("crowd={count},{share}")),
        }
        if let Some((point, nth)) = self.crash {
            args.push(format!("crash={point},{nth}"));
        }
        if let Some((point, nth)) = self.stop {
            args.push(format!("stop={point},{nth}"));
        }
        args.extend(self.server.as_ref().map(|url| format!("server={url}")));
        let history = self.history.as_ref();
        args.extend(history.map(|path| format!("history={}", path.display())));
        args.extend(self.bug.map(|bug| format!("bug={bug:?}")));
        args.extend(self.file_limit.map(|limit| format!("file_limit={limit}")));
        let ballast = self.ballast.as_ref();
        args.extend(ballast.map(|path| format!("ballast={}", path.display())));
        args.extend(self.lift_after.map(|errors| format!("lift_after={errors}")));
        args
    }

    /// Reads the orders from arguments.
    ///
    /// # Errors
    /// Says which argument is wrong.
    pub fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut orders = Self {
            store: PathBuf::new(),
            server: None,
            sink: PathBuf::new(),
            told: PathBuf::new(),
            keys: Keys::These(vec![]),
            tasks: 1,
            threads: 1,
            lease: Lease::DEFAULT.length(),
            wait: Duration::ZERO,
            linger: Duration::ZERO,
            insist: Duration::ZERO,
            crash: None,
            stop: None,
            history: None,
            say_time: false,
            bug: None,
            barrier: false,
            file_limit: None,
            ballast: None,
            lift_after: None,
            seed: 0,
        };
        for arg in args {
            let (name, value) = arg
                .split_once('=')
                .ok_or_else(|| format!("`{arg}` is not NAME=VALUE"))?;
            orders.take(name, value)?;
        }
        Ok(orders)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "store" => self.store = value.into(),
            "server" => self.server = Some(value.to_owned()),
            "sink" => self.sink = value.into(),
            "told" => self.told = value.into(),
            "tasks" => self.tasks = number(value)?,
            "threads" => self.threads = number(value)?,
            "lease_ms" => self.lease = Duration::from_millis(number(value)?),
            "wait_ms" => self.wait = Duration::from_millis(number(value)?),
            "linger_ms" => self.linger = Duration::from_millis(number(value)?),
            "insist_ms" => self.insist = Duration::from_millis(number(value)?),
            "barrier" => self.barrier = value == "true",
            "say_time" => self.say_time = value == "true",
            "history" => self.history = Some(value.into()),
            "bug" => self.bug = Some(Bug::named(value).ok_or("there is no such bug")?),
            "seed" => self.seed = number(value)?,
            "file_limit" => self.file_limit = Some(number(value)?),
            "ballast" => self.ballast = Some(value.into()),
            "lift_after" => self.lift_after = Some(number(value)?),
            "keys" => self.keys = Keys::These(value.split(',').map(str::to_owned).collect()),
            "new" => {
                let (prefix, millis) = pair(value)?;
                self.keys = Keys::New(prefix.to_owned(), Duration::from_millis(number(millis)?));
            }
            "crowd" => {
                let (count, share) = pair(value)?;
                self.keys = Keys::Crowd(number(count)?, number(share)?);
            }
            "crash" => self.crash = Some(moment(value)?),
            "stop" => self.stop = Some(moment(value)?),
            _ => return Err(format!("`{name}` is no order")),
        }
        Ok(())
    }
}

fn moment(text: &str) -> Result<(CrashPoint, usize), String> {
    let (point, nth) = pair(text)?;
    Ok((point.parse()?, number(nth)?))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once(',')
        .ok_or_else(|| format!("`{text}` is no pair"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_command_line() {
        let scene = Scene::new();
        let mut orders = Orders::new(&scene, Keys::These(vec!["a".to_owned(), "b".to_owned()]));
        orders.crash = Some((CrashPoint::MidEffect, 3));
        orders.file_limit = Some(4_096);
        orders.ballast = Some("/a/file".into());
        orders.lift_after = Some(7);
        orders.barrier = true;
        let again = Orders::from_args(orders.to_args().into_iter());
        assert_eq!(again, Ok(orders.clone()));
        orders.keys = Keys::New("p-".to_owned(), Duration::from_secs(3));
        orders.stop = Some((CrashPoint::AfterClaim, 1));
        orders.history = Some("/a/history".into());
        orders.bug = Some(Bug::FenceUnchecked);
        let again = Orders::from_args(orders.to_args().into_iter());
        assert_eq!(again, Ok(orders.clone()));
        let orders = Orders {
            keys: Keys::Crowd(100, 3),
            server: Some("postgres://semel@%2Ftmp/test".to_owned()),
            linger: Duration::from_millis(5),
            insist: Duration::from_secs(7),
            say_time: true,
            ..orders
        };
        let again = Orders::from_args(orders.to_args().into_iter());
        assert_eq!(again, Ok(orders));
    }
}
