//! How a server starts, says where it listens, and ends.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Address, Asked, Connection};
use crate::server::{Server, wait_until};

/// Opens a stream of events and reads its head.
fn listener(server: &Server) -> Connection {
    let mut connection = server.connect();
    let asked = Asked::get("/v1/events").header("Accept", "text/event-stream");
    connection.send(&asked.bytes()).expect("it is sent");
    assert_eq!(connection.head().expect("it is answered").status, 200);
    connection
}

/// Sends the first half of a request.
fn half(server: &Server, key: &str) -> (Connection, Vec<u8>) {
    let bytes = Asked::post("/v1/begin", &json!({"key": key, "name": "n"})).bytes();
    let (first, second) = bytes.split_at(bytes.len() - 5);
    let mut connection = server.connect();
    connection.send(first).expect("it is sent");
    (connection, second.to_vec())
}

#[test]
fn told_to_end_it_finishes_what_it_has_and_ends_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = World::new();
        let mut server = Server::start(&world);
        let mut stream = listener(&server);
        let mut idle = server.connect();
        idle.send(&Asked::get("/healthz").bytes())
            .expect("it is sent");
        assert_eq!(idle.answer().expect("it is answered").status, 200);
        server
            .post("/v1/begin", &json!({"key": "held", "name": "n"}))
            .expect(200);
        let mut waiting = server.connect();
        let wait = json!({"key": "held", "name": "n", "attempt_id": "b", "wait_ms": 600_000});
        waiting
            .send(&Asked::post("/v1/begin", &wait).bytes())
            .expect("it is sent");
        let (mut busy, rest) = half(&server, "busy");
        // All have been heard: a later request on another connection was answered.
        server.get("/healthz");
        server.signal(signal);
        // Nobody else gets in.
        wait_until("it takes no more connections", || {
            Connection::open(server.address()).is_err()
        });
        // What was under way is finished.
        busy.send(&rest).expect("it is sent");
        let answer = busy.answer().expect("it is answered");
        assert_eq!(answer.expect(200)["decision"], "execute", "{answer:?}");
        // Whoever only waits is told to come back; whoever listens sees the end of the stream.
        if let Ok(answer) = waiting.answer() {
            assert!(matches!(answer.status, 409 | 503), "{answer:?}");
        }
        while stream
            .chunk()
            .expect("the stream is ended as it should be")
            .is_some()
        {}
        idle.closed().expect("it is closed");
        let status = server.wait();
        assert_eq!(status.code(), Some(0), "{}", server.said());
        let server = Server::start(&world);
        let record = server.get("/v1/operations/busy").expect(200);
        assert_eq!(record["state"], "running", "what was answered is stored");
    }
}

/// A second signal is for those who do not want to wait: with this much time to drain it would be long.
#[test]
fn told_twice_it_ends_at_once() {
    let world = World::new();
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Server::spawn(command.env("SEMEL_SERVE_DRAIN", "1h"));
    let (_busy, _) = half(&server, "busy");
    server.get("/healthz");
    server.signal(Signal::TERM);
    wait_until("it takes no more connections", || {
        Connection::open(server.address()).is_err()
    });
    assert!(server.runs(), "it waits for what is under way");
    server.signal(Signal::TERM);
    let status = server.wait();
    assert_ne!(
        status.code(),
        Some(0),
        "it did not finish: {}",
        server.said()
    );
}

/// Whoever never finishes does not keep the server from ending.
#[test]
fn draining_has_an_end() {
    let world = World::new();
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Server::spawn(command.env("SEMEL_SERVE_DRAIN", "1s"));
    let (_busy, _) = half(&server, "busy");
    let _deaf = listener(&server);
    server.get("/healthz");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
}

#[test]
fn a_port_that_is_taken_is_said_and_free_again_after_a_crash() {
    let world = World::new();
    let mut server = Server::start(&world);
    let address = format!("127.0.0.1:{}", server.port());
    let other = World::new();
    let mut command = other.command(&["serve", "--listen", &address]);
    let (status, said) = Server::try_spawn(&mut command)
        .map(|_| "it listens")
        .expect_err("it is taken");
    assert!(!status.success(), "{said}");
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
    // Connections that were cut by the crash keep nobody from the port.
    let _open: Vec<_> = (0..8).map(|_| listener(&server)).collect();
    server.kill();
    let server = Server::spawn(&mut world.command(&["serve", "--listen", &address]));
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn an_address_that_is_none_is_refused() {
    let world = World::new();
    for listen in [
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        ":7363",
        "unix:",
        "",
        "localhost",
    ] {
        let mut command = world.command(&["serve", "--listen", listen]);
        let ended = Server::try_spawn(&mut command);
        let (status, said) = ended.map(|_| "it listens").expect_err(listen);
        assert_eq!(status.code(), Some(64), "{listen:?}: {said}");
        assert!(
            said.contains(if listen.is_empty() { "listen" } else { listen }),
            "{said}"
        );
    }
    // An address of another machine can be written and not be had.
    let mut command = world.command(&["serve", "--listen", "192.0.2.1:7363"]);
    let ended = Server::try_spawn(&mut command);
    let (status, said) = ended.map(|_| "it listens").expect_err("it is elsewhere");
    assert!(!status.success(), "{said}");
}

#[test]
fn a_unix_socket_is_its_owners_and_never_taken_from_another() {
    let world = World::new();
    let path = world.path("semel.sock");
    let listen = format!("unix:{}", path.display());
    let start = || Server::try_spawn(&mut world.command(&["serve", "--listen", &listen]));
    let mut first = start().expect("it listens");
    assert_eq!(*first.address(), Address::Unix(path.clone()));
    let mode = std::fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may use it");
    let begin = json!({"key": "k", "name": "n", "attempt_id": "a"});
    first.post("/v1/begin", &begin).expect(200);
    let (status, said) = start().map(|_| "it listens").expect_err("it is in use");
    assert!(!status.success(), "{said}");
    assert!(said.contains("another server listens there"), "{said}");
    // The one that was there first still is.
    first.post("/v1/begin", &begin).expect(200);
    // What a crash leaves behind keeps nobody out.
    first.kill();
    assert!(path.exists());
    let mut second = start().expect("it listens");
    second.post("/v1/begin", &begin).expect(200);
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code(), Some(0));
    assert!(!path.exists(), "it cleans up");
    // Something else is not cleared away.
    std::fs::write(&path, "precious").expect("it can be written");
    let (status, said) = start().map(|_| "it listens").expect_err("it is no socket");
    assert!(!status.success(), "{said}");
    let kind = std::fs::metadata(&path).expect("it is there").file_type();
    assert!(kind.is_file() && !kind.is_socket());
    assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
}

#[test]
fn logs_are_json_unless_a_person_reads_them() {
    let world = World::new();
    let mut server = Server::start(&world);
    server
        .post("/v1/begin", &json!({"key": "k", "name": "n"}))
        .expect(200);
    server.get("/v1/operations/%ff");
    server.signal(Signal::TERM);
    server.wait();
    let said = server.said();
    assert!(!said.is_empty());
    for line in said.lines() {
        let parsed: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(parsed["message"].is_string(), "{line}");
    }
    // A terminal gets a line for people.
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there is a terminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is open");
    let name = ptsname(&terminal, vec![]).expect("it has a name");
    let name = name.to_str().expect("it is text");
    let side = || {
        File::options()
            .read(true)
            .write(true)
            .open(name)
            .expect("it opens")
    };
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(side())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(File::from(terminal))
        .read_line(&mut line)
        .expect("it says something");
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    let told = line.contains("listening") && line.contains("http://127.0.0.1:");
    assert!(told && !line.starts_with('{'), "{line:?}");
}

#[test]
fn settings_of_the_server_say_where_they_came_from() {
    let world = World::new();
    std::fs::write(
        world.path("semel.toml"),
        "[serve]\nlisten = '127.0.0.1:4711'\n",
    )
    .expect("it can be written");
    let shown = |origin: &str| {
        let mut command = world.command(&["config", "show", "--json"]);
        if origin.starts_with("environment") {
            command.env("SEMEL_SERVE_LISTEN", "127.0.0.1:4712");
        }
        let ran = world.run(&mut command);
        let lines = ran.json();
        let line = lines.iter().find(|line| line["name"] == "serve.listen");
        let line = line.unwrap_or_else(|| panic!("serve.listen is not shown: {ran:?}"));
        assert_eq!(line["origin"], origin, "{line}");
        line["value"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(shown("file semel.toml"), "127.0.0.1:4711");
    assert_eq!(shown("environment SEMEL_SERVE_LISTEN"), "127.0.0.1:4712");
    std::fs::remove_file(world.path("semel.toml")).expect("it was there");
    assert_eq!(shown("default"), "127.0.0.1:7363");
    std::fs::write(
        world.path("semel.toml"),
        "[serve]\nlisen = '127.0.0.1:4711'\n",
    )
    .expect("it can be written");
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let (status, said) = Server::try_spawn(&mut command)
        .map(|_| "it listens")
        .expect_err("there is no such setting");
    assert_eq!(status.code(), Some(64), "{said}");
    assert!(
        said.contains("lisen") && said.contains("serve.listen"),
        "{said}"
    );
    std::fs::write(world.path("semel.toml"), "auth = 'sometimes'\n").expect("it can be written");
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    let (status, said) = Server::try_spawn(&mut command)
        .map(|_| "it listens")
        .expect_err("there is no such value");
    assert_eq!(status.code(), Some(64), "{said}");
    assert!(said.contains("required"), "{said}");
}
