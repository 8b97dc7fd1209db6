//! The live stream of events: nothing twice, nothing left out, and very many who listen.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel_testkit::scaled;
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Answer, Asked, Connection, PATIENCE};
use crate::server::Server;

/// How long a server is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(2);

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Event {
    id: Option<String>,
    kind: Option<String>,
    data: String,
}

/// Somebody who listens.
struct Listener {
    connection: Connection,
    unread: String,
}

impl Listener {
    #[track_caller]
    fn open(server: &Server, after: Option<&str>) -> Self {
        let (answer, listener) = Self::try_open(server, after);
        assert_eq!(answer.status, 200, "{answer:?}");
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/event-stream"), "{answer:?}");
        let cache = answer.header("cache-control").unwrap_or_default();
        assert!(
            cache.contains("no-cache") || cache.contains("no-store"),
            "{answer:?}"
        );
        listener
    }

    #[track_caller]
    fn try_open(server: &Server, after: Option<&str>) -> (Answer, Self) {
        let mut asked = Asked::get("/v1/events").header("Accept", "text/event-stream");
        if let Some(after) = after {
            asked = asked.header("Last-Event-ID", after);
        }
        let mut connection = server.connect();
        connection.send(&asked.bytes()).expect("it is sent");
        let answer = connection.head().expect("it is answered");
        let unread = String::new();
        (answer, Self { connection, unread })
    }

    /// Returns the next event; comments are passed over.
    fn next(&mut self) -> io::Result<Event> {
        let end = Instant::now() + PATIENCE;
        // A stream that only says that it is alive does not end by itself.
        while Instant::now() < end {
            while let Some(end) = self.unread.find("\n\n") {
                let block: String = self.unread.drain(..end + 2).collect();
                if let Some(event) = parse(&block) {
                    return Ok(event);
                }
            }
            let chunk = self.connection.chunk()?;
            let chunk = chunk.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.unread.push_str(&String::from_utf8_lossy(&chunk));
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Returns the next event about an operation.
    #[track_caller]
    fn entry(&mut self) -> (String, Value) {
        let event = self.next().expect("there is another event");
        let data: Value =
            serde_json::from_str(&event.data).unwrap_or_else(|error| panic!("{error}: {event:?}"));
        let id = event
            .id
            .clone()
            .unwrap_or_else(|| panic!("no id: {event:?}"));
        for member in [
            "seq",
            "at",
            "namespace",
            "key",
            "command",
            "state",
            "fence",
            "by",
        ] {
            assert!(data.get(member).is_some(), "{member} is missing: {data}");
        }
        (id, data)
    }
}

fn parse(block: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut told = false;
    for line in block.trim_end().lines() {
        let (name, value) = line.split_once(':')?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.kind = Some(value.to_owned()),
            "data" => {
                event.data.push_str(value);
                told = true;
            }
            _ => {}
        }
    }
    told.then_some(event)
}

fn cycle(server: &Server, key: &str) {
    let begin = json!({"key": key, "name": "n", "attempt_id": "a"});
    let granted = server.post("/v1/begin", &begin).expect(200);
    let settle = json!({
        "key": key, "attempt_id": "a", "fence": granted["fence"], "verdict": "done", "ok": true,
        "effect": "created",
    });
    server.post("/v1/settle", &settle).expect(200);
}

#[test]
fn a_stream_tells_every_event_once_and_in_order() {
    let world = World::new();
    let server = Server::start(&world);
    let mut listener = Listener::open(&server, None);
    let keys: Vec<_> = (0..50).map(|number| format!("k-{number}")).collect();
    for key in &keys {
        cycle(&server, key);
    }
    let mut last = 0;
    let mut told = vec![];
    for _ in 0..keys.len() * 2 {
        let (id, entry) = listener.entry();
        let seq = entry["seq"].as_u64().expect("a number");
        assert!(seq > last, "{seq} after {last}");
        assert!(id.contains(&seq.to_string()), "{id}: {entry}");
        last = seq;
        let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
        told.push((text("key"), text("command"), text("state")));
    }
    let expected: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            [("begin", "running"), ("settle", "succeeded")]
                .map(|(command, state)| (key.clone(), command.to_owned(), state.to_owned()))
        })
        .collect();
    assert_eq!(told, expected);
}

/// A listener that is cut off again and again, also by a server that dies, misses nothing and hears nothing
/// twice.
#[test]
fn a_stream_goes_on_where_it_was_cut() {
    let world = World::new();
    let mut server = Server::start(&world);
    cycle(&server, "first");
    let mut listener = Listener::open(&server, Some("0"));
    let (mut last, first) = listener.entry();
    assert_eq!(first["key"], "first", "from the beginning: {first}");
    let mut told = vec![first["seq"].as_u64().expect("a number")];
    for round in 0..6 {
        // Some events come while it listens, some while it is away, some while there is no server.
        cycle(&server, &format!("a-{round}"));
        for _ in 0..2 {
            let (id, entry) = listener.entry();
            told.push(entry["seq"].as_u64().expect("a number"));
            last = id;
        }
        drop(listener);
        cycle(&server, &format!("b-{round}"));
        if round % 2 == 1 {
            server.kill();
            let ran = world.semel(&["run", "--key", &format!("c-{round}"), "--", "true"]);
            assert_eq!(ran.code, 0, "{ran:?}");
            server = Server::start(&world);
        }
        listener = Listener::open(&server, Some(&last));
    }
    cycle(&server, "last");
    loop {
        let (_, entry) = listener.entry();
        told.push(entry["seq"].as_u64().expect("a number"));
        if (&entry["key"], &entry["command"]) == (&json!("last"), &json!("settle")) {
            break;
        }
    }
    let set: BTreeSet<_> = told.iter().copied().collect();
    assert_eq!(told.len(), set.len(), "told twice: {told:?}");
    let log = world.semel(&["log", "--json"]);
    let all: BTreeSet<_> = log
        .json()
        .iter()
        .filter_map(|entry| entry["seq"].as_u64())
        .collect();
    assert_eq!(set, all, "not all, or others");
}

#[test]
fn what_is_no_place_in_the_log_is_refused() {
    let world = World::new();
    let server = Server::start(&world);
    for nonsense in ["x", "-1", "1.5", "99999999999999999999999999", "1 2"] {
        let (answer, _) = Listener::try_open(&server, Some(nonsense));
        assert_eq!(answer.status, 400, "{nonsense}: {answer:?}");
    }
}

/// Where nothing has happened yet there is nothing to tell, and nothing to look for all the time.
#[test]
fn whoever_asks_from_beyond_the_end_disturbs_nobody() {
    let world = World::new();
    let server = Server::start(&world);
    cycle(&server, "before");
    let mut ahead = Listener::open(&server, Some("900000000000000000"));
    let mut others: Vec<_> = (0..8).map(|_| Listener::open(&server, None)).collect();
    let (begun, used) = (Instant::now(), server.cpu());
    std::thread::sleep(IDLE);
    let (passed, used) = (begun.elapsed(), server.cpu() - used);
    assert!(used < passed / 4, "{used:?} of {passed:?} for nothing");
    cycle(&server, "k");
    for listener in others.iter_mut().chain([&mut ahead]) {
        let (_, entry) = listener.entry();
        assert_eq!(entry["key"], "k", "{entry}");
    }
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

/// What a listener may cost: its buffers, and what the system counts for a connection.
const LISTENER_MEMORY_MAX: u64 = 40 * 1024;

/// What a server may have besides its listeners.
const MEMORY_MAX: u64 = 96 * 1024 * 1024;

#[test]
fn a_great_many_idle_listeners_cost_little_and_disturb_nobody() {
    let many = scaled(10_000, 1_000);
    room_for(many + 500);
    let world = World::new();
    let server = Server::start(&world);
    let mut listeners: Vec<_> = (0..many).map(|_| Listener::open(&server, None)).collect();
    for number in 0..100 {
        cycle(&server, &format!("k-{number}"));
    }
    // All are still there and hear the same.
    for listener in &mut listeners {
        let (_, entry) = listener.entry();
        assert_eq!(
            (&entry["key"], &entry["command"]),
            (&json!("k-0"), &json!("begin"))
        );
    }
    let memory = server.memory();
    let most = MEMORY_MAX + many * LISTENER_MEMORY_MAX;
    assert!(memory < most, "{memory} bytes with {many} listeners");
    drop(listeners);
    cycle(&server, "after");
    let files =
        || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count);
    crate::server::wait_until("the streams are closed", || files() < 100);
}
