//! Names in the documentation: flags and faults are those that there are.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::docs::page;

/// Runs the command with these faults, and returns its exit code and all that it wrote.
fn semel(words: &[&str], faults: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let output = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(words)
        .env_clear()
        .env("HOME", folder.path())
        .env("SEMEL_INJECT", faults)
        .output()
        .expect("semel runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Returns the flags that a text names.
fn flags(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .filter(|word| !word.starts_with("---"))
        .collect()
}

#[test]
fn the_page_of_run_names_the_flags_that_there_are() {
    let (_, run) = semel(&["run", "--help"], "");
    let (_, ensure) = semel(&["ensure", "--help"], "");
    let page = page("docs/run.md");
    let help = [run, ensure].concat();
    let (named, known) = (flags(&page), flags(&help));
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // The examples of the help use flags of commands that are not ours.
    let of_others = BTreeSet::from(["--amount", "--id"]);
    let unnamed: Vec<_> = known
        .difference(&named)
        .filter(|flag| !of_others.contains(*flag))
        .collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn the_page_of_faults_names_every_fault_and_no_other() {
    let try_out = |fault: &str| semel(&["run", "--dry-run", "--key", "k", "--", "true"], fault);
    let page = page("docs/faults.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    for fault in &named {
        assert_eq!(try_out(fault).0, Some(0), "{fault}");
    }
    let (exit, text) = try_out("?");
    assert_eq!(exit, Some(64), "{text}");
    let known = text
        .lines()
        .find_map(|line| line.strip_prefix("hint: use one of "));
    let known: BTreeSet<_> = known.expect("it says so").split(", ").collect();
    assert_eq!(named, known);
}

/// Collects the names of all functions in the sources below a directory, each with the path of its file.
fn functions(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).expect("it is text");
            let lines = text.lines().map(str::trim_start);
            let names = lines.filter_map(|line| {
                let line = line.strip_prefix("async ").unwrap_or(line);
                line.strip_prefix("fn ")?.split(['(', '<']).next()
            });
            let file = path.with_extension("").display().to_string();
            found.extend(names.map(|name| (file.clone(), name.to_owned())));
        }
    }
}

/// Every test that the threat model names is there, in a file whose path ends as its module does: a line without a
/// test promises what nothing shows.
#[test]
fn tests_that_the_page_on_security_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![];
    functions(&root.join("crates"), &mut found);
    let page = page("docs/security.md");
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains("::") && !name.contains(' '))
        .collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let (module, test) = name.rsplit_once("::").expect("it has a module");
        let module = module.replace("::", "/");
        let is_there = found.iter().any(|(file, function)| {
            let in_module = file.ends_with(&module) || file.ends_with(&format!("{module}/mod"));
            let fits = match test.strip_suffix('*') {
                Some(start) => function.starts_with(start),
                None => function == test || file.ends_with(&format!("{module}/{test}")),
            };
            fits && (in_module || file.ends_with(&format!("{module}/{test}")))
        });
        assert!(is_there, "there is no test `{name}`");
    }
}
