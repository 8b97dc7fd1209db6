//! Requests through the proxy, beside the upstream itself and beside nginx before it, taking turns.

mod claims;
pub(crate) mod processes;
mod requests;
pub(crate) mod upstream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::runtime::Runtime;

use self::claims::Claims;
use self::processes::Nginx;
use self::requests::{Kind, Replays, Requests};
use crate::core::{WARM_UP, median};
use crate::disk::Scratch;
use crate::engines::Cycles;
use crate::keys::Keys;
use crate::load::{self, Load, Measured};
use crate::machine::Watch;
use crate::progress::say;
use crate::running::Running;
use crate::serve::contender::Http;
use crate::serve::process::Process;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) semel: PathBuf,
    /// There where a way needs it.
    pub(crate) nginx: Option<Nginx>,
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) callers: Vec<u32>,
    pub(crate) ways: Vec<Way>,
}

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// No request: a claim by the engine, in this process.
    Claim,
    /// No request through a proxy: a begin and a settle at `semel serve`.
    Serve,
    /// A GET to the upstream itself.
    Get,
    /// A GET through nginx.
    NginxGet,
    /// A GET through the proxy, which only passes it.
    SemelGet,
    /// A POST to the upstream itself.
    Post,
    /// A POST through nginx.
    NginxPost,
    /// A POST through the proxy, with a key of its own.
    SemelKeyed,
    /// A POST through the proxy that has no key and a body of its own.
    SemelKeyless,
    /// A POST through the proxy with a key that was answered before.
    SemelReplay,
    /// The first event of a stream from the upstream itself.
    Stream,
    /// The first event of a stream through nginx.
    NginxStream,
    /// The first event of a stream through the proxy, each with a key of its own.
    SemelStream,
}

/// What stands between the callers and the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    Nginx,
    Semel,
}

impl Way {
    pub(crate) const ALL: [Self; 13] = [
        Self::Claim,
        Self::Serve,
        Self::Get,
        Self::NginxGet,
        Self::SemelGet,
        Self::Post,
        Self::NginxPost,
        Self::SemelKeyed,
        Self::SemelKeyless,
        Self::SemelReplay,
        Self::Stream,
        Self::NginxStream,
        Self::SemelStream,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Serve => "serve",
            Self::Get => "get",
            Self::NginxGet => "nginx-get",
            Self::SemelGet => "semel-get",
            Self::Post => "post",
            Self::NginxPost => "nginx-post",
            Self::SemelKeyed => "semel-keyed",
            Self::SemelKeyless => "semel-keyless",
            Self::SemelReplay => "semel-replay",
            Self::Stream => "stream",
            Self::NginxStream => "nginx-stream",
            Self::SemelStream => "semel-stream",
        }
    }

    pub(crate) const fn needs_nginx(self) -> bool {
        matches!(self, Self::NginxGet | Self::NginxPost | Self::NginxStream)
    }
}

/// Returns the ways that were asked for, in their usual order; all when none was.
pub(crate) fn chosen(only: &[Way]) -> Vec<Way> {
    let wanted = |way: &Way| only.is_empty() || only.contains(way);
    Way::ALL.into_iter().filter(wanted).collect()
}

/// One way with one number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) requests_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// A line of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) way: Way,
    pub(crate) callers: u32,
    pub(crate) figures: Figures,
}

pub(crate) fn run(scratch: &Scratch, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = vec![];
    for callers in plan.callers.iter().copied() {
        let mut samples = vec![vec![]; plan.ways.len()];
        for round in 0..plan.rounds {
            // Each round begins with another way: none always follows the same one.
            for turn in 0..plan.ways.len() {
                let at = (turn + round as usize) % plan.ways.len();
                let way = plan.ways[at];
                let directory = scratch.fresh()?;
                let one = One {
                    plan,
                    directory: directory.path(),
                    callers,
                };
                let measured = one.measure(way);
                let (figures, others) = measured
                    .with_context(|| format!("{} with {callers} connections", way.as_str()))?;
                say(&format!(
                    "{callers:>4} connections, round {}: {:<13} {:>8.0} requests/s, p50 {:>8.1} µs ({others})",
                    round + 1,
                    way.as_str(),
                    figures.requests_per_s,
                    figures.p50_us,
                ));
                samples[at].push(figures);
            }
        }
        rows.extend(plan.ways.iter().zip(&samples).map(|(way, samples)| Row {
            way: *way,
            callers,
            figures: Figures::median(samples),
        }));
    }
    Ok(rows)
}

/// One measurement.
struct One<'a> {
    plan: &'a Plan,
    /// A new one.
    directory: &'a Path,
    callers: u32,
}

impl One<'_> {
    /// Returns the figures, and how busy the machine was with other things.
    fn measure(&self, way: Way) -> Result<(Figures, String)> {
        match way {
            Way::Claim => self.claims(),
            Way::Serve => self.serve(),
            Way::Get => self.requests(Between::Nothing, Kind::Get),
            Way::NginxGet => self.requests(Between::Nginx, Kind::Get),
            Way::SemelGet => self.requests(Between::Semel, Kind::Get),
            Way::Post => self.requests(Between::Nothing, Kind::Post),
            Way::NginxPost => self.requests(Between::Nginx, Kind::Post),
            Way::SemelKeyed => self.requests(Between::Semel, Kind::Keyed),
            Way::SemelKeyless => self.requests(Between::Semel, Kind::Post),
            Way::SemelReplay => self.replays(),
            Way::Stream => self.requests(Between::Nothing, Kind::Stream),
            Way::NginxStream => self.requests(Between::Nginx, Kind::Stream),
            Way::SemelStream => self.requests(Between::Semel, Kind::Stream),
        }
    }

    fn claims(&self) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let claims = runtime.block_on(Claims::open(self.directory))?;
        let watch = Watch::start();
        let measured = self.load(&runtime, claims, &Arc::new(Keys::new()?))?;
        Ok((Figures::new(&measured), watch.others()))
    }

    fn serve(&self) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let store = format!("sqlite:{}", self.directory.join("semel.db").display());
        let process = Process::start(&self.plan.semel, &store)?;
        let watch = Watch::start();
        let http = Http::new(process.address.clone(), 1);
        let measured = self.load(&runtime, http, &Arc::new(Keys::new()?))?;
        let others = watch.others();
        drop(process);
        Ok((Figures::new(&measured), others))
    }

    fn requests(&self, between: Between, kind: Kind) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let path = self.path(between)?;
        let requests = Requests::new(path.address.clone(), kind);
        let watch = path.watch();
        let measured = self.load(&runtime, requests, &Arc::new(Keys::new()?))?;
        Ok((Figures::new(&measured), watch.others()))
    }

    fn replays(&self) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let path = self.path(Between::Semel)?;
        let keys = Arc::new(Keys::new()?);
        let requests = Requests::new(path.address.clone(), Kind::Keyed);
        // Something to repeat.
        self.load(&runtime, requests, &keys)?;
        let settled = Keys::written(keys.seed(), keys.taken());
        let replays = Replays::new(path.address.clone(), settled);
        let watch = path.watch();
        let measured = self.load(&runtime, replays, &Arc::new(Keys::new()?))?;
        Ok((Figures::new(&measured), watch.others()))
    }

    /// Starts the upstream, and what stands before it.
    fn path(&self, between: Between) -> Result<Started> {
        let (upstream, behind) = processes::upstream()?;
        let (before, address) = match between {
            Between::Nothing => (None, behind),
            Between::Nginx => {
                let nginx = self.plan.nginx.as_ref().context("nginx was not found")?;
                let (running, address) = nginx.start(self.directory, &behind)?;
                (Some(running), address)
            }
            Between::Semel => {
                let proxy = processes::proxy(&self.plan.semel, self.directory, &behind);
                let (running, address) = proxy?;
                (Some(running), address)
            }
        };
        Ok(Started {
            before,
            _upstream: upstream,
            address,
        })
    }

    fn load<C: Cycles>(
        &self,
        runtime: &Runtime,
        contender: C,
        keys: &Arc<Keys>,
    ) -> Result<Measured> {
        let contender = Arc::new(contender);
        let load = Load {
            runtime,
            contender: &contender,
            keys,
            callers: self.callers,
        };
        let time = self.plan.seconds;
        let measured = load.cycles(time / WARM_UP, time)?;
        runtime.block_on(async { drop(contender) });
        Ok(measured)
    }
}

/// The processes of one measurement; they end with this, those in front first.
struct Started {
    before: Option<Running>,
    _upstream: Running,
    /// Where callers ask.
    address: String,
}

impl Started {
    fn watch(&self) -> Watch {
        match &self.before {
            Some(before) => Watch::with_server(before.id()),
            None => Watch::start(),
        }
    }
}

impl Figures {
    fn new(measured: &Measured) -> Self {
        Self {
            requests_per_s: measured.per_second(),
            p50_us: measured.latency.percentile_us(0.5),
            p99_us: measured.latency.percentile_us(0.99),
        }
    }

    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            requests_per_s: of(|one| one.requests_per_s),
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
        }
    }
}
