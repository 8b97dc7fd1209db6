//! What servers say to the client, and what it says to them.

use serde_json::{Value, json};

use crate::mcp::message::Message;
use crate::mcp::upstream::{Headers, Reply, Upstream as _};

use super::fake::{Does, Fake, Script, World, until};

const IDLE: Script = |request: &Value, fake: &Fake| match request["method"].as_str() {
    Some("tools/list") => {
        Does::Answers(json!({"tools": [{"name": format!("wait-{}", fake.number())}]}))
    }
    Some("tools/call") => Does::Waits,
    Some("subscriptions/listen") => {
        let about = json!({"io.modelcontextprotocol/subscriptionId": request["id"]});
        let kind = if fake.number() == 0 {
            "tools"
        } else {
            "prompts"
        };
        let params = json!({"notifications": {kind: true}, "_meta": about});
        let method = "notifications/subscriptions/acknowledged";
        fake.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        Does::Waits
    }
    _ => Does::Refuses(-32601),
};

const DEAF: Script = |_: &Value, _: &Fake| Does::Refuses(-32601);

fn question(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"})
}

#[tokio::test]
async fn questions_of_two_servers_are_told_apart() {
    let mut world = World::new(&[("a", IDLE), ("b", IDLE)]);
    // Both ask by the same id, each in its own way to write it.
    world.server("a").say(&question(&json!(1)));
    world.server("b").say(&question(&json!(1)));
    let (first, second) = (world.next().await, world.next().await);
    assert_ne!(first["id"], second["id"]);
    for (asked, said) in [(&second, "second"), (&first, "first")] {
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"said": said}});
        world.tell(&answer).await;
        // Only once.
        world.tell(&answer).await;
    }
    let mut said = vec![];
    for server in ["a", "b"] {
        let answers = world.answers(server);
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["id"], 1);
        said.push(answers[0]["result"]["said"].clone());
    }
    said.sort_by_key(Value::to_string);
    assert_eq!(said, [json!("first"), json!("second")]);
}

#[tokio::test]
async fn a_question_is_taken_back_by_the_name_that_the_client_knows() {
    let mut world = World::new(&[("a", IDLE), ("b", IDLE)]);
    world.server("b").say(&question(&json!("q")));
    let asked = world.next().await;
    let method = "notifications/cancelled";
    let taken =
        json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": "q", "reason": "late"}});
    world.server("b").say(&taken);
    let heard = world.next().await;
    assert_eq!(
        heard["params"],
        json!({"requestId": asked["id"], "reason": "late"})
    );
}

#[tokio::test]
async fn a_cancel_goes_to_whoever_has_the_request() {
    let world = World::new(&[("a", IDLE), ("b", IDLE)]);
    world
        .send(5, "tools/call", &json!({"name": "wait-1"}))
        .await;
    until(|| !world.received("b", "tools/call").is_empty()).await;
    let method = "notifications/cancelled";
    world
        .tell(&json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 5}}))
        .await;
    assert_eq!(world.received("b", method).len(), 1);
    assert_eq!(world.received("a", method).len(), 0);
    // Nobody waits for the answer any more.
    until(|| !world.server("b").is_waited_for()).await;
    // Everything else that is told is for all.
    let method = "notifications/roots/list_changed";
    world
        .tell(&json!({"jsonrpc": "2.0", "method": method}))
        .await;
    assert_eq!(world.received("a", method).len(), 1);
    assert_eq!(world.received("b", method).len(), 1);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_once_for_all() {
    let mut world = World::new(&[("a", IDLE), ("deaf", DEAF), ("b", IDLE)]);
    world
        .send(9, "subscriptions/listen", &json!({"notifications": {}}))
        .await;
    let acknowledged = world.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let about = json!({"io.modelcontextprotocol/subscriptionId": 9});
    let all = &acknowledged["params"]["notifications"];
    assert_eq!(*all, json!({"tools": true, "prompts": true}));
    assert_eq!(acknowledged["params"]["_meta"], about);
    let news = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": about}});
    world.server("b").say(&news);
    assert_eq!(world.next().await, news);
}

#[tokio::test]
async fn what_is_between_gateway_and_server_stays_there() {
    let world = World::new(&[("a", IDLE), ("b", IDLE)]);
    let list = Message::request("1", "tools/list", "{}").expect("a message");
    let part = world.union.part(1).expect("there are two");
    let mut replies = part
        .request(&list, &Headers::default())
        .await
        .expect("it is sent");
    let Some(Reply::Answer(answer, headers)) = replies.0.recv().await else {
        panic!("it is answered");
    };
    assert_eq!(answer.id(), Some("1"));
    assert!(headers.0.is_empty(), "{headers:?}");
}
