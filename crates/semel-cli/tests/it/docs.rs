//! The documentation, tried out: what it shows is what happens.
//!
//! In README.md and docs/*.md a block that is marked `console` is run: a line that begins with `$ ` is
//! a command, and the lines after it are what it writes to both streams. `...` in a line stands for
//! anything, and on a line of its own for any lines. A block that is marked `sh NAME` is put into an
//! executable file of that name. All blocks of a page share one bash and one folder, from top to bottom.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Stands between the outputs of two commands.
const MARKER: &str = "--8<-- the next command --8<--";

/// How the README starts the command before it is installed.
const FROM_SOURCE: &str = "cargo run --release --";

/// A command, the line that it is on, and what it writes.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text of a page.
pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn pages() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs")).expect("there are docs");
    let names = docs.map(|entry| entry.expect("it can be listed").file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let names = names.filter(|name| name.ends_with(".md"));
    let names = names.map(|name| format!("docs/{name}"));
    names.chain(["README.md".to_owned()]).collect()
}

/// Reads the commands of a page, and puts its scripts into the folder.
fn steps_of(text: &str, folder: &Path) -> Vec<Step> {
    let mut steps: Vec<Step> = vec![];
    let mut lines = text.lines().zip(1..);
    while let Some((opening, _)) = lines.next() {
        let Some(kind) = opening.strip_prefix("```") else {
            continue;
        };
        let body = lines.by_ref().take_while(|(line, _)| *line != "```");
        if let Some(name) = kind.strip_prefix("sh ") {
            let script: String = body.map(|(line, _)| format!("{line}\n")).collect();
            let path = folder.join(name);
            fs::write(&path, script).expect("the script can be written");
            let executable = fs::Permissions::from_mode(0o700);
            fs::set_permissions(&path, executable).expect("it is ours");
        } else if kind == "console" {
            add_steps(&mut steps, body);
        } else {
            body.for_each(drop);
        }
    }
    steps
}

fn add_steps<'a>(steps: &mut Vec<Step>, body: impl Iterator<Item = (&'a str, usize)>) {
    let mut goes_on = false;
    for (line, number) in body {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                line: number,
                command: command.replacen(FROM_SOURCE, "semel", 1),
                expected: vec![],
            });
        } else if let Some(step) = steps.last_mut() {
            if goes_on {
                step.command.push('\n');
                step.command.push_str(line);
            } else {
                step.expected.push(line.to_owned());
                continue;
            }
        }
        goes_on = line.ends_with('\\');
    }
}

/// Runs the commands in one bash, and returns what each of them wrote.
fn outputs(steps: &[Step], folder: &Path) -> Vec<String> {
    // The marker keeps the exit code, so that `echo $?` works.
    let mut script = format!(
        "exec 2>&1\nmark() {{ local exit=$?; printf '\\n%s\\n' '{MARKER}'; return $exit; }}\n"
    );
    for step in steps {
        writeln!(script, "{}\nmark", step.command).expect("a string takes it");
    }
    let semel = Path::new(env!("CARGO_BIN_EXE_semel"));
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let own = semel.parent().expect("it is in a folder").to_path_buf();
    let path = [own].into_iter().chain(std::env::split_paths(&rest));
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .env_clear()
        .env("PATH", std::env::join_paths(path).expect("it is a path"))
        .env("HOME", folder)
        .env("USER", "ann")
        .env("LC_ALL", "C")
        .env("SEMEL_STORE", format!("sqlite:{}/s.db", folder.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let text = String::from_utf8(output.stdout).expect("the output is text");
    let mut outputs: Vec<_> = text
        .split(&format!("\n{MARKER}\n"))
        .map(str::to_owned)
        .collect();
    // What comes after the last marker is nobody's.
    let rest = outputs.pop().unwrap_or_default();
    assert_eq!((outputs.len(), &*rest), (steps.len(), ""), "{text}");
    outputs
}

fn agree(expected: &[&str], found: &[&str]) -> bool {
    match expected {
        [] => found.is_empty(),
        ["...", rest @ ..] => (0..=found.len()).any(|skip| agree(rest, &found[skip..])),
        [line, rest @ ..] => match found {
            [first, others @ ..] => line_agrees(line, first) && agree(rest, others),
            [] => false,
        },
    }
}

fn line_agrees(expected: &str, found: &str) -> bool {
    let Some((start, rest)) = expected.split_once("...") else {
        return expected.trim_end() == found.trim_end();
    };
    let Some(mut found) = found.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<_> = rest.split("...").collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = found.split_once(part) else {
            return false;
        };
        found = after;
    }
    found.ends_with(end)
}

/// Tries a page out, and says what is not so.
fn differences(name: &str, text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let steps = steps_of(text, folder.path());
    let outputs = outputs(&steps, folder.path());
    let wrong = steps.iter().zip(&outputs).filter_map(|(step, output)| {
        let expected: Vec<_> = step.expected.iter().map(String::as_str).collect();
        let found: Vec<_> = output.lines().collect();
        let (line, command) = (step.line, &step.command);
        (!agree(&expected, &found)).then(|| {
            let expected = expected.join("\n");
            format!("{name}:{line}: $ {command}\nexpected:\n{expected}\nfound:\n{output}\n")
        })
    });
    wrong.collect()
}

#[test]
fn what_the_pages_show_is_what_happens() {
    let pages = pages();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let tried: Vec<_> = pages
            .iter()
            .map(|name| scope.spawn(|| differences(name, &page(name))))
            .collect();
        let tried = tried.into_iter();
        tried
            .flat_map(|page| page.join().expect("it can be tried"))
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_page_gets_wrong_is_found_with_its_line() {
    let right =
        "```console\n$ printf 'a\\nb c\\n'; \\\n  false\na\n...\nb...c\n$ echo $?\n1\n```\n";
    assert_eq!(differences("page", right), [""; 0]);
    for (line, wrong) in [
        (2, right.replace("b...c", "b...d")),
        (2, right.replace("...\nb...c\n", "")),
        (7, right.replace("\n1\n", "\n0\n")),
        (7, right.replace("\n1\n", "\n1\n2\n")),
    ] {
        let found = differences("page", &wrong);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("page:{line}: ")), "{found:?}");
    }
}
