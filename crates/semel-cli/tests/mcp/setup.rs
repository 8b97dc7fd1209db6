//! A server, and the way to it: with the gateway between, or without.

use std::fmt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::desk::{Desk, Era, Remote};
use crate::http::Address;
use crate::server::Server;
use crate::wire::{Client, Heard};

/// Names another program that is started with the gateway's words: one that only passes everything on shows that
/// these tests can fail.
const ANOTHER_GATEWAY: &str = "SEMEL_TEST_GATEWAY";

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Stdio,
    Http,
}

/// Who is between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nobody.
    Direct,
    /// `semel mcp`, which is spoken to like this.
    Gateway(Carrier),
}

/// A server, and the way to it.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) desk: Desk,
    pub(crate) era: Era,
    way: Way,
    remote: Option<Remote>,
    gateway: Option<Server>,
    /// What the gateway is told on its command line beside its server.
    words: &'static [&'static str],
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let upstream = self
            .remote
            .as_ref()
            .map_or(Carrier::Stdio, |_| Carrier::Http);
        write!(f, "{:?} to {upstream:?}, {:?}", self.way, self.era)
    }
}

impl Setup {
    pub(crate) fn new(way: Way, upstream: Carrier, era: Era) -> Self {
        Self::on(Desk::new(), way, upstream, era)
    }

    /// Sets everything up with these settings of the gateway.
    pub(crate) fn configured(way: Way, upstream: Carrier, era: Era, toml: &str) -> Self {
        Self::told(&[], way, upstream, era, toml)
    }

    /// Sets everything up with these settings, and these words for the gateway.
    pub(crate) fn told(
        words: &'static [&'static str],
        way: Way,
        upstream: Carrier,
        era: Era,
        toml: &str,
    ) -> Self {
        let desk = Desk::new();
        let file = desk.world().path("semel.toml");
        std::fs::write(file, toml).expect("it can be written");
        Self::with(words, desk, way, upstream, era)
    }

    pub(crate) fn on(desk: Desk, way: Way, upstream: Carrier, era: Era) -> Self {
        Self::with(&[], desk, way, upstream, era)
    }

    fn with(
        words: &'static [&'static str],
        desk: Desk,
        way: Way,
        upstream: Carrier,
        era: Era,
    ) -> Self {
        let remote = (upstream == Carrier::Http).then(|| Remote::start(&desk));
        let mut setup = Self {
            desk,
            era,
            way,
            remote,
            gateway: None,
            words,
        };
        setup.start_gateway();
        setup
    }

    /// Returns the command line of the gateway.
    pub(crate) fn gateway_command(&self, listen: bool) -> Command {
        let mut words = vec!["mcp".to_owned()];
        words.extend(self.words.iter().map(|word| (*word).to_owned()));
        if listen {
            words.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        match &self.remote {
            Some(remote) => words.extend(["--upstream".to_owned(), remote.url()]),
            None => {
                words.push("--".to_owned());
                words.extend(self.desk.words());
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.desk.world().command(&words);
        if let Some(other) = std::env::var_os(ANOTHER_GATEWAY) {
            let env: Vec<_> = command.get_envs().collect();
            let mut instead = Command::new(other);
            instead.args(&words).env_clear();
            instead.envs(
                env.iter()
                    .filter_map(|(name, value)| Some((name, (*value)?))),
            );
            instead.current_dir(self.desk.world().path(""));
            command = instead;
        }
        // Where it listens is news that nobody needs who chose the place.
        command.env("SEMEL_MCP_LOG", "info");
        self.desk.furnish(&mut command);
        command
    }

    fn start_gateway(&mut self) {
        if self.way == Way::Gateway(Carrier::Http) {
            self.gateway = Some(Server::spawn(&mut self.gateway_command(true)));
        }
    }

    /// Returns where the gateway listens, or the server itself.
    pub(crate) fn address(&self) -> Option<Address> {
        match (&self.gateway, &self.remote) {
            (Some(gateway), _) => Some(gateway.address().clone()),
            (None, Some(remote)) if self.way == Way::Direct => Some(remote.address()),
            (None, _) => None,
        }
    }

    /// Makes a client of its own; where there is nobody to speak to yet, it starts them.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        self.client_with(&json!({}))
    }

    /// Makes a client of its own that shows these credentials over HTTP.
    #[track_caller]
    pub(crate) fn client_as(&self, credentials: &str) -> Client {
        let address = self.address().expect("the gateway listens");
        Client::http_as(&address, self.era, credentials)
    }

    /// Makes a client of its own that sends this header with every request.
    #[track_caller]
    pub(crate) fn client_with_header(&self, header: &str, value: &str) -> Client {
        let address = self.address().expect("the gateway listens");
        Client::http_with(&address, self.era, header, value)
    }

    /// Makes a client of its own that can be asked.
    #[track_caller]
    pub(crate) fn client_to_ask(&self) -> Client {
        self.client_with(&json!({"elicitation": {}}))
    }

    /// Makes a client of its own that can do this.
    #[track_caller]
    pub(crate) fn client_with(&self, can: &Value) -> Client {
        match (self.address(), self.way) {
            (Some(address), _) => Client::http(&address, self.era, can),
            (None, Way::Direct) => Client::stdio(&mut self.desk.server(), self.era, can),
            (None, Way::Gateway(_)) => {
                Client::stdio(&mut self.gateway_command(false), self.era, can)
            }
        }
    }

    /// Kills the server as a crash would. One on HTTP is started again; a child is the gateway's to start.
    #[track_caller]
    pub(crate) fn kill_server(&mut self) {
        match &mut self.remote {
            Some(remote) => remote.crash(&self.desk),
            None => self.desk.kill_server(),
        }
    }

    /// Kills the gateway as a crash would. One that listens is started again.
    #[track_caller]
    pub(crate) fn kill_gateway(&mut self, client: &mut Client) {
        match &mut self.gateway {
            Some(gateway) => {
                gateway.kill();
                self.start_gateway();
            }
            None => client.child().kill(),
        }
    }

    /// Ends the gateway in good order, as far as it is there. One that listens is started again.
    #[track_caller]
    pub(crate) fn end_gateway(&mut self, client: Option<Client>) {
        match &mut self.gateway {
            Some(gateway) => {
                gateway.signal(Signal::TERM);
                let status = gateway.wait();
                assert!(status.success(), "{status}: {}", gateway.said());
                self.start_gateway();
            }
            None => {
                if let Some(mut client) = client {
                    client.child().close();
                    client.child().wait();
                }
            }
        }
    }

    /// Says whether the gateway lives as long as its client.
    pub(crate) fn is_stdio(&self) -> bool {
        self.address().is_none()
    }

    /// Returns the records of the gateway's calls, the newest first.
    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        let words = ["list", "--door", "mcp", "--json"];
        let listed = self.desk.world().semel(&words);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.json()
    }

    /// Returns the key of the only doubt.
    #[track_caller]
    pub(crate) fn doubt(&self) -> String {
        let records = self.records();
        let doubts: Vec<_> = records
            .iter()
            .filter(|it| it["state"] == "doubtful")
            .collect();
        assert_eq!(doubts.len(), 1, "{records:?}");
        doubts[0]["key"].as_str().expect("a key is text").to_owned()
    }

    /// Resolves the only doubt, as a person does who found out that nothing happened.
    #[track_caller]
    pub(crate) fn resolve_not_done(&self) {
        self.resolve("--not-done");
    }

    /// Resolves the only doubt, as a person does who found out what happened.
    #[track_caller]
    pub(crate) fn resolve(&self, how: &str) {
        let words = ["resolve", &self.doubt(), how, "--yes"];
        let resolved = self.desk.world().semel(&words);
        assert_eq!(resolved.code, 0, "{resolved:?}");
    }
}

/// What a client was told of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// What the tool said, the first time or again.
    Outcome(String),
    /// The tool failed, and said this.
    Failed(String),
    /// Nobody knows whether it happened; nothing was done now.
    Doubt,
    /// Nothing was done now for another reason: this is the word for it.
    Held(String),
    /// An error of JSON-RPC: its code.
    Error(i64),
    /// No answer of the tool or the gateway.
    Lost(String),
}

/// Reads what a client was told.
pub(crate) fn told(heard: &Heard) -> Told {
    let Heard::Message(_) = heard else {
        return Told::Lost(format!("{heard:?}"));
    };
    let message = heard.message();
    if let Some(code) = message["error"]["code"].as_i64() {
        return Told::Error(code);
    }
    let result = &message["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let receipt = &result["_meta"]["dev.semel/effect"];
    let failed = result["isError"] == true;
    match receipt["outcome"].as_str() {
        Some("in_doubt") => Told::Doubt,
        None | Some("executed" | "replayed" | "joined") if failed => Told::Failed(text.to_owned()),
        None | Some("executed" | "replayed" | "joined") => Told::Outcome(text.to_owned()),
        Some(other) => Told::Held(other.to_owned()),
    }
}
