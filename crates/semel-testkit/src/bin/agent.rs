//! A process that claims, acts and settles as it is ordered; tests start and kill it.

use std::io::Write as _;
use std::process::ExitCode;

use semel_testkit::process::{Orders, run};

fn main() -> ExitCode {
    let orders = match Orders::from_args(std::env::args().skip(1)) {
        Ok(orders) => orders,
        Err(error) => return say(&error, 2),
    };
    match run(orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&format!("{} {error}", error.code()), 3),
    }
}

fn say(text: &str, code: u8) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}
