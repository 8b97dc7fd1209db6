//! Doubts as tasks and as questions: each client hears of a doubt in the clearest way that it has.

use serde_json::{Value, json};

use crate::desk::{Desk, Era};
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Told, Way, told};
use crate::wire::{Client, Heard};

const WAYS: [(Carrier, Carrier); 4] = [
    (Carrier::Stdio, Carrier::Stdio),
    (Carrier::Stdio, Carrier::Http),
    (Carrier::Http, Carrier::Stdio),
    (Carrier::Http, Carrier::Http),
];

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// Sets up a server that says that it answers with tasks.
fn with_tasks(front: Carrier, upstream: Carrier, era: Era) -> Setup {
    let desk = Desk::with(&[("FIXTURE_TASKS", "1")]);
    Setup::on(desk, Way::Gateway(front), upstream, era)
}

fn takes_tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// Makes a call that says that it takes a task for an answer, in the way of the era.
fn call(setup: &Setup, client: &mut Client, tool: &str) -> Heard {
    let mut params = json!({"name": tool, "arguments": order()});
    if setup.era == Era::Legacy {
        params["task"] = json!({"ttl": 60_000});
    }
    client.ask("tools/call", params)
}

/// Makes a call whose server is lost after the effect.
fn lost_call(setup: &Setup, client: &mut Client) -> Heard {
    let effects = setup.desk.effects();
    setup.desk.next_fault("cut");
    let heard = call(setup, client, "charge");
    assert_eq!(setup.desk.effects(), effects + 1, "{setup}");
    heard
}

/// Reads the task that a call was answered with.
#[track_caller]
fn task_of(setup: &Setup, heard: &Heard) -> Value {
    assert_eq!(told(heard), Told::Doubt, "{setup}: {heard:?}");
    let result = heard.result();
    let task = match setup.era {
        Era::Modern => {
            assert_eq!(result["resultType"], "task", "{setup}: {result}");
            result
        }
        Era::Legacy => result["task"].clone(),
    };
    assert_eq!(task["status"], "working", "{setup}: {task}");
    let receipt = &heard.result()["_meta"]["dev.semel/effect"];
    assert_eq!(receipt["state"], "doubtful", "{setup}: {receipt}");
    let words = task["statusMessage"]
        .as_str()
        .expect("it says what is known");
    assert!(words.contains("semel resolve"), "{setup}: {words}");
    task
}

#[track_caller]
fn get(client: &mut Client, task: &Value) -> Value {
    let heard = client.ask("tasks/get", json!({"taskId": task["taskId"]}));
    heard.result()
}

/// Returns what the call of an ended task would be answered.
#[track_caller]
fn result_of(setup: &Setup, client: &mut Client, task: &Value) -> Value {
    match setup.era {
        Era::Modern => get(client, task)["result"].clone(),
        Era::Legacy => {
            let heard = client.ask("tasks/result", json!({"taskId": task["taskId"]}));
            let result = heard.result();
            let related = &result["_meta"]["io.modelcontextprotocol/related-task"];
            assert_eq!(related["taskId"], task["taskId"], "{setup}: {result}");
            result
        }
    }
}

fn settled(front: Carrier, upstream: Carrier, era: Era) {
    let setup = with_tasks(front, upstream, era);
    let mut client = setup.client_with(&takes_tasks());
    let task = task_of(&setup, &lost_call(&setup, &mut client));
    // The same doubt is the same task, however often it is met, and nothing runs.
    let again = task_of(&setup, &call(&setup, &mut client, "charge"));
    assert_eq!(again["taskId"], task["taskId"], "{setup}");
    assert_eq!(get(&mut client, &task)["status"], "working", "{setup}");
    setup.resolve("--done");
    assert_eq!(get(&mut client, &task)["status"], "completed", "{setup}");
    let result = result_of(&setup, &mut client, &task);
    assert!(
        result.to_string().contains("took effect"),
        "{setup}: {result}"
    );
    // It was asked for without its server, and whoever heard of a doubt and comes again wants no second effect.
    for method in ["tasks/get", "tasks/result"] {
        assert_eq!(setup.desk.received_of(method), 0, "{setup}");
    }
    let heard = call(&setup, &mut client, "charge");
    assert!(
        matches!(told(&heard), Told::Failed(text) if text.contains("took effect")),
        "{setup}: {heard:?}"
    );
    assert_eq!(setup.desk.effects(), 1, "{setup}");
}

#[test]
fn a_doubt_is_a_task_until_somebody_says_that_it_happened() {
    for (front, upstream) in WAYS {
        for era in ERAS {
            settled(front, upstream, era);
        }
    }
}

#[test]
fn a_task_whose_call_did_not_happen_ends_and_stays_so() {
    for (front, era) in [
        (Carrier::Stdio, Era::Legacy),
        (Carrier::Stdio, Era::Modern),
        (Carrier::Http, Era::Legacy),
        (Carrier::Http, Era::Modern),
    ] {
        let setup = with_tasks(front, Carrier::Stdio, era);
        let mut client = setup.client_with(&takes_tasks());
        let task = task_of(&setup, &lost_call(&setup, &mut client));
        setup.resolve_not_done();
        let ended = get(&mut client, &task);
        let status = match era {
            // There a failed one is an error of JSON-RPC, which models do not get to see.
            Era::Modern => "completed",
            Era::Legacy => "failed",
        };
        assert_eq!(ended["status"], status, "{setup}: {ended}");
        let result = result_of(&setup, &mut client, &task);
        assert_eq!(result["isError"], true, "{setup}: {result}");
        let text = result["content"][0]["text"].to_string();
        assert!(text.contains("did not take effect"), "{setup}: {text}");
        // It can be called again, and the task of the first try stays as it ended.
        let heard = call(&setup, &mut client, "charge");
        assert_eq!(
            told(&heard),
            Told::Outcome("charge 2".to_owned()),
            "{setup}: {heard:?}"
        );
        assert_eq!(get(&mut client, &task), ended, "{setup}");
        let another = task_of(&setup, &lost_call(&setup, &mut client));
        assert_ne!(another["taskId"], task["taskId"], "{setup}");
        assert_eq!(get(&mut client, &task), ended, "{setup}");
    }
}

#[test]
fn a_task_outlives_the_gateway() {
    for (front, era) in [(Carrier::Stdio, Era::Legacy), (Carrier::Http, Era::Modern)] {
        let mut setup = with_tasks(front, Carrier::Stdio, era);
        let mut client = setup.client_with(&takes_tasks());
        let task = task_of(&setup, &lost_call(&setup, &mut client));
        setup.end_gateway(Some(client));
        let mut client = setup.client_with(&takes_tasks());
        assert_eq!(get(&mut client, &task)["status"], "working", "{setup}");
        let again = task_of(&setup, &call(&setup, &mut client, "charge"));
        assert_eq!(again["taskId"], task["taskId"], "{setup}");
    }
}

#[test]
fn nobody_learns_of_the_task_of_another() {
    let setup = with_tasks(Carrier::Http, Carrier::Http, Era::Modern);
    let mut ann = setup.client_with(&takes_tasks());
    ann.show("Bearer ann");
    let task = task_of(&setup, &lost_call(&setup, &mut ann));
    let mut bob = setup.client_with(&takes_tasks());
    bob.show("Bearer bob");
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let asked = json!({"taskId": task["taskId"], "inputResponses": {}});
        let error = bob.ask(method, asked.clone()).error();
        assert_eq!(error["code"], -32602, "{method}: {error}");
        ann.ask(method, asked).result();
    }
    let made_up = task["taskId"]
        .as_str()
        .expect("a text")
        .replace(".1.mcp", ".2.mcp");
    let error = ann.ask("tasks/get", json!({"taskId": made_up})).error();
    assert_eq!(error["code"], -32602, "{error}");
    // Who did not say that it takes tasks is not told of them.
    let mut plain = setup.client();
    plain.show("Bearer ann");
    let heard = plain.ask("tasks/get", json!({"taskId": task["taskId"]}));
    assert_eq!(heard.error()["code"], -32021, "{heard:?}");
    assert_eq!(setup.desk.received_of("tasks/get"), 0);
}

#[test]
fn a_doubt_cannot_be_cancelled_and_whoever_waits_for_it_hears_of_its_end() {
    let setup = with_tasks(Carrier::Stdio, Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    let task = task_of(&setup, &lost_call(&setup, &mut client));
    let about = json!({"taskId": task["taskId"]});
    let error = client.ask("tasks/cancel", about.clone()).error();
    assert_eq!(error["code"], 1423, "{error}");
    let waiting = client.send("tasks/result", about.clone());
    setup.resolve("--done");
    let result = client.hear(waiting).result();
    assert!(result.to_string().contains("took effect"), "{result}");
    let error = client.ask("tasks/cancel", about).error();
    assert_eq!(error["code"], -32602, "{error}");
}

#[test]
fn whoever_waits_too_long_for_the_end_of_a_doubt_is_told_to_come_again() {
    let desk = Desk::with(&[("FIXTURE_TASKS", "1"), ("SEMEL_MCP_WAIT", "0s")]);
    let way = Way::Gateway(Carrier::Stdio);
    let setup = Setup::on(desk, way, Carrier::Stdio, Era::Legacy);
    let mut client = setup.client();
    let task = task_of(&setup, &lost_call(&setup, &mut client));
    let heard = client.ask("tasks/result", json!({"taskId": task["taskId"]}));
    assert_eq!(heard.error()["code"], 1423, "{heard:?}");
}

/// A server that says nothing of tasks has not agreed to them, and its client gets what comes next.
#[test]
fn without_tasks_of_the_server_a_modern_client_gets_none() {
    let both = json!({"elicitation": {}, "extensions": takes_tasks()["extensions"]});
    for (front, upstream) in WAYS {
        let setup = Setup::new(Way::Gateway(front), upstream, Era::Modern);
        let mut client = setup.client_with(&takes_tasks());
        let heard = lost_call(&setup, &mut client);
        assert_eq!(told(&heard), Told::Doubt, "{setup}: {heard:?}");
        assert_eq!(heard.result()["isError"], true, "{setup}: {heard:?}");
        let mut client = setup.client_with(&both);
        let asked = call(&setup, &mut client, "charge").result();
        assert_eq!(asked["resultType"], "input_required", "{setup}: {asked}");
    }
}

#[test]
fn tasks_of_the_server_are_its_own() {
    for (front, upstream) in WAYS {
        for era in ERAS {
            let setup = with_tasks(front, upstream, era);
            let mut client = setup.client_with(&takes_tasks());
            for method in [
                "tasks/get",
                "tasks/result",
                "tasks/cancel",
                "tasks/update",
                "tasks/list",
            ] {
                client.ask(method, json!({"taskId": "fixture-1"}));
                assert_eq!(setup.desk.received_of(method), 1, "{setup}, {method}");
            }
        }
    }
}

/// The handle of a task is lost on its way: whoever asks again gets the same one.
#[test]
fn a_lost_handle_is_given_again() {
    for (front, upstream) in WAYS {
        for era in ERAS {
            let setup = with_tasks(front, upstream, era);
            let mut client = setup.client_with(&takes_tasks());
            setup.desk.next_fault("hold");
            let mut params = json!({"name": "later", "arguments": order()});
            if era == Era::Legacy {
                params["task"] = json!({});
            }
            let sent = client.send("tools/call", params.clone());
            setup.desk.wait_for_effects(1);
            client.cancel(sent);
            setup.desk.release();
            let result = client.ask("tools/call", params).result();
            let id = match era {
                Era::Modern => &result["taskId"],
                Era::Legacy => &result["task"]["taskId"],
            };
            assert_eq!(*id, "fixture-1", "{setup}: {result}");
            assert_eq!(setup.desk.effects(), 1, "{setup}");
        }
    }
}

/// Makes a call whose server is lost, and lets the person say what happened.
fn asked(setup: &Setup, client: &mut Client, word: &str) -> Heard {
    let answer = json!({"action": "accept", "content": {"happened": word}});
    setup.desk.next_fault("cut");
    match setup.era {
        Era::Legacy => {
            let mut sent = client.start("charge", &order(), &json!({}));
            let question = client.hear_aside(&mut sent, "elicitation/create");
            let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
            client.tell_raw(&said.to_string());
            client.hear(sent)
        }
        Era::Modern => {
            let question = client.call("charge", &order()).result();
            assert_eq!(
                question["resultType"], "input_required",
                "{setup}: {question}"
            );
            let params = json!({
                "name": "charge",
                "arguments": order(),
                "requestState": question["requestState"],
                "inputResponses": {"semel": answer},
            });
            client.ask("tools/call", params)
        }
    }
}

#[test]
fn a_person_who_knows_settles_a_doubt() {
    for (front, upstream) in WAYS {
        for era in ERAS {
            let setup = Setup::new(Way::Gateway(front), upstream, era);
            let mut client = setup.client_to_ask();
            let heard = asked(&setup, &mut client, "yes");
            assert!(
                matches!(told(&heard), Told::Failed(text) if text.contains("took effect")),
                "{setup}: {heard:?}"
            );
            assert_eq!(setup.desk.effects(), 1, "{setup}");
            let setup = Setup::new(Way::Gateway(front), upstream, era);
            let mut client = setup.client_to_ask();
            let heard = asked(&setup, &mut client, "no");
            assert_eq!(
                told(&heard),
                Told::Outcome("charge 2".to_owned()),
                "{setup}: {heard:?}"
            );
            let setup = Setup::new(Way::Gateway(front), upstream, era);
            let mut client = setup.client_to_ask();
            let heard = asked(&setup, &mut client, "not sure");
            assert_eq!(told(&heard), Told::Doubt, "{setup}: {heard:?}");
            assert_eq!(setup.desk.effects(), 1, "{setup}");
        }
    }
}
