//! Stores of every released format: the present version reads each of them, record by record, and
//! works on with it. `src/fixture.rs` says how one is made.

use std::path::{Path, PathBuf};

use semel::core::identity::Kin;
use semel::store::{PAGE_MAX, Query};
use semel::{Admission, Effect, Engine, Namespace, NewToken, Request, Scope};
use semel_testkit::fixture::describe;
use semel_testkit::process::{Scene, key};

/// Returns the path of every fixture.
fn fixtures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let listed = std::fs::read_dir(directory).expect("the fixtures are listed");
    let paths = listed.map(|entry| entry.expect("the fixtures are listed").path());
    let mut stores: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "db"))
        .collect();
    stores.sort();
    stores
}

/// Copies a fixture and opens it.
async fn opened(fixture: &Path) -> (Scene, Engine) {
    let scene = Scene::new();
    std::fs::copy(fixture, scene.store()).expect("a fixture is copied");
    let engine = scene.open().await;
    (scene, engine)
}

fn request(text: &str) -> Request {
    Request::new("make-fixture", key(text)).input(text)
}

#[tokio::test]
async fn every_released_format_is_read_record_by_record() {
    let fixtures = fixtures();
    assert!(
        !fixtures.is_empty(),
        "there is a fixture of format 1 at least"
    );
    for fixture in fixtures {
        let (_scene, engine) = opened(&fixture).await;
        let verified = engine.verify().await.expect("it is verified");
        assert!(verified.is_clean(), "{}: {verified:?}", fixture.display());
        let words = std::fs::read_to_string(fixture.with_extension("txt"));
        let words = words.expect("what a fixture holds is written beside it");
        let found = describe(&engine).await.expect("it is described");
        assert_eq!(found, words, "{}", fixture.display());
    }
}

#[tokio::test]
async fn what_counts_among_its_kin_is_found_since_there_is_an_index() {
    let mut counting = vec![];
    for fixture in fixtures() {
        let (_scene, engine) = opened(&fixture).await;
        let everything = Query {
            limit: PAGE_MAX,
            ..Query::default()
        };
        let page = engine.list(everything).await.expect("it lists");
        for stored in page.items {
            let Some(kin) = Kin::counting(&stored.record) else {
                continue;
            };
            let found = engine.store().kin(kin).await.expect("it reads");
            let places: Vec<_> = found.iter().map(|found| found.place).collect();
            assert_eq!(places, [stored.place], "{}", fixture.display());
            counting.push(fixture.clone());
        }
    }
    let names: Vec<_> = counting
        .iter()
        .filter_map(|path| path.file_name())
        .collect();
    assert_eq!(names, ["format-3.db"]);
}

/// What a caller of each kind of operation meets.
async fn meets(engine: &Engine, text: &str) -> String {
    match engine.begin(request(text)).await {
        Ok(Admission::Execute(permit)) => {
            let fence = permit.fence().0;
            let settled = permit.done(Effect::Created, "now").await;
            assert!(settled.expect("an outcome is stored").ok);
            format!("granted with fence {fence}")
        }
        Ok(Admission::Probe(permit)) => {
            permit.not_done("not there").await.expect("a report");
            "a probe".to_owned()
        }
        Ok(Admission::Replay(receipt)) => format!("replay of {}", receipt.state.as_str()),
        Ok(Admission::Wait { .. }) => "wait".to_owned(),
        Ok(Admission::InDoubt(_)) => "in doubt".to_owned(),
        Err(error) => error.code().to_owned(),
    }
}

#[tokio::test]
async fn work_goes_on_with_every_released_format() {
    for fixture in fixtures() {
        let (_scene, engine) = opened(&fixture).await;
        for (text, expected) in [
            ("a new key", "granted with fence 1"),
            ("tombstone", "expired"),
            // Fences go on where the forgotten operation stopped.
            ("stub", "granted with fence 2"),
            ("begun-again", "replay of succeeded"),
            ("succeeded", "replay of succeeded"),
            ("succeeded-long", "replay of succeeded"),
            ("succeeded-silent", "replay of succeeded"),
            ("succeeded-streamed", "replay of succeeded"),
            ("failed", "replay of failed"),
            ("pending", "granted with fence 1"),
            ("pending-queued", "wait"),
            ("dead", "dead"),
            ("doubtful", "in doubt"),
            ("resolved", "replay of succeeded"),
            // The lease of what ran when the fixture was made is over: evidence settles it.
            ("running-with-evidence", "replay of succeeded"),
            ("running", "in doubt"),
            ("doubtful-probed", "a probe"),
        ] {
            let met = meets(&engine, text).await;
            assert_eq!(met, expected, "{text} in {}", fixture.display());
        }
        engine.sweep().await.expect("it is swept");
        let verified = engine.verify().await.expect("it is verified");
        assert!(verified.is_clean(), "{}: {verified:?}", fixture.display());
    }
}

#[tokio::test]
async fn tokens_can_be_made_in_every_released_format() {
    for fixture in fixtures() {
        let (scene, engine) = opened(&fixture).await;
        let before = engine.tokens(None).await.expect("they are listed").len();
        let wanted = NewToken {
            namespace: Namespace::default(),
            scope: Scope::Read,
            label: None,
            expires_in: None,
        };
        let (token, _) = engine.create_token(wanted).await.expect("it is made");
        drop(engine);
        let engine = scene.open().await;
        let granted = engine.authenticate(&token.reveal()).await;
        assert_eq!(granted.expect("it is accepted").id, token.id);
        let after = engine.tokens(None).await.expect("they are listed").len();
        assert_eq!(after, before + 1, "{}", fixture.display());
    }
}
