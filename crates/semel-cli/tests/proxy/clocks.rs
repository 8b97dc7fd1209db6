//! G. A proxy whose clock is wrong by an hour, beside one whose clock is right, on one database.

use rustix::process::Signal;
use semel_testkit::faketime;
use semel_testkit::postgres::Cluster;

use crate::harness::World;
use crate::server::{Server, wait_until};
use crate::setup::{fresh, keyed, refused, replay_of};
use crate::upstream::Upstream;

/// Whoever holds a lease keeps it, however late or early the other takes it to be; it is a minute long.
fn an_hour_off(offset: &str) {
    let world = World::new();
    let upstream = Upstream::start(world.path("effects"));
    let url = upstream.url();
    let toml = format!("[[proxy.route]]\nupstream = \"{url}\"\nwait = \"100ms\"\n");
    std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
    let store = Cluster::shared().database();
    let start = |is_wrong: bool| {
        let mut command = world.command(&["proxy", "--listen", "127.0.0.1:0"]);
        command.env("SEMEL_STORE", &store);
        if is_wrong {
            command.envs(faketime::environment(offset));
        }
        Server::spawn(&mut command)
    };
    let (right, mut wrong) = (start(false), start(true));
    for (holder, other, key) in [(&right, &wrong, "right"), (&wrong, &right, "wrong")] {
        let gate = upstream.holds();
        let mut waiting = holder.connect();
        waiting.send(&keyed(key).bytes()).expect("it is sent");
        wait_until("the effect", || upstream.effects_of(key) == 1);
        refused(&other.ask(keyed(key)), 409, "in_flight");
        gate.open();
        let answer = waiting.answer().expect("it is answered");
        fresh(&answer, 201);
        for proxy in [other, holder] {
            replay_of(&answer, &proxy.ask(keyed(key)));
        }
        assert_eq!(upstream.effects_of(key), 1);
    }
    // Killed, it would leave files behind.
    wrong.signal(Signal::TERM);
    let status = wrong.wait();
    assert!(status.success(), "{status}: {}", wrong.said());
}

#[test]
fn c087_a_proxy_whose_clock_is_an_hour_ahead_takes_nothing_over() {
    an_hour_off("+1h");
}

#[test]
fn c087_a_proxy_whose_clock_is_an_hour_behind_takes_nothing_over() {
    an_hour_off("-1h");
}
