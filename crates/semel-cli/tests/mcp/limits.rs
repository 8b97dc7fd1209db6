//! Where the rule is known to be wrong: the documentation names each of these.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::desk::Era;
use crate::http::Address;
use crate::matrix::order;
use crate::server::wait_until;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::Client;

/// How often the gateway is killed right after an answer: it stores the mark a moment later, and a machine that is
/// busy with other things may let it come first.
const KILLS_MAX: usize = 50;

/// A client that gives up without a word, on a connection that lives, or whose host lost the answer, looks like one
/// that has its result and wants another.
#[test]
fn a_client_that_gives_up_silently_is_taken_for_a_new_wish() {
    let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, Era::Legacy);
    setup.desk.next_fault("hold");
    let mut client = setup.client();
    let given_up = client.start("charge", &order(), &json!({}));
    setup.desk.wait_for_effects(1);
    setup.desk.release();
    // The answer comes, and nobody in the client looks at it any more.
    client.hear(given_up);
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Outcome("charge 2".to_owned()));
    assert_eq!(setup.desk.effects(), 2, "{setup}");
}

/// A gateway that crashes before it stored that an answer arrived takes the next identical call for a retry. It says
/// so, and the one after that runs.
#[test]
fn a_crash_before_the_mark_swallows_one_repeat_and_says_so() {
    for _ in 0..KILLS_MAX {
        let mut setup = Setup::new(Way::Gateway(Carrier::Http), Carrier::Http, Era::Modern);
        let mut client = setup.client();
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
        setup.kill_gateway(&mut client);
        let marked = setup.records()[0]["delivery"] == "delivered";
        let mut client = setup.client();
        let heard = client.call("charge", &order());
        if marked {
            assert_eq!(told(&heard), Told::Outcome("charge 2".to_owned()));
            continue;
        }
        assert_eq!(told(&heard), Told::Outcome("charge 1".to_owned()));
        let said = heard.result()["content"][1]["text"].to_string();
        assert!(said.contains("nothing was done now"), "{heard:?}");
        let heard = client.call("charge", &order());
        assert_eq!(told(&heard), Told::Outcome("charge 2".to_owned()));
        assert_eq!(setup.desk.effects(), 2);
        return;
    }
    panic!("the mark was always stored before the gateway was killed");
}

/// What stands between and takes the answer has it acknowledged: its client, which never gets it, looks like one that
/// did.
#[test]
fn what_an_intermediary_took_counts_as_received() {
    let setup = Setup::new(Way::Gateway(Carrier::Http), Carrier::Http, Era::Modern);
    let between = Between::new(setup.address().expect("it listens"));
    let mut client = Client::http(&between.address(), setup.era, &json!({}));
    between.keeps.store(true, Ordering::Relaxed);
    let given_up = client.start("charge", &order(), &json!({}));
    wait_until("the answer was received", || {
        let records = setup.records();
        records
            .first()
            .is_some_and(|it| it["delivery"] == "delivered")
    });
    drop(given_up);
    between.keeps.store(false, Ordering::Relaxed);
    let heard = client.call("charge", &order());
    assert_eq!(told(&heard), Told::Outcome("charge 2".to_owned()));
    assert_eq!(setup.desk.effects(), 2);
}

/// Passes connections on, and keeps what is answered where it is told to.
struct Between {
    listener: TcpListener,
    keeps: Arc<AtomicBool>,
}

impl Between {
    fn new(target: Address) -> Self {
        let Address::Tcp(target) = target else {
            panic!("{target:?} is no port");
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let keeps = Arc::new(AtomicBool::new(false));
        let between = Self { listener, keeps };
        let (listener, keeps) = (
            between.listener.try_clone().expect("it can be shared"),
            Arc::clone(&between.keeps),
        );
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                pass_on(client, target, &keeps);
            }
        });
        between
    }

    fn address(&self) -> Address {
        Address::Tcp(self.listener.local_addr().expect("it has one"))
    }
}

/// Passes on what is said on a connection until one side ends it.
fn pass_on(client: TcpStream, target: SocketAddr, keeps: &Arc<AtomicBool>) {
    let server = TcpStream::connect(target).expect("somebody listens");
    let keeps = Arc::clone(keeps);
    let pump = |mut from: TcpStream, mut to: TcpStream, is_kept: Box<dyn Fn() -> bool + Send>| {
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if !is_kept() && to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            // The other side may have ended as well.
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    let again = |stream: &TcpStream| stream.try_clone().expect("it can be shared");
    pump(again(&client), again(&server), Box::new(|| false));
    let kept = Box::new(move || keeps.load(Ordering::Relaxed));
    pump(server, client, kept);
}
