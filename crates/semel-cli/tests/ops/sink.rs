//! A service that is sent things: it keeps what it got and answers as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::server::PATIENCE;

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(u16),
    /// Not at all, while the sender lives.
    Never,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
    /// How it was answered.
    pub(crate) reply: Reply,
}

impl Got {
    pub(crate) fn id(&self) -> String {
        self.headers["webhook-id"].clone()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("it is JSON")
    }
}

/// How the next requests are answered, and all after them.
#[derive(Debug)]
struct Replies {
    next: VecDeque<Reply>,
    then: Reply,
}

/// A service that is sent things.
#[derive(Debug)]
pub(crate) struct Sink {
    address: String,
    replies: Arc<Mutex<Replies>>,
    got: Receiver<Got>,
}

impl Sink {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has one").to_string();
        let replies = Replies {
            next: VecDeque::new(),
            then: Reply::Status(204),
        };
        let replies = Arc::new(Mutex::new(replies));
        let (sender, got) = channel();
        let theirs = Arc::clone(&replies);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("it was accepted");
                let (sender, replies) = (sender.clone(), Arc::clone(&theirs));
                thread::spawn(move || serve(stream, &sender, &replies));
            }
        });
        Self {
            address,
            replies,
            got,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers the next requests so.
    pub(crate) fn next(&self, replies: &[Reply]) {
        let mut ours = self.replies.lock().expect("nobody panics with it");
        ours.next.extend(replies);
    }

    /// Answers all requests so from now on.
    pub(crate) fn always(&self, reply: Reply) {
        let mut ours = self.replies.lock().expect("nobody panics with it");
        ours.then = reply;
    }

    /// Waits for the next request.
    #[track_caller]
    pub(crate) fn wait(&self) -> Got {
        self.got.recv_timeout(PATIENCE).expect("something comes")
    }

    /// Returns what has come and nobody waited for.
    pub(crate) fn rest(&self) -> Vec<Got> {
        self.got.try_iter().collect()
    }
}

fn serve(mut stream: TcpStream, got: &Sender<Got>, replies: &Mutex<Replies>) {
    let Some((path, headers, text)) = read(&stream) else {
        return;
    };
    let mut replies = replies.lock().expect("nobody panics with it");
    let reply = replies.next.pop_front().unwrap_or(replies.then);
    drop(replies);
    let request = Got {
        path,
        headers,
        text,
        reply,
    };
    if got.send(request).is_err() {
        return;
    }
    match reply {
        Reply::Status(status) => {
            let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
            // The sender may be gone.
            drop(stream.write_all(answer.as_bytes()));
        }
        // Ends when the sender does.
        Reply::Never => drop(stream.read_to_end(&mut vec![])),
    }
}

fn read(stream: &TcpStream) -> Option<(String, BTreeMap<String, String>, String)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let size = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; size];
    reader.read_exact(&mut body).ok()?;
    Some((path, headers, String::from_utf8(body).ok()?))
}
