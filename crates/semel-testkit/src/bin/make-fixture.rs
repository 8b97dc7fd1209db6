//! Makes the fixture of the present store format: `make-fixture DIRECTORY/format-N` writes
//! `format-N.db` and `format-N.txt`, which says what the store holds.

use std::error::Error;
use std::path::PathBuf;

use semel::Engine;
use semel::store::sqlite::SqliteStore;
use semel_testkit::fixture;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args()
        .nth(1)
        .ok_or("say where: DIRECTORY/format-N")?;
    let (file, words) = (PathBuf::from(format!("{base}.db")), format!("{base}.txt"));
    if file.exists() {
        return Err(format!(
            "{} is there: a released fixture never changes",
            file.display()
        )
        .into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let scratch = tempfile::tempdir()?;
    let store = scratch.path().join("fixture.db");
    let description = runtime.block_on(async {
        fixture::make(&store).await?;
        let opened = std::sync::Arc::new(SqliteStore::open(&store)?);
        let builder = Engine::builder().store(opened).sweep_every(None);
        fixture::describe(&builder.start().await?).await
    })?;
    // A fixture is one file: the log is written back into it.
    let sqlite = rusqlite::Connection::open(&store)?;
    sqlite.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    drop(sqlite);
    // Read and written, as a copy would keep the mode of a store, which nobody else may read.
    std::fs::write(&file, std::fs::read(&store)?)?;
    std::fs::write(words, description)?;
    Ok(())
}
