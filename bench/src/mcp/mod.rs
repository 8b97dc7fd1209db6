//! Calls of tools through the MCP gateway, beside the server itself and beside plain proxies, taking turns.

pub(crate) mod fixture;
mod http;
mod proxies;
mod running;
pub(crate) mod stdio;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use self::http::Session;
use self::proxies::Proxies;
use self::stdio::Talk;
use self::wire::{ACT, Calls, LOOK};
use crate::core::{WARM_UP, median};
use crate::disk::Scratch;
use crate::engines::{Embedded, RawLog, Semel};
use crate::keys::Keys;
use crate::load::{self, Load, Measured};
use crate::machine::Watch;
use crate::progress::say;
use crate::running::Running;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) semel: PathBuf,
    pub(crate) seconds: Duration,
    pub(crate) rounds: u32,
    pub(crate) callers: Vec<u32>,
    pub(crate) ways: Vec<Way>,
}

/// Which way a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// No call: two durable commits to a log file, in this process.
    RawLog,
    /// No call: a claim and a settlement by the engine, in this process.
    Engine,
    /// To the server itself, over its standard input and output.
    Direct,
    /// Through the gateway, to a tool that only reads.
    Read,
    /// Through the gateway, to a tool that acts, with arguments that no other call has.
    Effect,
    /// The same, and each call brings a key of its own.
    Keyed,
    /// Through the gateway over HTTP, to a tool that only reads.
    HttpRead,
    /// Through the gateway over HTTP, to a tool that acts.
    HttpEffect,
    /// Through npm's mcp-proxy over HTTP.
    NpmProxy,
    /// Through PyPI's mcp-proxy over HTTP.
    PypiProxy,
}

impl Way {
    pub(crate) const ALL: [Self; 10] = [
        Self::RawLog,
        Self::Engine,
        Self::Direct,
        Self::Read,
        Self::Effect,
        Self::Keyed,
        Self::HttpRead,
        Self::HttpEffect,
        Self::NpmProxy,
        Self::PypiProxy,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::RawLog => "raw-log",
            Self::Engine => "engine",
            Self::Direct => "direct",
            Self::Read => "read",
            Self::Effect => "effect",
            Self::Keyed => "keyed",
            Self::HttpRead => "http-read",
            Self::HttpEffect => "http-effect",
            Self::NpmProxy => "npm-proxy",
            Self::PypiProxy => "pypi-proxy",
        }
    }

    const fn is_proxy(self) -> bool {
        matches!(self, Self::NpmProxy | Self::PypiProxy)
    }
}

/// Returns the ways that were asked for, in their usual order; all when none was.
pub(crate) fn chosen(only: &[Way]) -> Vec<Way> {
    let wanted = |way: &Way| only.is_empty() || only.contains(way);
    Way::ALL.into_iter().filter(wanted).collect()
}

/// One way with one number of calls in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) calls_per_s: f64,
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
    let proxies = match plan.ways.iter().any(|way| way.is_proxy()) {
        true => Some(Proxies::set_up()?),
        false => None,
    };
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
                    proxies: proxies.as_ref(),
                    directory: directory.path(),
                    callers,
                };
                let measured = one.measure(way);
                let (figures, others) = measured
                    .with_context(|| format!("{} with {callers} in flight", way.as_str()))?;
                say(&format!(
                    "{callers:>4} in flight, round {}: {:<12} {:>8.0} calls/s, p50 {:>8.1} µs ({others})",
                    round + 1,
                    way.as_str(),
                    figures.calls_per_s,
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
    proxies: Option<&'a Proxies>,
    /// A new one.
    directory: &'a Path,
    callers: u32,
}

impl One<'_> {
    /// Returns the figures, and how busy the machine was with other things.
    fn measure(&self, way: Way) -> Result<(Figures, String)> {
        let calls = |tool, keyed| Calls { tool, keyed };
        match way {
            Way::RawLog => self.embedded::<RawLog>(),
            Way::Engine => self.embedded::<Semel>(),
            Way::Direct => self.talk(running::fixture()?, calls(LOOK, false)),
            Way::Read => self.talk(self.gateway()?, calls(LOOK, false)),
            Way::Effect => self.talk(self.gateway()?, calls(ACT, false)),
            Way::Keyed => self.talk(self.gateway()?, calls(ACT, true)),
            Way::HttpRead => self.http(self.listening()?, calls(LOOK, false)),
            Way::HttpEffect => self.http(self.listening()?, calls(ACT, false)),
            Way::NpmProxy => self.http(self.proxies()?.npm()?, calls(LOOK, false)),
            Way::PypiProxy => self.http(self.proxies()?.pypi()?, calls(LOOK, false)),
        }
    }

    fn gateway(&self) -> Result<std::process::Command> {
        running::gateway(&self.plan.semel, self.directory, &[])
    }

    fn listening(&self) -> Result<(Running, String)> {
        running::listening_gateway(&self.plan.semel, self.directory)
    }

    fn proxies(&self) -> Result<&Proxies> {
        self.proxies.context("no proxy was set up")
    }

    fn talk(&self, command: std::process::Command, calls: Calls) -> Result<(Figures, String)> {
        let mut talk = Talk::start(command)?;
        let watch = Watch::with_server(talk.process.id());
        let time = self.plan.seconds;
        let measured = talk.measure(calls, self.callers, time / WARM_UP, time)?;
        Ok((Figures::new(&measured), watch.others()))
    }

    fn http(
        &self,
        (running, address): (Running, String),
        calls: Calls,
    ) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let session = runtime.block_on(Session::open(address, calls))?;
        let watch = Watch::with_server(running.id());
        let measured = self.load(&runtime, session)?;
        let others = watch.others();
        drop(running);
        Ok((Figures::new(&measured), others))
    }

    fn embedded<C: Embedded>(&self) -> Result<(Figures, String)> {
        let runtime = load::runtime()?;
        let contender = runtime.block_on(C::open(self.directory))?;
        let watch = Watch::start();
        let measured = self.load(&runtime, contender)?;
        Ok((Figures::new(&measured), watch.others()))
    }

    fn load<C: crate::engines::Cycles>(
        &self,
        runtime: &tokio::runtime::Runtime,
        contender: C,
    ) -> Result<Measured> {
        let (contender, keys) = (Arc::new(contender), Arc::new(Keys::new()?));
        let load = Load {
            runtime,
            contender: &contender,
            keys: &keys,
            callers: self.callers,
        };
        let time = self.plan.seconds;
        let measured = load.cycles(time / WARM_UP, time)?;
        runtime.block_on(async { drop(contender) });
        Ok(measured)
    }
}

impl Figures {
    fn new(measured: &Measured) -> Self {
        Self {
            calls_per_s: measured.per_second(),
            p50_us: measured.latency.percentile_us(0.5),
            p99_us: measured.latency.percentile_us(0.99),
        }
    }

    /// Takes the median of each figure by itself.
    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            calls_per_s: of(|one| one.calls_per_s),
            p50_us: of(|one| one.p50_us),
            p99_us: of(|one| one.p99_us),
        }
    }
}
