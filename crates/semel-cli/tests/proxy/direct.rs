//! What happens without the proxy: the duplicates must be there before their absence proves anything.

use crate::harness::World;
use crate::http::Connection;
use crate::setup::{ask_directly, keyed};
use crate::upstream::{Deed, Reply, Upstream};

fn start() -> (Upstream, World) {
    let world = World::new();
    (Upstream::start(world.path("effects")), world)
}

/// A client that sends its request again until there is an answer.
fn insist(upstream: &Upstream) -> u16 {
    for _ in 0..3 {
        match ask_directly(upstream, &keyed("k")) {
            Some(answer) if answer.status < 500 => return answer.status,
            Some(_) | None => {}
        }
    }
    panic!("there is no answer");
}

#[test]
fn a_client_that_tries_again_acts_twice() {
    let (upstream, _world) = start();
    for (count, deed) in [
        Deed::CloseAfterEffect,
        Deed::Reset,
        Deed::CutHead,
        Deed::CutBody,
        Deed::Answer(Reply::new(500, "it broke")),
    ]
    .into_iter()
    .enumerate()
    {
        upstream.next(deed);
        assert_eq!(insist(&upstream), 201);
        assert_eq!(upstream.effects_of("k"), 2 * (count + 1));
    }
}

#[test]
fn a_client_that_gives_up_and_tries_again_acts_twice() {
    let (upstream, _world) = start();
    let gate = upstream.holds();
    let mut connection = Connection::open(&upstream.address()).expect("it listens");
    connection.send(&keyed("k").bytes()).expect("it is sent");
    upstream.wait_for_effects(1);
    drop(connection);
    assert_eq!(insist(&upstream), 201);
    gate.open();
    assert_eq!(upstream.effects_of("k"), 2);
}

#[test]
fn what_never_happened_or_was_answered_is_there_once() {
    let (upstream, _world) = start();
    for (count, deed) in [
        Deed::CloseBeforeEffect,
        Deed::CloseAtOnce,
        Deed::Twice,
        Deed::default(),
    ]
    .into_iter()
    .enumerate()
    {
        upstream.next(deed);
        assert_eq!(insist(&upstream), 201);
        assert_eq!(upstream.effects_of("k"), count + 1);
    }
}
