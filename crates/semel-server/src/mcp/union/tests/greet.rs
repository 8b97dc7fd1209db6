use serde_json::{Value, json};

use super::fake::{Does, Fake, Script, World, tools};

fn hello() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "c", "version": "1"}})
}

const NEWER: Script = |request: &Value, _: &Fake| match request["method"].as_str() {
    Some("initialize") => Does::Answers(json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": false}},
        "serverInfo": {"name": "new"},
        "instructions": "Be quick.",
    })),
    Some("server/discover") => Does::Answers(json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {}},
        "ttlMs": 5000, "cacheScope": "public",
    })),
    _ => Does::Refuses(-32601),
};

const OLDER: Script = |request: &Value, _: &Fake| match request["method"].as_str() {
    Some("initialize") => Does::Answers(json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"resources": {"subscribe": true}, "x": {"big": 12_345_678_901_234_567_890_u64}},
        "serverInfo": {"name": "old"},
    })),
    _ => Does::Refuses(-32601),
};

const NEWEST: Script = |request: &Value, _: &Fake| match request["method"].as_str() {
    Some("server/discover") => Does::Answers(json!({
        "supportedVersions": ["2026-07-28"], "capabilities": {"prompts": {}}, "ttlMs": 70, "cacheScope": "private",
    })),
    _ => Does::Refuses(-32022),
};

const DEAD: Script = |_: &Value, _: &Fake| Does::Dies;

#[tokio::test]
async fn a_handshake_is_made_with_all_and_answered_as_one() {
    let mut world = World::new(&[("new", NEWER), ("old", OLDER), ("dead", DEAD)]);
    let answer = world.ask("initialize", hello()).await;
    let result = &answer["result"];
    assert_eq!(
        result["protocolVersion"], "2025-06-18",
        "the newest that all know"
    );
    assert_eq!(
        result["capabilities"],
        json!({
            "tools": {"listChanged": true},
            "resources": {"subscribe": true},
            "x": {"big": 12_345_678_901_234_567_890_u64},
        })
    );
    assert_eq!(result["serverInfo"]["name"], "semel");
    let instructions = result["instructions"].as_str().expect("a text");
    for said in [
        "new, old",
        "dead is left out: the server ended",
        "# new\n\nBe quick.",
    ] {
        assert!(instructions.contains(said), "{instructions}");
    }
    for server in ["new", "old"] {
        assert_eq!(world.received(server, "initialize")[0]["params"], hello());
    }
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    world.tell(&ready).await;
    assert_eq!(world.received("old", "notifications/initialized").len(), 1);
    assert_eq!(world.received("dead", "notifications/initialized").len(), 0);
}

#[tokio::test]
async fn without_any_server_there_is_an_error_that_names_them() {
    let mut world = World::new(&[("dead", DEAD), ("newest", NEWEST)]);
    let answer = world.ask("initialize", hello()).await;
    let said = answer["error"]["message"].as_str().expect("an error");
    assert!(
        said.contains("dead: the server ended; newest: it is refused"),
        "{said}"
    );
}

#[tokio::test]
async fn the_protocol_that_more_of_them_speak_is_spoken() {
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    // All know the newer one.
    let mut world = World::new(&[("new", NEWER), ("newest", NEWEST)]);
    let answer = world.ask("server/discover", modern.clone()).await;
    let result = &answer["result"];
    assert_eq!(
        result["supportedVersions"],
        json!(["2026-07-28"]),
        "{answer}"
    );
    assert_eq!(result["capabilities"], json!({"tools": {}, "prompts": {}}));
    assert_eq!(result["ttlMs"], 70);
    assert_eq!(result["cacheScope"], "private");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "semel"
    );

    // With the older one nobody is lost.
    let mut world = World::new(&[("new", NEWER), ("old", OLDER)]);
    let answer = world.ask("server/discover", modern.clone()).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let said = answer["error"]["message"].as_str().expect("an error");
    assert!(said.contains("(old)"), "{said}");

    // Somebody is lost with either.
    let mut world = World::new(&[("newest", NEWEST), ("old", OLDER)]);
    let answer = world.ask("server/discover", modern).await;
    let said = answer["result"]["instructions"].as_str().expect("a text");
    assert!(said.contains("old is left out"), "{answer}");
}

/// Many servers of the older protocol answer whoever did not shake hands.
const LENIENT: Script = |request: &Value, _: &Fake| match request["method"].as_str() {
    Some("server/discover") => Does::Refuses(-32601),
    _ => tools(request, &["old"]),
};

const MODERN: Script = |request: &Value, _: &Fake| tools(request, &["new"]);

#[tokio::test]
async fn who_speaks_the_older_protocol_gets_nothing_of_the_newer() {
    let mut world = World::new(&[("lenient", LENIENT), ("modern", MODERN)]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    for _ in 0..2 {
        let answer = world.ask("tools/list", json!({"_meta": meta})).await;
        assert_eq!(
            answer["result"]["tools"],
            json!([{"name": "new"}]),
            "{answer}"
        );
    }
    let answer = world
        .ask("tools/call", json!({"name": "old", "_meta": meta}))
        .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(world.received("lenient", "tools/list").len(), 0);
    assert_eq!(
        world.received("lenient", "server/discover").len(),
        1,
        "it is asked once"
    );
    // A client of the older protocol has both.
    let answer = world.ask("tools/list", json!({})).await;
    let tools = json!([{"name": "old"}, {"name": "new"}]);
    assert_eq!(answer["result"]["tools"], tools, "{answer}");
}
