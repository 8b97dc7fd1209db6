//! `semel restore`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use semel::store::sqlite::SqliteStore;
use semel::store::{Stage, Standing, Store as _};
use semel::{Engine, Error, Label};
use serde_json::json;

use crate::args::look::Restore;
use crate::context::Context;
use crate::failure::Failure;
use crate::order;

pub(crate) async fn run(context: &Context, args: &Restore) -> Result<ExitCode, Failure> {
    let by = args.by.clone().unwrap_or_else(order::login);
    let by = Label::new(&by).map_err(|error| Failure::input(format!("--by: {error}")))?;
    let store = context.settings.shown_store();
    if let Some(file) = &args.file {
        let place = place(context)?;
        refuse_to_overwrite(&place)?;
        if args.dry_run {
            let source = Engine::open(&format!("sqlite:{}", existing(file)?.display())).await?;
            return would(context, &source, &file.display().to_string()).await;
        }
        let source = open(file).await?;
        source.backup(place).await.map_err(Error::from)?;
    } else if let Some(path) = context.missing() {
        existing(path)?;
    }
    let engine = Engine::open_copy(context.settings.store()).await?;
    refuse_to_adopt(&engine, &store).await?;
    if args.dry_run {
        return would(context, &engine, &store).await;
    }
    let printer = &context.printer;
    let progress = |adopted: &semel::Adopted| {
        printer.note(&format!("{} operations adopted", adopted.records));
    };
    let adopted = engine.adopt_while(by, progress).await?;
    let json = json!({
        "ok": true,
        "effect": "created",
        "store": store,
        "records": adopted.records,
        "doubtful": adopted.doubtful,
    });
    let line = format!(
        "{}: {} operations adopted, {} of them ran and are in doubt now",
        store.strip_prefix("sqlite:").unwrap_or(&store),
        adopted.records,
        adopted.doubtful
    );
    printer.answer(&json, &line);
    printer.say("what was begun after the copy was made cannot be known: such a key runs again");
    if adopted.doubtful > 0 {
        printer.hint("`semel list --state doubtful` shows what is in doubt");
    }
    Ok(ExitCode::SUCCESS)
}

/// Only a whole copy can be gone on with.
async fn refuse_to_adopt(engine: &Engine, store: &str) -> Result<(), Failure> {
    match engine.store().standing().await.map_err(Error::from)? {
        Standing::Copy => {}
        // The file is a whole one, whatever its store was copied from before.
        Standing::Copied { .. } => return Ok(()),
        Standing::Open | Standing::Closed(_) => {
            let text = format!("{store} is no copy: there is nothing to adopt");
            return Err(Failure::input(text));
        }
    }
    let origin = engine.store().origin(None).await.map_err(Error::from)?;
    match origin.map(|origin| origin.stage) {
        Some(Stage::Filling | Stage::Adopting) => Err(Failure::input(format!(
            "{store} is a copy that was interrupted: something is missing in it"
        ))
        .hint("run the same `semel copy` again: it goes on where it stopped")),
        Some(Stage::Whole) | None => Ok(()),
    }
}

fn place(context: &Context) -> Result<PathBuf, Failure> {
    let url = context.settings.store();
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => Err(Failure::input(format!(
            "`{}` is not a file: a backup can be restored to `sqlite:PATH` only",
            context.settings.shown_store()
        ))
        .hint("restore it to a file, then move the ledger with `semel copy`")),
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

fn existing(path: &Path) -> Result<&Path, Failure> {
    if !path.exists() {
        return Err(Failure::input(format!(
            "there is no file {}",
            path.display()
        )));
    }
    Ok(path)
}

async fn open(path: &Path) -> Result<SqliteStore, Failure> {
    let path = existing(path)?.to_path_buf();
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(path)).await;
    let opened = opened.map_err(|error| Failure::internal(format!("opening: {error}")))?;
    Ok(opened.map_err(Error::from)?)
}

async fn would(context: &Context, copy: &Engine, named: &str) -> Result<ExitCode, Failure> {
    let last = copy.last_entry().await?;
    let store = context.settings.shown_store();
    let store = store.strip_prefix("sqlite:").unwrap_or(&store);
    let named = named.strip_prefix("sqlite:").unwrap_or(named);
    let change = format!("would adopt {named} (log entries up to {last}) as {store}");
    let json = json!({"ok": true, "effect": "would_create", "changes": [change]});
    context.printer.answer(&json, &change);
    Ok(ExitCode::SUCCESS)
}
