//! A small HTTP server that tasks are sent to. It knows nothing of Semel, and counts what it gets by the key.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use tokio::net::TcpSocket;
use tokio::runtime::Builder;

/// How a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// With this status, these lines of headers and this body.
    Status(u16, &'static str, &'static str),
    /// It is taken, and the connection is closed without a word.
    Close,
    /// The answer ends before its end.
    Cut,
    /// Not at all, while the sender lives.
    Never,
}

impl Reply {
    pub(crate) const DONE: Self = Self::Status(200, "", "{\"sent\": true}");
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Got {
    /// The key, without the quotes that some have.
    pub(crate) fn key(&self) -> &str {
        self.headers["idempotency-key"].trim_matches('"')
    }
}

/// A port that nobody else gets, and at which nobody listens yet.
pub(crate) struct Reserved(TcpSocket);

impl Reserved {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("there is a port");
        Self(socket)
    }

    pub(crate) fn url(&self) -> String {
        let address = self.0.local_addr().expect("it has one");
        format!("http://{address}/")
    }

    pub(crate) fn listen(self) -> TcpListener {
        let runtime = Builder::new_current_thread().enable_io().build();
        let runtime = runtime.expect("there is a runtime");
        let listener = runtime.block_on(async { self.0.listen(64)?.into_std() });
        let listener = listener.expect("it listens");
        listener.set_nonblocking(false).expect("it is ours");
        listener
    }
}

type Answers = dyn Fn(&Got, usize) -> Reply + Send + Sync;

/// What tasks are sent to. It answers a request by what it is and by how often its key has come.
pub(crate) struct Target {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Target {
    pub(crate) fn start(answers: impl Fn(&Got, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        Self::start_at(listener, answers)
    }

    pub(crate) fn start_at(
        listener: TcpListener,
        answers: impl Fn(&Got, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("it has one");
        let got = Arc::new(Mutex::new(vec![]));
        let (ours, answers): (_, Arc<Answers>) = (Arc::clone(&got), Arc::new(answers));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (got, answers) = (Arc::clone(&ours), Arc::clone(&answers));
                let stream = stream.expect("it was accepted");
                thread::spawn(move || serve(stream, &got, &*answers));
            }
        });
        Self { address, got }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?team=a", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        locked(&self.got).clone()
    }

    /// How often each key has come.
    pub(crate) fn by_key(&self) -> BTreeMap<String, usize> {
        let mut keys = BTreeMap::new();
        for got in locked(&self.got).iter() {
            *keys.entry(got.key().to_owned()).or_default() += 1;
        }
        keys
    }
}

fn locked(got: &Mutex<Vec<Got>>) -> MutexGuard<'_, Vec<Got>> {
    got.lock().expect("nobody panics with it")
}

fn serve(mut stream: TcpStream, got: &Mutex<Vec<Got>>, answers: &Answers) {
    // Whoever only looks whether somebody is there sends nothing.
    let Some(request) = read(&stream) else {
        return;
    };
    let times = {
        let mut got = locked(got);
        got.push(request.clone());
        got.iter().filter(|it| it.key() == request.key()).count()
    };
    let answer = match answers(&request, times) {
        Reply::Status(status, headers, body) => {
            let length = body.len();
            format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n{body}")
        }
        Reply::Cut => "HTTP/1.1 200 Said\r\ncontent-length: 9\r\n\r\n{\"s".to_owned(),
        Reply::Close => return,
        Reply::Never => {
            // Ends when the sender does.
            drop(stream.read_to_end(&mut vec![]));
            return;
        }
    };
    // The sender may be gone.
    drop(stream.write_all(answer.as_bytes()));
}

fn read(stream: &TcpStream) -> Option<Got> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = BTreeMap::new();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let size = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; size];
    reader.read_exact(&mut body).ok()?;
    Some(Got {
        line: line.trim_end().to_owned(),
        headers,
        body: String::from_utf8(body).ok()?,
        at: Instant::now(),
    })
}
