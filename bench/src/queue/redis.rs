//! A consumer group on Redis Streams, on a private server that syncs its log before it answers.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::contender::{Queue, Submitter, Worker};
use super::resp::{Connection, Value};
use crate::keys::Key;
use crate::running::Running;

/// Where Debian has it.
const REDIS: &str = "/usr/bin/redis-server";

/// How long the server may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether it listens by now.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long results are kept, as the ledger does unless it is told otherwise.
const KEPT_SECONDS: &[u8] = b"2592000";

const STREAM: &[u8] = b"tasks";
const NOBODY: &[u8] = b"nobody";
const GROUP: &[u8] = b"workers";

/// Redis, as it is installed.
#[derive(Debug)]
pub(crate) struct Redis {
    program: PathBuf,
    pub(crate) version: String,
}

impl Redis {
    pub(crate) fn find(given: Option<&Path>) -> Result<Self> {
        let program = given.unwrap_or_else(|| Path::new(REDIS));
        if !program.exists() {
            bail!(
                "Redis is not installed: there is no {}\n\
                 hint: `RUNLEVEL=1 apt-get install redis-server` installs it on Debian without starting it, \
                 `--redis PATH` names it, and `--only` measures without it",
                program.display()
            );
        }
        let output = Command::new(program).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said
            .split_whitespace()
            .find_map(|word| word.strip_prefix("v="));
        Ok(Self {
            program: program.to_owned(),
            version: version.unwrap_or("of an unknown version").to_owned(),
        })
    }

    /// Starts one of its own with its files in this directory: each answer comes after what it says is on the disk.
    pub(super) fn start(&self, directory: &Path) -> Result<Server> {
        // A socket's path may have 107 bytes only, which the measured directory may well exceed.
        let place = TempDir::with_prefix("semel-bench-").context("cannot make a directory")?;
        let socket = place.path().join("redis");
        let log = directory.join("redis.log");
        let mut command = Command::new(&self.program);
        command.args(["--port", "0", "--save", "", "--daemonize", "no"]);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.arg("--dir").arg(directory);
        command.arg("--logfile").arg(&log);
        command.arg("--unixsocket").arg(&socket);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut server = Server {
            running: Running(child),
            socket,
            _place: place,
        };
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let listens = server.listens();
        listens.with_context(|| format!("Redis says: {}", said().trim()))?;
        Ok(server)
    }
}

/// A server of one measurement; it ends with this.
pub(super) struct Server {
    running: Running,
    socket: PathBuf,
    _place: TempDir,
}

impl Server {
    /// Waits until it can be reached.
    fn listens(&mut self) -> Result<()> {
        let started = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if let Some(status) = self.running.0.try_wait()? {
                bail!("Redis ended before it listened: {status}");
            }
            if started.elapsed() > START_PATIENCE {
                bail!("Redis does not listen");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// The queue of one measurement.
pub(super) struct Streams {
    server: Server,
    workers: AtomicU32,
}

impl Streams {
    /// Makes the streams and their group on an empty server.
    pub(super) async fn open(server: Server) -> Result<Self> {
        let mut connection = Connection::open(&server.socket).await?;
        for stream in [STREAM, NOBODY] {
            connection.add(&[b"XGROUP", b"CREATE", stream, GROUP, b"0", b"MKSTREAM"]);
        }
        connection.send().await?;
        Ok(Self {
            server,
            workers: AtomicU32::new(0),
        })
    }
}

impl Queue for Streams {
    type Submitter = Submits;
    type Worker = Works;

    async fn submitter(&self) -> Result<Submits> {
        let connection = Connection::open(&self.server.socket).await?;
        Ok(Submits { connection })
    }

    async fn worker(&self) -> Result<Works> {
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        Ok(Works {
            connection: Connection::open(&self.server.socket).await?,
            name: format!("worker-{number}"),
        })
    }
}

pub(super) struct Submits {
    connection: Connection,
}

impl Submitter for Submits {
    async fn submit(&mut self, key: Key, input: Vec<u8>) -> Result<()> {
        self.connection
            .add(&[b"XADD", STREAM, b"*", b"key", &key, b"input", &input])
            .send()
            .await?;
        Ok(())
    }

    async fn commits(&mut self, keys: [Key; 2], input: Vec<u8>) -> Result<Duration> {
        let began = Instant::now();
        self.connection
            .add(&[b"XADD", NOBODY, b"*", b"key", &keys[0], b"input", &input])
            .send()
            .await?;
        self.connection
            .add(&[
                b"XREADGROUP",
                b"GROUP",
                GROUP,
                b"nobody",
                b"COUNT",
                b"1",
                b"STREAMS",
                NOBODY,
                b">",
            ])
            .send()
            .await?;
        Ok(began.elapsed())
    }
}

pub(super) struct Works {
    connection: Connection,
    name: String,
}

/// A task in a worker's hands.
pub(super) struct Held {
    id: Vec<u8>,
    key: Vec<u8>,
}

impl Worker for Works {
    type Held = Held;

    async fn lease(&mut self, wait: Duration) -> Result<Option<(Held, Vec<u8>)>> {
        // Zero would mean to wait for ever.
        let wait = wait.as_millis().max(1).to_string();
        let name = self.name.as_bytes();
        let command: [&[u8]; 11] = [
            b"XREADGROUP",
            b"GROUP",
            GROUP,
            name,
            b"COUNT",
            b"1",
            b"BLOCK",
            wait.as_bytes(),
            b"STREAMS",
            STREAM,
            b">",
        ];
        let answer = self.connection.add(&command).send().await?;
        if answer == Value::Nothing {
            return Ok(None);
        }
        // [[stream, [[id, [name, value, …]]]]]
        let entry = answer.at(0)?.at(1)?.at(0)?;
        let fields = entry.at(1)?;
        let held = Held {
            id: entry.at(0)?.bytes()?.to_vec(),
            key: fields.at(1)?.bytes()?.to_vec(),
        };
        Ok(Some((held, fields.at(3)?.bytes()?.to_vec())))
    }

    async fn settle(&mut self, held: Held, result: Vec<u8>) -> Result<()> {
        // All are sent at once, and synced together; the result is there before the task is gone.
        let acknowledged = self
            .connection
            .add(&[b"SET", &held.key, &result, b"EX", KEPT_SECONDS])
            .add(&[b"XACK", STREAM, GROUP, &held.id])
            .add(&[b"XDEL", STREAM, &held.id])
            .send()
            .await?;
        if acknowledged != Value::Number(1) {
            bail!("a task was not there any more when it was settled");
        }
        Ok(())
    }
}
