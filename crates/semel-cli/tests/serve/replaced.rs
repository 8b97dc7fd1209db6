//! A store whose files are removed, moved or replaced under a running server: the server grants nothing
//! more, as no other process would see it.

use std::fs;
use std::path::PathBuf;

use semel::rusqlite::Connection;
use serde_json::json;

use crate::harness::World;
use crate::http::Answer;
use crate::server::{Server, wait_until};

fn begin(server: &Server, key: &str) -> Answer {
    server.post("/v1/begin", &json!({"key": key, "name": "n"}))
}

/// Carries an operation out at the server.
fn carry_out(server: &Server, key: &str) {
    let granted = begin(server, key).expect(200);
    let settle = json!({
        "key": key,
        "attempt_id": granted["attempt_id"],
        "fence": granted["fence"],
        "verdict": "done",
        "effect": "created",
    });
    server.post("/v1/settle", &settle).expect(200);
}

fn beside(world: &World, suffix: &str) -> PathBuf {
    world.path(&format!("data/semel.db{suffix}"))
}

fn remove(world: &World, suffixes: &[&str]) {
    for suffix in suffixes {
        fs::remove_file(beside(world, suffix)).expect("it was there");
    }
}

/// Moves all files of the store to another directory.
fn move_away(world: &World) {
    let old = world.path("old");
    fs::create_dir(&old).expect("it is made");
    for entry in fs::read_dir(world.path("data")).expect("it lists") {
        let entry = entry.expect("it lists");
        fs::rename(entry.path(), old.join(entry.file_name())).expect("it moves");
    }
}

/// Writes the log back into the database, as the store's own checkpoints do.
fn write_back(world: &World) {
    let sqlite = Connection::open(beside(world, "")).expect("it opens");
    let written = sqlite.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(written, Ok(0), "nothing holds it up");
}

/// Runs an operation in a process of its own.
fn run(world: &World, key: &str) -> i32 {
    world
        .semel(&["run", "--key", key, "--", "sh", "-c", "echo x >> effects"])
        .code
}

/// Takes the store away from a running server; the exit code of a new process that runs a key then is
/// `next`. The server must grant nothing more.
#[track_caller]
fn grants_nothing_after(replace: impl FnOnce(&World), next: i32) {
    let world = World::new();
    let server = Server::start(&world);
    carry_out(&server, "before");
    server.get("/readyz").expect(200);
    replace(&world);
    assert_eq!(run(&world, "k"), next);
    // The key of the other ledger, and one that it has never seen.
    for key in ["k", "k2"] {
        let refused = begin(&server, key);
        assert_ne!(refused.status, 200, "the server granted {key}");
        refused.problem(503, "store_unusable");
    }
    server.get("/readyz").problem(503, "store_unusable");
    let logged = server.wait_for_line(|line| {
        let is_it = line["message"] == "the store may not be written";
        is_it.then(|| line["error"].to_string())
    });
    assert!(logged.is_some_and(|error| error.contains("semel.db")));
    // What was settled before is still known: the effect did happen.
    let again = begin(&server, "before").expect(200);
    assert_eq!(again["decision"], "replay", "{again}");
}

#[test]
fn server_grants_nothing_after_log_and_shared_memory_were_removed_after_a_checkpoint() {
    let replace = |world: &World| {
        write_back(world);
        remove(world, &["-wal", "-shm"]);
    };
    grants_nothing_after(replace, 0);
}

#[test]
fn server_grants_nothing_after_its_files_were_moved_away_and_a_backup_was_restored() {
    let replace = |world: &World| {
        let backup = world.path("bak.db").display().to_string();
        assert_eq!(world.semel(&["backup", &backup]).code, 0);
        move_away(world);
        let restored = world.semel(&["restore", &backup]);
        assert_eq!(restored.code, 0, "{restored:?}");
    };
    grants_nothing_after(replace, 0);
}

#[test]
fn server_grants_nothing_after_its_log_was_removed_without_a_checkpoint() {
    // A new process sees that entries are missing, and refuses the store as damaged.
    grants_nothing_after(|world| remove(world, &["-wal"]), 125);
}

#[test]
fn server_grants_nothing_after_its_shared_memory_was_removed() {
    grants_nothing_after(|world| remove(world, &["-shm"]), 0);
}

#[test]
fn server_grants_nothing_after_all_files_were_removed() {
    let all = ["", "-wal", "-shm", "-turn", "-queue"];
    grants_nothing_after(|world| remove(world, &all), 0);
}

#[test]
fn server_grants_nothing_after_its_directory_was_renamed() {
    let rename = |world: &World| {
        fs::rename(world.path("data"), world.path("gone")).expect("it moves");
    };
    grants_nothing_after(rename, 0);
}

#[test]
fn server_grants_nothing_after_a_copy_took_the_place_of_its_database() {
    let replace = |world: &World| {
        fs::copy(beside(world, ""), world.path("copy")).expect("it is copied");
        fs::rename(world.path("copy"), beside(world, "")).expect("it is replaced");
    };
    grants_nothing_after(replace, 119);
}

#[test]
fn server_grants_nothing_after_the_link_to_its_store_was_turned_elsewhere() {
    let world = World::new();
    let link = world.path("link.db");
    let at_link = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("SEMEL_STORE", format!("sqlite:{}", link.display()));
        command
    };
    fs::create_dir(world.path("data")).expect("it is made");
    std::os::unix::fs::symlink(beside(&world, ""), &link).expect("a link is made");
    fs::write(beside(&world, ""), "").expect("it is made");
    let server = Server::spawn(&mut at_link(&["serve", "--listen", "127.0.0.1:0"]));
    carry_out(&server, "before");
    fs::remove_file(&link).expect("it was there");
    fs::write(world.path("other.db"), "").expect("it is made");
    std::os::unix::fs::symlink(world.path("other.db"), &link).expect("a link is made");
    assert_eq!(
        world
            .run(&mut at_link(&["run", "--key", "k", "--", "true"]))
            .code,
        0
    );
    begin(&server, "k").problem(503, "store_unusable");
}

#[test]
fn server_notices_a_replaced_turn_file_as_soon_as_another_process_has_written() {
    let world = World::new();
    let server = Server::start(&world);
    carry_out(&server, "before");
    remove(&world, &["-turn"]);
    // SQLite's own locks still keep the two apart, so what is there is one ledger.
    assert_eq!(run(&world, "k"), 0);
    let refused = begin(&server, "k2");
    refused.problem(503, "store_unusable");
    server.get("/readyz").problem(503, "store_unusable");
}

#[test]
fn server_goes_on_while_its_store_is_used_by_others_and_written_back() {
    let world = World::new();
    let server = Server::start(&world);
    for round in 0..5 {
        carry_out(&server, &format!("server-{round}"));
        assert_eq!(run(&world, &format!("other-{round}")), 0);
        write_back(&world);
    }
    server.get("/readyz").expect(200);
}

#[test]
fn server_on_a_copied_store_is_not_ready_until_the_store_is_adopted() {
    let world = World::new();
    assert_eq!(run(&world, "k"), 0);
    fs::copy(beside(&world, ""), world.path("copy")).expect("it is copied");
    fs::rename(world.path("copy"), beside(&world, "")).expect("it is replaced");
    let server = Server::start(&world);
    server.get("/readyz").problem(503, "store_unusable");
    begin(&server, "k2").problem(503, "store_unusable");
    server.get("/v1/operations").expect(200);
    // Another process adopts it, and this one goes on.
    assert_eq!(world.semel(&["restore"]).code, 0);
    wait_until("it is ready", || server.get("/readyz").status == 200);
    begin(&server, "k2").expect(200);
}
