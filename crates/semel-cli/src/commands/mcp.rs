//! `semel mcp`

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use semel::Engine;
use semel_server::Url;
use semel_server::mcp::{self, Command, Config, Inspected, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::mcp::{Inspect, Mcp, McpServer, McpVerb};
use crate::args::values;
use crate::commands::serve;
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::Origin;
use crate::table::{self, Cell};

pub(crate) async fn run(context: &Context, args: &Mcp) -> Result<ExitCode, Failure> {
    if let Some(McpVerb::Inspect(args)) = &args.verb {
        return inspect(context, args).await;
    }
    let settings = &context.settings;
    let server = server(&args.server)?;
    let stopped = stopped().map_err(|error| Failure::internal(format!("no signals: {error}")))?;
    let [wait, timeout, drain] = settings.mcp_times()?;
    let config = Config {
        name: args.name.clone().unwrap_or_else(|| server.name()),
        policy: settings.mcp_policy(args.trust_annotations)?,
        admin_tools: args.admin_tools || settings.get("mcp.admin_tools") == "on",
        server,
        wait,
        timeout,
        drain,
    };
    // Whoever starts a server wants to know where it is; a host wants no more than what is wrong.
    let is_said = *settings.origin("mcp.log") != Origin::Default;
    let level = match (&args.listen, is_said) {
        (Some(_), false) => "info",
        _ => settings.get("mcp.log"),
    };
    serve::log(level);
    let engine = Engine::builder().redactor(settings.redactor()?);
    let engine = engine.open(settings.store()).await?;
    match &args.listen {
        Some(place) => {
            let listen =
                values::listen(place).map_err(|error| Failure::input(error.to_string()))?;
            let listening = semel_server::Config {
                listen,
                ..settings.server()?
            };
            let service = mcp::Service::open(engine, config, listening).await;
            let service = service.map_err(serve::failure)?;
            let stop = service.stopper();
            tracing::info!(address = service.address(), "listening");
            tokio::spawn(async move {
                stopped.await;
                stop.stop();
            });
            service.run().await;
        }
        None => {
            let served = mcp::serve_stdio(engine, config, stopped).await;
            served.map_err(serve::failure)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the first signal to end.
fn stopped() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn server(args: &McpServer) -> Result<Server, Failure> {
    if let Some(url) = &args.upstream {
        let url =
            Url::parse(url).map_err(|error| Failure::input(format!("--upstream: {error}")))?;
        return Ok(Server::Http(url));
    }
    match args.command.split_first() {
        Some((program, arguments)) => Ok(Server::Command(Command {
            program: program.clone(),
            arguments: arguments.to_vec(),
        })),
        None => Err(Failure::input("no server was named").hint(
            "`semel mcp -- COMMAND` starts one; `semel mcp --upstream URL` goes to one that runs",
        )),
    }
}

async fn inspect(context: &Context, args: &Inspect) -> Result<ExitCode, Failure> {
    let server = server(&args.server)?;
    let policy = context.settings.mcp_policy(false)?;
    let found = mcp::inspect(&server, &policy).await;
    let found = found
        .map_err(|error| Failure::input(format!("the server cannot be inspected: {error}")))?;
    if let Some(path) = &args.write {
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|mut open| io::Write::write_all(&mut open, settings_for(&found).as_bytes()));
        written.map_err(|error| {
            Failure::input(format!("{} cannot be written: {error}", path.display()))
        })?;
    }
    show(context, &found);
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, found: &[Inspected]) {
    if context.printer.is_json() {
        for tool in found {
            context.printer.object(&json!({
                "name": tool.name,
                "class": tool.class.as_str(),
                "why": tool.why.as_str(),
                "annotated": tool.annotated.map(semel::Class::as_str),
                "native_keys": tool.native_keys,
            }));
        }
        return;
    }
    let mut rows = vec![["TOOL", "CLASS", "WHY", "SERVER SAYS", "OWN KEY"].map(Cell::from)];
    rows.extend(found.iter().map(|tool| {
        let annotated = tool.annotated.map_or("-", semel::Class::as_str);
        let keys = tool.native_keys.join(" ");
        let keys = if keys.is_empty() {
            "-".to_owned()
        } else {
            keys
        };
        [
            tool.name.clone().into(),
            tool.class.as_str().into(),
            tool.why.as_str().into(),
            annotated.into(),
            keys.into(),
        ]
    }));
    for line in table::lines(&rows) {
        context.printer.line(&line);
    }
}

/// Writes settings to begin with: everything acts unless somebody says otherwise.
fn settings_for(found: &[Inspected]) -> String {
    let mut text = String::from(
        "# How `semel mcp` treats the tools of this server. A tool acts and is carried out once unless it is\n\
         # `safe` (it only reads, and passes untouched) or `idempotent` (a doubt may be sent again).\n\
         # Lines with a # are what the server says of itself: take the # away where you believe it.\n",
    );
    for tool in found {
        // Writing to a text cannot fail.
        let _ = write!(text, "\n[mcp.tools.{}]\n", json!(tool.name));
        let (mark, class) = match tool.annotated {
            Some(class) => ("# ", class.as_str()),
            None => ("", tool.class.as_str()),
        };
        let _ = writeln!(text, "{mark}class = \"{class}\"");
        if let Some(key) = tool.native_keys.first() {
            let _ = writeln!(text, "# inject = {}", json!(key));
        }
    }
    text
}
