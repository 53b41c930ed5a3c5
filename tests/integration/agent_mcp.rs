//! The `Agent` tool over MCP, for callers with a token.

use hearth_tests::{Api, Mcp, Options, Server, mock};
use serde_json::{Value, json};

async fn agent(mcp: &Mcp, arguments: Value) -> Value {
    mcp.call("Agent", arguments).await.ok()
}

#[tokio::test]
async fn the_agent_tool_works_over_mcp_with_every_operation() {
    let server = Server::start().await;
    let (api, mcp) = (server.api(), server.api().mcp());
    let listed = mcp.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("tools");
    assert_eq!(tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), ["Agent"]);
    assert_eq!(tools[0]["inputSchema"]["additionalProperties"], false, "{listed}");

    assert_eq!(agent(&mcp, json!({ "name": "mock", "prompt": "once" })).await, json!({ "output": "once" }));
    let spawns = json!([
        { "name": "mock", "prompt": mock(json!({ "latency_ms": 200, "output": "a" })) },
        { "name": "absent", "prompt": "b" },
        { "name": "mock", "prompt": mock(json!({ "fail": "c" })) },
    ]);
    let results = agent(&mcp, json!({ "op": "parallel_spawn", "spawns": spawns })).await["results"].clone();
    assert_eq!(results[0], json!({ "index": 0, "agent": "mock", "ok": true, "output": "a" }));
    assert_eq!((&results[1]["ok"], &results[1]["error"]["code"]), (&json!(false), &json!("not_found")), "{results}");
    assert_eq!((&results[2]["index"], &results[2]["ok"]), (&json!(2), &json!(false)), "{results}");

    let opened = agent(&mcp, json!({ "op": "open", "name": "mock", "prompt": "one", "idle_ttl_seconds": 60 })).await;
    assert_eq!((&opened["state"], &opened["output"]), (&json!("awaiting_input"), &json!("one")), "{opened}");
    let child = opened["child_run_id"].as_str().unwrap();
    let of = |op: &str, more: Value| {
        let mut arguments = json!({ "op": op, "child_run_id": child });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    assert_eq!(agent(&mcp, of("send", json!({ "prompt": "two" }))).await["output"], "two");
    let slow = mock(json!({ "latency_ms": 60_000, "chunks": 600, "output": "x".repeat(600) }));
    let running = agent(&mcp, of("send", json!({ "prompt": slow, "timeout_ms": 1 }))).await;
    assert_eq!(running["state"], "running", "{running}");
    assert_eq!(agent(&mcp, of("poll", json!({}))).await["turn_id"], running["turn_id"]);
    let waited = agent(&mcp, of("poll", json!({ "timeout_ms": 1, "turn_id": running["turn_id"] }))).await;
    assert_eq!(waited["state"], "running", "{waited}");
    let cancelled = agent(&mcp, of("cancel", json!({ "turn_id": running["turn_id"] }))).await;
    assert_eq!((&cancelled["stopped"], &cancelled["outcome"]), (&json!(true), &json!("cancelled")), "{cancelled}");

    let rows = agent(&mcp, json!({ "op": "list" })).await["resident"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["child_run_id"]), (1, &json!(child)), "{rows}");
    assert_eq!(api.residents("").await.len(), 1, "the same as over HTTP");
    for _ in 0..2 {
        let closed = agent(&mcp, of("close", json!({}))).await;
        assert_eq!((&closed["child_run_id"], &closed["state"]), (&json!(child), &json!("closed")), "{closed}");
    }
    let late = mcp.call("Agent", of("send", json!({ "prompt": "late" }))).await;
    assert_eq!(late.code(), "run_ended");
    assert_eq!(agent(&mcp, json!({ "op": "list" })).await["resident"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_a_typed_error_of_the_tool() {
    let server = Server::start().await;
    let mcp = server.api().mcp();
    for (arguments, named) in [
        (json!({}), "name"),
        (json!({ "op": "opne", "name": "mock", "prompt": "x" }), "op"),
        (json!({ "op": "open", "name": "mock", "prompt": "x", "wait": 1 }), "wait"),
        (json!({ "op": "open", "name": "mock", "prompt": "" }), "prompt"),
        (json!({ "op": "open", "name": "mock", "prompt": "x", "idle_ttl_seconds": 0 }), "idle_ttl_seconds"),
        (json!({ "op": "send", "child_run_id": "a/b", "prompt": "x" }), "id"),
        (json!({ "op": "send", "child_run_id": "run_a" }), "prompt"),
        (json!({ "op": "parallel_spawn", "spawns": [] }), "spawns"),
        (json!({ "op": "list", "limit": 5 }), "limit"),
    ] {
        let refusal = mcp.call("Agent", arguments.clone()).await.refusal();
        assert_eq!(refusal["error"]["code"], "invalid_argument", "{arguments}: {refusal}");
        assert!(refusal["error"]["message"].as_str().unwrap().contains(named), "{arguments}: {refusal}");
    }
    let failed = mcp.call("Agent", json!({ "name": "mock", "prompt": mock(json!({ "fail": "on purpose" })) })).await;
    let failed = failed.refusal();
    assert!(failed["error"]["message"].as_str().unwrap().contains("on purpose"), "{failed}");
    let unknown = mcp.ask("tools/call", json!({ "name": "sandbox_open", "arguments": {} })).await;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("Agent"), "{unknown}");
    server.stop().await;
}

#[tokio::test]
async fn t37_anothers_id_over_mcp_answers_as_an_unknown_one_and_a_list_shows_ones_own() {
    const ANN: &str = "token-of-ann-0123456789abcdef";
    const BOB: &str = "token-of-bob-0123456789abcdef";
    const OPS: &str = "token-of-ops-0123456789abcdef";
    const EVE: &str = "token-of-eve-0123456789abcdef";
    let options = Options::default()
        .token(ANN, "acme", "ann", "member")
        .token(BOB, "acme", "bob", "member")
        .token(OPS, "acme", "ops", "operator")
        .token(EVE, "other", "eve", "operator");
    let server = options.start().await;
    let as_caller = |token: &str| server.api().with_token(token);
    let (ann, bob, ops, eve) = (as_caller(ANN), as_caller(BOB), as_caller(OPS), as_caller(EVE));
    let opened = agent(&ann.mcp(), json!({ "op": "open", "name": "mock", "prompt": "secret" })).await;
    let id = opened["child_run_id"].as_str().unwrap();
    let told = |api: &Api, op: &str, id: &str| {
        let arguments = match op {
            "send" => json!({ "op": op, "child_run_id": id, "prompt": "x" }),
            op => json!({ "op": op, "child_run_id": id }),
        };
        let mcp = api.mcp();
        async move { mcp.call("Agent", arguments).await.refusal() }
    };
    let over_http = eve.get("/v1/runs/run_unknown").await;
    for op in ["send", "poll", "cancel", "close"] {
        let (foreign, unknown) = (told(&eve, op, id).await, told(&eve, op, "run_unknown").await);
        assert_eq!(foreign.to_string(), unknown.to_string(), "{op}");
        assert_eq!(foreign, over_http.body, "{op}");
        assert_eq!(told(&bob, op, id).await["error"]["code"], "permission_denied", "{op}");
    }
    for (api, own) in [(&ann, 1), (&bob, 0), (&ops, 0), (&eve, 0)] {
        let rows = agent(&api.mcp(), json!({ "op": "list" })).await["resident"].clone();
        assert_eq!(rows.as_array().unwrap().len(), own, "{rows}");
    }
    let polled = agent(&ops.mcp(), json!({ "op": "poll", "child_run_id": id })).await;
    assert_eq!(polled["output"], "secret", "an operator acts on runs of its tenant");
    let refused = server.api().without_token().mcp().initialize().await;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["code"], "unauthenticated");
    server.stop().await;
}
