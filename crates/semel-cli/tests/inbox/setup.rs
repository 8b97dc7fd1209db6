//! Senders with their secrets, a server that knows them, and a worker that counts.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel::core::Verdict;
use semel::core::ledger::Settle;
use semel::core::webhook::{Keyed, Proof, Scheme, Template, Tolerance};
use semel::{Engine, Kept, Label, Lease, Namespace, Take, Timestamp};
use serde_json::Value;

use crate::harness::World;
use crate::http::{Answer, Asked};
use crate::server::Server;

/// What each sender signs with, by the variable that has it.
pub(crate) const SECRETS: [(&str, &str); 5] = [
    (
        "STANDARD",
        "whsec_KCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QEFCQ0RFRkc=",
    ),
    ("STRIPE", "whsec_hush_stripe_1"),
    ("GITHUB", "hush-github-1"),
    ("SLACK", "hush-slack-1"),
    ("SHOP", "hush-shop-1"),
];

/// What a worker answers, where it answers anything.
pub(crate) const ANSWER: &[u8] = br#"{"hush": "internal"}"#;

/// The settings of all senders.
pub(crate) const SETTINGS: &str = r#"
[inbox.standard]
scheme = "standard"
queue = "work"
secrets = ["env:STANDARD"]

[inbox.stripe]
scheme = "stripe"
queue = "work"
secrets = ["env:STRIPE"]

[inbox.github]
scheme = "github"
queue = "work"
secrets = ["env:GITHUB"]

[inbox.slack]
scheme = "slack"
queue = "work"
secrets = ["env:SLACK"]

[inbox.shop]
scheme = "hmac"
header = "X-Shop-Signature"
prefix = "sha512="
algorithm = "sha512"
timestamp_header = "X-Shop-Time"
id = "header:X-Shop-Id"
headers = ["X-Shop-Topic"]
queue = "work"
secrets = ["env:SHOP"]

[inbox.events]
scheme = "github"
id = "cloudevents"
queue = "work"
secrets = ["env:GITHUB"]
"#;

/// A world whose settings have all senders.
pub(crate) fn world() -> World {
    let world = World::new();
    std::fs::write(world.path("semel.toml"), SETTINGS).expect("it can be written");
    world
}

/// Prepares a command that has the secrets.
pub(crate) fn knowing(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(args);
    command.envs(SECRETS);
    command
}

/// Starts a server that knows all senders.
#[track_caller]
pub(crate) fn start(world: &World) -> Server {
    start_with(world, &[])
}

/// Starts one with more words after `serve`.
#[track_caller]
pub(crate) fn start_with(world: &World, words: &[&str]) -> Server {
    let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
    args.extend(words);
    Server::spawn(&mut knowing(world, &args))
}

/// A sender of webhooks.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) source: &'static str,
    proof: Proof,
}

impl Sender {
    /// Makes one of the senders of the settings.
    pub(crate) fn new(source: &'static str) -> Self {
        let (scheme, variable) = match source {
            "standard" => (Scheme::Standard, "STANDARD"),
            "stripe" => (Scheme::Stripe, "STRIPE"),
            "github" | "events" => (Scheme::Github, "GITHUB"),
            "slack" => (Scheme::Slack, "SLACK"),
            "shop" => (Scheme::Hmac(keyed()), "SHOP"),
            other => panic!("nobody is called {other}"),
        };
        let secret = SECRETS.iter().find(|(name, _)| *name == variable);
        let (_, secret) = secret.expect("it has one");
        Self::with(source, scheme, secret)
    }

    /// Makes one with a secret of its own.
    pub(crate) fn with(source: &'static str, scheme: Scheme, secret: &str) -> Self {
        let secret = scheme.secret(secret).expect("it is right");
        let proof = Proof::new(scheme, vec![secret], Tolerance::DEFAULT);
        Self {
            source,
            proof: proof.expect("it is right"),
        }
    }

    /// Writes a body of this sender, with its id where it puts it.
    pub(crate) fn body(&self, id: &str) -> Vec<u8> {
        let body = match self.source {
            "slack" => format!(r#"{{"type":"event_callback", "event_id":"{id}"}}"#),
            _ => format!(r#"{{"id":"{id}",  "amount": 100.10}}"#),
        };
        body.into_bytes()
    }

    /// Makes a delivery, signed at a time.
    pub(crate) fn signed_at(&self, id: &str, body: &[u8], at: Timestamp) -> Asked {
        let asked = Asked::new("POST", &format!("/in/{}", self.source));
        let asked = asked.header("Content-Type", "application/json").body(body);
        let asked = match self.source {
            "github" => asked
                .header("X-GitHub-Delivery", id)
                .header("X-GitHub-Event", "push"),
            "shop" => asked
                .header("X-Shop-Id", id)
                .header("X-Shop-Topic", "orders/paid")
                .header("X-Shop-Token", "hush-header"),
            "events" => asked.header("ce-id", id).header("ce-source", "/orders"),
            _ => asked,
        };
        let signature = self.proof.sign(id, body, at);
        let signature = signature.iter();
        signature.fold(asked, |asked, (name, value)| asked.header(name, value))
    }

    /// Makes a delivery, signed now.
    pub(crate) fn signed(&self, id: &str, body: &[u8]) -> Asked {
        self.signed_at(id, body, now())
    }

    /// Delivers the webhook of an id.
    #[track_caller]
    pub(crate) fn deliver(&self, server: &Server, id: &str) -> Answer {
        server.ask(self.signed(id, &self.body(id)))
    }
}

fn keyed() -> Keyed {
    Keyed {
        header: "X-Shop-Signature".to_owned(),
        prefix: "sha512=".to_owned(),
        algorithm: semel::core::webhook::Algorithm::Sha512,
        encoding: semel::core::webhook::Encoding::Hex,
        signed: Template::dated(),
        timestamp: Some("X-Shop-Time".to_owned()),
    }
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(0).plus(since.expect("it is after 1970"))
}

/// What is stored: the log's last number, and the operations of the inbox.
#[track_caller]
pub(crate) fn stored(world: &World) -> (u64, usize) {
    let entries =
        world.now(|engine| async move { engine.last_entry().await.expect("it has an end") });
    let ran = world.semel(&["list", "--json", "--limit", "1000"]);
    (entries, ran.json().len())
}

/// Takes all tasks, as a worker would, and returns them by key; a key that is there twice is an error.
#[track_caller]
pub(crate) fn tasks(world: &World) -> BTreeMap<String, Kept> {
    world.now(|engine| async move { taken(&engine).await })
}

pub(crate) async fn taken(engine: &Engine) -> BTreeMap<String, Kept> {
    let take = Take {
        queue: Label::new("work").expect("it is a word"),
        max: 64,
        wait: Duration::ZERO,
        lease: Lease::new(Duration::from_secs(3_600)).expect("it is a lease"),
        probes: false,
        is_elsewhere: true,
    };
    let mut all = BTreeMap::new();
    loop {
        let some = engine.take(&Namespace::default(), &take).await;
        let some = some.expect("the store answers");
        if some.is_empty() {
            return all;
        }
        for task in some {
            let task = task.keep();
            let key = task.key.to_string();
            let twice = all.insert(key, task);
            assert!(twice.is_none(), "{twice:?} is there twice");
        }
    }
}

/// Returns what a worker is given.
#[track_caller]
pub(crate) fn given(task: &Kept) -> Value {
    let input = task.input.as_deref().expect("it is given something");
    serde_json::from_slice(input).expect("it is JSON")
}

/// Reports about a task.
#[track_caller]
pub(crate) fn report(world: &World, task: &Kept, verdict: Verdict) {
    world.now(|engine| async move { told(&engine, task, verdict).await });
}

pub(crate) async fn told(engine: &Engine, task: &Kept, verdict: Verdict) {
    let settle = Settle {
        attempt: task.attempt_id.clone(),
        fence: task.fence,
        verdict,
    };
    let wall = Namespace::default();
    let data = match &settle.verdict {
        Verdict::Done(outcome) => outcome.payload.map(|_| ANSWER.to_vec()),
        Verdict::NotDone { .. } | Verdict::Unknown { .. } => None,
    };
    let told = engine.report(&wall, &task.key, settle, data).await;
    told.expect("it is taken");
}
