use serde_json::{Value, json};

use super::fake::{Does, Fake, Script, World};

const DOCS: Script = |request: &Value, _: &Fake| {
    let params = &request["params"];
    match request["method"].as_str() {
        Some("initialize") => {
            Does::Answers(json!({"protocolVersion": "2025-11-25", "capabilities": {"logging": {}}}))
        }
        Some("prompts/list") => {
            Does::Answers(json!({"prompts": [{"name": "sum"}, {"name": "ask"}]}))
        }
        Some("resources/list") => {
            Does::Answers(json!({"resources": [{"uri": "doc:1"}, {"uri": "both:1"}]}))
        }
        Some("resources/templates/list") => {
            Does::Answers(json!({"resourceTemplates": [{"uriTemplate": "doc:{n}"}]}))
        }
        Some("resources/read")
            if params["uri"]
                .as_str()
                .is_some_and(|uri| uri.starts_with("file:")) =>
        {
            Does::Refuses(-32002)
        }
        Some("tasks/get") if params["taskId"] != "d" => Does::Refuses(-32602),
        Some("tools/list") => Does::Answers(json!({"tools": [{"name": "long"}]})),
        Some("tools/call") => Does::Answers(json!({"resultType": "task", "taskId": "new"})),
        _ => Does::Answers(json!({"from": "docs"})),
    }
};

const FILES: Script = |request: &Value, _: &Fake| match request["method"].as_str() {
    Some("initialize") => {
        Does::Answers(json!({"protocolVersion": "2025-11-25", "capabilities": {}}))
    }
    Some("prompts/list") => Does::Answers(json!({"prompts": [{"name": "sum"}]})),
    Some("resources/list") => {
        Does::Answers(json!({"resources": [{"uri": "both:1"}, {"uri": "file:1"}]}))
    }
    Some("resources/templates/list") => Does::Refuses(-32601),
    Some("tasks/get") if request["params"]["taskId"] != "f" => Does::Refuses(-32602),
    Some("tools/list") => Does::Answers(json!({"tools": []})),
    _ => Does::Answers(json!({"from": "files"})),
};

fn world() -> World {
    World::new(&[("docs", DOCS), ("files", FILES)])
}

#[track_caller]
fn is_from(answer: &Value, server: &str) {
    assert_eq!(answer["result"]["from"], server, "{answer}");
}

#[tokio::test]
async fn prompts_have_names_like_tools() {
    let mut world = world();
    let answer = world.ask("prompts/get", json!({"name": "files_sum"})).await;
    is_from(&answer, "files");
    assert_eq!(
        world.received("files", "prompts/get")[0]["params"]["name"],
        "sum"
    );
    is_from(
        &world.ask("prompts/get", json!({"name": "ask"})).await,
        "docs",
    );
    let answer = world.ask("prompts/list", json!({})).await;
    let names = json!([{"name": "docs_sum"}, {"name": "ask"}, {"name": "files_sum"}]);
    assert_eq!(answer["result"]["prompts"], names);
    let answer = world.ask("prompts/get", json!({"name": "sum"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");

    let about = json!({"ref": {"type": "ref/prompt", "name": "files_sum"}, "argument": {}});
    is_from(&world.ask("completion/complete", about).await, "files");
    let completed = &world.received("files", "completion/complete")[0];
    assert_eq!(completed["params"]["ref"]["name"], "sum");
}

#[tokio::test]
async fn resources_are_read_where_they_were_listed() {
    let mut world = world();
    // Nobody listed it: who knows it says so.
    is_from(
        &world.ask("resources/read", json!({"uri": "file:9"})).await,
        "files",
    );
    let unknown = json!({"uri": "file:1"});
    let answer = world.ask("resources/subscribe", unknown.clone()).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");

    let answer = world.ask("resources/list", json!({})).await;
    let all = json!([{"uri": "doc:1"}, {"uri": "both:1"}, {"uri": "file:1"}]);
    assert_eq!(answer["result"]["resources"], all);
    is_from(&world.ask("resources/subscribe", unknown).await, "files");
    is_from(
        &world.ask("resources/read", json!({"uri": "both:1"})).await,
        "docs",
    );
    world.ask("resources/templates/list", json!({})).await;
    let about = json!({"ref": {"type": "ref/resource", "uri": "doc:{n}"}, "argument": {}});
    is_from(&world.ask("completion/complete", about).await, "docs");
    assert_eq!(world.received("files", "completion/complete").len(), 0);
}

#[tokio::test]
async fn tasks_are_asked_for_where_they_are() {
    let mut world = world();
    world.ask("tools/call", json!({"name": "long"})).await;
    let answer = world.ask("tasks/cancel", json!({"taskId": "new"})).await;
    is_from(&answer, "docs");
    assert_eq!(world.received("files", "tasks/cancel").len(), 0);
    // A task from before a restart: each is asked whether it is its own, and only that one is told.
    is_from(
        &world.ask("tasks/cancel", json!({"taskId": "f"})).await,
        "files",
    );
    assert_eq!(world.received("docs", "tasks/cancel").len(), 1);
    let answer = world.ask("tasks/cancel", json!({"taskId": "none"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn what_is_for_nobody_is_said_to_be() {
    let mut world = world();
    let answer = world.ask("x/unknown", json!({"taskId": "f"})).await;
    assert_eq!(answer["error"]["code"], -32601);
    let said = answer["error"]["message"].as_str().expect("an error");
    assert!(
        said.contains("several servers") && said.contains("docs, files"),
        "{said}"
    );
    assert_eq!(world.received("docs", "x/unknown").len(), 0);
    assert_eq!(world.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(world.received("docs", "ping").len(), 0);
}

#[tokio::test]
async fn who_has_a_log_hears_its_level() {
    let mut world = world();
    world.ask("initialize", json!({})).await;
    is_from(
        &world
            .ask("logging/setLevel", json!({"level": "debug"}))
            .await,
        "docs",
    );
    assert_eq!(world.received("files", "logging/setLevel").len(), 0);
}
