//! What replays saved: each answer that was given again or joined is counted once, with its time and its price.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::World;
use crate::http::{Address, Asked, Connection};
use crate::server::Server;
use crate::setup::{Setup, fresh, is_replay, keyed};
use crate::upstream::{Deed, Gate, Reply, Upstream};

const EVENTS: &str = "text/event-stream";

/// What completions cost here.
const PRICE: &str = r#"profile = "llm"
price = { currency = "USD", call = 0.01, input = 2.50, output = 10.00, models = { "gpt-4o-mini" = { input = 0.15, output = 0.60 } } }"#;

fn question() -> Asked {
    let body = json!({"id": "q", "model": "gpt-4o-mini", "messages": []});
    Asked::post("/v1/chat/completions", &body)
}

fn completion() -> Reply {
    let body = json!({
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [],
        "usage": {"prompt_tokens": 2_000, "completion_tokens": 1_000},
    });
    Reply::new(200, body.to_string()).header("Content-Type", "application/json")
}

/// Ends the proxy as its owner does, so that everything is counted, and returns what `semel stats` says was saved.
#[track_caller]
fn saved(setup: &mut Setup) -> Value {
    end(setup.proxy_mut());
    stats(&setup.world)
}

#[track_caller]
fn end(server: &mut Server) {
    server.signal(Signal::TERM);
    let status = server.wait();
    assert!(status.success(), "{status}");
}

#[track_caller]
fn stats(world: &World) -> Value {
    let ran = world.semel(&["stats", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json().remove(0)["replayed"].take()
}

/// Lets a client lose the answer to its question; it is recorded.
#[track_caller]
fn lose(setup: &Setup, reply: Reply) {
    let gate = Gate::default();
    let held = Deed::Held(gate.clone(), Box::new(Deed::Answer(reply)));
    setup.upstream.next(held);
    let given_up = setup.begin(&question());
    setup.upstream.wait_for_effects(1);
    drop(given_up);
    gate.open();
    setup.wait_for_state("succeeded");
}

#[test]
fn a_lost_completion_that_is_told_again_is_counted_with_its_price() {
    let mut setup = Setup::routed(PRICE);
    lose(&setup, completion());
    let told = setup.ask(question());
    assert!(is_replay(&told), "{told:?}");
    let name = setup.upstream.url();
    let saved = saved(&mut setup);
    // A call, 2,000 tokens at 0.15 and 1,000 at 0.60 per million.
    let money = json!({"USD": "0.010900"});
    assert_eq!(saved["count"], 1, "{saved}");
    assert_eq!(saved["money"], money, "{saved}");
    let took = saved["saved_ms"].as_u64().unwrap_or_default();
    assert!(took > 0, "{saved}");
    let by = json!([{"door": "proxy", "name": name, "count": 1, "saved_ms": took, "money": money}]);
    assert_eq!(saved["by"], by);
    let people = setup.world.semel(&["stats"]);
    let row = |name: &str| {
        let row = people
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(name));
        row.unwrap_or_else(|| panic!("{name}: {people:?}")).trim()
    };
    assert_eq!(row("answers given again"), "1");
    assert_eq!(row("  money saved"), "0.010900 USD");
    let by = row(&format!("  by proxy {name}"));
    assert!(
        by.starts_with("1, ") && by.ends_with(" s, 0.010900 USD"),
        "{by}"
    );
}

/// What a question that is asked again gets anew was paid anew.
#[test]
fn an_intended_repeat_saves_nothing() {
    let mut setup = Setup::routed(PRICE);
    for _ in 0..3 {
        setup.upstream.answers(completion());
        let mut connection = setup.proxy().connect();
        connection.send(&question().bytes()).expect("it is sent");
        fresh(&connection.answer().expect("it is answered"), 200);
    }
    assert_eq!(setup.effects(), 3);
    assert_eq!(
        saved(&mut setup),
        json!({"count": 0, "saved_ms": 0, "money": {}, "by": []})
    );
}

/// Reads a stream up to the end, and returns all of it.
#[track_caller]
fn rest_of(connection: &mut Connection) -> String {
    let mut heard = vec![];
    while let Some(piece) = connection.chunk().expect("it goes on") {
        heard.extend(piece);
    }
    String::from_utf8(heard).expect("it is text")
}

#[test]
fn a_stream_that_is_joined_is_counted_at_its_end() {
    let mut setup = Setup::routed(PRICE);
    let teller = setup.upstream.streams(EVENTS);
    let mut first = setup.begin(&question().header("Idempotency-Key", "k"));
    setup.upstream.wait_for_effects(1);
    let start = "event: message_start\ndata: {\"message\":{\"model\":\"claude\",\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}}\n\n";
    teller.say(start);
    first.head().expect("it is answered");
    let mut joined: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = setup.begin(&question().header("Idempotency-Key", "k"));
            let head = reader.head().expect("it is answered");
            assert!(is_replay(&head), "{head:?}");
            reader
        })
        .collect();
    // One leaves before the end, and got no answer.
    drop(joined.pop());
    fresh(&setup.ask(keyed("other")), 201);
    let end = "event: message_delta\ndata: {\"usage\":{\"output_tokens\":50}}\n\nevent: message_stop\ndata: {}\n\n";
    teller.say(end);
    teller.end();
    for reader in [&mut first, &mut joined[0]] {
        assert_eq!(rest_of(reader), format!("{start}{end}"));
    }
    drop((first, joined));
    let saved = saved(&mut setup);
    // A call, 100 tokens at 2.50 and 50 at 10 per million.
    assert_eq!(
        (&saved["count"], &saved["money"]),
        (&json!(1), &json!({"USD": "0.010750"})),
        "{saved}"
    );
    assert!(saved["saved_ms"].as_u64() > Some(0), "{saved}");
}

#[test]
fn a_stream_that_breaks_off_saves_nothing() {
    let mut setup = Setup::routed(PRICE);
    let teller = setup.upstream.streams(EVENTS);
    let mut first = setup.begin(&keyed("k"));
    setup.upstream.wait_for_effects(1);
    teller.say("data: 1\n\n");
    first.head().expect("it is answered");
    let mut second = setup.begin(&keyed("k"));
    second.head().expect("it is answered");
    teller.cut();
    for reader in [&mut first, &mut second] {
        while reader.chunk().is_ok_and(|piece| piece.is_some()) {}
    }
    drop((first, second));
    assert_eq!(saved(&mut setup)["count"], 0);
}

#[test]
fn two_processes_add_up_and_upstreams_are_told_apart() {
    let mut setup = Setup::routed("price = { currency = \"EUR\", call = 0.5 }");
    let mut other = setup.another();
    let first = setup.ask(keyed("k"));
    fresh(&first, 201);
    for _ in 0..2 {
        assert!(is_replay(&setup.ask(keyed("k"))));
        assert!(is_replay(&other.ask(keyed("k"))));
    }
    end(&mut other);
    let saved = saved(&mut setup);
    assert_eq!(
        (&saved["count"], &saved["money"]),
        (&json!(4), &json!({"EUR": "2.000000"})),
        "{saved}"
    );
    let ran = setup.world.semel(&["run", "--key", "r", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    setup.world.semel(&["run", "--key", "r", "--", "true"]);
    let saved = stats(&setup.world);
    let by: Vec<_> = saved["by"].as_array().into_iter().flatten().collect();
    let doors: Vec<_> = by.iter().map(|by| (&by["door"], &by["count"])).collect();
    assert_eq!(
        doors,
        [(&json!("proxy"), &json!(4)), (&json!("run"), &json!(1))]
    );
}

/// What was refused, or decided by a person, cost nothing; what is coded is a call.
#[test]
fn only_what_was_paid_is_money() {
    let mut setup = Setup::routed(
        "profile = \"semel\"\nprice = { currency = \"USD\", call = 0.25, input = 1000 }",
    );
    setup.upstream.answers(Reply::new(404, "{}"));
    setup
        .upstream
        .answers(completion().header("Content-Encoding", "gzip"));
    for key in ["refused", "coded"] {
        setup.ask(keyed(key));
        assert!(is_replay(&setup.ask(keyed(key))));
    }
    setup.upstream.next(Deed::CloseAfterEffect);
    setup.ask(keyed("doubt"));
    setup.resolve(&["--done"]);
    assert!(is_replay(&setup.ask(keyed("doubt"))));
    let saved = saved(&mut setup);
    assert_eq!(
        (&saved["count"], &saved["money"]),
        (&json!(3), &json!({"USD": "0.250000"})),
        "{saved}"
    );
}

#[test]
fn prices_that_are_none_are_refused() {
    for (price, expected, hint) in [
        ("{ call = 1 }", "`currency` is missing", ""),
        (
            "{ currency = \"usd\" }",
            "currency: a currency has three capital letters",
            "",
        ),
        (
            "{ currency = \"USD\", call = -1 }",
            "call: `-1`: an amount is a number from 0 to 1000000",
            "",
        ),
        (
            "{ currency = \"USD\", input = inf }",
            "input: `inf`: an amount is a number",
            "",
        ),
        (
            "{ currency = \"USD\", output = nan }",
            "output: `NaN`: an amount is a number",
            "",
        ),
        (
            "{ currency = \"USD\", output = 1000001 }",
            "output: `1000001`: an amount",
            "",
        ),
        (
            "{ currency = \"USD\", call = 0.0000001 }",
            "at most six decimals",
            "",
        ),
        (
            "{ currency = \"USD\", call = \"1\" }",
            "call: an amount is a number; it is a string",
            "",
        ),
        (
            "{ currency = \"USD\", inputs = 1 }",
            "price: unknown setting `inputs`",
            "did you mean `input`?",
        ),
        (
            "{ currency = \"USD\", models = { m = { call = 1 } } }",
            "models.m: unknown setting `call`",
            "has input, output",
        ),
        ("3", "price: it must be a table; it is a integer", ""),
    ] {
        let world = World::new();
        let upstream = Upstream::start(world.path("effects"));
        let toml = format!(
            "[[proxy.route]]\nupstream = \"{}\"\nprice = {price}\n",
            upstream.url()
        );
        std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
        let ran = world.semel(&["proxy", "--listen", "127.0.0.1:0"]);
        assert_eq!(ran.code, 64, "{price}: {ran:?}");
        assert!(
            ran.stderr.contains("proxy.route 1: price: "),
            "{price}: {ran:?}"
        );
        assert!(ran.stderr.contains(expected), "{price}: {ran:?}");
        assert!(ran.stderr.contains(hint), "{price}: {ran:?}");
    }
}

#[test]
fn the_server_beside_which_it_runs_has_the_counts() {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let url = upstream.url();
    let toml = format!(
        "[proxy]\nlisten = \"127.0.0.1:0\"\n[[proxy.route]]\nupstream = \"{url}\"\nprice = {{ currency = \"USD\", call = 0.5 }}\n"
    );
    std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
    let server = Server::start_with(&world, &["--proxy"]);
    let proxy = server.wait_for_line(|line| {
        let address = line["address"]
            .as_str()
            .filter(|_| line["message"] == "the proxy listens");
        address?.strip_prefix("http://")?.parse().ok()
    });
    let proxy = Address::Tcp(proxy.expect("it says where"));
    for is_again in [false, true] {
        let mut connection = Connection::open(&proxy).expect("it listens");
        connection.send(&keyed("k").bytes()).expect("it is sent");
        let answer = connection.answer().expect("it is answered");
        assert_eq!(is_replay(&answer), is_again, "{answer:?}");
    }
    let text = String::from_utf8(server.get("/metrics").body).expect("it is text");
    for line in [
        "semel_saved_calls_total{door=\"proxy\"} 1\n",
        "semel_saved_calls_total{door=\"mcp\"} 0\n",
        "semel_saved_seconds_total{door=\"proxy\"} 0.",
        "semel_saved_money_total{door=\"proxy\",currency=\"USD\"} 0.500000\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
