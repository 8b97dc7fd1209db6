//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

use super::histogram::Read;
use super::known::Metric;

/// Writes metrics one after the other.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a metric; its samples follow.
    pub(super) fn metric(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {}", kind.as_str()));
    }

    /// Writes a metric that has one sample.
    pub(super) fn one(&mut self, metric: &Metric, value: impl Display) {
        self.metric(metric);
        self.line(format_args!("{} {value}", metric.name));
    }

    /// Writes a metric that has a sample for each word.
    pub(super) fn each(
        &mut self,
        metric: &Metric,
        label: &str,
        samples: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.metric(metric);
        for (word, value) in samples {
            self.sample(metric, &[(label, word)], value);
        }
    }

    /// Writes a sample. Labels are words of ours, patterns of routes and currencies, so that nothing is to be
    /// escaped.
    pub(super) fn sample(&mut self, metric: &Metric, labels: &[(&str, &str)], value: impl Display) {
        let labels = written(labels);
        self.line(format_args!("{}{{{labels}}} {value}", metric.name));
    }

    /// Writes a distribution.
    pub(super) fn histogram(&mut self, metric: &Metric, labels: &[(&str, &str)], read: &Read) {
        let name = metric.name;
        let inside = written(labels);
        let comma = if inside.is_empty() { "" } else { "," };
        for (bound, count) in &read.buckets {
            self.line(format_args!(
                "{name}_bucket{{{inside}{comma}le=\"{bound}\"}} {count}"
            ));
        }
        let count = read.count;
        self.line(format_args!(
            "{name}_bucket{{{inside}{comma}le=\"+Inf\"}} {count}"
        ));
        let braces = if inside.is_empty() {
            String::new()
        } else {
            format!("{{{inside}}}")
        };
        self.line(format_args!("{name}_sum{braces} {}", read.sum));
        self.line(format_args!("{name}_count{braces} {count}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.0, "{line}");
    }

    pub(super) fn done(self) -> String {
        self.0
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    let labels = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""));
    labels.collect::<Vec<_>>().join(",")
}
