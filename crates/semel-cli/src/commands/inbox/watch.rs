//! What a running server is told of the settings: sources that are added or changed count without a restart.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use semel::Namespace;
use semel::core::webhook::Scheme;
use semel_server::inbox::Sources;
use tokio::sync::watch;

use crate::context::Context;
use crate::failure::Failure;
use crate::settings::inbox::readable;

/// How often the settings are looked at: what is seen twice counts, so that a change does within a second.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Keeps a server's sources up to date.
#[derive(Debug)]
pub(crate) struct Watch {
    sources: watch::Sender<Arc<Sources>>,
    namespace: Namespace,
    /// What was seen at the last look.
    seen: Option<Seen>,
    /// What was said to be wrong: it is said once.
    wrong: Vec<String>,
}

/// What the settings say, and what is wrong with the secrets that they name; or what is wrong with them as a whole.
type Seen = Result<(Sources, Vec<String>), String>;

impl Watch {
    /// Reads the sources and their secrets. A bad secret costs its own source its deliveries, and not the server its
    /// start: the log says so.
    pub(crate) fn open(context: &Context) -> Result<Self, Failure> {
        let namespace = context.namespace()?;
        let (sources, wrong) = readable(context.settings.inbox(), &namespace);
        said(&sources);
        for why in &wrong {
            tracing::warn!("{why}");
        }
        Ok(Self {
            sources: watch::channel(Arc::new(sources)).0,
            namespace,
            seen: None,
            wrong,
        })
    }

    /// Returns where a server sees them.
    pub(crate) fn sources(&self) -> watch::Receiver<Arc<Sources>> {
        self.sources.subscribe()
    }

    /// Looks at the settings and the secrets again and again. Settings that cannot be read change nothing: webhooks are
    /// received as before. A secret that cannot be read counts no more, as it may have been taken away on purpose; its own
    /// source alone suffers from that. The log says what is wrong.
    pub(crate) async fn run(mut self, context: &Context) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let read = context.settings.reread_inbox();
            let read = read.map(|inbox| readable(&inbox, &self.namespace));
            let seen = Some(read.map_err(|failure| failure.message));
            // A file that is just being written may be half there, or empty: no sender is turned away for that.
            if self.seen == seen {
                self.heed();
            }
            self.seen = seen;
        }
    }

    /// Lets what was seen count.
    fn heed(&mut self) {
        let wrong = match &self.seen {
            None => return,
            Some(Ok((sources, wrong))) => {
                if **self.sources.borrow() != *sources {
                    said(sources);
                    self.sources.send_replace(Arc::new(sources.clone()));
                }
                wrong.clone()
            }
            Some(Err(why)) => vec![format!(
                "the settings of the inbox stay as they were: {why}"
            )],
        };
        for why in wrong.iter().filter(|why| !self.wrong.contains(why)) {
            tracing::warn!("{why}");
        }
        self.wrong = wrong;
    }
}

/// Says whose webhooks are received.
fn said(sources: &Sources) {
    let names: Vec<_> = sources.iter().map(|source| source.name.as_str()).collect();
    if !names.is_empty() {
        tracing::info!(sources = names.join(" "), "webhooks are received at /in/");
    }
    for source in sources.iter() {
        if *source.proof.scheme() == Scheme::None {
            let source = source.name.as_str();
            tracing::warn!(
                source,
                "nothing is verified: whoever knows the address can send"
            );
        }
    }
}
