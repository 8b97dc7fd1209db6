//! `semel proxy`

use std::process::ExitCode;

use semel::Engine;
use semel_server::proxy::{Config, Route, Service};

use crate::args::proxy::Proxy;
use crate::args::values;
use crate::commands::run::inject::Faults;
use crate::commands::{serve, store_watch};
use crate::context::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context, args: &Proxy) -> Result<ExitCode, Failure> {
    let settings = &context.settings;
    let routes = match &args.upstream {
        Some(url) => {
            vec![settings.route(
                url,
                args.profile.as_deref(),
                args.keyless.as_deref(),
                args.breaker.as_deref(),
            )?]
        }
        None => settings.routes(),
    };
    let faults = Faults::for_server()?;
    let listening = semel_server::Config {
        drops_replies: faults.drops_reply(),
        ..settings.server()?
    };
    serve::log(settings.get("proxy.log"));
    let engine = context.open_wide().await?;
    store_watch::start(&engine);
    faults.plan(&engine);
    let service = open(context, engine, routes, &listening).await?;
    let stopping = serve::stop_on_signals(vec![service.stopper()])?;
    let (address, store) = (service.address(), settings.shown_store());
    tracing::info!(address, store, "listening");
    tokio::spawn(stopping);
    serve::said_at_the_end(service.run().await);
    Ok(ExitCode::SUCCESS)
}

/// Opens the proxy's door; everything but its place is as for other servers.
pub(crate) async fn open(
    context: &Context,
    engine: Engine,
    routes: Vec<Route>,
    listening: &semel_server::Config,
) -> Result<Service, Failure> {
    if routes.is_empty() {
        return Err(Failure::input("no upstream was named").hint(
            "`semel proxy --upstream URL` goes to one; `[[proxy.route]]` in semel.toml names any number of them",
        ));
    }
    let listen = values::listen(context.settings.get("proxy.listen"));
    let listening = semel_server::Config {
        listen: listen.map_err(Failure::input)?,
        ..listening.clone()
    };
    let service = Service::open(engine, Config { routes }, listening).await;
    service.map_err(serve::failure)
}
