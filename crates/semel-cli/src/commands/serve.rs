//! `semel serve`

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use semel::Engine;
use semel_server::{Config, Service, StartError, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use crate::commands::run::inject::Faults;
use crate::context::Context;
use crate::failure::Failure;

/// What a process ends with that was told twice to end.
const FORCED: i32 = 130;

pub(crate) async fn run(context: &Context) -> Result<ExitCode, Failure> {
    let settings = &context.settings;
    let faults = Faults::for_server()?;
    let config = Config {
        drops_replies: faults.drops_reply(),
        ..settings.server()?
    };
    log(settings.get("serve.log"));
    let engine = Engine::builder().redactor(settings.redactor()?);
    let engine = engine.open(settings.store()).await?;
    faults.plan(&engine);
    let service = Service::open(engine, config).await.map_err(failure)?;
    // Whoever is told that it listens may tell it to end.
    let signals = listen_for(&[SignalKind::terminate(), SignalKind::interrupt()]);
    let signals = signals.map_err(|error| Failure::internal(format!("no signals: {error}")))?;
    let store = settings.shown_store();
    tracing::info!(address = service.address(), store, "listening");
    let stop = service.stopper();
    tokio::spawn(stop_on(signals, stop));
    if service.run().await {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped before all was done: the time for it was over");
    }
    Ok(ExitCode::SUCCESS)
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

/// Stops the server at the first signal, and the process at the second.
async fn stop_on(mut signals: Vec<Signal>, stop: Stop) {
    any(&mut signals).await;
    tracing::info!("stopping");
    stop.stop();
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
