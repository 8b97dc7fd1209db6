//! Runs a command with a private PostgreSQL server: `with-postgres COMMAND...` finds an empty database in
//! `DATABASE_URL`. The server goes when the command ends.

use std::process::{Command, ExitCode};

use semel_testkit::postgres::Cluster;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, arguments @ ..] = words.as_slice() else {
        return Err("usage: with-postgres COMMAND...".into());
    };
    let cluster = Cluster::start();
    let mut command = Command::new(program);
    let status = command
        .args(arguments)
        .env("DATABASE_URL", cluster.database())
        .status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
