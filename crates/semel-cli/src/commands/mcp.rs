//! `semel mcp`

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use semel_server::Url;
use semel_server::mcp::{self, Command, Config, Environment, Inspected, Served, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::mcp::{Inspect, Mcp, McpServer, McpVerb};
use crate::args::values;
use crate::commands::{serve, store_watch};
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::Origin;
use crate::table::{self, Cell};

pub(crate) async fn run(context: &Context, args: &Mcp) -> Result<ExitCode, Failure> {
    if let Some(McpVerb::Inspect(args)) = &args.verb {
        return inspect(context, args).await;
    }
    let settings = &context.settings;
    let servers = served(context, args)?;
    let stopped = stopped().map_err(|error| Failure::internal(format!("no signals: {error}")))?;
    let [wait, timeout, drain] = settings.mcp_times()?;
    let config = Config {
        servers,
        admin_tools: args.admin_tools || settings.get("mcp.admin_tools") == "on",
        credentials: settings.mcp_credentials(),
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
    let engine = context.open_wide().await?;
    store_watch::start(&engine);
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

/// Returns the servers to be served: the one that was named, or those of the settings.
fn served(context: &Context, args: &Mcp) -> Result<Vec<Served>, Failure> {
    let (settings, trusts) = (&context.settings, args.trust_annotations);
    let breaker = args.breaker.as_ref().map(|name| settings.breaker(name));
    let breaker = breaker.transpose()?;
    if let Some(server) = named(&args.server)? {
        return Ok(vec![Served {
            name: args.name.clone().unwrap_or_else(|| server.name()),
            policy: settings.mcp_policy(trusts)?,
            breaker,
            server,
        }]);
    }
    let mut servers = settings.mcp_servers(trusts)?;
    match (servers.as_mut_slice(), &args.name) {
        ([], _) => return Err(no_server()),
        ([server], Some(name)) => server.name.clone_from(name),
        ([_, _, ..], Some(_)) => {
            let text = "--name is for one server; semel.toml names several";
            return Err(Failure::input(text).hint("their names there are those in the ledger"));
        }
        (_, None) => {}
    }
    match (servers.as_mut_slice(), breaker) {
        ([server], breaker @ Some(_)) => server.breaker = breaker,
        ([] | [_, _, ..], Some(_)) => {
            let text = "--breaker is for one server; semel.toml names several";
            return Err(Failure::input(text).hint("`breaker = \"NAME\"` goes in the table of each"));
        }
        (_, None) => {}
    }
    Ok(servers)
}

fn no_server() -> Failure {
    Failure::input("no server was named").hint(
        "`semel mcp -- COMMAND` starts one; `semel mcp --upstream URL` goes to one that runs; `[mcp.servers.NAME]` in \
         semel.toml names any number of them",
    )
}

/// Returns the server that was named, if one was.
fn named(args: &McpServer) -> Result<Option<Server>, Failure> {
    if let Some(url) = &args.upstream {
        let wrong = |error| Failure::input(format!("--upstream: {error}"));
        let server = Url::parse(url).and_then(|url| Server::at(url, &[]));
        return server.map(Some).map_err(wrong);
    }
    let command = args.command.split_first();
    Ok(command.map(|(program, arguments)| {
        Server::Command(Command {
            program: program.clone(),
            arguments: arguments.to_vec(),
            environment: Environment::default(),
        })
    }))
}

/// The tools of a server, which has a name where the settings name it.
type Found = (Option<String>, Vec<Inspected>);

async fn inspect(context: &Context, args: &Inspect) -> Result<ExitCode, Failure> {
    let settings = &context.settings;
    let mut found: Vec<Found> = vec![];
    let mut failed = vec![];
    match named(&args.server)? {
        Some(server) => {
            let tools = mcp::inspect(&server, &settings.mcp_policy(false)?).await;
            let cannot = |error| Failure::input(format!("the server cannot be inspected: {error}"));
            found.push((None, tools.map_err(cannot)?));
        }
        None => {
            let servers = settings.mcp_servers(false)?;
            if servers.is_empty() {
                return Err(no_server());
            }
            for Served {
                server,
                name,
                policy,
                breaker: _,
            } in servers
            {
                match mcp::inspect(&server, &policy).await {
                    Ok(tools) => found.push((Some(name), tools)),
                    Err(error) => failed.push(format!("{name}: {error}")),
                }
            }
        }
    }
    if let Some(path) = &args.write {
        let text = settings_for(&found);
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|mut open| io::Write::write_all(&mut open, text.as_bytes()));
        written.map_err(|error| {
            let failure = Failure::input(format!("{} cannot be written: {error}", path.display()));
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    failure.hint("settings that are there are not touched: name another file")
                }
                _ => failure,
            }
        })?;
    }
    show(context, &found);
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    // What the others have was shown.
    let failed = failed.join("; ");
    Err(Failure::input(format!(
        "not all servers can be inspected: {failed}"
    )))
}

fn show(context: &Context, found: &[Found]) {
    let tools = found
        .iter()
        .flat_map(|(server, tools)| tools.iter().map(move |tool| (server.as_deref(), tool)));
    if context.printer.is_json() {
        for (server, tool) in tools {
            let mut object = json!({
                "name": tool.name,
                "class": tool.class.as_str(),
                "why": tool.why.as_str(),
                "annotated": tool.annotated.map(semel::Class::as_str),
                "native_keys": tool.native_keys,
            });
            if let Some(server) = server {
                object["server"] = json!(server);
            }
            context.printer.object(&object);
        }
        return;
    }
    let mut rows =
        vec![["SERVER", "TOOL", "CLASS", "WHY", "SERVER SAYS", "OWN KEY"].map(Cell::from)];
    rows.extend(tools.map(|(server, tool)| {
        let annotated = tool.annotated.map_or("-", semel::Class::as_str);
        let keys = tool.native_keys.join(" ");
        let keys = if keys.is_empty() {
            "-".to_owned()
        } else {
            keys
        };
        [
            server.unwrap_or_default().to_owned().into(),
            tool.name.clone().into(),
            tool.class.as_str().into(),
            tool.why.as_str().into(),
            annotated.into(),
            keys.into(),
        ]
    }));
    // One that was named needs no name.
    let is_named = found.iter().any(|(server, _)| server.is_some());
    let lines = if is_named {
        table::lines(&rows)
    } else {
        let rows: Vec<_> = rows.into_iter().map(|[_, rest @ ..]| rest).collect();
        table::lines(&rows)
    };
    for line in lines {
        context.printer.line(&line);
    }
}

/// Writes settings to begin with: everything acts unless somebody says otherwise.
fn settings_for(found: &[Found]) -> String {
    let mut text = String::from(
        "# How `semel mcp` treats the tools of this server. A tool acts and is carried out once unless it is\n\
         # `safe` (it only reads, and passes untouched) or `idempotent` (a doubt may be sent again).\n\
         # Lines with a # are what the server says of itself: take the # away where you believe it.\n",
    );
    let tools = found
        .iter()
        .flat_map(|(server, tools)| tools.iter().map(move |tool| (server.as_deref(), tool)));
    for (server, tool) in tools {
        let of = server.map_or_else(String::new, |server| format!("servers.{server}."));
        // Writing to a text cannot fail.
        let _ = write!(text, "\n[mcp.{of}tools.{}]\n", json!(tool.name));
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
