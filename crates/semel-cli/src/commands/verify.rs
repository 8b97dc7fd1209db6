//! `semel verify`

use std::process::ExitCode;

use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
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
    context.printer.answer(&json, &lines);
    Ok(if verified.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
