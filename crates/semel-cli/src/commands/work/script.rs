//! Keys of tasks must not become code: each client that may submit chooses them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::commands::run::job::with_key;
use crate::failure::Failure;

/// Programs that run a text as a script, and the letters of the options that it follows.
const INTERPRETERS: [(&str, &[u8]); 14] = [
    ("sh", b"c"),
    ("bash", b"c"),
    ("dash", b"c"),
    ("ash", b"c"),
    ("ksh", b"c"),
    ("mksh", b"c"),
    ("zsh", b"c"),
    ("fish", b"c"),
    ("python", b"c"),
    ("python3", b"c"),
    ("perl", b"eE"),
    ("ruby", b"e"),
    ("node", b"ep"),
    ("php", b"r"),
];

/// Refuses a worker's command in which the key of a task would be a program or a part of a script. This finds the usual
/// mistake, not each one: a program can still run its argument.
pub(super) fn refuse_key(command: &[OsString]) -> Result<(), Failure> {
    if command.first().is_some_and(has_key) {
        let text = "`{key}` as the command would run a program that a task names";
        return Err(
            Failure::input(text).hint("name the program, and give it the key as an argument")
        );
    }
    if (0..command.len()).any(|at| script(&command[at..]).is_some_and(has_key)) {
        let text = "`{key}` in a script would run the key of a task as code";
        return Err(Failure::input(text).hint("write \"$SEMEL_KEY\" in the script instead"));
    }
    Ok(())
}

fn has_key(word: &OsString) -> bool {
    with_key(word, b"") != *word
}

/// Returns the script that an interpreter at the head of these words is given by an option.
fn script(words: &[OsString]) -> Option<&OsString> {
    let (program, options) = words.split_first()?;
    let name = Path::new(program).file_name().and_then(OsStr::to_str)?;
    let (_, letters) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    // After the first word that is no option come arguments, whatever they look like.
    let count = options.iter().take_while(|word| is_option(word)).count();
    let takes_script = |word: &OsString| {
        let word = word.as_encoded_bytes();
        !word.starts_with(b"--") && word.iter().any(|letter| letters.contains(letter))
    };
    let given = options[..count].iter().any(takes_script);
    options.get(count).filter(|_| given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_in_a_script_is_refused_and_elsewhere_it_is_an_argument() {
        let refused = |line: &[&str]| {
            let words: Vec<OsString> = line.iter().map(OsString::from).collect();
            refuse_key(&words).is_err()
        };
        for line in [
            &["sh", "-c", "mail {key}"][..],
            &["/bin/bash", "-ec", "mail '{key}'"],
            &["bash", "--norc", "-e", "-c", "mail {key}", "x"],
            &["env", "-i", "sh", "-c", "mail {key}"],
            &["busybox", "sh", "-c", "{key}"],
            &["python3", "-c", "print('{key}')"],
            &["perl", "-ne", "print '{key}'"],
            &["node", "-e", "send('{key}')"],
            &["{key}"],
            &["./bin/{key}", "x"],
        ] {
            assert!(refused(line), "{line:?}");
        }
        for line in [
            &["./send-mail", "--id", "{key}"][..],
            &["sh", "-c", "mail \"$SEMEL_KEY\""],
            &["sh", "-c", "mail \"$1\"", "mail", "{key}"],
            &["sh", "mail.sh", "-c", "{key}"],
            &["./deliver", "-c", "{key}"],
            &["python3", "send.py", "-c", "{key}"],
            &["echo", "sh", "{key}"],
        ] {
            assert!(!refused(line), "{line:?}");
        }
    }
}
