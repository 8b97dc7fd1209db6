//! `semel restore`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use semel::store::Store as _;
use semel::store::sqlite::SqliteStore;
use semel::{Engine, Error, Label};
use serde_json::json;

use crate::args::look::Restore;
use crate::context::Context;
use crate::failure::Failure;
use crate::order;

pub(crate) async fn run(context: &Context, args: &Restore) -> Result<ExitCode, Failure> {
    let place = place(context)?;
    let by = args.by.clone().unwrap_or_else(order::login);
    let by = Label::new(&by).map_err(|error| Failure::input(format!("--by: {error}")))?;
    match &args.file {
        Some(file) => {
            refuse_to_overwrite(&place)?;
            if args.dry_run {
                return would(context, file, &place).await;
            }
            let source = open(file, SqliteStore::open).await?;
            source.backup(place.clone()).await.map_err(Error::from)?;
        }
        None if args.dry_run => return would(context, &place, &place).await,
        None => {}
    }
    let store = open(&place, SqliteStore::open_copy).await?;
    if !store.is_copy().map_err(Error::from)? {
        let text = format!(
            "{} is no backup: there is nothing to adopt",
            place.display()
        );
        return Err(Failure::input(text));
    }
    let builder = Engine::builder().store(Arc::new(store)).sweep_every(None);
    let engine = builder.start().await?;
    let printer = &context.printer;
    let progress = |adopted: &semel::Adopted| {
        printer.note(&format!("{} operations adopted", adopted.records));
    };
    let adopted = engine.adopt_while(by, progress).await?;
    let json = json!({
        "ok": true,
        "effect": "created",
        "store": context.settings.store(),
        "records": adopted.records,
        "doubtful": adopted.doubtful,
    });
    let line = format!(
        "{}: {} operations adopted, {} of them ran and are in doubt now",
        place.display(),
        adopted.records,
        adopted.doubtful
    );
    printer.answer(&json, &line);
    printer.say("what was begun after the backup was made cannot be known: such a key runs again");
    if adopted.doubtful > 0 {
        printer.hint("`semel list --state doubtful` shows what is in doubt");
    }
    Ok(ExitCode::SUCCESS)
}

fn place(context: &Context) -> Result<PathBuf, Failure> {
    let url = context.settings.store();
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => Err(Failure::input(format!(
            "`{url}` is not a file: a backup can be restored to `sqlite:PATH` only"
        ))),
    }
}

/// A store that is there, or what is left of it, is not for us to remove.
fn refuse_to_overwrite(place: &Path) -> Result<(), Failure> {
    for suffix in ["", "-wal", "-turn", "-notes"] {
        let mut path = place.as_os_str().to_owned();
        path.push(suffix);
        if Path::new(&path).exists() {
            let text = format!("{} exists", Path::new(&path).display());
            return Err(Failure::input(text).hint(
                "move the old store away, with all files whose names begin like it, then restore",
            ));
        }
    }
    Ok(())
}

async fn open(
    path: &Path,
    open: fn(PathBuf) -> semel::store::Result<SqliteStore>,
) -> Result<SqliteStore, Failure> {
    if !path.exists() {
        return Err(Failure::input(format!(
            "there is no file {}",
            path.display()
        )));
    }
    let path = path.to_path_buf();
    let opened = tokio::task::spawn_blocking(move || open(path)).await;
    let opened = opened.map_err(|error| Failure::internal(format!("opening: {error}")))?;
    Ok(opened.map_err(Error::from)?)
}

async fn would(context: &Context, file: &Path, place: &Path) -> Result<ExitCode, Failure> {
    let store = open(file, SqliteStore::open).await?;
    let builder = Engine::builder().store(Arc::new(store)).sweep_every(None);
    let last = builder.start().await?.last_entry().await?;
    let (file, place) = (file.display(), place.display());
    let change = format!("would adopt {file} (log entries up to {last}) as {place}");
    let json = json!({"ok": true, "effect": "would_create", "changes": [change]});
    context.printer.answer(&json, &change);
    Ok(ExitCode::SUCCESS)
}
