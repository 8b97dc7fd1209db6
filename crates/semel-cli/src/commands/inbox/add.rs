//! `semel inbox add`

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{FlockOperation, flock};
use semel::Effect;
use semel::core::webhook::SourceName;
use serde_json::json;

use super::{base, path};
use crate::args::inbox::Add;
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::{Origin, Settings};

/// The settings file that is made where there is none.
const FILE: &str = "semel.toml";

pub(super) fn run(context: &Context, args: &Add) -> Result<ExitCode, Failure> {
    let name = SourceName::new(&args.name).map_err(|error| Failure::input(error.to_string()))?;
    let file = context.settings.file().unwrap_or_else(|| Path::new(FILE));
    let section = section(context, args, &name)?;
    // Before a file is made: what is refused leaves nothing behind.
    let foreseen = foreseen(file, &name, &section)?;
    check_secrets(file, &name, &section)?;
    let effect = match args.dry_run {
        true => foreseen,
        false => written(file, &name, &section)?,
    };
    said(context, &name, file, &section, effect);
    if effect == Effect::Created {
        for variable in &args.secret_env {
            context.printer.hint(&format!(
                "a server that runs without {variable} in its environment has to be started anew with it"
            ));
        }
        if args.scheme == "none" {
            let text = "nothing is verified: whoever knows the address can send";
            context.printer.say(text);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what adding the section would do.
fn foreseen(file: &Path, name: &SourceName, section: &str) -> Result<Effect, Failure> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| unwritable(file, &error))?,
    };
    Ok(match change(file, &text, name, section)? {
        Some(_) => Effect::WouldCreate,
        None => Effect::Noop,
    })
}

/// Refuses secrets that a server could not use. A variable that is not set here may be set where the server runs.
fn check_secrets(file: &Path, name: &SourceName, section: &str) -> Result<(), Failure> {
    let added = Settings::checked_inbox(file, section)?;
    let wrong = added.get(name).and_then(|source| source.unusable_secret());
    wrong.map_or(Ok(()), |text| {
        let hint =
            "put the secret that the sender shows there, in one line, and add the source again";
        Err(Failure::input(text).hint(hint))
    })
}

/// Makes the section. Every value is a text, and a JSON string is one of TOML.
fn section(context: &Context, args: &Add, name: &SourceName) -> Result<String, Failure> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let env = args.secret_env.iter().map(|name| format!("env:{name}"));
    let mut secrets: Vec<String> = env.collect();
    for path in &args.secret_file {
        // It is looked for beside the settings file, wherever this is said.
        let path = std::path::absolute(path)
            .map_err(|error| Failure::input(format!("--secret-file: {error}")))?;
        let path = path.to_str().map(|path| format!("file:{path}"));
        secrets.push(path.ok_or_else(|| Failure::input("--secret-file: it is not valid UTF-8"))?);
    }
    let secrets: Vec<_> = secrets.iter().map(|text| quoted(text)).collect();
    let namespace = match context.settings.origin("namespace") {
        Origin::Flag(_) => Some(context.settings.get("namespace").to_owned()),
        Origin::Env(_) | Origin::File(_) | Origin::Default => None,
    };
    let headers = args.keep_header.iter().map(|name| quoted(name));
    let headers: Vec<_> = headers.collect();
    let mut text = format!("[inbox.{name}]\n");
    let mut member = |name: &str, value: &str| text.push_str(&format!("{name} = {value}\n"));
    member("scheme", &quoted(&args.scheme));
    member("queue", &quoted(&args.queue));
    if !secrets.is_empty() {
        member("secrets", &format!("[{}]", secrets.join(", ")));
    }
    if let Some(priority) = args.priority {
        member("priority", &priority.to_string());
    }
    if !headers.is_empty() {
        member("headers", &format!("[{}]", headers.join(", ")));
    }
    for (name, value) in [
        ("lane", &args.lane),
        ("namespace", &namespace),
        ("header", &args.header),
        ("prefix", &args.prefix),
        ("algorithm", &args.algorithm),
        ("encoding", &args.encoding),
        ("signed", &args.signed),
        ("timestamp_header", &args.timestamp_header),
        ("id", &args.id),
        ("tolerance", &args.tolerance),
        ("retention", &args.retention),
        ("max_body", &args.max_body),
    ] {
        if let Some(value) = value {
            member(name, &quoted(value));
        }
    }
    Ok(text)
}

/// Returns what has to be appended to a file; `None` when it says so already.
///
/// What is there is not touched, comments and all; whether the whole still makes sense is checked before anything is
/// written.
fn change(
    file: &Path,
    text: &str,
    name: &SourceName,
    section: &str,
) -> Result<Option<String>, Failure> {
    let table = |text: &str| -> Option<toml::Value> {
        let table: toml::Table = text.parse().ok()?;
        table.get("inbox")?.get(name.as_str()).cloned()
    };
    match (table(text), table(section)) {
        (Some(old), Some(new)) if old == new => return Ok(None),
        (Some(_), _) => {
            let text = format!("{}: inbox.{name} is there already", file.display());
            let hint = "choose another name, or change the section there";
            return Err(Failure::input(text).hint(hint));
        }
        (None, _) => {}
    }
    let gap = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let added = format!("{gap}{section}");
    Settings::checked_inbox(file, &format!("{text}{added}"))?;
    Ok(Some(added))
}

/// Appends the section to the file, under a lock: two who add at once must not both find the name free.
fn written(file: &Path, name: &SourceName, section: &str) -> Result<Effect, Failure> {
    let failed = |error: io::Error| unwritable(file, &error);
    let mut opened = open(file).map_err(failed)?;
    flock(&opened, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let mut text = String::new();
    opened.read_to_string(&mut text).map_err(failed)?;
    let Some(added) = change(file, &text, name, section)? else {
        return Ok(Effect::Noop);
    };
    // In one piece, so that a server that reads it meanwhile finds all of it or nothing.
    opened.write_all(added.as_bytes()).map_err(failed)?;
    opened.sync_all().map_err(failed)?;
    Ok(Effect::Created)
}

/// The mode of a new settings file, whatever the umask is: it names secrets and holds none, and a server of another
/// user has to read it.
const MODE: u32 = 0o644;

/// Opens the settings file, or makes it.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    match options.clone().create_new(true).mode(0o600).open(file) {
        Ok(made) => {
            made.set_permissions(Permissions::from_mode(MODE))?;
            Ok(made)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(file),
        Err(error) => Err(error),
    }
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("{}: {error}", file.display()))
}

fn said(context: &Context, name: &SourceName, file: &Path, section: &str, effect: Effect) {
    let path = path(name);
    let url = base(context).map(|base| format!("{base}{path}"));
    let reason = (effect == Effect::Noop).then_some("it is there already");
    let json = json!({
        "ok": true,
        "effect": effect.as_str(),
        "reason": reason,
        "name": name.as_str(),
        "file": file.display().to_string(),
        "section": section,
        "path": path,
        "url": url,
    });
    context.printer.answer(&json, section.trim_end());
    let did = match effect {
        Effect::Created => "written to",
        Effect::WouldCreate => "would be written to",
        _ => "there already, in",
    };
    context.printer.say(&format!("{did} {}", file.display()));
    let place = url.unwrap_or(path);
    context.printer.say(&format!(
        "the sender's address is {place}, at the name by which it reaches this server"
    ));
}
