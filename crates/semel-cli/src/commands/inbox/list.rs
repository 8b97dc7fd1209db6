//! `semel inbox list`

use std::process::ExitCode;

use semel::Label;
use serde_json::json;

use super::path;
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::inbox::Source;
use crate::table::{self, Cell};

pub(super) fn run(context: &Context) -> Result<ExitCode, Failure> {
    let sources = context.settings.inbox().values();
    let own = context.namespace()?;
    let namespace = |source: &Source| source.namespace.clone().unwrap_or_else(|| own.clone());
    if context.printer.is_json() {
        for source in sources {
            context.printer.object(&json!({
                "name": source.name.as_str(),
                "scheme": source.scheme.as_str(),
                "queue": source.queue.as_str(),
                "namespace": namespace(source).as_str(),
                "id": source.id.to_string(),
                "secrets": secrets(source),
                "path": path(&source.name),
                "tolerance_ms": millis(source.tolerance.length()),
                "retention_ms": millis(source.retention.length()),
                "max_body": source.max_body,
                "problem": source.unusable_secret(),
            }));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["NAME", "SCHEME", "QUEUE", "ID", "SECRETS", "PATH"];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(sources.map(|source| {
        [
            Cell::from(&source.name),
            source.scheme.as_str().into(),
            Label::as_str(&source.queue).into(),
            (&source.id).into(),
            secrets(source).join(" ").into(),
            path(&source.name).into(),
        ]
    }));
    if rows.len() > 1 {
        for line in table::lines(&rows) {
            context.printer.line(&line);
        }
    }
    for text in context
        .settings
        .inbox()
        .values()
        .filter_map(Source::unusable_secret)
    {
        context
            .printer
            .say(&format!("{text}; a server takes nothing for this secret"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says where secrets come from.
fn secrets(source: &Source) -> Vec<String> {
    source.secrets.iter().map(ToString::to_string).collect()
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
