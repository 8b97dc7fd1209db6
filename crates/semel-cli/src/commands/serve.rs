//! `semel serve`

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use semel_server::{Config, Service, StartError, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use crate::args::serve::Serve;
use crate::commands::inbox::watch::Watch;
use crate::commands::run::inject::Faults;
use crate::commands::{proxy, store_watch};
use crate::context::Context;
use crate::failure::Failure;

/// What a process ends with that was told twice to end.
const FORCED: i32 = 130;

pub(crate) async fn run(context: &Context, args: &Serve) -> Result<ExitCode, Failure> {
    let settings = &context.settings;
    let faults = Faults::for_server()?;
    let config = settings.server()?;
    log(settings.get("serve.log"));
    let watch = Watch::open(context)?;
    let config = Config {
        drops_replies: faults.drops_reply(),
        inbox: watch.sources(),
        ..config
    };
    let engine = context.open_wide().await?;
    store_watch::start(&engine);
    faults.plan(&engine);
    let proxy = match args.proxy {
        true => Some(proxy::open(context, engine.clone(), settings.routes(), &config).await?),
        false => None,
    };
    let service = Service::open(engine, config).await.map_err(failure)?;
    let stops = proxy.iter().map(|proxy| proxy.stopper());
    let stopping = stop_on_signals(stops.chain([service.stopper()]).collect())?;
    let store = settings.shown_store();
    tracing::info!(address = service.address(), store, "listening");
    if let Some(proxy) = &proxy {
        service.tells_of(proxy);
        tracing::info!(address = proxy.address(), "the proxy listens");
    }
    tokio::spawn(stopping);
    let proxied = async {
        match proxy {
            Some(proxy) => proxy.run().await,
            None => true,
        }
    };
    let served = async { tokio::join!(service.run(), proxied) };
    let (served, proxied) = tokio::select! {
        served = served => served,
        never = watch.run(context) => match never {},
    };
    said_at_the_end(served && proxied);
    Ok(ExitCode::SUCCESS)
}

/// Listens for signals, before anybody is told that it can be reached: whoever is may tell it to end.
pub(crate) fn stop_on_signals(stops: Vec<Stop>) -> Result<impl Future<Output = ()>, Failure> {
    let signals = listen_for(&[SignalKind::terminate(), SignalKind::interrupt()]);
    let signals = signals.map_err(|error| Failure::internal(format!("no signals: {error}")))?;
    Ok(stop_on(signals, stops))
}

/// Says whether everything was done before the end.
pub(crate) fn said_at_the_end(is_done: bool) {
    if is_done {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped before all was done: the time for it was over");
    }
}

pub(crate) fn failure(error: StartError) -> Failure {
    let text = error.to_string();
    match error {
        StartError::Store(error) => error.into(),
        StartError::NoTokens { .. } => Failure::input(text).hint(
            "`semel token create --namespace NAME --scope write` makes one; or listen on 127.0.0.1",
        ),
        StartError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            Failure::input(text)
                .hint("another server runs there; choose another place with --listen")
        }
        _ => Failure::input(text),
    }
}

fn listen_for(kinds: &[SignalKind]) -> io::Result<Vec<Signal>> {
    kinds.iter().map(|kind| signal(*kind)).collect()
}

/// Stops what is served at the first signal, and the process at the second.
async fn stop_on(mut signals: Vec<Signal>, stops: Vec<Stop>) {
    any(&mut signals).await;
    tracing::info!("stopping");
    stops.iter().for_each(Stop::stop);
    any(&mut signals).await;
    std::process::exit(FORCED);
}

async fn any(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        let mut signals = signals.iter_mut();
        if signals.any(|signal| signal.poll_recv(context).is_ready()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Writes the log for whoever reads it: people on a terminal, programs elsewhere.
pub(crate) fn log(level: &str) {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(io::stderr);
    if io::stderr().is_terminal() {
        log.compact().init();
    } else {
        log.json().flatten_event(true).init();
    }
}
