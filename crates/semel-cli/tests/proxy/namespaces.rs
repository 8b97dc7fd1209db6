//! Namespaces keep the callers of proxies on one store apart.

use std::process::Command;

use serde_json::Value;

use crate::harness::World;
use crate::http::Asked;
use crate::server::Server;
use crate::setup::{Setup, fresh, keyed, refused, replay_of};
use crate::upstream::{Reply, Upstream};

fn place() -> (World, Upstream) {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    (world, upstream)
}

/// Prepares the command line of a proxy.
fn proxy(world: &World, upstream: &Upstream, words: &[&str]) -> Command {
    let url = upstream.url();
    let mut all = vec!["proxy", "--listen", "127.0.0.1:0", "--upstream", &url];
    all.extend(words);
    world.command(&all)
}

#[track_caller]
fn records(world: &World, namespace: &str) -> Vec<Value> {
    let listed = world.semel(&["--namespace", namespace, "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.json()
}

#[track_caller]
fn token(world: &World, namespace: &str, scope: &str) -> String {
    let words = [
        "token",
        "create",
        "--namespace",
        namespace,
        "--scope",
        scope,
    ];
    let made = world.semel(&words);
    assert_eq!(made.code, 0, "{made:?}");
    made.stdout.trim().to_owned()
}

/// A request of the holder of a token, with credentials for the upstream.
fn shown(token: &str, key: &str) -> Asked {
    let asked = keyed(key).header("Semel-Token", token);
    asked.header("Authorization", "Bearer upstream")
}

#[test]
fn namespace_of_a_proxy_is_that_of_its_operations_however_it_is_given() {
    let (world, upstream) = place();
    let by_flag = Server::spawn(&mut proxy(&world, &upstream, &["--namespace", "by-flag"]));
    let mut command = proxy(&world, &upstream, &[]);
    let by_variable = Server::spawn(command.env("SEMEL_NAMESPACE", "by-variable"));
    std::fs::write(world.path("semel.toml"), "namespace = \"by-setting\"\n")
        .expect("it is written");
    let by_setting = Server::spawn(&mut proxy(&world, &upstream, &[]));
    std::fs::remove_file(world.path("semel.toml")).expect("it is there");
    let proxies = [
        ("by-flag", by_flag),
        ("by-variable", by_variable),
        ("by-setting", by_setting),
    ];
    // One key at three proxies is three operations, and each proxy knows its own again.
    for (namespace, proxy) in &proxies {
        let first = proxy.ask(keyed("k"));
        fresh(&first, 201);
        replay_of(&first, &proxy.ask(keyed("k")));
        let found = records(&world, namespace);
        assert_eq!(found.len(), 1, "{namespace}: {found:?}");
        assert_eq!(found[0]["namespace"], *namespace, "{found:?}");
    }
    assert_eq!(upstream.effects().len(), proxies.len());
    assert_eq!(records(&world, "default").len(), 0);
}

#[test]
fn routes_beside_the_api_are_in_the_namespace_of_the_server() {
    let (world, upstream) = place();
    let url = upstream.url();
    let toml =
        format!("[proxy]\nlisten = \"127.0.0.1:0\"\n[[proxy.route]]\nupstream = \"{url}\"\n");
    std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--proxy",
        "--namespace",
        "ours",
    ];
    let server = Server::spawn(&mut world.command(&words));
    let address = server.wait_for_line(|line| {
        let is_it = line["message"] == "the proxy listens";
        is_it.then(|| line["address"].as_str().unwrap_or_default().to_owned())
    });
    let address = address.expect("it says where");
    let place = address.strip_prefix("http://").expect("it is plain");
    let place = crate::http::Address::Tcp(place.parse().expect("it is an address"));
    let mut connection = crate::http::Connection::open(&place).expect("it listens");
    connection.send(&keyed("k").bytes()).expect("it is sent");
    fresh(&connection.answer().expect("it is answered"), 201);
    assert_eq!(records(&world, "ours").len(), 1);
    assert_eq!(records(&world, "default").len(), 0);
}

#[test]
fn tokens_of_other_namespaces_are_refused_by_a_proxy_for_one() {
    let (world, upstream) = place();
    let ours = token(&world, "ours", "write");
    let theirs = ["write", "operate", "admin"].map(|scope| token(&world, "theirs", scope));
    for auth in ["required", "loopback"] {
        let mut command = proxy(&world, &upstream, &["--namespace", "ours"]);
        let proxy = Server::spawn(command.env("SEMEL_AUTH", auth));
        let key = format!("k-{auth}");
        let before = upstream.received().len();
        let first = proxy.ask(shown(&ours, &key));
        fresh(&first, 201);
        for token in &theirs {
            for asked in [
                shown(token, &key),
                shown(token, "other"),
                shown(token, &key).header("Semel-Dry-Run", "?1"),
            ] {
                let problem = refused(&proxy.ask(asked), 403, "forbidden");
                assert!(!problem.to_string().contains("ours"), "{problem}");
            }
            let reading = Asked::get("/orders").header("Semel-Token", token);
            refused(&proxy.ask(reading), 403, "forbidden");
        }
        replay_of(&first, &proxy.ask(shown(&ours, &key)));
        assert_eq!(upstream.received().len(), before + 1, "{auth}");
    }
    assert_eq!(records(&world, "theirs").len(), 0);
}

/// The same credentials for the upstream under tokens of two namespaces are two callers.
#[test]
fn operations_of_a_token_are_in_its_namespace() {
    let (world, upstream) = place();
    let tokens = ["one", "two"].map(|namespace| (namespace, token(&world, namespace, "write")));
    let mut command = proxy(&world, &upstream, &[]);
    let proxy = Server::spawn(command.env("SEMEL_AUTH", "required"));
    let firsts = tokens
        .each_ref()
        .map(|(_, token)| proxy.ask(shown(token, "k")));
    for ((namespace, token), first) in tokens.iter().zip(&firsts) {
        fresh(first, 201);
        replay_of(first, &proxy.ask(shown(token, "k")));
        assert_eq!(records(&world, namespace).len(), 1, "{namespace}");
    }
    assert_eq!(upstream.effects().len(), tokens.len());
    assert_eq!(records(&world, "default").len(), 0);
}

/// A stream that runs in one namespace is not joined from another, though scope and key are the same.
#[test]
fn streams_of_other_namespaces_are_not_joined() {
    let setup = Setup::new();
    let (world, upstream) = (&setup.world, &setup.upstream);
    let [one, two] = ["one", "two"].map(|namespace| token(world, namespace, "write"));
    let stream = upstream.streams("text/event-stream");
    let mut first = setup.begin(&shown(&one, "k"));
    stream.say("data: hush\n\n");
    first.head().expect("it has begun");
    let second = setup.ask(shown(&two, "k"));
    fresh(&second, 201);
    assert!(
        !String::from_utf8_lossy(&second.body).contains("hush"),
        "{second:?}"
    );
    stream.end();
}

/// What fails for the callers of one namespace keeps no others from the upstream.
#[test]
fn breakers_are_those_of_the_token_s_namespace() {
    let (world, upstream) = place();
    let url = upstream.url();
    let toml = format!(
        "[breakers.bank]\nfailures = 2\ncool_down = \"1h\"\ncool_down_max = \"1h\"\n\
         [[proxy.route]]\nupstream = \"{url}\"\nbreaker = \"bank\"\n"
    );
    let setup = Setup::written(world, upstream, &toml);
    let [one, two] = ["one", "two"].map(|namespace| token(&setup.world, namespace, "write"));
    for key in ["bad-1", "bad-2"] {
        setup.upstream.answers(Reply::new(503, "down"));
        assert_eq!(setup.ask(shown(&one, key)).status, 503);
    }
    refused(&setup.ask(shown(&one, "new")), 503, "breaker_open");
    fresh(&setup.ask(shown(&two, "new")), 201);
    fresh(&setup.ask(keyed("new")), 201);
    let state = |namespace: &str| {
        let listed = setup
            .world
            .semel(&["--namespace", namespace, "breaker", "list", "--json"]);
        listed
            .json()
            .first()
            .map(|breaker| breaker["state"].clone())
    };
    assert_eq!(state("one"), Some("open".into()));
    for other in ["two", "default"] {
        assert_ne!(state(other), Some("open".into()), "{other}");
    }
}
