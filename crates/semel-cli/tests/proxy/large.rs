//! Large bodies, and many streams: what they cost has a limit.

use std::io::{Read, Write as _};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel_testkit::scaled;

use crate::http::{Address, Connection};
use crate::server::Server;
use crate::setup::{Setup, keyed, refused};
use crate::upstream::{PIECE, Reply, Teller, is_run, run_of};

/// How much a body may add to the proxy's memory, whatever its length.
const BODY_MEMORY_MAX: u64 = 64 * 1024 * 1024;

/// What a stream may cost: two connections with their buffers, and what was recorded of it.
const STREAM_MEMORY_MAX: u64 = 128 * 1024;

/// Returns the most memory that the process ever had, in bytes.
fn most_memory(proxy: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid()));
    let status = status.expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.and_then(|text| text.parse::<u64>().ok());
    kilobytes.expect("it has memory") * 1024
}

fn large() -> u64 {
    scaled(1024 * 1024 * 1024, 192 * 1024 * 1024)
}

fn connect(setup: &Setup) -> TcpStream {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    TcpStream::connect(address).expect("it listens")
}

/// Sends a body of a run of bytes under a key, and returns the status of the answer and whether it is a replay.
fn upload(setup: &Setup, key: &str, size: u64) -> (String, bool) {
    let mut stream = connect(setup);
    let head = format!(
        "POST /files HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key}\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is sent");
    let mut at = 0;
    while at < size {
        let piece = PIECE.min(usize::try_from(size - at).unwrap_or(PIECE));
        stream.write_all(run_of(at, piece)).expect("it is sent");
        at += piece as u64;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    let answer = answer.to_ascii_lowercase();
    let status = answer.get(9..12).unwrap_or_default().to_owned();
    (status, answer.contains("idempotent-replayed: true"))
}

#[test]
fn a_large_request_is_passed_on_within_a_limit_of_memory() {
    let setup = Setup::new();
    assert_eq!(setup.ask(keyed("before")).status, 201);
    let before = most_memory(setup.proxy());
    assert_eq!(upload(&setup, "k", large()), ("201".to_owned(), false));
    // It is compared to its end, and not sent again.
    assert_eq!(upload(&setup, "k", large()), ("201".to_owned(), true));
    assert_eq!(upload(&setup, "k", large() - 1), ("422".to_owned(), false));
    let received = setup.upstream.received();
    assert_eq!(received.len(), 2);
    assert_eq!((received[1].length, received[1].is_run), (large(), true));
    let grown = most_memory(setup.proxy()) - before;
    assert!(grown < BODY_MEMORY_MAX, "{grown} bytes more");
}

/// Reads a body of a run of bytes, and returns its length.
fn download(reader: &mut impl Read) -> u64 {
    let mut at = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let count = reader.read(&mut piece).expect("it goes on");
        if count == 0 {
            return at;
        }
        assert!(is_run(at, &piece[..count]), "after {at} bytes");
        at += count as u64;
    }
}

#[test]
fn a_large_answer_is_passed_on_within_a_limit_of_memory() {
    let setup = Setup::new();
    assert_eq!(setup.ask(keyed("before")).status, 201);
    let before = most_memory(setup.proxy());
    setup.upstream.answers(Reply::new(200, "").long(large()));
    let mut stream = connect(&setup);
    let asked = keyed("k").header("Connection", "close");
    stream.write_all(&asked.bytes()).expect("it is sent");
    // The head ends where an empty line does.
    let mut head = vec![];
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("it is answered");
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let length = format!("content-length: {}\r\n", large());
    assert!(head.contains(&length), "{head}");
    assert_eq!(download(&mut stream), large());
    refused(&setup.ask(keyed("k")), 410, "expired");
    let grown = most_memory(setup.proxy()) - before;
    assert!(grown < BODY_MEMORY_MAX, "{grown} bytes more");
    assert_eq!(setup.upstream.effects_of("k"), 1);
}

/// Makes room for so many open files, in this process and in those that it starts.
fn room_for(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < files) {
        let raised = Rlimit {
            current: limit.maximum.map(|most| most.min(files)),
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("it can be raised as far as it may");
    }
    let now = getrlimit(Resource::Nofile).current;
    assert!(
        now.is_none_or(|now| now >= files),
        "this test needs {files} open files (`ulimit -n`), and may have {now:?}"
    );
}

#[test]
fn a_great_many_streams_run_beside_each_other() {
    let many = usize::try_from(scaled(2_000, 300)).expect("it is small");
    // A client's end, and two of the upstream's.
    room_for(many as u64 * 4 + 500);
    let setup = Setup::new();
    assert_eq!(setup.ask(keyed("before")).status, 201);
    let before = most_memory(setup.proxy());
    let kind = "text/event-stream";
    let tellers: Vec<Teller> = (0..many).map(|_| setup.upstream.streams(kind)).collect();
    let mut readers: Vec<Connection> = (0..many)
        .map(|number| {
            let mut connection = setup.begin(&keyed(&format!("k-{number}")));
            let head = connection.head().expect("it is answered");
            assert_eq!(head.status, 200, "{head:?}");
            connection
        })
        .collect();
    let say = |text: &str| tellers.iter().for_each(|teller| teller.say(text));
    // Each hears the first before the second is said.
    for text in ["data: 1\n\n", "data: 2\n\n"] {
        say(text);
        for reader in &mut readers {
            let heard = reader.chunk().expect("it goes on");
            assert_eq!(heard.as_deref(), Some(text.as_bytes()));
        }
    }
    let grown = most_memory(setup.proxy()) - before;
    let most = BODY_MEMORY_MAX + many as u64 * STREAM_MEMORY_MAX;
    assert!(grown < most, "{grown} bytes more with {many} streams");
    for teller in tellers {
        teller.end();
    }
    for reader in &mut readers {
        assert_eq!(reader.chunk().expect("it ends well"), None);
    }
    drop(readers);
    let replay = setup.ask(keyed("k-0"));
    assert_eq!(replay.body, b"data: 1\n\ndata: 2\n\n");
    assert_eq!(setup.effects(), many + 1);
}
