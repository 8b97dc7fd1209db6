//! C. Crashes, stores that fail, and clients that leave.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::process::Signal;
use semel::store::sqlite::SqliteStore;

use crate::harness::World;
use crate::http::Address;
use crate::server::wait_until;
use crate::setup::{Setup, fresh, is_replay, keyed, refused, replay_of};
use crate::upstream::Upstream;

/// Connects by hand, for what no client does.
fn connect(setup: &Setup) -> TcpStream {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    TcpStream::connect(address).expect("it listens")
}

/// An upstream of TLS that takes connections and says nothing: a claim is made, and no byte of the request leaves.
#[test]
fn c035_c040_a_proxy_that_dies_before_it_sends_leaves_a_doubt() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address: SocketAddr = listener.local_addr().expect("it has an address");
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let words = ["--upstream".to_owned(), format!("https://{address}")];
    let mut setup = Setup::on(world, upstream, words.to_vec());
    let waiting = setup.begin(&keyed("k"));
    let (mut silent, _) = listener.accept().expect("it is connected to");
    let mut first = [0; 1];
    silent.read_exact(&mut first).expect("it says hello");
    assert_eq!(first, [22], "a handshake begins so");
    setup.crash();
    drop((waiting, silent));
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
}

/// The claim is there when the first byte of the request is.
#[test]
fn c040_a_claim_is_durable_before_the_first_byte_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address: SocketAddr = listener.local_addr().expect("it has an address");
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let words = ["--upstream".to_owned(), format!("http://{address}")];
    let mut setup = Setup::on(world, upstream, words.to_vec());
    let waiting = setup.begin(&keyed("k"));
    let (mut taken, _) = listener.accept().expect("it is connected to");
    let mut first = [0; 1];
    taken.read_exact(&mut first).expect("it says something");
    setup.proxy_mut().kill();
    assert_eq!(setup.records().len(), 1);
    setup.start_again();
    drop((waiting, taken));
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
}

#[test]
fn c036_a_proxy_that_dies_after_the_effect_leaves_a_doubt() {
    let mut setup = Setup::new();
    let gate = setup.upstream.holds();
    let waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    setup.crash();
    drop(waiting);
    for _ in 0..2 {
        refused(&setup.ask(keyed("k")), 409, "in_doubt");
    }
    gate.open();
    refused(&setup.ask(keyed("k")), 409, "in_doubt");
    assert_eq!(setup.effects(), 1);
    // Other keys are nobody's business.
    fresh(&setup.ask(keyed("other")), 201);
}

#[test]
fn c037_an_answer_that_was_recorded_is_told_by_whoever_comes_next() {
    let mut setup = Setup::new();
    let unread = setup.begin(&keyed("k"));
    setup.wait_for_state("succeeded");
    setup.crash();
    drop(unread);
    let told = setup.ask(keyed("k"));
    assert_eq!(told.status, 201, "{told:?}");
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(setup.effects(), 1);
}

/// Locks the store, as another process may, while something is done.
fn while_locked<T>(setup: &Setup, work: impl FnOnce() -> T) -> T {
    let store = SqliteStore::open(setup.world.path("data/semel.db")).expect("the store opens");
    let mut connection = store.connect().expect("it can be connected to");
    let transaction = store.transaction(&mut connection).expect("it is our turn");
    let done = work();
    drop(transaction);
    done
}

#[test]
fn c052_an_answer_that_cannot_be_stored_is_told_and_marked() {
    let setup = Setup::new();
    fresh(&setup.ask(keyed("before")), 201);
    let gate = setup.upstream.holds();
    let mut waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(2);
    let answer = while_locked(&setup, || {
        gate.open();
        waiting.answer().expect("it is answered")
    });
    fresh(&answer, 201);
    assert_eq!(
        answer.header("idempotency-stored"),
        Some("false"),
        "{answer:?}"
    );
    assert_eq!(answer.json()["effect"], 2, "{answer:?}");
    // Whether it could be stored later or not: it is not done again.
    let again = setup.ask(keyed("k"));
    if is_replay(&again) {
        assert_eq!(again.body, answer.body, "{again:?}");
    } else {
        refused(&again, 409, "in_doubt");
    }
    assert_eq!(setup.upstream.effects_of("k"), 1);
}

#[test]
fn c053_without_its_store_nothing_is_sent() {
    let setup = Setup::new();
    fresh(&setup.ask(keyed("before")), 201);
    let answer = while_locked(&setup, || setup.ask(keyed("k")));
    refused(&answer, 503, "store_unavailable");
    assert_eq!(setup.upstream.effects_of("k"), 0);
    fresh(&setup.ask(keyed("k")), 201);
    assert_eq!(setup.upstream.effects_of("k"), 1);
}

#[test]
fn c054_a_client_that_leaves_changes_nothing() {
    let setup = Setup::new();
    let gate = setup.upstream.holds();
    let waiting = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    drop(waiting);
    // Somebody else is served meanwhile, so the proxy had the time to see it.
    fresh(&setup.ask(keyed("other")), 201);
    gate.open();
    setup_settles(&setup, 2);
    let told = setup.ask(keyed("k"));
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(
        (told.status, told.json()["effect"].clone()),
        (201, 1.into()),
        "{told:?}"
    );
    assert_eq!(setup.effects(), 2);
}

/// Waits until so many operations have succeeded.
#[track_caller]
fn setup_settles(setup: &Setup, count: usize) {
    wait_until("all have their outcome", || {
        setup.states() == vec!["succeeded".to_owned(); count]
    });
}

#[test]
fn c055_a_proxy_that_is_told_to_stop_finishes_what_it_began() {
    let mut setup = Setup::new();
    let gates = [setup.upstream.holds(), setup.upstream.holds()];
    let mut waiting = setup.begin(&keyed("waits"));
    setup.upstream.wait_for_effects(1);
    let left = setup.begin(&keyed("left"));
    setup.upstream.wait_for_effects(2);
    drop(left);
    setup.proxy().signal(Signal::TERM);
    let address = setup.proxy().address().clone();
    wait_until("nobody new is let in", || {
        crate::http::Connection::open(&address).is_err()
    });
    for gate in gates {
        gate.open();
    }
    let answer = waiting.answer().expect("it is answered");
    fresh(&answer, 201);
    let status = setup.proxy_mut().wait();
    assert!(status.success(), "{status}: {}", setup.proxy().said());
    setup.start_again();
    replay_of(&answer, &setup.ask(keyed("waits")));
    // Nobody waited for this one, and it is recorded all the same.
    let told = setup.ask(keyed("left"));
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(setup.effects(), 2);
}

/// A client that breaks off anywhere in its request, and comes again.
#[test]
fn c056_c078_wherever_a_client_breaks_off_its_next_try_is_the_only_one() {
    let setup = Setup::new();
    let length = keyed("k-000").bytes().len();
    for cut in 0..=length {
        let key = format!("k-{cut:03}");
        let bytes = keyed(&key).bytes();
        let mut stream = connect(&setup);
        stream.write_all(&bytes[..cut]).expect("it is sent");
        drop(stream);
        let answer = setup.ask(keyed(&key));
        assert_eq!(answer.status, 201, "{cut} of {length}: {answer:?}");
        assert_eq!(setup.upstream.effects_of(&key), 1, "{cut} of {length}");
        // Only what is complete is claimed.
        assert!(cut == length || !is_replay(&answer), "{cut}: {answer:?}");
    }
    assert_eq!(setup.effects(), length + 1);
}

/// A client that breaks off anywhere in the answer, and comes again.
#[test]
fn c056_wherever_a_client_stops_to_read_the_answer_is_kept() {
    let setup = Setup::new();
    let whole = {
        let mut stream = connect(&setup);
        let asked = keyed("k-xxx").header("Connection", "close");
        stream.write_all(&asked.bytes()).expect("it is sent");
        let mut answer = vec![];
        stream.read_to_end(&mut answer).expect("it is answered");
        // Where the connection goes on, this is not said.
        answer.len() - "connection: close\r\n".len()
    };
    for stop in (0..=whole).step_by(7) {
        let key = format!("k-{stop:03}");
        let mut stream = connect(&setup);
        stream.write_all(&keyed(&key).bytes()).expect("it is sent");
        let mut some = vec![0; stop];
        stream.read_exact(&mut some).expect("it is answered");
        drop(stream);
        let answer = setup.ask(keyed(&key));
        assert_eq!(answer.status, 201, "{stop}: {answer:?}");
        assert_eq!(setup.upstream.effects_of(&key), 1, "{stop} of {whole}");
    }
}
