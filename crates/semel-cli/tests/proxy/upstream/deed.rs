//! What an upstream does with a request.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use semel_testkit::process::Dice;
use serde_json::json;

use super::wire::{PIECE, run_of};
use super::{Received, Shared};
use crate::http::PATIENCE;

/// What an upstream does with a request. The effect comes first, where there is one.
#[derive(Debug)]
pub(crate) enum Deed {
    /// Acts and answers.
    Answer(Reply),
    /// Acts, and goes on when the gate is opened.
    Held(Gate, Box<Self>),
    /// Takes the connection and closes it, before anything was said.
    CloseAtOnce,
    /// Takes the whole request and closes without acting.
    CloseBeforeEffect,
    /// Acts and closes.
    CloseAfterEffect,
    /// Acts and resets the connection.
    Reset,
    /// Acts, and closes in the middle of the head of its answer.
    CutHead,
    /// Acts, and closes in the middle of the body of its answer.
    CutBody,
    /// Acts, and closes in the middle of a long body.
    CutLong,
    /// Acts and says nothing until its client leaves.
    Silence,
    /// Acts, and answers two times.
    Twice,
    /// Acts, and answers piece by piece as it is told.
    Stream(Reply, Receiver<Step>),
}

impl Default for Deed {
    fn default() -> Self {
        Self::Answer(Reply::default())
    }
}

/// What is told to an upstream whose answer is a stream.
#[derive(Debug)]
pub(crate) enum Step {
    Say(Vec<u8>),
    End,
    Cut,
}

impl Deed {
    /// Makes an answer of this type that is told piece by piece.
    pub(crate) fn stream(kind: &str) -> (Self, Teller) {
        let (sender, steps) = channel();
        let reply = Reply::new(200, "").header("Content-Type", kind).chunked();
        (Self::Stream(reply, steps), Teller(sender))
    }

    /// Chooses by chance: half of the time something is wrong.
    pub(super) fn of(dice: &mut Dice) -> Self {
        match dice.below(2 * Self::WRONG) {
            // Whoever is silent holds everybody up.
            Self::SILENT if dice.below(8) > 0 => Self::default(),
            number => Self::numbered(number),
        }
    }

    /// Everything that can go wrong, once.
    pub(super) fn each_wrong() -> impl Iterator<Item = Self> {
        (0..Self::WRONG).map(Self::numbered)
    }

    const WRONG: u64 = 9;
    const SILENT: u64 = 8;

    fn numbered(number: u64) -> Self {
        match number {
            0 => Self::CloseBeforeEffect,
            1 => Self::CloseAfterEffect,
            2 => Self::Reset,
            3 => Self::CutHead,
            4 => Self::CutBody,
            5 => Self::Twice,
            6 => Self::Answer(Reply::new(500, "it broke").header("X-Acted", "yes")),
            7 => Self::Answer(Reply::new(429, "not now").harmless()),
            Self::SILENT => Self::Silence,
            _ => Self::default(),
        }
    }

    /// Does it; says whether the connection can be used again.
    pub(super) fn perform(
        self,
        upstream: &Shared,
        received: &Received,
        mut stream: &TcpStream,
    ) -> io::Result<bool> {
        let acts = match &self {
            Self::CloseAtOnce | Self::CloseBeforeEffect => false,
            Self::Answer(reply) => !reply.harmless,
            _ => true,
        };
        let number = if acts { upstream.cause(received) } else { 0 };
        self.say(received, number, &mut stream)
    }

    fn say(self, received: &Received, number: usize, stream: &mut &TcpStream) -> io::Result<bool> {
        match self {
            Self::Answer(reply) => reply.write(received, number, stream),
            Self::Held(gate, deed) => {
                gate.wait();
                deed.say(received, number, stream)
            }
            Self::CloseAtOnce | Self::CloseBeforeEffect | Self::CloseAfterEffect => Ok(false),
            Self::Reset => {
                let at_once = Some(std::time::Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(*stream, at_once)?;
                Ok(false)
            }
            Self::CutHead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Ty")?;
                Ok(false)
            }
            Self::CutBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")?;
                Ok(false)
            }
            Self::CutLong => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n")?;
                stream.write_all(&vec![b'x'; 2_000_000])?;
                Ok(false)
            }
            Self::Silence => {
                // Whatever its client still says, and then that it is gone.
                let drained = io::copy(stream, &mut io::sink());
                drained.map(|_| false)
            }
            Self::Twice => {
                let reply = Reply::default();
                reply.write(received, number, stream)?;
                reply.write(received, number + 1_000, stream)
            }
            Self::Stream(reply, steps) => {
                stream.write_all(&reply.head(None))?;
                loop {
                    match steps.recv_timeout(PATIENCE) {
                        Ok(Step::Say(piece)) => {
                            write!(stream, "{:x}\r\n", piece.len())?;
                            stream.write_all(&piece)?;
                            stream.write_all(b"\r\n")?;
                        }
                        Ok(Step::End) => {
                            stream.write_all(b"0\r\n\r\n")?;
                            return Ok(true);
                        }
                        // Without its teller nobody knows how it goes on.
                        Ok(Step::Cut) | Err(_) => return Ok(false),
                    }
                }
            }
        }
    }
}

/// Tells an upstream how its answer goes on.
#[derive(Debug)]
pub(crate) struct Teller(Sender<Step>);

impl Teller {
    pub(crate) fn say(&self, piece: impl AsRef<[u8]>) {
        // An upstream whose client left does not listen any more.
        drop(self.0.send(Step::Say(piece.as_ref().to_vec())));
    }

    pub(crate) fn end(self) {
        drop(self.0.send(Step::End));
    }

    pub(crate) fn cut(self) {
        drop(self.0.send(Step::Cut));
    }
}

/// What somebody waits at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        opened.notify_all();
    }

    fn wait(&self) {
        let (is_open, opened) = &*self.0;
        let lock = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = opened.wait_timeout_while(lock, PATIENCE, |is_open| !*is_open);
        drop(waited);
    }
}

/// How the end of an answer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    Close,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    /// None is a text that names the effect: no two are the same.
    body: Option<Vec<u8>>,
    /// So many more bytes follow the body, each the low byte of its place.
    long: u64,
    framing: Framing,
    before: Vec<u8>,
    trailers: Vec<u8>,
    harmless: bool,
}

impl Default for Reply {
    fn default() -> Self {
        let reply = Self::new(201, "").header("Content-Type", "application/json");
        Self {
            body: None,
            ..reply
        }
    }
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self {
            status,
            headers: vec![],
            body: Some(body.as_ref().to_vec()),
            long: 0,
            framing: Framing::Length,
            before: vec![],
            trailers: vec![],
            harmless: false,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref().to_vec();
        self.headers.push((name.to_owned(), value));
        self
    }

    pub(crate) fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub(crate) fn chunked(self) -> Self {
        self.framing(Framing::Chunked)
    }

    /// Says this before the answer.
    pub(crate) fn after(mut self, before: &str) -> Self {
        self.before = before.as_bytes().to_vec();
        self
    }

    /// Says this line after the last chunk.
    pub(crate) fn trailer(mut self, line: &str) -> Self {
        self.trailers = format!("{line}\r\n").into_bytes();
        self
    }

    /// Adds so many bytes to the body.
    pub(crate) fn long(mut self, bytes: u64) -> Self {
        self.long = bytes;
        self
    }

    /// Answers without acting.
    pub(crate) fn harmless(mut self) -> Self {
        self.harmless = true;
        self
    }

    fn head(&self, length: Option<u64>) -> Vec<u8> {
        let mut head = self.before.clone();
        head.extend(format!("HTTP/1.1 {} Said\r\n", self.status).bytes());
        for (name, value) in &self.headers {
            head.extend(format!("{name}: ").bytes());
            head.extend(value);
            head.extend(b"\r\n");
        }
        match (self.framing, length) {
            (Framing::Chunked, _) => head.extend(b"Transfer-Encoding: chunked\r\n"),
            (Framing::Length, Some(length)) => {
                head.extend(format!("Content-Length: {length}\r\n").bytes());
            }
            (Framing::Close, _) => head.extend(b"Connection: close\r\n"),
            (Framing::Length, None) => {}
        }
        head.extend(b"\r\n");
        head
    }

    fn write(
        &self,
        received: &Received,
        number: usize,
        stream: &mut &TcpStream,
    ) -> io::Result<bool> {
        let named = || json!({"effect": number, "of": received.name()}).to_string();
        let body = self.body.clone().unwrap_or_else(|| named().into_bytes());
        let length = body.len() as u64 + self.long;
        let has_body = received.method != "HEAD" && !matches!(self.status, 204 | 304);
        let mut first = self.head((has_body || length > 0).then_some(length));
        let chunked = self.framing == Framing::Chunked;
        if !has_body {
            stream.write_all(&first)?;
            return Ok(true);
        }
        put(&mut first, &body, chunked);
        stream.write_all(&first)?;
        let mut at = 0;
        while at < self.long {
            let size = PIECE.min(usize::try_from(self.long - at).unwrap_or(PIECE));
            let mut piece = Vec::with_capacity(size + 16);
            put(&mut piece, run_of(at, size), chunked);
            stream.write_all(&piece)?;
            at += size as u64;
        }
        if chunked {
            let mut end = b"0\r\n".to_vec();
            end.extend(&self.trailers);
            end.extend(b"\r\n");
            stream.write_all(&end)?;
        }
        Ok(self.framing != Framing::Close)
    }
}

fn put(bytes: &mut Vec<u8>, piece: &[u8], chunked: bool) {
    if !chunked {
        bytes.extend(piece);
    } else if !piece.is_empty() {
        bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
        bytes.extend(piece);
        bytes.extend(b"\r\n");
    }
}
