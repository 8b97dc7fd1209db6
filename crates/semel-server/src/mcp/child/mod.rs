//! A server that is a child process and speaks in lines.
//!
//! It is started with the first message for it. When it ends, whatever it had been asked is lost and
//! nothing is sent again: the next message starts it anew, after the handshake that the client made.

mod process;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use self::process::{Ended, Process};
use super::http::cancelled;
use super::message::{Kind, Message};
use super::say;
use super::upstream::{Headers, Lost, NotSent, Pending, Replies, Reply, Upstream};
use crate::locked::locked;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it finds in its environment beside what the gateway itself does.
    pub environment: Environment,
}

/// Variables of an environment. Their values may be secret, and are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(pub Vec<(String, String)>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// How long a server must have lived for its end not to count as a failed start.
const LIVED: Duration = Duration::from_secs(5);

/// How many failed starts there may be in a row before a pause.
const STARTS_MAX: u32 = 3;

/// The pause after too many failed starts.
const START_PAUSE: Duration = Duration::from_secs(10);

/// The most requests that may wait for their answers at once.
const AWAITED_MAX: usize = 4_096;

/// A child process behind the gateway.
#[derive(Debug)]
pub(crate) struct Child {
    shared: Arc<Shared>,
    process: tokio::sync::Mutex<Slot>,
    command: Command,
}

/// The process, if it runs, and how its starts went.
#[derive(Debug, Default)]
struct Slot {
    process: Option<Process>,
    failed_starts: u32,
    paused_until: Option<Instant>,
}

/// What the reader of the child's lines and its callers share.
#[derive(Debug)]
struct Shared {
    awaited: Mutex<HashMap<String, Awaited>>,
    /// The handshake that the client made, to be made again with a new process.
    handshake: Mutex<Handshake>,
    unasked: mpsc::Sender<Message>,
}

/// Who waits for an answer.
#[derive(Debug)]
enum Awaited {
    /// The gateway.
    Gateway(mpsc::Sender<Reply>),
    /// The client: the answer goes the common way.
    Client,
    /// The client, which has cancelled it: most servers say nothing any more.
    GivenUp,
}

#[derive(Debug, Default)]
struct Handshake {
    initialize: Option<Message>,
    initialized: Option<Message>,
}

impl Child {
    /// Makes one that starts with its first message. What it says unasked, and what it answers to
    /// messages that were only passed on, goes to `unasked`.
    pub(crate) fn new(command: Command, unasked: mpsc::Sender<Message>) -> Self {
        let shared = Arc::new(Shared {
            awaited: Mutex::default(),
            handshake: Mutex::default(),
            unasked,
        });
        Self {
            shared,
            process: tokio::sync::Mutex::default(),
            command,
        }
    }

    /// Sends a message to the running process, which is started if there is none.
    async fn send(&self, message: &Message) -> Result<(), Unsent> {
        let mut slot = self.process.lock().await;
        // A client that makes its handshake now needs no other.
        let greets = message.method() != Some("initialize");
        let process = self.running(&mut slot, greets).await?;
        process.write(message).await?;
        self.note_handshake(message);
        Ok(())
    }

    /// Returns the running process, or starts one.
    async fn running<'a>(
        &self,
        slot: &'a mut Slot,
        greets: bool,
    ) -> Result<&'a mut Process, Unsent> {
        if let Some(process) = &mut slot.process
            && let Some(ended) = process.has_ended()
        {
            slot.note_end(&ended);
            slot.process = None;
        }
        if slot.process.is_none() {
            slot.may_start()?;
            let started = Process::start(&self.command, Arc::clone(&self.shared));
            let mut process = started.map_err(|error| {
                slot.note_failed_start();
                Unsent::Nothing(format!("cannot start `{}`: {error}", self.command.program))
            })?;
            if greets {
                self.greet(&mut process).await?;
            }
            slot.process = Some(process);
        }
        slot.process
            .as_mut()
            .ok_or_else(|| Unsent::Nothing("the server does not run".to_owned()))
    }

    /// Makes the client's handshake again with a new process, without telling the client.
    async fn greet(&self, process: &mut Process) -> Result<(), Unsent> {
        let (initialize, initialized) = {
            let handshake = locked(&self.shared.handshake);
            match &handshake.initialize {
                None => return Ok(()),
                Some(initialize) => (initialize.clone(), handshake.initialized.clone()),
            }
        };
        let id = "\"semel-handshake\"";
        let initialize = initialize
            .with_id(id)
            .map_err(|error| Unsent::Nothing(error.to_string()))?;
        let (sender, mut replies) = mpsc::channel(1);
        locked(&self.shared.awaited).insert(id.to_owned(), Awaited::Gateway(sender));
        process.write(&initialize).await?;
        let answered = tokio::time::timeout(GREETING_MAX, replies.recv()).await;
        match answered {
            Ok(Some(Reply::Answer(answer, _))) if *answer.kind() == Kind::Result => {}
            Ok(_) => {
                let text = "the server was started again and refused the handshake";
                return Err(Unsent::Nothing(text.to_owned()));
            }
            Err(_) => {
                let text = "the server was started again and did not answer the handshake";
                return Err(Unsent::Nothing(text.to_owned()));
            }
        }
        if let Some(initialized) = initialized {
            process.write(&initialized).await?;
        }
        Ok(())
    }

    /// Ends the process as the protocol says: its input is closed, it gets a while, then it is killed.
    pub(crate) async fn end(&self) {
        let process = self.process.lock().await.process.take();
        if let Some(process) = process {
            process.end().await;
        }
    }

    /// Remembers a handshake that was sent.
    fn note_handshake(&self, message: &Message) {
        let mut handshake = locked(&self.shared.handshake);
        match message.method() {
            Some("initialize") => handshake.initialize = Some(message.clone()),
            Some("notifications/initialized") => handshake.initialized = Some(message.clone()),
            _ => {}
        }
    }
}

/// How long a server that was started again may take for the handshake.
const GREETING_MAX: Duration = Duration::from_secs(30);

/// Says how far a message got that was not sent whole.
#[derive(Clone, Debug)]
pub(super) enum Unsent {
    /// Not one byte.
    Nothing(String),
    /// Some of it, or nobody knows.
    Perhaps(String),
}

impl Slot {
    fn may_start(&mut self) -> Result<(), Unsent> {
        match self.paused_until {
            Some(until) if Instant::now() < until => {
                let text =
                    "the server ended right after its last starts; it is tried again in a moment";
                Err(Unsent::Nothing(text.to_owned()))
            }
            Some(_) => {
                self.paused_until = None;
                self.failed_starts = 0;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn note_end(&mut self, ended: &Ended) {
        if ended.lived < LIVED {
            self.note_failed_start();
        } else {
            self.failed_starts = 0;
        }
    }

    fn note_failed_start(&mut self) {
        self.failed_starts += 1;
        if self.failed_starts >= STARTS_MAX {
            self.paused_until = Some(Instant::now() + START_PAUSE);
        }
    }
}

impl Upstream for Child {
    fn request<'a>(
        &'a self,
        request: &'a Message,
        _: &'a Headers,
    ) -> Pending<'a, Result<Replies, NotSent>> {
        Box::pin(async move {
            let id = request.id().unwrap_or_default().to_owned();
            let (sender, replies) = mpsc::channel(1);
            self.shared
                .await_answer(&id, Awaited::Gateway(sender.clone()))
                .map_err(NotSent)?;
            match self.send(request).await {
                Ok(()) => {}
                Err(Unsent::Nothing(why)) => {
                    locked(&self.shared.awaited).remove(&id);
                    return Err(NotSent(why));
                }
                Err(Unsent::Perhaps(why)) => {
                    locked(&self.shared.awaited).remove(&id);
                    // Its one place is free: nothing else was sent on it.
                    drop(sender.try_send(Reply::Lost(Lost(why))));
                }
            }
            Ok(Replies(replies))
        })
    }

    fn tell<'a>(&'a self, message: &'a Message, _: &'a Headers) -> Pending<'a, Result<(), Lost>> {
        Box::pin(async move {
            let id = match message.kind() {
                Kind::Request { .. } => message.id(),
                Kind::Notification { .. } | Kind::Result | Kind::Error => None,
            };
            if let Some(id) = id {
                self.shared
                    .await_answer(id, Awaited::Client)
                    .map_err(Lost)?;
            }
            if let Some(id) = cancelled(message) {
                self.shared.give_up(&id);
            }
            let sent = self.send(message).await;
            sent.map_err(|unsent| {
                if let Some(id) = id {
                    locked(&self.shared.awaited).remove(id);
                }
                match unsent {
                    Unsent::Nothing(why) | Unsent::Perhaps(why) => Lost(why),
                }
            })
        })
    }
}

impl Shared {
    fn await_answer(&self, id: &str, by: Awaited) -> Result<(), String> {
        let mut awaited = locked(&self.awaited);
        if awaited.len() >= AWAITED_MAX {
            // What nobody waits for any more was given up.
            awaited.retain(|_, by| match by {
                Awaited::Gateway(sender) => !sender.is_closed(),
                Awaited::Client => true,
                Awaited::GivenUp => false,
            });
        }
        if awaited.len() >= AWAITED_MAX {
            return Err(format!(
                "{AWAITED_MAX} requests wait for the server already"
            ));
        }
        if awaited.contains_key(id) {
            return Err(format!(
                "another request with the id {id} waits for the server"
            ));
        }
        awaited.insert(id.to_owned(), by);
        Ok(())
    }

    /// Takes note that the client cancelled what was passed on.
    fn give_up(&self, id: &str) {
        if let Some(by @ Awaited::Client) = locked(&self.awaited).get_mut(id) {
            *by = Awaited::GivenUp;
        }
    }

    /// Hands on what the child said; returns when there is room for more.
    async fn said(&self, message: Message) {
        let awaited = match message.kind() {
            Kind::Result | Kind::Error => {
                message.id().and_then(|id| locked(&self.awaited).remove(id))
            }
            Kind::Request { .. } | Kind::Notification { .. } => {
                self.say(message).await;
                return;
            }
        };
        match awaited {
            Some(Awaited::Gateway(sender)) => {
                // Whoever asked may be gone.
                drop(sender.try_send(Reply::Answer(message, Headers::default())));
            }
            Some(Awaited::Client | Awaited::GivenUp) => self.say(message).await,
            None => {
                let id = message.id().unwrap_or("null");
                tracing::warn!(id, "the server answered what nobody asked, or twice");
            }
        }
    }

    async fn say(&self, message: Message) {
        // Without a client there is nobody to tell.
        drop(self.unasked.send(message).await);
    }

    /// Says to all who wait that nothing will come any more.
    async fn ended(&self, why: &str) {
        let awaited: Vec<_> = locked(&self.awaited).drain().collect();
        for (id, by) in awaited {
            match by {
                Awaited::Gateway(sender) => {
                    drop(sender.try_send(Reply::Lost(Lost(why.to_owned()))));
                }
                Awaited::Client => self.say(say::server_gone(&id, why)).await,
                Awaited::GivenUp => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says nothing of what was cancelled would be full one day.
    #[tokio::test]
    async fn what_the_client_cancelled_makes_room() {
        let command = Command {
            program: "sh".to_owned(),
            arguments: ["-c", "exec cat > /dev/null"].map(str::to_owned).to_vec(),
            environment: Environment::default(),
        };
        let (unasked, _said) = mpsc::channel(1);
        let child = Child::new(command, unasked);
        let none = Headers::default();
        for id in 0..=AWAITED_MAX {
            let request = Message::request(&id.to_string(), "ping", "{}").expect("it is one");
            let told = child.tell(&request, &none).await;
            told.expect("there is room");
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            let cancel = Message::read(cancel).expect("it is one");
            child.tell(&cancel, &none).await.expect("it reads");
        }
        child.end().await;
    }
}
