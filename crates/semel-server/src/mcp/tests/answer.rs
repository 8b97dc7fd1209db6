use std::sync::Arc;
use std::time::Duration;

use semel::core::canonical::{Limits, canonicalize};
use semel::core::identity::{Call, ClientText, Door, Identity, InFlight, Relation, Scope, Source};
use semel::core::ledger::{Delivery, Rejection, StateKind};
use semel::core::{Fingerprint, Input};
use semel::store::StoreError;
use semel::{Effect, Key, Label, Namespace, Receipt, Refusal, Timestamp};

use crate::mcp::answer::{self, Doubt, Known, Outcome, Plan, ResolveBy, Said, Stand, Task, To};
use crate::mcp::ask::{Ask, Capabilities, Client, Era};
use crate::mcp::message::{MESSAGE_MAX, Malformed, Message};

/// 2026-11-15T10:00:00Z.
const START: Timestamp = Timestamp(1_794_736_800_000_000);

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

const LEGACY: To<'static> = To {
    id: "7",
    era: Era::Legacy,
    tool: "charge",
    resolve: ResolveBy::Command,
};

const MODERN: To<'static> = To {
    era: Era::Modern,
    ..LEGACY
};

/// The receipt of an operation that is done, and replayed.
fn done(payload: Option<&str>) -> Receipt {
    Receipt {
        ok: true,
        effect: Effect::Noop,
        replayed: true,
        original_effect: Some(Effect::Updated),
        previous_effect: None,
        policy_kept: None,
        reason: Some("already done 40 s ago".to_owned()),
        namespace: Namespace::default(),
        key: Key::new("mcp/0c52a1d5f1e0b7a3/it's").unwrap(),
        name: Label::new("charge").unwrap(),
        state: StateKind::Succeeded,
        attempt: 1,
        fence: 1,
        started_at: Some(START),
        settled_at: Some(after(1)),
        redacted: false,
        payload: payload.map(|text| Arc::from(text.as_bytes())),
    }
}

fn doubtful() -> Receipt {
    Receipt {
        ok: false,
        effect: Effect::Unknown,
        replayed: false,
        original_effect: None,
        reason: None,
        state: StateKind::Doubtful,
        settled_at: None,
        ..done(None)
    }
}

fn known(receipt: &Receipt, source: Source) -> Known<'_> {
    Known {
        receipt,
        source,
        occurrence: 2,
        delivery: Delivery::Undelivered,
    }
}

/// The receipt of [`done`] as this door writes it.
fn done_json(outcome: &str, source: &str) -> String {
    format!(
        r#"{{"ok":true,"effect":"noop","replayed":true,"original_effect":"updated","reason":"already done 40 s ago","namespace":"default","key":"mcp/0c52a1d5f1e0b7a3/it's","name":"charge","state":"succeeded","attempt":1,"fence":1,"started_at":"2026-11-15T10:00:00.000Z","settled_at":"2026-11-15T10:00:01.000Z","outcome":"{outcome}","key_source":"{source}","occurrence":2,"delivery":"undelivered"}}"#
    )
}

fn text(message: &Message) -> &str {
    std::str::from_utf8(message.bytes()).unwrap()
}

/// Compares what is said, in whatever order.
#[track_caller]
fn assert_says(message: &Message, expected: &str) {
    let canonical = |json: &[u8]| {
        let bytes = canonicalize(json, &Limits::default())
            .unwrap_or_else(|error| panic!("{error}: {expected}"));
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(canonical(message.bytes()), canonical(expected.as_bytes()));
}

/// Makes the message that a result of our own is.
fn own(era: Era, said: &str, meta: &str) -> String {
    let kind = if era == Era::Modern {
        r#""resultType":"complete","#
    } else {
        ""
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{{kind}"content":[{{"type":"text","text":"{said}"}}],"isError":true,"_meta":{{"dev.semel/effect":{meta}}}}}}}"#
    )
}

#[test]
fn an_answer_gets_its_receipt_and_stays_what_it_is() {
    let receipt = done(None);
    let known = known(&receipt, Source::CallId);
    let meta = done_json("executed", "call_id");
    for (result, after) in [
        (
            r#"{ "content":[] ,"structuredContent":{"n":1E2}}"#,
            format!(
                r#"{{ "content":[] ,"structuredContent":{{"n":1E2}},"_meta":{{"dev.semel/effect":{meta}}}}}"#
            ),
        ),
        (
            r#"{"_meta":{"x":1.0},"y":2}"#,
            format!(r#"{{"_meta":{{"x":1.0,"dev.semel/effect":{meta}}},"y":2}}"#),
        ),
        // What has no place for it is left alone.
        ("5", "5".to_owned()),
        (r#"{"_meta":7}"#, r#"{"_meta":7}"#.to_owned()),
        (
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_meta":{},"_meta":{}}"#.to_owned(),
        ),
    ] {
        let message = Message::read(format!(
            r#"{{"jsonrpc":"2.0", "id":7,"result":{result},"z":0}}"#
        ))
        .unwrap();
        let expected = format!(r#"{{"jsonrpc":"2.0", "id":7,"result":{after},"z":0}}"#);
        assert_eq!(
            text(&answer::answered(&message, &known, Outcome::Executed)),
            expected
        );
    }
    let error =
        Message::read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#).unwrap();
    assert_eq!(
        answer::answered(&error, &known, Outcome::InDoubt).bytes(),
        error.bytes()
    );
}

#[test]
fn a_stored_answer_is_given_again_with_the_id_of_the_request() {
    let receipt = done(Some(
        r#"{"result":{"content":[ ],"structuredContent":{"n":1E2},"_meta":{"io.modelcontextprotocol/subscriptionId":3,"a":1}}}"#,
    ));
    let known = known(&receipt, Source::Explicit);
    let meta = done_json("replayed", "explicit");
    let rest = format!(
        r#""content":[ ],"structuredContent":{{"n":1E2}},"_meta":{{"a":1,"dev.semel/effect":{meta}}}"#
    );
    let legacy = answer::replay(&LEGACY, &known, Outcome::Replayed, after(41));
    assert_eq!(
        text(&legacy),
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{{rest}}}}}"#)
    );
    let modern = answer::replay(&MODERN, &known, Outcome::Replayed, after(41));
    assert_says(
        &modern,
        &format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"resultType":"complete",{rest}}}}}"#),
    );
    let receipt = done(Some(r#"{"error":{"code":-5,"message":"m","data":1.0}}"#));
    let error = answer::replay(
        &MODERN,
        &Known {
            receipt: &receipt,
            ..known
        },
        Outcome::Replayed,
        after(41),
    );
    assert_eq!(
        text(&error),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"m","data":1.0}}"#
    );
}

#[test]
fn where_only_the_arguments_told_a_text_says_so_and_how_to_ask_for_a_second() {
    let again = r#"If it is wanted once more, call it again with \"semel_repeat\": \"mcp/0c52a1d5f1e0b7a3/it's\" among its arguments."#;
    let receipt = done(Some(
        r#"{"result":{"content":[{"type":"text","text":"paid"}]}}"#,
    ));
    let known = known(&receipt, Source::Fingerprint);
    for (outcome, word, said) in [
        (
            Outcome::Replayed,
            "replayed",
            "semel: nothing was done now. This is the answer of the same call of `charge` 40 s ago, which may not have arrived.",
        ),
        (
            Outcome::Joined,
            "joined",
            "semel: `charge` ran once, for this call and an identical one that was under way.",
        ),
    ] {
        let message = answer::replay(&LEGACY, &known, outcome, after(41));
        let meta = done_json(word, "fingerprint");
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"paid"}},{{"type":"text","text":"{said} {again}"}}],"_meta":{{"dev.semel/effect":{meta}}}}}}}"#
        );
        assert_eq!(text(&message), expected);
    }
    // A task has no content to put a text into, and must stay one.
    let receipt = done(Some(r#"{"result":{"resultType":"task","taskId":"t"}}"#));
    let task = answer::replay(
        &MODERN,
        &Known {
            receipt: &receipt,
            ..known
        },
        Outcome::Replayed,
        after(41),
    );
    let meta = done_json("replayed", "fingerprint");
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"resultType":"task","taskId":"t","_meta":{{"dev.semel/effect":{meta}}}}}}}"#
    );
    assert_eq!(text(&task), expected);
}

#[test]
fn what_a_person_settled_is_told_in_words() {
    let meta = done_json("replayed", "explicit");
    for (payload, more) in [
        (None, ""),
        (Some(r#"{"id":42}"#), r#" What is known: {\"id\":42}"#),
    ] {
        let receipt = done(payload);
        let message = answer::replay(
            &MODERN,
            &known(&receipt, Source::Explicit),
            Outcome::Replayed,
            after(41),
        );
        let said = format!(
            "semel: nothing was done now. An earlier call of `charge` took effect, as was found out later; its own answer is not known.{more}"
        );
        assert_says(&message, &own(Era::Modern, &said, &meta));
    }
}

#[test]
fn an_answer_that_became_too_large_is_an_error_and_no_loss_of_the_connection() {
    let fits = format!(
        r#"{{"result":{{"x":"{}"}}}}"#,
        "x".repeat(MESSAGE_MAX - 100)
    );
    let receipt = done(Some(&fits));
    let message = answer::replay(
        &LEGACY,
        &known(&receipt, Source::Explicit),
        Outcome::Replayed,
        START,
    );
    assert!(
        !text(&message).contains("dev.semel") && text(&message).contains(r#""result""#),
        "without its receipt"
    );
    let over = format!(r#"{{"result":{{"x":"{}"}}}}"#, "x".repeat(MESSAGE_MAX));
    let receipt = done(Some(&over));
    let message = answer::replay(
        &LEGACY,
        &known(&receipt, Source::Explicit),
        Outcome::Replayed,
        START,
    );
    assert!(text(&message).contains("cannot be given again"));
}

/// The receipt of [`doubtful`] as this door writes it.
fn doubtful_json(outcome: &str, problem: &str) -> String {
    format!(
        r#"{{"ok":false,"effect":"unknown","replayed":false,"reason":null,"namespace":"default","key":"mcp/0c52a1d5f1e0b7a3/it's","name":"charge","state":"doubtful","attempt":1,"fence":1,"started_at":"2026-11-15T10:00:00.000Z","settled_at":null,"outcome":"{outcome}","key_source":"fingerprint","occurrence":2,"delivery":"undelivered"{problem}}}"#
    )
}

fn problem(code: &str, said: &str, hint: &str, retryable: bool) -> String {
    format!(r#"{{"code":"{code}","message":"{said}","hint":"{hint}","retryable":{retryable}}}"#)
}

#[test]
fn doubts_say_what_is_known_and_what_to_do() {
    let receipt = doubtful();
    let known = known(&receipt, Source::Fingerprint);
    let shell = r"'mcp/0c52a1d5f1e0b7a3/it'\\''s'";
    let person = format!(
        "Look whether it happened. If it did: `semel resolve {shell} --done`; if not: `semel resolve {shell} --not-done`, and then call again."
    );
    let tool = r#"Look whether it happened, then call `semel_resolve` with \"key\": \"mcp/0c52a1d5f1e0b7a3/it's\" and \"happened\": true or false; after false, call again."#;
    let before = "nothing was done now. It is not known whether an earlier call of `charge` at 2026-11-15T10:00:00.000Z took effect.";
    let now = "`charge` was sent, and it is not known whether it took effect: the server ended. It is not sent again.";
    let with_tool = To {
        resolve: ResolveBy::Tool,
        ..MODERN
    };
    for (message, era, said, hint) in [
        (
            answer::in_doubt(&LEGACY, &known, &Doubt::earlier(&LEGACY, &receipt)),
            Era::Legacy,
            before,
            person.as_str(),
        ),
        (
            answer::in_doubt(&with_tool, &known, &Doubt::earlier(&with_tool, &receipt)),
            Era::Modern,
            before,
            tool,
        ),
        (
            answer::in_doubt(
                &LEGACY,
                &known,
                &Doubt::lost(&LEGACY, &receipt, "the server ended"),
            ),
            Era::Legacy,
            now,
            &person,
        ),
    ] {
        let said = format!("{said} {hint}");
        let problem = format!(",\"error\":{}", problem("in_doubt", &said, hint, false));
        assert_says(
            &message,
            &own(
                era,
                &format!("semel: {said}"),
                &doubtful_json("in_doubt", &problem),
            ),
        );
    }
}

#[test]
fn a_doubt_is_a_task_in_the_words_of_each_kind_of_the_protocol() {
    let receipt = doubtful();
    let known = known(&receipt, Source::Fingerprint);
    let doubt = Doubt::earlier(&LEGACY, &receipt);
    let said = serde_json::to_string(&doubt.text).unwrap();
    let hint = doubt.text.split_once("effect. ").unwrap().1;
    let problem = serde_json::json!({
        "code": "in_doubt", "message": doubt.text.strip_prefix("semel: ").unwrap(), "hint": hint, "retryable": false,
    });
    let receipt = doubtful_json("in_doubt", &format!(",\"error\":{problem}"));
    let task = |stand| Task {
        id: "semel-task-1.m.1.k",
        created_at: START,
        updated_at: after(1),
        stand,
    };
    let working = task(Stand::Working(&doubt.text));
    let modern = format!(
        r#""taskId":"semel-task-1.m.1.k","status":"working","statusMessage":{said},"createdAt":"2026-11-15T10:00:00.000Z","lastUpdatedAt":"2026-11-15T10:00:01.000Z","ttlMs":null,"pollIntervalMs":5000"#
    );
    let legacy = modern
        .replace("ttlMs", "ttl")
        .replace("pollIntervalMs", "pollInterval");
    let result = |json: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"result":{json}}}"#);
    assert_says(
        &answer::task_created(&MODERN, &known, &doubt, &working),
        &result(&format!(
            r#"{{"resultType":"task",{modern},"_meta":{{"dev.semel/effect":{receipt}}}}}"#
        )),
    );
    assert_says(
        &answer::task_created(&LEGACY, &known, &doubt, &working),
        &result(&format!(
            r#"{{"task":{{{legacy}}},"_meta":{{"dev.semel/effect":{receipt},"io.modelcontextprotocol/model-immediate-response":{said}}}}}"#
        )),
    );
    assert_says(
        &answer::task(&MODERN, &working),
        &result(&format!(r#"{{"resultType":"complete",{modern}}}"#)),
    );
    assert_says(
        &answer::task(&LEGACY, &working),
        &result(&format!("{{{legacy}}}")),
    );

    // What has ended: the newer kind carries the answer along, the older one gives it when it is asked for.
    let good = Message::result("7", r#"{"content":[]}"#).unwrap();
    let bad = Message::result(
        "7",
        r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#,
    )
    .unwrap();
    let error = Message::error(Some("7"), r#"{"code":1,"message":"no"}"#).unwrap();
    for (answer, ok, modern, legacy, member) in [
        (&good, true, "completed", "completed", "result"),
        (&bad, false, "completed", "failed", "result"),
        (&error, false, "failed", "failed", "error"),
    ] {
        let ended = task(Stand::Ended { answer, ok });
        let words = if ok { "" } else { r#""statusMessage":"no","# };
        let outcome = answer.outcome().unwrap();
        assert_says(
            &answer::task(&MODERN, &ended),
            &result(&format!(
                r#"{{"resultType":"complete","taskId":"semel-task-1.m.1.k","status":"{modern}",{words}"createdAt":"2026-11-15T10:00:00.000Z","lastUpdatedAt":"2026-11-15T10:00:01.000Z","ttlMs":null,"pollIntervalMs":5000,"{member}":{outcome}}}"#
            )),
        );
        assert_says(
            &answer::task(&LEGACY, &ended),
            &result(&format!(
                r#"{{"taskId":"semel-task-1.m.1.k","status":"{legacy}",{words}"createdAt":"2026-11-15T10:00:00.000Z","lastUpdatedAt":"2026-11-15T10:00:01.000Z","ttl":null,"pollInterval":5000}}"#
            )),
        );
    }
    assert_says(
        &answer::task_result("t", &good),
        &result(
            r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#,
        ),
    );
    assert_eq!(text(&answer::task_result("t", &error)), text(&error));
}

#[test]
fn a_challenge_asks_and_gives_the_earlier_answer() {
    let again = r#"If it is wanted once more, call it again with \"semel_repeat\": \"mcp/0c52a1d5f1e0b7a3/it's\" among its arguments."#;
    let receipt = done(Some(
        r#"{"result":{"content":[{"type":"text","text":"ch_123"}]}}"#,
    ));
    let message = answer::challenged(&MODERN, &known(&receipt, Source::Fingerprint), after(41));
    let said = format!(
        "semel: nothing was done now. The same call of `charge` succeeded 40 s ago. {again} Otherwise use its answer, which follows."
    );
    let meta = done_json("challenged", "fingerprint");
    let expected = own(Era::Modern, &said, &meta);
    let expected = expected.replace(
        r#""}],"isError""#,
        r#""},{"type":"text","text":"ch_123"}],"isError""#,
    );
    assert_says(&message, &expected);

    let running = Receipt {
        state: StateKind::Running,
        ..doubtful()
    };
    let message = answer::challenged(&LEGACY, &known(&running, Source::Fingerprint), after(41));
    let said = format!(
        "semel: nothing was done now. The same call of `charge` is under way. {again} Otherwise wait for its answer."
    );
    let meta = doubtful_json("challenged", "").replace("doubtful", "running");
    assert_says(&message, &own(Era::Legacy, &said, &meta));
}

#[test]
fn misuse_of_a_key_is_an_error_and_the_rest_is_for_the_model() {
    let key = Key::new("mcp/0/k").unwrap();
    let identity = Identity {
        key,
        occurrence: 2,
        relation: Relation::Joined,
        source: Source::Fingerprint,
    };
    let explicit = Call {
        explicit: Some(ClientText::new("order-7").unwrap()),
        ..plain_call()
    };
    assert_says(
        &answer::conflict(&MODERN, &explicit),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1409,"message":"the idempotency key was used for a call with other arguments; nothing was done now","data":{"type":"idempotency_key_conflict","idempotencyKey":"order-7"}}}"#,
    );
    // What was taken from the arguments, or from the harness, is a key as well.
    let named = Call {
        call_id: Some(ClientText::new("toolu_1").unwrap()),
        ..plain_call()
    };
    assert_says(
        &answer::conflict(&MODERN, &named),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1409,"message":"`charge` was called before for the same thing with other arguments; nothing was done now. Repeat the first call exactly to get its answer, or change what it is about.","data":{"type":"idempotency_key_conflict","idempotencyKey":"toolu_1"}}}"#,
    );
    assert_says(
        &answer::in_progress(&MODERN, &identity, Some("order-7")),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1425,"message":"the first call with this idempotency key has not ended; nothing was done now","data":{"type":"idempotency_key_in_progress","idempotencyKey":"order-7"}}}"#,
    );
    let hint = "Call it again with the same arguments to get its answer.";
    let said =
        format!("nothing was started now. The same call of `charge` is still under way. {hint}");
    let problem = problem("in_flight", &said, hint, true);
    let meta = format!(
        r#"{{"ok":false,"effect":"noop","key":"mcp/0/k","outcome":"in_progress","key_source":"fingerprint","occurrence":2,"error":{problem}}}"#
    );
    let message = answer::in_progress(&LEGACY, &identity, None);
    assert_says(
        &message,
        &own(Era::Legacy, &format!("semel: {said}"), &meta),
    );
}

#[test]
fn refusals_say_that_nothing_was_done() {
    let key = Key::new("mcp/0/k").unwrap();
    let again = r#"If it is wanted once more, call it again with \"semel_repeat\": \"mcp/0/k\" among its arguments."#;
    let plain = |outcome: &str, problem: &str| {
        format!(r#"{{"ok":false,"effect":"noop","outcome":"{outcome}","error":{problem}}}"#)
    };
    for (message, outcome, code, said, hint, retryable) in [
        (
            answer::expired(&LEGACY, &key, &plain_call()),
            "refused",
            "expired",
            "The same call of `charge` ended long ago, and its answer is not kept any more.",
            again,
            false,
        ),
        (
            answer::dead(&LEGACY, &key),
            "refused",
            "dead",
            "The same call of `charge` was given up, and did not take effect.",
            "Mend the cause, then `semel retry 'mcp/0/k'`, and call again.",
            false,
        ),
        (
            answer::store_unavailable(&LEGACY, "the disk is full"),
            "refused",
            "store_unavailable",
            "`charge` needs the ledger, which does not work: the disk is full.",
            "Call it again later.",
            true,
        ),
        (
            answer::plan_required(&LEGACY),
            "refused",
            "invalid_input",
            "`charge` runs only with a plan.",
            r#"Ask with _meta[\"dev.semel/preview\"] = true first, then call with the plan that it gives."#,
            false,
        ),
        (
            answer::plan_mismatch(&LEGACY, "it has ended"),
            "refused",
            "invalid_input",
            "The plan is not one for this call of `charge`: it has ended.",
            "Ask for a preview of this call, and use its plan.",
            false,
        ),
    ] {
        let said = format!("nothing was done now. {said} {hint}");
        let meta = plain(outcome, &problem(code, &said, hint, retryable));
        assert_says(
            &message,
            &own(Era::Legacy, &format!("semel: {said}"), &meta),
        );
    }
    let pending = Receipt {
        state: StateKind::Pending,
        effect: Effect::Noop,
        ..doubtful()
    };
    let message = answer::not_done(
        &MODERN,
        &known(&pending, Source::Fingerprint),
        "the server answered HTTP 401",
    );
    let meta = doubtful_json("not_done", "").replace("doubtful", "pending");
    let meta = meta.replace(r#""effect":"unknown""#, r#""effect":"noop""#);
    let said = "semel: `charge` was not carried out: the server answered HTTP 401. Nothing was done; it can be called again.";
    assert_says(&message, &own(Era::Modern, said, &meta));
}

#[test]
fn a_preview_says_what_would_happen_and_gives_a_plan() {
    let key = Key::new("mcp/0/k").unwrap();
    let plan = Plan {
        would: "It would run, as attempt 1",
        key: &key,
        source: Source::Business,
        class: "unsafe",
        token: "p1",
        until: after(60),
    };
    let said = r#"semel: nothing was done: this is a preview of `charge`. It would run, as attempt 1. To go ahead, make the same call with _meta[\"dev.semel/plan\"] = \"p1\" until 2026-11-15T10:01:00.000Z."#;
    let meta = r#"{"ok":true,"outcome":"preview","effect":"noop","changes":["It would run, as attempt 1"],"key":"mcp/0/k","key_source":"business","class":"unsafe","plan":"p1","plan_until":"2026-11-15T10:01:00.000Z"}"#;
    assert_says(
        &answer::preview(&MODERN, &plan),
        &own(Era::Modern, said, meta),
    );
}

#[test]
fn what_cannot_be_read_is_answered_all_the_same() {
    let client = Client {
        era: Era::Legacy,
        capabilities: Capabilities::default(),
    };
    let refused = Ask::read(Some(r#"{"name":"a","name":"b"}"#), client).unwrap_err();
    assert_says(
        &answer::refused(&LEGACY, &refused),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"`params` do not read the same to everybody: repeated member at byte 12: the object already has a member of that name; nothing was done","data":{"code":"invalid_input"}}}"#,
    );
    assert_says(
        &answer::malformed(None, &Malformed::Batch),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch of messages is not taken: send each by itself"}}"#,
    );
    assert_says(
        &answer::malformed(Some("\"a\""), &Malformed::NotRpc("x")),
        r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"the message is not JSON-RPC 2.0: x"}}"#,
    );
}

fn plain_call() -> Call {
    let name = Label::new("charge").unwrap();
    Call {
        door: Door::Mcp,
        scope: Scope {
            principal: None,
            target: "t".to_owned(),
            conversation: None,
        },
        explicit: None,
        call_id: None,
        business: None,
        fingerprint: Fingerprint::of(&name, Input::None).unwrap(),
        in_flight: InFlight::Join,
        repeat_of: None,
    }
}

#[test]
fn what_was_not_begun_is_told_by_its_code() {
    let refused = |rejection| {
        semel::Error::Refused(Box::new(Refusal {
            rejection,
            key: Some(Key::new("mcp/0/k").unwrap()),
            record: None,
        }))
    };
    let explicit = Call {
        explicit: Some(ClientText::new("order-7").unwrap()),
        ..plain_call()
    };
    let unavailable = || semel::Error::Store(StoreError::Unavailable("full".to_owned()));
    for (call, error, says) in [
        (
            plain_call(),
            refused(Rejection::KeyReused),
            "for the same thing with other arguments",
        ),
        (
            explicit.clone(),
            refused(Rejection::KeyReused),
            "idempotency_key_conflict",
        ),
        (
            plain_call(),
            refused(Rejection::Dead),
            "semel retry 'mcp/0/k'",
        ),
        (plain_call(), refused(Rejection::Expired), "semel_repeat"),
        (explicit, refused(Rejection::Expired), "use a new key"),
        (
            plain_call(),
            refused(Rejection::Fenced),
            "\"code\":\"fenced\"",
        ),
        (plain_call(), unavailable(), "\"retryable\":true"),
        (
            plain_call(),
            refused(Rejection::BreakerOpen {
                retry_at: Some(Timestamp::default()),
            }),
            "\"retry_at\":\"1970-01-01T00:00:00.000Z\"",
        ),
        (
            plain_call(),
            refused(Rejection::BreakerOpen { retry_at: None }),
            "`semel breaker close NAME`",
        ),
    ] {
        let message = answer::not_begun(&LEGACY, &call, &error);
        let text = text(&message);
        assert!(
            text.contains(says) && text.contains("nothing was done now"),
            "{says}: {text}"
        );
    }
}

#[test]
fn an_answer_that_was_not_stored_says_so() {
    let key = Key::new("mcp/0/k").unwrap();
    let answer = Message::read(r#"{"jsonrpc":"2.0","id":7,"result":{"n":1E2}}"#).unwrap();
    assert_says(
        &answer::unstored(&answer, &key, "the disk is full"),
        r#"{"jsonrpc":"2.0","id":7,"result":{"n":1E2,"_meta":{"dev.semel/effect":{"ok":false,"effect":"unknown","key":"mcp/0/k","state":"doubtful","outcome":"in_doubt","error":{"code":"in_doubt","message":"the answer could not be stored: the disk is full","hint":"Keep this answer: the same call will be told that nobody knows what happened.","retryable":false}}}}}"#,
    );
}

#[test]
fn a_person_is_asked_and_only_a_plain_word_counts() {
    let receipt = doubtful();
    let known = known(&receipt, Source::Fingerprint);
    let question = r#"{"message":"It is not known whether a call of `charge` at 2026-11-15T10:00:00.000Z took effect. Did it? With \"no\" it is carried out now; with \"yes\" or \"not sure\" nothing is done.","requestedSchema":{"type":"object","properties":{"happened":{"type":"string","title":"Did it happen?","enum":["yes","no","not sure"]}},"required":["happened"]}}"#;
    assert_eq!(answer::question(&LEGACY, &known), question);
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"resultType":"input_required","inputRequests":{{"semel":{{"method":"elicitation/create","params":{question}}}}},"requestState":"s\"1"}}}}"#
    );
    assert_eq!(text(&answer::asked(&MODERN, &known, "s\"1")), expected);
    for (result, said) in [
        (
            r#"{"action":"accept","content":{"happened":"yes"}}"#,
            Said::Happened,
        ),
        (
            r#"{"action":"accept","content":{"happened":"no"}}"#,
            Said::DidNot,
        ),
        (
            r#"{"action":"accept","content":{"happened":"not sure"}}"#,
            Said::Nothing,
        ),
        (
            r#"{"action":"accept","content":{"happened":false}}"#,
            Said::Nothing,
        ),
        (r#"{"action":"accept"}"#, Said::Nothing),
        (
            r#"{"action":"decline","content":{"happened":"no"}}"#,
            Said::Nothing,
        ),
        (r#"{"action":"cancel"}"#, Said::Nothing),
        ("5", Said::Nothing),
    ] {
        assert_eq!(answer::said(result), said, "{result}");
        let responses = format!(r#"{{"other":1,"semel":{result}}}"#);
        assert_eq!(answer::said_in(&responses), said, "{result}");
    }
    assert_eq!(
        answer::said_in(r#"{"other":{"action":"accept","content":{"happened":"no"}}}"#),
        Said::Nothing
    );
}
