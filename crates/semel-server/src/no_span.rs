//! No spans: this build sends none, as the feature `otlp` is off.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::Method;
use semel::trace::Trace;
use semel::{Key, Namespace, Timestamp};

use crate::config::Config;

/// What a request was about: nobody asks here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About;

pub(crate) async fn watched<F: Future>(work: F) -> (F::Output, About) {
    (work.await, About)
}

pub(crate) fn about(_: &Namespace, _: &Key) {}

pub(crate) fn decided(_: &'static str) {}

/// What one request was: nobody asks here.
#[derive(Debug)]
#[expect(dead_code, reason = "it has the shape of what is sent by other builds")]
pub(crate) struct Span {
    pub(crate) trace: Trace,
    pub(crate) method: Method,
    pub(crate) route: String,
    pub(crate) status: u16,
    pub(crate) ended: Timestamp,
    pub(crate) took: Duration,
    pub(crate) about: About,
}

#[derive(Debug)]
pub(crate) struct Exporter;

/// Refuses to be told where spans go.
pub(crate) fn destination(config: &Config) -> Result<Option<Infallible>, String> {
    match config.otlp {
        Some(_) => Err("this build sends no traces; build it with `--features otlp`".to_owned()),
        None => Ok(None),
    }
}

/// There is never one.
#[derive(Debug)]
pub(crate) enum Exporting {}

impl Exporting {
    pub(crate) async fn finish(self) {
        match self {}
    }
}

impl Exporter {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn start(&self, to: Infallible) -> Exporting {
        match to {}
    }

    pub(crate) fn add(&self, _: impl FnOnce() -> Span, _: Trace) {}

    pub(crate) fn counts(&self) -> [(&'static str, u64); 2] {
        [("exported", 0), ("dropped", 0)]
    }
}
