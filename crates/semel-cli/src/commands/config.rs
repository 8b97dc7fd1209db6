//! `semel config`

use std::process::ExitCode;

use serde_json::json;

use crate::args::look::{Config, ConfigVerb};
use crate::context::Context;
use crate::settings::{Kind, SETTINGS, Setting, without_password};
use crate::table::{self, Cell};

pub(crate) fn run(context: &Context, args: &Config) -> ExitCode {
    match args.verb {
        ConfigVerb::Show => show(context),
    }
    ExitCode::SUCCESS
}

fn show(context: &Context) {
    if context.printer.is_json() {
        for setting in &SETTINGS {
            context.printer.object(&json!({
                "name": setting.name,
                "value": shown(context, setting),
                "origin": context.settings.value(setting).origin.to_string(),
                "env": setting.env,
                "about": setting.about,
            }));
        }
        for list in context.settings.route_lists() {
            context.printer.object(&json!({
                "name": list.name,
                "value": json!(list.items).to_string(),
                "origin": list.origin.to_string(),
                "env": null,
                "about": list.about,
            }));
        }
        return;
    }
    let head = ["SETTING", "VALUE", "FROM", "ENVIRONMENT", "ABOUT"];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(SETTINGS.iter().map(|setting| {
        let value = shown(context, setting).unwrap_or_else(|| "-".to_owned());
        let origin = &context.settings.value(setting).origin;
        [
            setting.name.into(),
            value.into(),
            origin.into(),
            setting.env.into(),
            setting.about.into(),
        ]
    }));
    rows.extend(context.settings.route_lists().into_iter().map(|list| {
        [
            list.name.into(),
            json!(list.items).into(),
            list.origin.into(),
            "-".into(),
            list.about.into(),
        ]
    }));
    for line in table::lines(&rows) {
        context.printer.line(&line);
    }
}

/// Returns what may be seen of a value; `None` when it is not set.
fn shown(context: &Context, setting: &Setting) -> Option<String> {
    let value = &context.settings.value(setting).text;
    if value.is_empty() {
        return None;
    }
    Some(match setting.kind {
        Kind::Secret => "(set)".to_owned(),
        Kind::Plain | Kind::Number => without_password(value),
        Kind::List => json!(value.lines().collect::<Vec<_>>()).to_string(),
    })
}
