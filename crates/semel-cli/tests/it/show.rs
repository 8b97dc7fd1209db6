//! `semel show`

use semel::{Effect, Namespace, Note};
use serde_json::json;

use crate::harness::{World, gone, key, label, permit, request};
use crate::samples::{leave, world};

const HEAD: &str = "  name         create-order
  namespace    default
  door         run
  policy       unsafe; in doubt: hold
  fingerprint  f1:c8ff2c2fd43e16a32ea63f3d7c83693aaf4bac6d9f5076f61239fff4d7d2c353
  created      TIME (10 min ago)
";

#[test]
fn people_get_the_story_of_a_settled_operation() {
    let story = format!(
        "order-1 succeeded
{HEAD}  settled      TIME (10 min ago)
  effect       created
  delivery     unknown
attempt 1 (fence 1)
  started      TIME (10 min ago)
  ended        TIME, after 0 s
  verdict      done
  holder       mill, pid 4242 (cannot be seen from here)
answer
  {{\"id\":42}}
"
    );
    world().semel(&["show", "order-1"]).expect(0, &story, "");
}

#[test]
fn a_doubt_that_nobody_noticed_is_told_with_the_next_step() {
    let story = format!(
        "order-7 doubtful
{HEAD}  now          in doubt for 9 min
attempt 1 (fence 1)
  started      TIME (10 min ago)
  ended        TIME, after 1 min
  verdict      none: it was not heard of again, in doubt
  holder       mill, pid 4242 (cannot be seen from here)
"
    );
    let hint = "hint: find out whether the effect happened, then say so: \
        `semel resolve order-7 --done` or `semel resolve order-7 --not-done`\n";
    world().semel(&["show", "order-7"]).expect(0, &story, hint);
}

#[test]
fn every_state_that_needs_somebody_has_a_hint() {
    let world = world();
    for (key, hint) in [
        ("order-2", "hint: `semel retry order-2` lets it run again\n"),
        (
            "order-5",
            "hint: mend the cause, then `semel retry order-5`; \
             or end it with `semel cancel order-5`\n",
        ),
        (
            "order-8",
            "hint: `semel log order-8 --follow` shows what comes of it\n",
        ),
        ("order-4", ""),
        ("mail-6", ""),
    ] {
        let ran = world.semel(&["show", key]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, hint));
    }
}

#[test]
fn hints_repeat_the_flags_that_lead_to_the_same_ledger() {
    let world = World::new();
    world.past(|engine| async move {
        let wall = Namespace::new("shop").expect("a valid name");
        let doubted = permit(&engine, request("it's 7").namespace(wall)).await;
        doubted.unknown("lost").await.expect("taken");
    });
    let ran = world.semel(&["show", "it's 7", "--namespace", "shop"]);
    assert_eq!(
        ran.stderr,
        "hint: find out whether the effect happened, then say so: \
         `semel --namespace shop resolve 'it'\\''s 7' --done` or \
         `semel --namespace shop resolve 'it'\\''s 7' --not-done`\n"
    );
}

#[test]
fn the_process_of_a_holder_is_alive_or_gone_or_unseen() {
    let world = World::new();
    let this = std::process::id();
    world.past(|engine| async move { leave(&engine, request("alive")).await });
    world.past_of(gone(), |engine| async move {
        leave(&engine, request("gone")).await
    });
    world.past_of(None, |engine| async move {
        leave(&engine, request("nobody")).await
    });
    let holder = |key: &str| {
        let ran = world.semel(&["show", key]);
        let line = ran.stdout.lines().find(|line| line.starts_with("  holder"));
        line.expect("there is one").to_owned()
    };
    assert!(holder("alive").ends_with(&format!(", pid {this} (alive)")));
    assert_eq!(
        holder("gone"),
        format!("  holder       mill, pid {this} (gone)")
    );
    assert_eq!(holder("nobody"), "  holder       unknown");
}

#[test]
fn programs_get_the_whole_record() {
    let ran = world().semel(&["show", "order-1", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let record = &ran.json()[0];
    assert_eq!(record["data"], json!({"id": 42}));
    assert_eq!(
        record["attempts"],
        json!([{
            "attempt": 1, "fence": 1, "started_at": "TIME", "ended_at": "TIME",
            "verdict": "done", "error": null,
        }])
    );
    assert_eq!(record.as_object().map(serde_json::Map::len), Some(29));
}

#[test]
fn a_resolution_is_told() {
    let world = World::new();
    world.past(|engine| async move {
        let doubted = permit(&engine, request("order-7")).await;
        doubted.unknown("lost").await.expect("taken");
        let wall = Namespace::default();
        let version = semel::core::ledger::Version(2);
        let operator = engine.operator(&wall, &key("order-7"), version, label("ann"));
        let note = Note::new("the shop shows it").expect("a valid note");
        let done = operator
            .note(note)
            .resolve_done(true, Effect::Updated, None);
        done.await.expect("resolved");
    });
    let ran = world.semel(&["show", "order-7"]);
    let told = "  resolved     by ann, TIME (10 min ago): the shop shows it\n";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
}

#[test]
fn a_key_that_names_nothing_is_not_found() {
    let world = world();
    let message = "semel: nope: there is no such operation in default\n\
        hint: `semel list` shows what there is; --namespace looks behind another wall\n";
    world.semel(&["show", "nope"]).expect(1, "", message);
    let ran = world.semel(&["show", "nope", "--json"]);
    assert_eq!(
        (ran.code, ran.json()),
        (
            1,
            vec![json!({"ok": false, "error": {
                "code": "not_found",
                "message": "nope: there is no such operation in default",
                "hint": "`semel list` shows what there is; --namespace looks behind another wall",
                "retryable": false,
            }})]
        )
    );
    let ran = world.semel(&["show", "t\u{e9}", "--json"]);
    assert_eq!(
        (ran.code, &ran.json()[0]["error"]["code"]),
        (64, &json!("invalid_key"))
    );
}
