//! A client of MCP that sends what it is told, once, and shows what came back as it came.
//!
//! It knows nothing of Semel's own code. Over HTTP every request has a connection of its own unless it is told
//! to keep one, and closing that is how it leaves.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::desk::Era;
use crate::http::{Address, Answer, Asked, Connection, PATIENCE};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    /// A result or an error of JSON-RPC: the whole message, as it came.
    Message(String),
    /// HTTP answered with this instead.
    Http(u16, String),
    /// The connection ended first.
    Lost(String),
}

impl Heard {
    /// Returns the message; anything else fails the test.
    #[track_caller]
    pub(crate) fn message(&self) -> Value {
        match self {
            Self::Message(text) => serde_json::from_str(text).expect("a message is JSON"),
            other => panic!("a message was expected: {other:?}"),
        }
    }

    /// Returns the result; anything else fails the test.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let message = self.message();
        assert!(message["error"].is_null(), "{message}");
        message["result"].clone()
    }

    /// Returns the error of JSON-RPC; anything else fails the test.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let message = self.message();
        assert!(message["error"].is_object(), "{message}");
        message["error"].clone()
    }
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    id: Value,
    connection: Option<Connection>,
    /// What was read of an answer whose stream goes on.
    head: Option<Answer>,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    era: Era,
    link: Link,
    next: u64,
    /// What the client says that it can do.
    capabilities: Value,
}

#[derive(Debug)]
enum Link {
    Pipe(Pipe),
    Web(Web),
}

impl Client {
    /// Starts a server or a gateway as a child, and shakes hands where that is done.
    #[track_caller]
    pub(crate) fn stdio(command: &mut Command, era: Era, capabilities: &Value) -> Self {
        Self::greeted(Link::Pipe(Pipe::start(command)), era, capabilities)
    }

    /// Speaks to whoever listens there, and shakes hands where that is done.
    #[track_caller]
    pub(crate) fn http(address: &Address, era: Era, capabilities: &Value) -> Self {
        Self::greeted(Link::Web(Web::new(address)), era, capabilities)
    }

    /// Speaks to whoever listens there as somebody who shows these credentials, and shakes hands where
    /// that is done.
    #[track_caller]
    pub(crate) fn http_as(address: &Address, era: Era, credentials: &str) -> Self {
        Self::http_with(address, era, "Authorization", credentials)
    }

    /// Speaks to a server as a client that sends this header with every request, and shakes hands where that is done.
    #[track_caller]
    pub(crate) fn http_with(address: &Address, era: Era, header: &str, value: &str) -> Self {
        let mut web = Web::new(address);
        web.credentials = Some((header.to_owned(), value.to_owned()));
        Self::greeted(Link::Web(web), era, &json!({}))
    }

    /// Starts a server or a gateway as a child, and says nothing yet.
    pub(crate) fn silent(command: &mut Command, era: Era) -> Self {
        Self::new(Link::Pipe(Pipe::start(command)), era)
    }

    fn new(link: Link, era: Era) -> Self {
        Self {
            era,
            link,
            next: 1,
            capabilities: json!({}),
        }
    }

    #[track_caller]
    fn greeted(link: Link, era: Era, capabilities: &Value) -> Self {
        let mut client = Self::new(link, era);
        client.capabilities = capabilities.clone();
        client.greet().result();
        client
    }

    /// Says what a client says first, and returns what the server said of itself.
    #[track_caller]
    pub(crate) fn greet(&mut self) -> Heard {
        match self.era {
            Era::Modern => self.ask("server/discover", json!({})),
            Era::Legacy => {
                let params = json!({
                    "protocolVersion": LEGACY,
                    "capabilities": self.capabilities,
                    "clientInfo": {"name": "wire", "version": "1"},
                });
                let heard = self.ask("initialize", params);
                if matches!(heard, Heard::Message(_)) {
                    self.tell("notifications/initialized", json!({}));
                }
                heard
            }
        }
    }

    /// Calls a tool, and waits for what becomes of it.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Heard {
        let sent = self.start(tool, arguments, &json!({}));
        self.hear(sent)
    }

    /// Calls a tool with more in `_meta`, and does not wait.
    #[track_caller]
    pub(crate) fn start(&mut self, tool: &str, arguments: &Value, meta: &Value) -> Sent {
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.send("tools/call", params)
    }

    /// Sends a request, and waits for what becomes of it.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Heard {
        let sent = self.send(method, params);
        self.hear(sent)
    }

    /// Sends a request with what the era adds to every one.
    #[track_caller]
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Sent {
        let id = json!(self.next);
        self.next += 1;
        let params = self.with_meta(params);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_raw(&message.to_string(), id)
    }

    /// Sends a request as it is written; `id` is what its answer will carry.
    #[track_caller]
    pub(crate) fn send_raw(&mut self, text: &str, id: Value) -> Sent {
        let connection = match &mut self.link {
            Link::Pipe(pipe) => {
                pipe.write(text);
                None
            }
            Link::Web(web) => Some(web.post(text, self.era)),
        };
        Sent {
            id,
            connection,
            head: None,
        }
    }

    /// Sends a notification.
    #[track_caller]
    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.tell_raw(&message.to_string());
    }

    /// Sends a notification, or an answer to a request of the server's own, as it is written.
    #[track_caller]
    pub(crate) fn tell_raw(&mut self, text: &str) {
        match &mut self.link {
            Link::Pipe(pipe) => pipe.write(text),
            Link::Web(web) => {
                let answer = web.post(text, self.era).answer().expect("it is taken");
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        }
    }

    /// Waits for what becomes of a request; what comes on the way is passed over.
    #[track_caller]
    pub(crate) fn hear(&mut self, sent: Sent) -> Heard {
        self.hear_all(sent).1
    }

    /// Waits for what becomes of a request, and returns what came on the way to it as well.
    #[track_caller]
    pub(crate) fn hear_all(&mut self, sent: Sent) -> (Vec<String>, Heard) {
        let mut asides = vec![];
        let mut on_the_way = |text: String| asides.push(text);
        let heard = match (&mut self.link, sent.connection) {
            (Link::Pipe(pipe), _) => pipe.hear(&sent.id, &mut on_the_way),
            (Link::Web(web), Some(mut connection)) => {
                let head = sent.head.map_or_else(|| connection.head(), Ok);
                let answer = head.and_then(|head| connection.rest(head));
                web.hear(answer, &sent.id, &mut on_the_way)
            }
            (Link::Web(_), None) => unreachable!("every request has its connection"),
        };
        (asides, heard)
    }

    /// Waits until something comes on the way to an answer that has this text in it.
    #[track_caller]
    pub(crate) fn hear_aside(&mut self, sent: &mut Sent, wanted: &str) -> Value {
        let text = match (&mut self.link, &mut sent.connection) {
            (Link::Pipe(pipe), _) => pipe.aside(wanted),
            (Link::Web(_), Some(connection)) => {
                if sent.head.is_none() {
                    sent.head = Some(connection.head().expect("there is an answer"));
                }
                Web::aside(connection, wanted)
            }
            (Link::Web(_), None) => unreachable!("every request has its connection"),
        };
        serde_json::from_str(&text).expect("it is JSON")
    }

    /// Gives a call up as a client does whose patience is at its end: it says so where the era has a word for
    /// it, and closes the stream where there is one.
    #[track_caller]
    pub(crate) fn cancel(&mut self, sent: Sent) {
        let silent = self.era == Era::Modern && matches!(self.link, Link::Web(_));
        if !silent {
            let params = json!({"requestId": sent.id, "reason": "timed out"});
            self.tell("notifications/cancelled", params);
        }
        drop(sent.connection);
    }

    /// Ends in good order: a child is let go when it has done what it has to do.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        if let Link::Pipe(pipe) = &mut self.link {
            pipe.close();
            pipe.wait();
        }
    }

    /// Lets the client show credentials from now on.
    #[track_caller]
    pub(crate) fn show(&mut self, credentials: &str) {
        match &mut self.link {
            Link::Web(web) => {
                web.credentials = Some(("Authorization".to_owned(), credentials.to_owned()));
            }
            Link::Pipe(_) => panic!("a pipe has no place for it"),
        }
    }

    /// Returns the child that the client speaks to.
    #[track_caller]
    pub(crate) fn child(&mut self) -> &mut Pipe {
        match &mut self.link {
            Link::Pipe(pipe) => pipe,
            Link::Web(_) => panic!("there is no child"),
        }
    }

    fn with_meta(&self, mut params: Value) -> Value {
        if self.era == Era::Modern {
            let meta = params["_meta"].take();
            let mut whole = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            });
            if let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), meta) {
                whole.extend(more);
            }
            params["_meta"] = whole;
        } else if params["_meta"] == json!({}) {
            params.as_object_mut().expect("an object").remove("_meta");
        }
        params
    }
}

/// A child that is spoken to line by line; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came while another was waited for.
    passed: Vec<String>,
    said: Arc<Mutex<String>>,
}

impl Pipe {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the command runs");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                let line = line.unwrap_or_else(|error| error.to_string().into_bytes());
                let line = String::from_utf8(line).unwrap_or_else(|bad| format!("{bad:?}"));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut stderr = child.stderr.take().expect("it is piped");
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                saying.lock().expect("nobody panics").push_str(&text);
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            passed: vec![],
            said,
        }
    }

    /// Writes a line. A child that is gone says so when it is listened to.
    fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        let line = format!("{text}\n");
        let _ = stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.flush());
    }

    /// Takes the next line; none when the child has closed its output.
    #[track_caller]
    fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came: {}", self.said()),
        }
    }

    #[track_caller]
    fn hear(&mut self, id: &Value, aside: &mut dyn FnMut(String)) -> Heard {
        let mut passed = std::mem::take(&mut self.passed).into_iter();
        loop {
            let Some(line) = passed.next().or_else(|| self.line()) else {
                return Heard::Lost(self.said());
            };
            if is_answer(&line, id) {
                self.passed.extend(passed);
                return Heard::Message(line);
            }
            // Answers come in any order: whoever asked for this one hears it later.
            if is_some_answer(&line) {
                self.passed.push(line);
            } else {
                aside(line);
            }
        }
    }

    #[track_caller]
    fn aside(&mut self, wanted: &str) -> String {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("{}", self.said()));
            if line.contains(wanted) {
                return line;
            }
            self.passed.push(line);
        }
    }

    /// Returns what the child wrote to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics").clone()
    }

    /// Returns how much memory the child has, in bytes.
    #[track_caller]
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: Option<u64> = kilobytes.and_then(|text| text.parse().ok());
        kilobytes.expect("it has memory") * 1024
    }

    /// Ends the child as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Sends the child a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("it runs"), signal).expect("it is ours");
    }

    /// Says that nothing more will be sent.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for the child's end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be looked at") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place that is spoken to over HTTP.
#[derive(Debug)]
struct Web {
    address: Address,
    session: Option<String>,
    /// The header that it shows with every request.
    credentials: Option<(String, String)>,
}

impl Web {
    fn new(address: &Address) -> Self {
        Self {
            address: address.clone(),
            session: None,
            credentials: None,
        }
    }

    #[track_caller]
    fn post(&self, text: &str, era: Era) -> Connection {
        let mut asked = Asked::new("POST", "/mcp")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(text.as_bytes());
        if let Some((header, value)) = &self.credentials {
            asked = asked.header(header, value);
        }
        let envelope = Envelope::of(text);
        match era {
            Era::Modern => {
                asked = asked.header("MCP-Protocol-Version", MODERN);
                if let Some(method) = &envelope.method {
                    asked = asked.header("Mcp-Method", method);
                }
                if let Some(name) = envelope.params.and_then(|it| it.name.or(it.task_id)) {
                    asked = asked.header("Mcp-Name", &name);
                }
            }
            Era::Legacy => {
                if let Some(session) = &self.session {
                    asked = asked
                        .header("Mcp-Session-Id", session)
                        .header("MCP-Protocol-Version", LEGACY);
                }
            }
        }
        let mut connection = Connection::open(&self.address).expect("somebody listens");
        connection.send(&asked.bytes()).expect("it can be sent");
        connection
    }

    #[track_caller]
    fn hear(
        &mut self,
        answer: io::Result<Answer>,
        id: &Value,
        aside: &mut dyn FnMut(String),
    ) -> Heard {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Heard::Lost(error.to_string()),
        };
        if let Some(session) = answer.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        for text in messages(&answer) {
            if is_answer(&text, id) {
                return Heard::Message(text);
            }
            aside(text);
        }
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status == 200 {
            Heard::Lost(format!("the stream ended without an answer: {body}"))
        } else {
            Heard::Http(answer.status, body)
        }
    }

    #[track_caller]
    fn aside(connection: &mut Connection, wanted: &str) -> String {
        loop {
            let chunk = connection.chunk().expect("the stream goes on");
            let chunk = chunk.expect("the stream goes on");
            let chunk = String::from_utf8(chunk).expect("it is text");
            if let Some(text) = events(&chunk)
                .into_iter()
                .find(|text| text.contains(wanted))
            {
                return text;
            }
        }
    }
}

/// Returns the messages of an answer.
fn messages(answer: &Answer) -> Vec<String> {
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    match answer.header("content-type") {
        Some(kind) if kind.starts_with("text/event-stream") => events(&body),
        Some(kind) if kind.starts_with("application/json") => vec![body],
        Some(_) | None => vec![],
    }
}

/// Returns the data of a stream's events; half an event at its end is none.
fn events(body: &str) -> Vec<String> {
    let body = body.replace("\r\n", "\n");
    let whole = body.rfind("\n\n").map_or("", |end| &body[..end]);
    let events = whole.split("\n\n").map(|event| {
        let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = data.map(|text| text.strip_prefix(' ').unwrap_or(text));
        data.collect::<Vec<_>>().join("\n")
    });
    events.filter(|data| !data.is_empty()).collect()
}

/// As much of a message as a client must read: the rest may be what no reader of JSON keeps.
#[derive(Debug, Default, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: Option<String>,
    #[serde(rename = "taskId")]
    task_id: Option<String>,
}

impl<'a> Envelope<'a> {
    fn of(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

fn is_some_answer(line: &str) -> bool {
    let message: Result<Value, _> = serde_json::from_str(line);
    message.is_ok_and(|message| message["method"].is_null() && !message["id"].is_null())
}

/// Says whether a message answers the request with this id.
fn is_answer(text: &str, id: &Value) -> bool {
    let envelope = Envelope::of(text);
    let found = envelope
        .id
        .map(|raw| serde_json::from_str::<Value>(raw.get()));
    envelope.method.is_none() && matches!(found, Some(Ok(found)) if found == *id)
}
