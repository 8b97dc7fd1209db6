//! Lists of several servers as one, and what is learned from them.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::super::edit;
use super::super::listed::Listed;
use super::super::message::{Kind, Message, quoted};
use super::super::say;
use super::names::{Found, Names};
use super::part::{Lists, Part};
use super::{Shared, is_modern, merge, of_client};
use crate::locked::locked;

/// The most pages of one server's list.
const PAGES_MAX: usize = 100;

/// The most items of one server's list.
const ITEMS_MAX: usize = 10_000;

/// How long a server may take for its list: the others' wait for it.
const LIST_MAX: Duration = Duration::from_secs(20);

/// The code of a server that has no such list.
const NO_METHOD: &str = "-32601";

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Tools,
    Prompts,
    Resources,
    Templates,
    Tasks,
}

/// Why there is no list.
enum Unlisted {
    /// The server has no such thing.
    Nothing(Message),
    Failed(String),
}

impl What {
    pub(super) fn of(method: &str) -> Option<Self> {
        let all = [
            Self::Tools,
            Self::Prompts,
            Self::Resources,
            Self::Templates,
            Self::Tasks,
        ];
        all.into_iter().find(|what| what.method() == method)
    }

    const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Tasks => "tasks/list",
        }
    }

    /// The member of the result that is the list, and the member of an item that names it.
    const fn members(self) -> (&'static str, &'static str) {
        match self {
            Self::Tools => ("tools", "name"),
            Self::Prompts => ("prompts", "name"),
            Self::Resources => ("resources", "uri"),
            Self::Templates => ("resourceTemplates", "uriTemplate"),
            Self::Tasks => ("tasks", "taskId"),
        }
    }
}

impl Shared {
    /// Answers with everything that all servers list, on one page.
    pub(super) async fn list(&self, request: &Message, what: What) -> Message {
        let id = request.id().unwrap_or("null");
        let params = request.params().unwrap_or("{}");
        if edit::get(params, &["cursor"]).is_some_and(|cursor| cursor != "null") {
            return say::wrong_params(id, "there is one page, and no cursor leads to another");
        }
        let mut lists = vec![];
        let mut refusals = vec![];
        for (at, listed) in self.all_pages(request, what, |_| true).await {
            match listed {
                Ok(pages) => lists.push((at, pages)),
                Err(Unlisted::Nothing(refusal)) => refusals.push(refusal),
                Err(Unlisted::Failed(why)) => {
                    let method = what.method();
                    tracing::warn!(server = self.parts[at].name, why, "{method} failed");
                    refusals.push(say::server_gone(
                        id,
                        &format!("{}: {why}", self.parts[at].name),
                    ));
                }
            }
        }
        if lists.is_empty() {
            // What the first one says all of them might have said.
            let first = refusals.into_iter().next();
            let first = first.unwrap_or_else(|| say::server_gone(id, "all servers are left out"));
            return first.with_id(id).unwrap_or(first);
        }
        let items = self.items(&lists, what).join(",");
        let pages = lists.iter().flat_map(|(_, pages)| pages);
        let pages = pages.filter_map(Message::outcome);
        let more = if is_modern(request) {
            let kind = r#","resultType":"complete""#;
            format!("{kind}{}", merge::caching(pages))
        } else {
            String::new()
        };
        let member = what.members().0;
        let result = Message::result(id, &format!(r#"{{"{member}":[{items}]{more}}}"#));
        result.unwrap_or_else(|error| say::wrong_params(id, &error.to_string()))
    }

    /// Asks those servers for their tools whose tools are not known; returns those that did not say.
    pub(super) async fn look(&self, call: &Message, again: bool) -> Vec<String> {
        // One after the other: who comes second finds what the first one learned.
        let _looking = self.looking.lock().await;
        let is_wanted = |part: &Part| match part.tools() {
            Lists::Unknown => true,
            Lists::Failed => again,
            Lists::Known => false,
        };
        for (at, listed) in self.all_pages(call, What::Tools, is_wanted).await {
            if let Err(Unlisted::Failed(why)) = listed {
                let server = &self.parts[at].name;
                tracing::warn!(server, why, "the tools of a server are not known");
            }
        }
        let silent = self.parts.iter();
        let silent = silent.filter(|part| !part.is_in() || part.tools() == Lists::Failed);
        silent.map(|part| part.name.clone()).collect()
    }

    /// Finds out whose prompt a client names.
    pub(super) async fn prompt(&self, request: &Message, name: &str) -> Found {
        let is_unknown = |part: &Part| part.is_in() && part.prompts() == Lists::Unknown;
        if self.parts.iter().any(is_unknown) {
            // What fails is found out when the prompt is asked for.
            drop(self.all_pages(request, What::Prompts, |_| true).await);
        }
        locked(&self.prompts).find(name)
    }

    /// Asks servers for all pages of a list, and learns from them.
    async fn all_pages(
        &self,
        request: &Message,
        what: What,
        is_wanted: impl Fn(&Part) -> bool,
    ) -> Vec<(usize, Result<Vec<Message>, Unlisted>)> {
        let wanted = self.parts.iter().enumerate();
        let wanted = wanted.filter(|(_, part)| part.is_in() && is_wanted(part));
        let asked = wanted.map(async |(at, part)| {
            // Before it is asked: what changes meanwhile is not known.
            match what {
                What::Tools => part.set_tools(Lists::Known),
                What::Prompts => part.set_prompts(Lists::Known),
                What::Resources | What::Templates | What::Tasks => {}
            }
            let pages = timeout(LIST_MAX, self.pages(part, request, what)).await;
            let pages = pages.unwrap_or_else(|_| {
                let seconds = LIST_MAX.as_secs();
                Err(Unlisted::Failed(format!("no answer within {seconds} s")))
            });
            (at, pages)
        });
        let listed = join_all(asked).await;
        for (at, listed) in &listed {
            self.learn(*at, listed, what);
        }
        if what == What::Prompts {
            self.name_prompts(&listed);
        }
        listed
    }

    /// Asks a server for all pages of a list.
    async fn pages(
        &self,
        part: &Part,
        request: &Message,
        what: What,
    ) -> Result<Vec<Message>, Unlisted> {
        let failed = |error: &dyn ToString| Unlisted::Failed(error.to_string());
        let (mut pages, mut count) = (vec![], 0);
        let mut params = of_client(request);
        for _ in 0..PAGES_MAX {
            let asked = Message::request(&self.own_id(), what.method(), &params);
            let asked = asked.map_err(|error| failed(&error))?;
            let page = part.ask(&asked).await.map_err(|why| failed(&why))?;
            let outcome = page.outcome().unwrap_or("{}");
            if *page.kind() != Kind::Result {
                return Err(match edit::get(outcome, &["code"]) {
                    Some(NO_METHOD) => Unlisted::Nothing(page),
                    _ => failed(&edit::text(outcome, &["message"]).unwrap_or_default()),
                });
            }
            let items = edit::get(outcome, &[what.members().0]).and_then(edit::items);
            count += items.map_or(0, |items| items.len());
            let cursor = edit::get(outcome, &["nextCursor"]).filter(|cursor| *cursor != "null");
            let next = cursor.map(|cursor| edit::set(&params, &["cursor"], cursor));
            let next = next.transpose().map_err(|error| failed(&error))?;
            pages.push(page);
            if count > ITEMS_MAX {
                return Err(Unlisted::Failed(format!("more than {ITEMS_MAX} items")));
            }
            match next {
                Some(next) => params = next,
                None => return Ok(pages),
            }
        }
        Err(Unlisted::Failed(format!("more than {PAGES_MAX} pages")))
    }

    /// Remembers what a list says.
    fn learn(&self, at: usize, listed: &Result<Vec<Message>, Unlisted>, what: What) {
        let part = &self.parts[at];
        let pages = match listed {
            Ok(pages) => pages.as_slice(),
            Err(Unlisted::Nothing(_)) => &[],
            Err(Unlisted::Failed(_)) => {
                match what {
                    What::Tools => part.set_tools(Lists::Failed),
                    What::Prompts => part.set_prompts(Lists::Failed),
                    What::Resources | What::Templates | What::Tasks => {}
                }
                return;
            }
        };
        let results = pages.iter().filter_map(Message::outcome);
        match what {
            What::Tools => {
                let tools = results.flat_map(Listed::read_all);
                self.catalogue.relearn(at, tools.collect());
            }
            What::Prompts => {}
            What::Resources | What::Templates | What::Tasks => {
                let remembered = match what {
                    What::Tasks => &self.down.tasks,
                    _ => &self.down.resources,
                };
                let mut remembered = locked(remembered);
                for name in names(pages, what).into_iter().flatten() {
                    // Of two servers with the same thing, the first one's is read.
                    if remembered.whose(&name).is_none_or(|known| known > at) {
                        remembered.remember(name, at);
                    }
                }
            }
        }
    }

    /// Gives all prompts their names; what did not answer has none.
    fn name_prompts(&self, listed: &[(usize, Result<Vec<Message>, Unlisted>)]) {
        let mut own = vec![BTreeSet::new(); self.parts.len()];
        for (at, listed) in listed {
            if let Ok(pages) = listed {
                own[*at].extend(names(pages, What::Prompts).into_iter().flatten());
            }
        }
        let servers = self.parts.iter().map(|part| part.name.clone());
        *locked(&self.prompts) = Names::of(servers.collect(), own, &[]);
    }

    /// Returns all items with the names by which the client is to know them.
    fn items(&self, lists: &[(usize, Vec<Message>)], what: What) -> Vec<String> {
        let (member, name) = what.members();
        let mut seen = HashSet::new();
        let mut all = vec![];
        for (at, pages) in lists {
            let results = pages.iter().filter_map(Message::outcome);
            let items = results.filter_map(|result| edit::items(edit::get(result, &[member])?));
            for item in items.flatten() {
                let Some(own) = edit::text(item, &[name]) else {
                    all.push(item.to_owned());
                    continue;
                };
                let shown = match what {
                    What::Tools => self.catalogue.shown(*at, &own),
                    What::Prompts => locked(&self.prompts).shown(*at, &own),
                    What::Resources | What::Templates | What::Tasks => own.clone(),
                };
                // The same thing at two servers is there once.
                if !seen.insert(shown.clone()) {
                    continue;
                }
                let renamed = (own != shown).then(|| edit::set(item, &[name], &quoted(&shown)));
                let renamed = renamed.and_then(Result::ok);
                all.push(renamed.unwrap_or_else(|| item.to_owned()));
            }
        }
        all
    }
}

/// Returns the names of what is listed.
fn names(pages: &[Message], what: What) -> Vec<Option<String>> {
    let (member, name) = what.members();
    let results = pages.iter().filter_map(Message::outcome);
    let items = results.filter_map(|result| edit::items(edit::get(result, &[member])?));
    let items = items.flatten();
    items.map(|item| edit::text(item, &[name])).collect()
}
