//! What the end of a command means.

use std::os::unix::process::ExitStatusExt as _;

use crate::child::Ended;

/// The exit code by which a command asks to be tried again, as `sysexits.h` has it.
const EX_TEMPFAIL: u8 = 75;

/// What a command's end tells about its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It ran to its end.
    Done {
        /// In success.
        ok: bool,
    },
    /// It did nothing, and says so.
    NotDone(String),
    /// Nobody knows what it did.
    Unknown(String),
}

/// Judges the end of a child.
pub(crate) fn meaning(ended: &Ended, retry_exit: &[u8]) -> Meaning {
    if ended.timed_out {
        return Meaning::Unknown("the command was ended after its timeout".to_owned());
    }
    match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => of_exit(code, retry_exit),
        (None, Some(signal)) => {
            Meaning::Unknown(format!("the command was killed by signal {signal}"))
        }
        (None, None) => Meaning::Unknown("the command ended in an unknown way".to_owned()),
    }
}

fn of_exit(code: i32, retry_exit: &[u8]) -> Meaning {
    let listed = u8::try_from(code).is_ok_and(|code| retry_exit.contains(&code));
    if listed || code == i32::from(EX_TEMPFAIL) {
        return Meaning::NotDone(format!("the command asked to be tried again (exit {code})"));
    }
    match code {
        0 => Meaning::Done { ok: true },
        // A shell reports so that what it ran was killed; 255 is what ssh and others say when they
        // lost touch.
        129..=192 | 255 => Meaning::Unknown(format!("exit {code} does not tell what was done")),
        _ => Meaning::Done { ok: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_has_its_meaning() {
        for code in 0..=255 {
            let meaning = of_exit(code, &[69, 130]);
            match code {
                0 => assert_eq!(meaning, Meaning::Done { ok: true }),
                69 | 75 | 130 => assert!(matches!(meaning, Meaning::NotDone(_)), "{code}"),
                129..=192 | 255 => assert!(matches!(meaning, Meaning::Unknown(_)), "{code}"),
                _ => assert_eq!(meaning, Meaning::Done { ok: false }, "{code}"),
            }
        }
    }
}
