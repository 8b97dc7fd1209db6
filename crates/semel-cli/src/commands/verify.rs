//! `semel verify`

use std::process::ExitCode;

use semel::{Engine, Error};
use serde_json::json;

use crate::args::Args;
use crate::printer::Printer;
use crate::settings;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<ExitCode, Error> {
    let url = settings::store_url(args.store.as_deref())?;
    settings::refuse_missing(&url)?;
    let engine = Engine::open(&url).await?;
    let verified = engine.verify().await?;
    let json = json!({
        "ok": verified.is_clean(),
        "entries": verified.entries,
        "records": verified.records,
        "payloads": verified.payloads,
        "difference": verified.difference.as_ref().map(|difference| json!({
            "seq": difference.seq,
            "record": difference.place.map(|place| place.0),
            "what": difference.what,
        })),
    });
    let counts = format!(
        "{} log entries, {} records, {} payloads",
        verified.entries, verified.records, verified.payloads
    );
    let lines = match &verified.difference {
        None => format!("{counts}: all agree"),
        Some(difference) => format!("{counts}, then {difference}"),
    };
    printer.answer(&json, &lines);
    Ok(if verified.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
