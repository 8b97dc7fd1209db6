//! The servers behind the gateway: what each is called, how it is treated, and the tools that it listed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use semel::Class;
use semel::breaker::Breakers;

use super::admin;
use super::listed::Listed;
use super::policy::UpstreamPolicy;
use super::union::names::{Found, Names, Place};
use crate::locked::locked;

/// The most tools of one server that are remembered.
const TOOLS_MAX: usize = 10_000;

/// The most bytes of input schemas of one server that are remembered.
const SCHEMAS_MAX: usize = 8 * 1024 * 1024;

/// The servers behind the gateway.
#[derive(Debug)]
pub(crate) struct Catalogue {
    servers: Vec<Served>,
    admin_tools: bool,
    /// By what names clients know the tools of several servers.
    names: Mutex<Names>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Served {
    /// What it is called in scopes, and in front of its tools where two servers have one of a name.
    pub(crate) name: String,
    /// How its tools are treated.
    pub(crate) policy: UpstreamPolicy,
    /// What keeps calls from it while it fails.
    pub(crate) breakers: Option<Breakers>,
    /// What it said of its tools.
    listed: Mutex<Tools>,
}

/// The tools that a server listed.
#[derive(Debug, Default)]
struct Tools {
    /// By their own names.
    by_name: BTreeMap<String, Listed>,
    /// Whether these are all of them: a list may have several pages, and more tools than are remembered.
    is_whole: bool,
}

impl Served {
    pub(crate) fn new(name: String, policy: UpstreamPolicy) -> Self {
        Self {
            name,
            policy,
            breakers: None,
            listed: Mutex::default(),
        }
    }

    /// Puts a breaker before it, one in each namespace.
    pub(crate) fn behind(self, breakers: Option<Breakers>) -> Self {
        Self { breakers, ..self }
    }

    /// Returns the class of a tool.
    pub(crate) fn class(&self, tool: &str) -> Class {
        let listed = locked(&self.listed);
        let annotations = listed.by_name.get(tool).map(|listed| &listed.annotations);
        self.policy.class_of(tool, annotations).0
    }

    /// Says whether the server certainly does not take such a call.
    pub(crate) fn refutes(&self, tool: &str, arguments: Option<&str>) -> bool {
        let listed = locked(&self.listed);
        match listed.by_name.get(tool) {
            Some(tool) => tool.refutes(arguments),
            // Who lists all its tools and not this one has none of that name.
            None => listed.is_whole,
        }
    }

    /// Says whether a tool's results are held to a schema; so they are where nothing is known.
    pub(crate) fn has_output_schema(&self, tool: &str) -> bool {
        let listed = locked(&self.listed);
        let tool = listed.by_name.get(tool);
        tool.is_none_or(|tool| tool.has_output_schema)
    }
}

impl Tools {
    fn add(&mut self, tools: Vec<Listed>, is_last: bool) {
        let mut has_room = true;
        let schema_bytes = |tool: &Listed| tool.input_schema.as_ref().map_or(0, String::len);
        let mut remembered: usize = self.by_name.values().map(schema_bytes).sum();
        for mut tool in tools {
            remembered += schema_bytes(&tool);
            if remembered > SCHEMAS_MAX {
                // Without its schema a tool works as before; only a refusal by -32602 is then a failure.
                tool.input_schema = None;
            }
            if self.by_name.len() < TOOLS_MAX || self.by_name.contains_key(&tool.name) {
                self.by_name.insert(tool.name.clone(), tool);
            } else {
                has_room = false;
            }
        }
        self.is_whole = is_last && has_room;
    }
}

impl Catalogue {
    /// Makes one of servers of which nothing is known yet.
    pub(crate) fn new(servers: Vec<Served>, admin_tools: bool) -> Self {
        Self {
            servers,
            admin_tools,
            names: Mutex::default(),
        }
    }

    /// Returns the server of this number.
    ///
    /// # Panics
    /// Where there is none: numbers come from here.
    pub(crate) fn at(&self, at: usize) -> &Served {
        &self.servers[at]
    }

    pub(crate) const fn servers(&self) -> &[Served] {
        self.servers.as_slice()
    }

    /// Says whether there is only one server, whose tools go by their own names.
    pub(crate) const fn is_single(&self) -> bool {
        self.servers.len() == 1
    }

    /// Finds out which server's tool a client names.
    pub(crate) fn find(&self, name: &str) -> Found {
        if self.is_single() {
            let name = name.to_owned();
            return Found::At(Place { at: 0, name });
        }
        locked(&self.names).find(name)
    }

    /// Returns the name by which clients know a tool.
    pub(crate) fn shown(&self, at: usize, name: &str) -> String {
        if self.is_single() {
            return name.to_owned();
        }
        locked(&self.names).shown(at, name)
    }

    /// Remembers a page of a server's tools; `is_last` where no other follows it.
    pub(crate) fn learn(&self, at: usize, tools: Vec<Listed>, is_last: bool) {
        locked(&self.servers[at].listed).add(tools, is_last);
    }

    /// Remembers all tools of a server, and forgets those that it does not have any more.
    pub(crate) fn relearn(&self, at: usize, tools: Vec<Listed>) {
        let mut listed = Tools::default();
        listed.add(tools, true);
        *locked(&self.servers[at].listed) = listed;
        // Held from before it is looked at what there is: of two who learn, the later one knows more.
        let mut all = locked(&self.names);
        let names = |served: &Served| served.name.clone();
        let own = |served: &Served| {
            let listed = locked(&served.listed);
            listed.by_name.keys().cloned().collect()
        };
        let reserved = if self.admin_tools {
            admin::TOOLS.map(|tool| tool.name).to_vec()
        } else {
            vec![]
        };
        let servers = self.servers.iter();
        *all = Names::of(
            servers.clone().map(names).collect(),
            servers.map(own).collect(),
            &reserved,
        );
    }
}
