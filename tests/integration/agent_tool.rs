//! The `Agent` tool inside a run, called through `mock`.

use hearth_tests::{Api, Server, eventually, mock};
use serde_json::{Value, json};

fn call(arguments: Value) -> String {
    mock(json!({ "tool": { "name": "Agent", "arguments": arguments } }))
}

/// The result of one call that a resident makes, decoded where it is JSON.
async fn result(api: &Api, id: &str, arguments: Value) -> Value {
    let envelope = api.send(id, &call(arguments)).await;
    assert_eq!(envelope["outcome"], "finished", "bad input never ends the run: {envelope}");
    let text = envelope["output"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[tokio::test]
async fn spawn_returns_the_final_text_of_a_child_that_ends() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    assert_eq!(result(&api, &id, json!({ "name": "mock", "prompt": "hi there" })).await, "hi there");
    assert_eq!(result(&api, &id, json!({ "op": "spawn", "name": "mock", "prompt": "explicit" })).await, "explicit");
    let page = api.get(&format!("/v1/runs?parent_run_id={id}")).await.ok();
    let children = page["runs"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    for child in children {
        assert_eq!((child["state"].as_str(), child["resident"].as_bool()), (Some("completed"), Some(false)));
        assert_eq!((child["root_run_id"].as_str(), child["tenant_id"].as_str()), (Some(id.as_str()), Some("default")));
    }
    server.stop().await;
}

#[tokio::test]
async fn parallel_spawns_answer_in_the_order_of_the_input() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    let spawns: Vec<Value> = (0..6)
        .map(|n| json!({ "name": "mock", "prompt": mock(json!({ "latency_ms": 300 - 50 * n, "output": format!("out {n}") })) }))
        .chain([json!({ "name": "nobody", "prompt": "x" }), json!({ "name": "mock", "prompt": mock(json!({ "fail": "no" })) })])
        .collect();
    let results = result(&api, &id, json!({ "op": "parallel_spawn", "spawns": spawns })).await["results"].clone();
    let results = results.as_array().expect("a list of results");
    assert_eq!(results.len(), 8);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!(result["ok"], index < 6, "{result}");
        if index < 6 {
            assert_eq!((result["agent"].as_str(), &result["output"]), (Some("mock"), &json!(format!("out {index}"))));
        } else {
            assert!(!result["error"].is_null(), "{result}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_parallel_spawns_is_bounded() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    for count in [0, 33] {
        let spawns = vec![json!({ "name": "mock", "prompt": "x" }); count];
        let error = result(&api, &id, json!({ "op": "parallel_spawn", "spawns": spawns })).await;
        assert_eq!(error["error"]["code"], "invalid_argument", "{count}: {error}");
    }
    let spawns = vec![json!({ "name": "mock", "prompt": "x" }); 32];
    let all = result(&api, &id, json!({ "op": "parallel_spawn", "spawns": spawns })).await;
    assert!(all["results"].as_array().is_some_and(|list| list.len() == 32 && list.iter().all(|one| one["ok"] == true)));
    server.stop().await;
}

#[tokio::test]
async fn a_child_is_opened_sent_to_polled_cancelled_listed_and_closed() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    let opened =
        result(&api, &id, json!({ "op": "open", "name": "mock", "prompt": "hello", "idle_ttl_seconds": 600 })).await;
    assert_eq!((opened["state"].as_str(), opened["output"].as_str()), (Some("awaiting_input"), Some("hello")));
    let child = opened["child_run_id"].as_str().expect("an id").to_owned();
    let sent = result(&api, &id, json!({ "op": "send", "child_run_id": child, "prompt": "more" })).await;
    assert_eq!((sent["outcome"].as_str(), sent["output"].as_str()), (Some("finished"), Some("more")));
    assert_eq!(result(&api, &id, json!({ "op": "poll", "child_run_id": child })).await["turn_id"], sent["turn_id"]);
    let first = json!({ "op": "poll", "child_run_id": child, "turn_id": opened["turn_id"] });
    assert_eq!(result(&api, &id, first).await["output"], "hello");

    let slow = mock(json!({ "latency_ms": 60_000 }));
    let running =
        result(&api, &id, json!({ "op": "send", "child_run_id": child, "prompt": slow, "timeout_ms": 1 })).await;
    assert_eq!(running["state"], "running");
    let cancelled = result(&api, &id, json!({ "op": "cancel", "child_run_id": child })).await;
    assert_eq!(
        (cancelled["turn_id"].as_str(), cancelled["outcome"].as_str()),
        (running["turn_id"].as_str(), Some("cancelled"))
    );

    let listed = result(&api, &id, json!({ "op": "list" })).await;
    assert!(listed.to_string().contains(&child), "{listed}");
    let closed = result(&api, &id, json!({ "op": "close", "child_run_id": child })).await;
    assert_eq!((closed["child_run_id"].as_str(), closed["state"].as_str()), (Some(child.as_str()), Some("closed")));
    let again = result(&api, &id, json!({ "op": "close", "child_run_id": child })).await;
    assert_eq!(again["state"], "closed", "idempotent: {again}");
    let late = result(&api, &id, json!({ "op": "send", "child_run_id": child, "prompt": "late" })).await;
    assert_eq!(late["error"]["code"], "run_ended");
    let gone = result(&api, &id, json!({ "op": "list" })).await;
    assert!(!gone.to_string().contains(&child), "{gone}");
    server.stop().await;
}

#[tokio::test]
async fn bad_input_is_a_tool_error_and_the_run_goes_on() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    for (arguments, code) in [
        (json!({ "op": "dance" }), "invalid_argument"),
        (json!({ "op": "open" }), "invalid_argument"),
        (json!({ "op": "open", "name": "mock" }), "invalid_argument"),
        (json!({ "op": "open", "name": "mock", "prompt": 7 }), "invalid_argument"),
        (json!({ "op": "open", "name": "mock", "prompt": "x", "colour": "red" }), "invalid_argument"),
        (json!({ "op": "open", "name": "nobody", "prompt": "x" }), "not_found"),
        (json!({ "op": "send", "child_run_id": "run_unknown", "prompt": "x" }), "not_found"),
        (json!({ "op": "poll", "child_run_id": "a/b" }), "invalid_argument"),
        (json!({ "op": "poll" }), "invalid_argument"),
        (json!({ "op": "open", "name": "mock", "prompt": "x", "timeout_ms": -1 }), "invalid_argument"),
        (json!({ "op": "parallel_spawn" }), "invalid_argument"),
    ] {
        let error = result(&api, &id, arguments.clone()).await;
        assert_eq!(error["error"]["code"], code, "{arguments}: {error}");
    }
    assert_eq!(api.send(&id, "still here").await["output"], "still here");
    server.stop().await;
}

#[tokio::test]
async fn the_cap_and_the_depth_hold_inside_a_run_too() {
    let server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    for _ in 0..8 {
        result(&api, &root, json!({ "op": "open", "name": "mock", "prompt": "x" })).await;
    }
    let error = result(&api, &root, json!({ "op": "open", "name": "mock", "prompt": "x" })).await;
    assert_eq!(
        (error["error"]["code"].as_str(), error["error"]["retryable"].as_bool()),
        (Some("resident_limit"), Some(false))
    );

    let mut deepest = api.open("mock", "another root").await;
    for _ in 0..3 {
        deepest = api.open_below(&deepest, "mock", "deeper").await;
    }
    for op in ["open", "spawn"] {
        let error = result(&api, &deepest, json!({ "op": op, "name": "mock", "prompt": "x" })).await;
        assert_eq!(error["error"]["code"], "tool_refused", "{op}: {error}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_a_tool_error() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    let envelope = api.send(&id, &mock(json!({ "tool": { "name": "no_such_tool", "arguments": {} } }))).await;
    assert_eq!(envelope["outcome"], "finished", "{envelope}");
    assert!(envelope["output"].as_str().unwrap().contains("error"), "{envelope}");
    server.stop().await;
}

#[tokio::test]
async fn closing_a_parent_while_its_tool_waits_for_a_child_closes_both() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "parent").await;
    let slow = mock(json!({ "latency_ms": 60_000 }));
    let turn = api.start(&id, &call(json!({ "name": "mock", "prompt": slow }))).await;
    eventually("the child runs", async || {
        let page = api.get(&format!("/v1/runs?parent_run_id={id}&state=running")).await.ok();
        (!page["runs"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    assert_eq!(api.close(&id).await["closed_descendants"], 1);
    assert_eq!(api.poll_turn(&id, &turn).await["state"], "closed");
    let page = api.get(&format!("/v1/runs?parent_run_id={id}")).await.ok();
    assert_eq!(page["runs"][0]["state"], "closed", "{page}");
    server.stop().await;
}
