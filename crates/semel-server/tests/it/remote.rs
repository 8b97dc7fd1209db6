//! Remote engines on a real server: the behavioural half of the conformance suite, and what is not an
//! engine's call.

use std::net::SocketAddr;
use std::sync::Arc;

use semel::remote::RemoteStore;
use semel::store::{Pending, Store, StoreError};
use semel::{Admission, Effect, Engine, Key, Request};
use semel_server::{Auth, Config, Listen, Service, Stop};
use semel_testkit::conformance::{self, Bed, ManualClock, SqliteBed};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// A server that is stopped with its handle.
#[derive(Debug)]
struct Running {
    url: String,
    stop: Stop,
    serving: JoinHandle<bool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

async fn start(store: Arc<dyn Store>, address: SocketAddr, auth: Auth) -> Running {
    let engine = Engine::builder().store(store).sweep_every(None);
    let engine = engine.start().await.expect("the engine starts");
    let mut config = Config::new(Listen::Tcp(address));
    config.auth = auth;
    let service = Service::open(engine, config).await.expect("it listens");
    Running {
        url: service.address().to_owned(),
        stop: service.stopper(),
        serving: tokio::spawn(service.run()),
    }
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A store behind a server.
#[derive(Debug)]
struct ServedBed {
    behind: SqliteBed,
    server: OnceCell<Running>,
}

impl Bed for ServedBed {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let begin = async || start(self.behind.open().await, anywhere(), Auth::Loopback).await;
            let server = self.server.get_or_init(begin).await;
            let store = RemoteStore::open(&server.url, None).await;
            Arc::new(store.expect("the server answers").with_notes(None)) as Arc<dyn Store>
        })
    }

    fn clock(&self) -> &Arc<ManualClock> {
        self.behind.clock()
    }
}

fn served() -> Arc<dyn Bed> {
    Arc::new(ServedBed {
        behind: SqliteBed::new(&Arc::new(ManualClock::default())),
        server: OnceCell::new(),
    })
}

macro_rules! conforms {
    ($($group:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $group() {
            conformance::run(conformance::$group::BEHAVIOUR, served).await;
        })*
    };
}

conforms![commits, payloads, lists, logs, crowds, handles, kin];

fn request() -> Request {
    Request::new("create-order", Key::new("order-7").expect("a valid key"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_outlives_the_restart_of_its_server() {
    let bed = SqliteBed::new(&Arc::new(ManualClock::default()));
    let mut server = start(bed.open().await, anywhere(), Auth::Loopback).await;
    let store = RemoteStore::open(&server.url, None).await;
    let store = store.expect("the server answers").with_notes(None);
    let engine = Engine::builder().store(Arc::new(store)).start().await;
    let engine = engine.expect("the engine starts");
    let Ok(Admission::Execute(permit)) = engine.begin(request()).await else {
        panic!("nobody else was there");
    };
    server.stop.stop();
    assert!((&mut server.serving).await.expect("it ends"), "it drains");
    let address = server.url.trim_start_matches("http://").parse();
    let report = tokio::spawn(permit.done(Effect::Created, "x"));
    let address = address.expect("an address");
    let _server = start(bed.open().await, address, Auth::Loopback).await;
    let receipt = report.await.expect("it ends").expect("it is stored");
    assert_eq!((receipt.ok, receipt.attempt), (true, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_shows_no_token_where_one_is_needed_is_not_let_in() {
    let bed = SqliteBed::new(&Arc::new(ManualClock::default()));
    let server = start(bed.open().await, anywhere(), Auth::Required).await;
    for token in [None, Some("semel_nobody")] {
        let refused = RemoteStore::open(&server.url, token).await;
        let unauthorized = matches!(refused, Err(StoreError::Unauthorized(_)));
        assert!(unauthorized, "{refused:?}");
    }
}
