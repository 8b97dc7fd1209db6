//! A small blocking HTTP/1.1 client that also says what no client should.
//!
//! It knows nothing of the server's own HTTP code, sends exactly the bytes that it is given, and never sends
//! anything twice by itself.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take: far beyond the slowest machine, so that a hang fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The longest line of a head that is read.
const LINE_MAX: u64 = 64 * 1024;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection's two ends are one socket.
trait Socket: Read + Write + Send {
    fn finish_writing(&self) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn finish_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Socket for UnixStream {
    fn finish_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// One connection.
pub(crate) struct Connection {
    socket: BufReader<Box<dyn Socket>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn open(address: &Address) -> io::Result<Self> {
        let socket: Box<dyn Socket> = match address {
            Address::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Box::new(socket)
            }
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Box::new(socket)
            }
        };
        Ok(Self {
            socket: BufReader::new(socket),
        })
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let socket = self.socket.get_mut();
        socket.write_all(bytes)?;
        socket.flush()
    }

    /// Says that nothing more will be sent, while it still listens.
    pub(crate) fn finish_writing(&self) -> io::Result<()> {
        self.socket.get_ref().finish_writing()
    }

    /// Reads one whole answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head = self.head()?;
        self.rest(head)
    }

    /// Reads the body of an answer whose head was read.
    pub(crate) fn rest(&mut self, mut answer: Answer) -> io::Result<Answer> {
        answer.body = match answer.framing()? {
            Framing::Length(length) => {
                let mut body = vec![0; length];
                self.socket.read_exact(&mut body)?;
                body
            }
            Framing::Chunks => {
                let mut body = vec![];
                while let Some(chunk) = self.chunk()? {
                    body.extend(chunk);
                }
                body
            }
            Framing::UntilClosed => {
                let mut body = vec![];
                self.socket.read_to_end(&mut body)?;
                body
            }
        };
        Ok(answer)
    }

    /// Reads the head of an answer; what is provisional is passed over.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        loop {
            let line = self.line()?;
            let status = line
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3))
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| bad(format!("no status line: {line:?}")))?;
            let mut headers = vec![];
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line
                    .split_once(':')
                    .ok_or_else(|| bad(format!("no header: {line:?}")))?;
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            if status >= 200 {
                return Ok(Answer {
                    status,
                    headers,
                    body: vec![],
                });
            }
        }
    }

    /// Reads a chunk of a body; none after the last one.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|error| bad(format!("no size of a chunk: {line:?}: {error}")))?;
        if size == 0 {
            // Trailers end with an empty line.
            while !self.line()?.is_empty() {}
            return Ok(None);
        }
        let mut chunk = vec![0; size];
        self.socket.read_exact(&mut chunk)?;
        let end = self.line()?;
        if end.is_empty() {
            Ok(Some(chunk))
        } else {
            Err(bad(format!("a chunk goes on: {end:?}")))
        }
    }

    /// Waits until the server has closed the connection; whatever it says until then is an error.
    pub(crate) fn closed(&mut self) -> io::Result<()> {
        let mut rest = vec![];
        match self.socket.read_to_end(&mut rest) {
            Err(error) if was_cut(&error) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        if rest.is_empty() {
            Ok(())
        } else {
            let rest = String::from_utf8_lossy(&rest).into_owned();
            Err(bad(format!("the server went on: {rest}")))
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = vec![];
        let mut limited = (&mut self.socket).take(LINE_MAX);
        limited.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            let kind = ErrorKind::UnexpectedEof;
            let text = String::from_utf8_lossy(&line).into_owned();
            return Err(io::Error::new(kind, format!("half a line: {text:?}")));
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).map_err(|error| bad(error.to_string()))
    }
}

/// Says whether the other side went away, rather than being silent.
pub(crate) fn was_cut(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
    )
}

fn bad(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

enum Framing {
    Length(usize),
    Chunks,
    UntilClosed,
}

/// What a server answered.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "{}", String::from_utf8_lossy(&self.body))
    }
}

impl Answer {
    /// Returns a header by its name in small letters; two of one name are an error of the server.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice: {self:?}");
        first
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Expects this status, and returns the body as JSON.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        self.json()
    }

    /// Expects an RFC 9457 problem with this status and code, and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{code} expected: {self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        for text in ["type", "title", "detail"] {
            let said = problem[text].as_str().unwrap_or_default();
            assert!(!said.is_empty(), "{text} is missing: {self:?}");
        }
        let hint = problem.get("hint").expect("there is a hint, or null");
        assert!(hint.is_string() || hint.is_null(), "{self:?}");
        let page = problem["type"].as_str().unwrap_or_default();
        assert!(page.ends_with(&format!("/errors/{code}")), "{self:?}");
        let retryable = matches!(
            code,
            "in_flight" | "breaker_open" | "store_unavailable" | "rate_limited"
        );
        assert_eq!(problem["retryable"], retryable, "{self:?}");
        if retryable {
            let seconds = self
                .header("retry-after")
                .and_then(|text| text.parse().ok());
            assert!(seconds.is_some_and(|seconds: u64| seconds > 0), "{self:?}");
        }
        problem
    }

    fn framing(&self) -> io::Result<Framing> {
        if matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        let find = |name: &str| {
            let mut headers = self.headers.iter();
            headers.find_map(|(other, value)| (other == name).then_some(value))
        };
        match (find("content-length"), find("transfer-encoding")) {
            (Some(length), None) => length
                .parse()
                .map(Framing::Length)
                .map_err(|error| bad(format!("{length}: {error}"))),
            (None, Some(coding)) if coding == "chunked" => Ok(Framing::Chunks),
            (None, None) => Ok(Framing::UntilClosed),
            (length, coding) => Err(bad(format!("unclear framing: {length:?}, {coding:?}"))),
        }
    }
}

/// A request that is put together piece by piece.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Asked {
    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn post(target: &str, body: &Value) -> Self {
        let asked = Self::new("POST", target).header("Content-Type", "application/json");
        asked.body(body.to_string().as_bytes())
    }

    pub(crate) fn new(method: &'static str, target: &str) -> Self {
        Self {
            method,
            target: target.to_owned(),
            headers: vec![],
            body: vec![],
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// Returns the bytes of the request. `Host` is what a well-behaved client says, unless one was given.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.has("host") {
            head.push_str("Host: localhost\r\n");
        }
        if self.method != "GET" && !self.has("content-length") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(&self.body);
        bytes
    }

    fn has(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(other, _)| other.eq_ignore_ascii_case(name))
    }
}

/// Writes a text so that it can be one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut written, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            written.push(char::from(byte));
        } else {
            write!(written, "%{byte:02X}").expect("a text takes everything");
        }
        written
    })
}
