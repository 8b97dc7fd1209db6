//! G. What is no longer kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::Engine;
use semel::clock::{Clock, SystemClock};
use semel::core::clock::Reading;
use semel::store::sqlite::SqliteStore;

use crate::server::Server;
use crate::setup::{Setup, charge, fresh, is_replay, keyed, refused, replay_of};
use crate::upstream::Deed;

/// What a person forgets may be done again; what is in doubt is not forgotten.
#[test]
fn c051_c089_what_is_forgotten_is_new_and_a_doubt_is_not_forgotten() {
    let setup = Setup::new();
    fresh(&setup.ask(keyed("k")), 201);
    let key = setup.records()[0]["key"].as_str().map(str::to_owned);
    let key = key.expect("a key is text");
    let forgotten = setup.world.semel(&["forget", &key]);
    assert_eq!(forgotten.code, 0, "{forgotten:?}");
    fresh(&setup.ask(keyed("k")), 201);
    assert_eq!(setup.upstream.effects_of("k"), 2);
    assert!(is_replay(&setup.ask(keyed("k"))));

    setup.upstream.next(Deed::CloseAfterEffect);
    refused(&setup.ask(keyed("lost")), 502, "in_doubt");
    let refusal = setup.world.semel(&["forget", &setup.doubt()]);
    assert_ne!(refusal.code, 0, "{refusal:?}");
    refused(&setup.ask(keyed("lost")), 409, "in_doubt");
}

#[test]
fn c086_durations_that_are_none_are_refused_at_the_start() {
    for wrong in [
        "retention = \"0s\"",
        "lease = \"0s\"",
        "lease = \"-1s\"",
        "lease = \"25h\"",
        "timeout = \"0s\"",
        "retention = \"1s\"\nretry_within = \"99999999999999999999d\"",
    ] {
        let world = crate::harness::World::new();
        let toml = format!("[[proxy.route]]\nupstream = \"http://127.0.0.1:1\"\n{wrong}\n");
        std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
        let mut command = world.command(&["proxy", "--listen", "127.0.0.1:0"]);
        let Err((status, said)) = Server::try_spawn(&mut command) else {
            panic!("it listens with {wrong}");
        };
        assert_eq!(status.code(), Some(64), "{wrong}: {said}");
        assert!(said.contains("semel.toml"), "{wrong}: {said}");
    }
}

/// The machine's clock, moved on by some days.
#[derive(Debug, Default)]
struct Ahead {
    days: AtomicU64,
}

impl Clock for Ahead {
    fn read(&self) -> Reading {
        let now = SystemClock::new().read();
        let days = self.days.load(Ordering::SeqCst);
        let passed = Duration::from_secs(days * 24 * 60 * 60);
        Reading {
            wall: now.wall.plus(passed),
            uptime: now.uptime + passed,
            ..now
        }
    }
}

/// Lets a month pass, in which nothing but the sweep happens.
fn let_a_month_pass(setup: &Setup) {
    let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
    runtime.block_on(async {
        let clock = Arc::new(Ahead::default());
        let path = setup.world.path("data/semel.db");
        let store = SqliteStore::open_with(path, Arc::clone(&clock) as _);
        let store = Arc::new(store.expect("the store opens"));
        let builder = Engine::builder().store(store).sweep_every(None);
        let engine = builder.start().await.expect("the engine starts");
        for days in [0, 31, 32] {
            clock.days.store(days, Ordering::SeqCst);
            engine.sweep().await.expect("the store is swept");
        }
    });
}

#[test]
fn c089_what_is_no_longer_kept_is_not_done_again_unless_the_profile_says_so() {
    for (profile, runs) in [
        ("semel", false),
        ("ietf", false),
        ("stripe", true),
        ("acp", true),
    ] {
        let mut setup = Setup::with(&["--profile", profile]);
        let asked = || charge("k").header("Idempotency-Key", "\"k\"");
        fresh(&setup.ask(asked()), 201);
        setup.upstream.next(Deed::CloseAfterEffect);
        let lost = || charge("lost").header("Idempotency-Key", "\"lost\"");
        refused(&setup.ask(lost()), 502, "in_doubt");
        setup.proxy_mut().kill();
        let_a_month_pass(&setup);
        setup.start_again();
        let again = setup.ask(asked());
        if runs {
            fresh(&again, 201);
        } else {
            refused(&again, 410, "expired");
        }
        assert_eq!(
            setup.upstream.effects_of("k"),
            1 + usize::from(runs),
            "{profile}"
        );
        // A doubt is kept for ever.
        refused(&setup.ask(lost()), 409, "in_doubt");
    }
}

#[test]
fn c090_a_request_that_is_older_than_anything_kept_is_refused() {
    let setup = Setup::routed(
        "key_headers = [\"Repeatability-Request-ID\", \"Idempotency-Key\"]\ndated_keys = true",
    );
    let asked = |key: &str, date: &str| {
        let asked = charge(key).header("Repeatability-Request-ID", key);
        asked.header("Repeatability-First-Sent", date)
    };
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    refused(&setup.ask(asked("k", old)), 412, "expired");
    refused(&setup.ask(asked("k", "yesterday")), 400, "invalid_input");
    // Its key says that it was made in 2022.
    let made = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    refused(&setup.ask(keyed(made)), 412, "expired");
    assert_eq!(setup.upstream.received().len(), 0);
    assert_eq!(setup.records().len(), 0, "nothing is written for it");
    let first = setup.ask(asked("k", "Fri, 31 Dec 9999 23:59:59 GMT"));
    fresh(&first, 201);
    // What is known is told, whatever it says of its age.
    replay_of(&first, &setup.ask(asked("k", old)));
    fresh(
        &setup.ask(keyed("0195f3a1-79b0-4cc3-98c4-dc0c0c07398f")),
        201,
    );
}

#[test]
fn c092_a_dry_run_says_how_long_answers_are_kept() {
    for (members, kept, remembered) in [
        ("", 30, 395),
        ("retention = \"2d\"\nprofile = \"stripe\"", 2, 2),
    ] {
        let setup = Setup::routed(members);
        let said = setup
            .ask(keyed("k").header("Semel-Dry-Run", "?1"))
            .expect(200);
        let day = 24 * 60 * 60;
        assert_eq!(said["kept_seconds"], kept * day, "{said}");
        assert_eq!(said["remembered_seconds"], remembered * day, "{said}");
        assert_eq!(setup.upstream.received().len(), 0);
    }
}
