//! Says on a terminal what is being measured; a file or a pipe gets the result only.

use std::io::{self, IsTerminal, Write};

pub(crate) fn say(text: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Nothing is lost but the news when the terminal is gone.
        let _ = writeln!(terminal, "{text}");
    }
}
