//! `semel backup`

use std::process::ExitCode;

use semel::Error;
use serde_json::json;

use crate::args::look::Backup;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context, args: &Backup) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    if args.file.exists() {
        let text = format!("{} exists; a backup is a new file", args.file.display());
        return Err(Failure::input(text));
    }
    let written = engine.store().backup(args.file.clone()).await;
    written.map_err(Error::from)?;
    let bytes = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let file = args.file.display().to_string();
    let json = json!({"ok": true, "effect": "created", "file": file, "bytes": bytes});
    let line = format!("{file}: {bytes} bytes");
    context.printer.answer(&json, &line);
    Ok(ExitCode::SUCCESS)
}
