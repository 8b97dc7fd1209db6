//! A gateway before two servers: a child and one on HTTP, which share some names of tools.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::desk::{Desk, Era, Remote};
use crate::http::Address;
use crate::server::Server;
use crate::setup::Carrier;
use crate::wire::Client;

pub(crate) const BANK: &str = "charge,slow,balance,ask,pay";
const SHOP: &str = "charge,slow,balance,ask,lookup,route";

/// Everything in one place: the bank is a child of the gateway, the shop listens by itself.
#[derive(Debug)]
pub(crate) struct Market {
    front: Carrier,
    pub(crate) era: Era,
    pub(crate) bank: Desk,
    pub(crate) shop: Desk,
    remote: Remote,
    gateway: Option<Server>,
}

impl Market {
    pub(crate) fn new(front: Carrier, era: Era) -> Self {
        let bank = Desk::with(&[("FIXTURE_TOOLS", BANK)]);
        let shop = Desk::with(&[("FIXTURE_TOOLS", SHOP)]);
        let remote = Remote::start(&shop);
        let mut market = Self {
            front,
            era,
            bank,
            shop,
            remote,
            gateway: None,
        };
        market.configure(&[market.bank_table(), market.shop_table()]);
        market
    }

    pub(crate) fn bank_table(&self) -> String {
        let words = self.bank.words();
        let mut furnished = Command::new("env");
        self.bank.furnish(&mut furnished);
        let variables = furnished.get_envs().filter_map(|(name, value)| {
            let (name, value) = (name.to_str()?, value?.to_str()?);
            Some(format!("{name} = {value:?}"))
        });
        let variables = variables.collect::<Vec<_>>().join(", ");
        format!(
            "[mcp.servers.bank]\ncommand = {:?}\nargs = {:?}\nenv = {{ {variables} }}\n",
            words[0],
            &words[1..]
        )
    }

    pub(crate) fn shop_table(&self) -> String {
        let url = self.remote.url();
        format!(
            "[mcp.servers.shop]\nurl = {url:?}\nheaders = {{ Authorization = \"Bearer of-the-shop\" }}\n"
        )
    }

    /// Writes the settings, and starts the gateway that listens anew.
    pub(crate) fn configure(&mut self, tables: &[String]) {
        let file = self.bank.world().path("semel.toml");
        std::fs::write(file, tables.join("\n")).expect("it can be written");
        if let Some(gateway) = &mut self.gateway {
            gateway.signal(Signal::TERM);
            gateway.wait();
        }
        if self.front == Carrier::Http {
            let mut command = self.command(&["mcp", "--listen", "127.0.0.1:0"]);
            self.gateway = Some(Server::spawn(&mut command));
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bank.world().command(words);
        command.env("SEMEL_MCP_LOG", "info");
        command
    }

    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        self.client_with(&json!({}))
    }

    #[track_caller]
    pub(crate) fn client_with(&self, can: &Value) -> Client {
        match &self.gateway {
            Some(gateway) => Client::http(gateway.address(), self.era, can),
            None => Client::stdio(&mut self.command(&["mcp"]), self.era, can),
        }
    }

    /// Returns where the gateway listens.
    #[track_caller]
    pub(crate) fn address(&self) -> &Address {
        let gateway = self.gateway.as_ref();
        gateway.expect("a gateway listens").address()
    }

    pub(crate) fn effects(&self) -> (usize, usize) {
        (self.bank.effects(), self.shop.effects())
    }

    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        let listed = self
            .bank
            .world()
            .semel(&["list", "--door", "mcp", "--json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.json()
    }
}
