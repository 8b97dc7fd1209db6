//! One server of several.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::super::edit;
use super::super::http::children::Server;
use super::super::http::upstream::refused;
use super::super::message::{Kind, Message};
use super::super::upstream::{
    Headers, Lost, NotSent, Pending, Replies, Reply, Upstream, WAITING_MAX,
};
use super::down::Down;
use super::greet::{DISCOVER, GREETING_MAX, OTHER_VERSION};
use super::{is_modern, of_client};
use crate::locked::locked;

/// The method of what marks a place among a server's messages; it never leaves the gateway.
const MARK: &str = "semel/mark";

/// One server of several, as one client sees it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    server: Arc<dyn Server>,
    /// Held while it is asked which protocol it speaks.
    probing: tokio::sync::Mutex<()>,
    /// What it says unasked comes this way.
    unasked: mpsc::Sender<Message>,
    pub(super) way: Arc<Way>,
}

/// What is known of a server, and the way from there to the client.
#[derive(Debug)]
pub(super) struct Way {
    at: usize,
    down: Arc<Down>,
    marks: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    next_number: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Why nothing is sent to it.
    left_out: Option<String>,
    /// Whether it speaks the newer protocol, which has no handshake to find that out.
    is_newer: Option<bool>,
    has_logging: bool,
    tools: Lists,
    prompts: Lists,
    /// The requests that it has.
    under_way: HashSet<String>,
}

/// What is known of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lists {
    /// It was not asked for, or it has changed since.
    #[default]
    Unknown,
    /// It is known.
    Known,
    /// The server did not give it.
    Failed,
}

impl Part {
    pub(super) fn new(
        at: usize,
        name: String,
        down: &Arc<Down>,
        reach: impl FnOnce(mpsc::Sender<Message>) -> Arc<dyn Server>,
    ) -> Self {
        let (unasked, coming) = mpsc::channel(WAITING_MAX);
        let way = Arc::new(Way {
            at,
            down: Arc::clone(down),
            marks: Mutex::default(),
            next_number: AtomicU64::new(1),
            known: Mutex::default(),
        });
        tokio::spawn(pass(coming, Arc::clone(&way)));
        Self {
            name,
            server: reach(unasked.clone()),
            probing: tokio::sync::Mutex::default(),
            unasked,
            way,
        }
    }

    /// Says whether it takes part: it has not refused the handshake.
    pub(super) fn is_in(&self) -> bool {
        locked(&self.way.known).left_out.is_none()
    }

    /// Takes it in again: another handshake is made.
    pub(super) fn may_enter(&self) {
        locked(&self.way.known).left_out = None;
    }

    /// Takes note of a handshake that went well, and of what the server can do.
    pub(super) fn enter(&self, result: &str) {
        let mut known = locked(&self.way.known);
        known.left_out = None;
        known.has_logging = edit::get(result, &["capabilities", "logging"]).is_some();
        (known.tools, known.prompts) = (Lists::Unknown, Lists::Unknown);
    }

    /// Leaves it out until the next handshake.
    pub(super) fn leave_out(&self, why: &str) {
        locked(&self.way.known).left_out = Some(why.to_owned());
        // What it may still be doing nobody waits for.
        let server = Arc::clone(&self.server);
        tokio::spawn(async move { server.end().await });
    }

    pub(super) fn has_logging(&self) -> bool {
        locked(&self.way.known).has_logging
    }

    pub(super) fn tools(&self) -> Lists {
        locked(&self.way.known).tools
    }

    pub(super) fn set_tools(&self, lists: Lists) {
        locked(&self.way.known).tools = lists;
    }

    pub(super) fn prompts(&self) -> Lists {
        locked(&self.way.known).prompts
    }

    pub(super) fn set_prompts(&self, lists: Lists) {
        locked(&self.way.known).prompts = lists;
    }

    /// Says whether it has a request with this id.
    pub(super) fn has(&self, id: &str) -> bool {
        locked(&self.way.known).under_way.contains(id)
    }

    /// Asks something and waits for the answer, a result or an error; what comes before it goes to the client.
    ///
    /// # Errors
    /// Says why there is none.
    pub(super) async fn ask(&self, request: &Message) -> Result<Message, String> {
        let replies = self.request(request, &Headers::default()).await;
        let mut replies = replies.map_err(|not_sent| not_sent.to_string())?;
        loop {
            match replies.0.recv().await {
                Some(Reply::Aside(message)) => self.way.down.say(message).await,
                Some(Reply::Answer(answer, _)) => return Ok(answer),
                Some(Reply::Http(refusal)) => {
                    return Ok(refused(request.id().unwrap_or("null"), &refusal));
                }
                Some(Reply::Lost(lost)) => return Err(lost.0),
                None => return Err("the server was given up".to_owned()),
            }
        }
    }

    /// Finds out whether it speaks the newer protocol: many that do not would answer all the same, in the older one.
    async fn speaks_newer(&self, request: &Message) -> Result<(), String> {
        let known = || locked(&self.way.known).is_newer;
        let _probing = self.probing.lock().await;
        if known().is_none() {
            // One that comes too late must not stand in the way of the next.
            let number = self.way.next_number.fetch_add(1, Ordering::Relaxed);
            let id = format!("\"semel-p{number}\"");
            let probe = Message::request(&id, DISCOVER, &of_client(request));
            let probe = probe.map_err(|error| error.to_string())?;
            let asked = timeout(GREETING_MAX, self.ask(&probe)).await;
            asked.map_err(|_| format!("no answer within {} s", GREETING_MAX.as_secs()))??;
        }
        match known() {
            Some(true) => Ok(()),
            Some(false) | None => Err("it speaks the older protocol only".to_owned()),
        }
    }

    pub(super) async fn end(&self) {
        self.server.end().await;
    }
}

impl Upstream for Part {
    /// What a client sent beside its message is not passed on: it is not for all of the servers, and nobody knows for
    /// which.
    fn request<'a>(
        &'a self,
        request: &'a Message,
        _: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            if let Some(why) = &locked(&self.way.known).left_out {
                return Err(NotSent(format!("{} is left out: {why}", self.name)));
            }
            let named = |why: String| NotSent(format!("{}: {why}", self.name));
            let method = request.method().unwrap_or_default().to_owned();
            if is_modern(request) && method != DISCOVER {
                // It asks in turn, and that goes without saying.
                Box::pin(self.speaks_newer(request)).await.map_err(named)?;
            }
            let under_way = UnderWay::new(&self.way, request);
            let replies = self.server.request(request, &Headers::default()).await;
            let mut replies = replies.map_err(|NotSent(why)| named(why))?;
            let (sender, read) = mpsc::channel(WAITING_MAX);
            let (way, unasked) = (Arc::clone(&self.way), self.unasked.clone());
            tokio::spawn(async move {
                loop {
                    let reply = tokio::select! {
                        biased;
                        () = sender.closed() => return,
                        reply = replies.0.recv() => reply,
                    };
                    match reply {
                        Some(Reply::Aside(message)) => {
                            if let Some(message) = way.heard(message) {
                                // Whoever asked may be gone.
                                drop(sender.send(Reply::Aside(message)).await);
                            }
                        }
                        Some(mut last) => {
                            way.settled(&unasked).await;
                            way.note(&method, &last);
                            if let Reply::Answer(_, headers) = &mut last {
                                // They are between us and the server: its session is not the client's.
                                *headers = Headers::default();
                            }
                            drop(under_way);
                            drop(sender.send(last).await);
                            return;
                        }
                        None => return,
                    }
                }
            });
            Ok(Replies(read))
        })
    }

    fn tell<'a>(&'a self, message: &'a Message, _: &'a Headers) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            let none = Headers::default();
            let told = self.server.tell(message, &none).await;
            told.map_err(|Lost(why)| Lost(format!("{}: {why}", self.name)))
        })
    }
}

/// A request that a server has; over when it is dropped.
struct UnderWay {
    way: Arc<Way>,
    id: String,
}

impl UnderWay {
    fn new(way: &Arc<Way>, request: &Message) -> Self {
        let id = request.id().unwrap_or_default().to_owned();
        locked(&way.known).under_way.insert(id.clone());
        let way = Arc::clone(way);
        Self { way, id }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.way.known).under_way.remove(&self.id);
    }
}

impl Way {
    /// Takes note of what a server says, and returns what the client is to hear of it.
    fn heard(&self, message: Message) -> Option<Message> {
        match message.method() {
            Some("notifications/tools/list_changed") => {
                locked(&self.known).tools = Lists::Unknown;
            }
            Some("notifications/prompts/list_changed") => {
                locked(&self.known).prompts = Lists::Unknown;
            }
            _ => {}
        }
        self.down.heard(self.at, message)
    }

    /// Takes note of what an answer says of the server.
    fn note(&self, method: &str, last: &Reply) {
        match (method, last) {
            ("tools/call", Reply::Answer(answer, _)) => self.note_task(answer),
            (DISCOVER, Reply::Answer(answer, _)) => self.note_protocol(answer),
            (DISCOVER, Reply::Http(refusal)) if refusal.status.is_client_error() => {
                self.note_protocol(&refused("null", refusal));
            }
            _ => {}
        }
    }

    /// Remembers which protocol a server speaks; one that wants another version of the newer one speaks that.
    fn note_protocol(&self, answer: &Message) {
        let code = edit::get(answer.outcome().unwrap_or("{}"), &["code"]);
        let is_newer = *answer.kind() == Kind::Result || code == Some(OTHER_VERSION);
        locked(&self.known).is_newer = Some(is_newer);
    }

    /// Remembers whose a task is that was given out for an answer.
    fn note_task(&self, answer: &Message) {
        let Some(result) = answer.outcome().filter(|_| *answer.kind() == Kind::Result) else {
            return;
        };
        let task = edit::text(result, &["taskId"]);
        if let Some(task) = task.or_else(|| edit::text(result, &["task", "taskId"])) {
            locked(&self.down.tasks).remember(task, self.at);
        }
    }

    /// Waits until everything that the server said before is on its way to the client.
    async fn settled(&self, unasked: &mpsc::Sender<Message>) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let Ok(mark) = Message::notification(MARK, &number.to_string()) else {
            return;
        };
        let (sender, reached) = oneshot::channel();
        locked(&self.marks).insert(number, sender);
        if unasked.send(mark).await.is_ok() {
            // When nobody passes anything on any more, nothing comes.
            drop(reached.await);
        }
    }
}

/// Passes on what a server says unasked, until it says no more.
async fn pass(mut coming: mpsc::Receiver<Message>, way: Arc<Way>) {
    while let Some(message) = coming.recv().await {
        if message.method() == Some(MARK) {
            let number = message.params().and_then(|number| number.parse().ok());
            // Whoever waits for it hears that it is gone.
            drop(number.and_then(|number: u64| locked(&way.marks).remove(&number)));
        } else if let Some(message) = way.heard(message) {
            way.down.say(message).await;
        }
    }
}
