//! An upstream that counts its effects in a file, and fails as it is told.
//!
//! It runs in the test's own process and knows nothing of Semel: the same requests can be sent to it directly, to see
//! what happens then.

mod deed;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use semel_testkit::process::Dice;

use crate::http::{Address, Asked, Connection, PATIENCE};
use crate::server::wait_until;

pub(crate) use self::deed::{Deed, Framing, Gate, Reply, Teller};
pub(crate) use self::wire::{PIECE, Received, is_run, run_of};

/// Room for what a thread of this upstream does; there are thousands of them in one test.
const STACK: usize = 256 * 1024;

/// A running upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<Listening>,
}

#[derive(Debug)]
struct Listening {
    thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shared {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    deeds: VecDeque<Deed>,
    /// Chooses what it does where nothing was ordered.
    moody: Option<Dice>,
    received: Vec<Received>,
    effects: usize,
    connections: u64,
    open: BTreeMap<u64, TcpStream>,
    /// The connections that are being served, also those that were cut.
    served: BTreeSet<u64>,
}

impl Upstream {
    /// Starts an upstream that writes its effects to this file.
    pub(crate) fn start(file: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it has an address");
        let state = Mutex::new(State::default());
        let mut upstream = Self {
            shared: Arc::new(Shared { file, state }),
            address,
            listener: None,
        };
        upstream.listen(listener);
        upstream
    }

    fn listen(&mut self, listener: TcpListener) {
        let over = Arc::new(AtomicBool::new(false));
        let (shared, flag) = (Arc::clone(&self.shared), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                let thread = std::thread::Builder::new().stack_size(STACK);
                // How a connection ends is its client's business: it is seen there.
                let spawned = thread.spawn(move || drop(shared.serve(stream)));
                drop(spawned.expect("there is room for a thread"));
            }
        });
        self.listener = Some(Listening { thread, over });
    }

    /// Refuses connections from now on, and cuts those that are there.
    pub(crate) fn refuse(&mut self) {
        let Some(Listening { thread, over }) = self.listener.take() else {
            return;
        };
        over.store(true, Ordering::SeqCst);
        // Somebody must come for it to see that it is over.
        drop(TcpStream::connect(self.address));
        thread.join().expect("it only listens");
        self.cut_all();
    }

    /// Listens again, at the same address.
    pub(crate) fn accept_again(&mut self) {
        let listener = TcpListener::bind(self.address).expect("the port is still ours");
        self.listen(listener);
    }

    /// Waits until everything that was sent here before has had its effect, or can have none any more.
    #[track_caller]
    pub(crate) fn settle(&self) {
        // Connections are taken in their order: once this one is, all that came before are.
        let mut last = Connection::open(&self.address()).expect("it listens");
        last.send(&Asked::get("/").bytes()).expect("it is sent");
        wait_until("the last one is taken", || {
            let state = self.shared.state();
            let mine = |it: &Received| it.method == "GET" && it.target == "/";
            state.received.iter().any(mine)
        });
        self.shared.state().received.clear();
        let newest = self.shared.state().connections;
        self.cut_all();
        wait_until("those that came before are over", || {
            let state = self.shared.state();
            state.served.iter().all(|number| *number > newest)
        });
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        let open = std::mem::take(&mut self.shared.state().open);
        for stream in open.into_values() {
            // One that is gone already needs no cutting.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    pub(crate) const fn address(&self) -> Address {
        Address::Tcp(self.address)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Orders what is done with the next request for which nothing was ordered yet.
    pub(crate) fn next(&self, deed: Deed) {
        self.shared.state().deeds.push_back(deed);
    }

    /// Orders an answer to the next request.
    pub(crate) fn answers(&self, reply: Reply) {
        self.next(Deed::Answer(reply));
    }

    /// Holds the next request after its effect, until the gate is opened.
    pub(crate) fn holds(&self) -> Gate {
        let gate = Gate::default();
        self.next(Deed::Held(gate.clone(), Box::default()));
        gate
    }

    /// Streams the answer to the next request, as it is told.
    pub(crate) fn streams(&self, kind: &str) -> Teller {
        let (deed, teller) = Deed::stream(kind);
        self.next(deed);
        teller
    }

    /// Fails by chance where nothing is ordered, or never again.
    pub(crate) fn set_mood(&self, dice: Option<Dice>) {
        let mut state = self.shared.state();
        if dice.is_some() {
            // What is left to chance may not happen.
            state.deeds.extend(Deed::each_wrong());
        }
        state.moody = dice;
    }

    /// Returns everything that was received whole.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.state().received.clone()
    }

    /// Returns what each effect was of, in the order in which they happened.
    pub(crate) fn effects(&self) -> Vec<String> {
        let text = match std::fs::read_to_string(&self.shared.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => panic!("the effects cannot be read: {error}"),
        };
        text.lines().map(str::to_owned).collect()
    }

    /// Returns how many effects there were of something.
    pub(crate) fn effects_of(&self, name: &str) -> usize {
        self.effects().iter().filter(|line| *line == name).count()
    }

    /// Waits until there are so many effects, and expects no more.
    #[track_caller]
    pub(crate) fn wait_for_effects(&self, count: usize) {
        wait_until("the effect", || self.effects().len() >= count);
        assert_eq!(self.effects().len(), count);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.refuse();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let number = {
            let mut state = self.state();
            if matches!(state.deeds.front(), Some(Deed::CloseAtOnce)) {
                state.deeds.pop_front();
                return Ok(());
            }
            state.connections += 1;
            let number = state.connections;
            state.open.insert(number, stream.try_clone()?);
            state.served.insert(number);
            number
        };
        let served = self.serve_requests(&stream, number);
        let mut state = self.state();
        state.open.remove(&number);
        state.served.remove(&number);
        // Its twin is gone, so this closes the connection.
        served
    }

    fn serve_requests(&self, stream: &TcpStream, connection: u64) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(mut received) = Received::read(&mut reader)? {
            received.connection = connection;
            let deed = {
                let mut state = self.state();
                state.received.push(received.clone());
                let ordered = state.deeds.pop_front();
                ordered.unwrap_or_else(|| state.moody.as_mut().map_or_else(Deed::default, Deed::of))
            };
            if !deed.perform(self, &received, stream)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does what was asked: from now on there is one more line. Returns the number of the effect.
    fn cause(&self, received: &Received) -> usize {
        if received.only_reads() {
            return 0;
        }
        let mut state = self.state();
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).open(&self.file);
        let mut file = opened.expect("the file can be opened");
        let line = format!("{}\n", received.name());
        file.write_all(line.as_bytes()).expect("the effect happens");
        state.effects += 1;
        state.effects
    }
}
