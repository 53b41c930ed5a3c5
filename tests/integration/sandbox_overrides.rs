//! An override of what a run and its descendants open as their sandbox.

use hearth_tests::{Api, Options, Reply, Server};
use serde_json::{Value, json};

async fn server() -> Server {
    Options::default().variable("SANDBOX_DRIVER", "local").start().await
}

fn commands(list: &[&str]) -> String {
    json!({ "commands": list }).to_string()
}

async fn put(api: &Api, run: &str, body: Value) -> Reply {
    api.finish(api.request("PUT", &format!("/v1/runs/{run}/sandbox")).json(&body)).await
}

async fn clear(api: &Api, run: &str) -> Reply {
    api.finish(api.request("DELETE", &format!("/v1/runs/{run}/sandbox"))).await
}

/// The session that the run's next turn uses.
async fn session(api: &Api, run: &str) -> String {
    let envelope = api.send(run, &commands(&["true"])).await;
    let output: Value = serde_json::from_str(envelope["output"].as_str().unwrap_or_default()).unwrap_or_default();
    output["session_id"].as_str().unwrap_or_else(|| panic!("no session in {envelope}")).to_owned()
}

#[tokio::test]
async fn an_override_holds_for_the_run_and_its_descendants_until_it_is_cleared() {
    let mut server = server().await;
    let api = server.api();
    let root = api.open("dev/exec", &commands(&["true"])).await;
    let child = api.open_below(&root, "dev/exec", &commands(&["true"])).await;
    let shared = session(&api, &root).await;
    assert_eq!(session(&api, &child).await, shared);

    let answer = put(&api, &root, json!({ "workspace": "review" })).await.ok();
    assert_eq!(answer, json!({ "run_id": root, "sandbox": { "workspace": "review" } }));
    let moved = session(&api, &root).await;
    assert_ne!(moved, shared);
    assert_eq!(session(&api, &child).await, moved, "the tree's shared session of that workspace");
    put(&api, &root, json!({ "workspace": "review" })).await.ok();
    assert_eq!(session(&api, &root).await, moved, "a repeat changes nothing");
    let late = api.open_below(&root, "dev/exec", &commands(&["true"])).await;
    assert_eq!(session(&api, &late).await, moved, "for a child that is opened later, too");

    server.kill().await;
    server.restart().await;
    let api = server.api();
    assert_eq!(session(&api, &root).await, moved, "it is journaled");

    assert_eq!(clear(&api, &root).await.ok(), json!({ "run_id": root, "sandbox": null }));
    clear(&api, &root).await.ok();
    for run in [&root, &child, &late] {
        assert_eq!(session(&api, run).await, shared);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_override_of_a_child_leaves_its_parent_alone() {
    let server = server().await;
    let api = server.api();
    let root = api.open("dev/exec", &commands(&["true"])).await;
    let child = api.open_below(&root, "dev/exec", &commands(&["true"])).await;
    let shared = session(&api, &root).await;
    put(&api, &child, json!({ "scope": "own" })).await.ok();
    let own = session(&api, &child).await;
    assert_ne!(own, shared);
    assert_eq!(session(&api, &child).await, own, "a resident keeps its session between turns");
    assert_eq!(session(&api, &root).await, shared);
    clear(&api, &child).await.ok();
    assert_eq!(session(&api, &child).await, shared);
    server.stop().await;
}

#[tokio::test]
async fn an_override_only_tightens_and_says_what_is_wrong_with_it() {
    let server = server().await;
    let api = server.api();
    let strict =
        json!({ "agent": "dev/exec", "prompt": commands(&["true"]), "sandbox": { "scope": "own", "image": "a:1" } });
    let strict = api.post("/v1/_resident", strict).await.ok()["child_run_id"].as_str().unwrap().to_owned();
    for looser in [json!({ "scope": "shared" }), json!({ "image": "b:1" })] {
        put(&api, &strict, looser).await.refused(422, "tool_refused");
    }
    let root = api.open("dev/exec", &commands(&["true"])).await;
    for (body, named) in [
        (json!({ "network": "egress" }), "network"),
        (json!({ "limits": {} }), "limits"),
        (json!({ "scope": "mine" }), "mine"),
        (json!({ "isolation": "L9" }), "L9"),
        (json!({ "workspace": "../up" }), "workspace"),
        (json!({ "image": "--privileged" }), "image"),
        (json!({ "read_only": "yes" }), "read_only"),
        (json!({}), "empty"),
    ] {
        let refused = put(&api, &root, body.clone()).await;
        assert!(refused.text.contains(named), "{body}: {}", refused.text);
        refused.refused(400, "invalid_argument");
    }
    put(&api, &root, json!({ "workspace": "w", "read_only": true })).await.ok();
    let child = api.open_below(&root, "mock", "x").await;
    put(&api, &child, json!({ "read_only": false })).await.refused(422, "tool_refused");
    put(&api, &child, json!({ "workspace": "v" })).await.refused(422, "tool_refused");
    api.close(&child).await;
    put(&api, &child, json!({ "scope": "own" })).await.refused(409, "run_ended");
    clear(&api, &child).await.refused(409, "run_ended");
    server.stop().await;
}
