//! Hosts, origins, content and the shape of answers.

use hearth_tests::{Options, Server};
use serde_json::json;

#[tokio::test]
async fn health_needs_no_token_and_says_little() {
    let server = Server::start().await;
    let api = server.api();
    let plain = api.without_token().get("/healthz").await.ok();
    assert_eq!(plain, json!({ "ok": true }));
    let full = api.get("/healthz").await.ok();
    assert_eq!(full["ok"], true);
    assert!(full.as_object().unwrap().len() > 1, "with a token the members too: {full}");
    server.stop().await;
}

#[tokio::test]
async fn the_specification_names_the_paths_of_the_contract() {
    let server = Server::start().await;
    let spec = server.api().without_token().get("/openapi.json").await.ok();
    let paths = spec["paths"].as_object().expect("paths");
    for path in [
        "/v1/runs",
        "/v1/runs/{id}",
        "/v1/runs/{id}/stream",
        "/v1/runs/{id}/input",
        "/v1/runs/{id}/cancel",
        "/v1/runs/{id}/close",
        "/v1/sessions/{id}/messages",
        "/v1/sessions/{id}/replay",
        "/v1/sessions/{id}/transcript",
        "/v1/_resident",
        "/v1/_resident/{id}",
        "/v1/_resident/{id}/send",
        "/v1/_resident/{id}/cancel",
        "/v1/_resident/{id}/close",
        "/v1/agents",
        "/v1/agents/{name}",
        "/v1/_replicas",
        "/v1/_sandboxes",
    ] {
        assert!(paths.contains_key(path), "no {path} among {:?}", paths.keys().collect::<Vec<_>>());
    }
    server.stop().await;
}

#[tokio::test]
async fn metrics_measure_what_is_promised() {
    let mut server = Options::default().variable("SANDBOX_DRIVER", "local").start().await;
    let api = server.api();
    let id = api.open("dev/exec", &json!({ "commands": ["true"] }).to_string()).await;
    let before = api.get("/metrics").await.text;
    server.crash().await;
    api.send(&id, &json!({ "commands": ["true"] }).to_string()).await;
    let after = api.get("/metrics").await.text;
    for word in ["open", "accept", "turn", "step", "append", "activate", "exec"] {
        let is_histogram =
            |line: &str| line.starts_with("# TYPE") && line.contains(word) && line.ends_with("histogram");
        let types: Vec<&str> = before.lines().chain(after.lines()).filter(|line| line.starts_with("# TYPE")).collect();
        assert!(types.iter().any(|line| is_histogram(line)), "no histogram for `{word}`: {types:#?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_answer_in_the_same_form() {
    let server = Server::start().await;
    let api = server.api();
    api.get("/v1/nothing").await.refused(404, "not_found");
    for (method, path) in [("DELETE", "/v1/runs"), ("PUT", "/v1/_resident"), ("GET", "/v1/_resident/run_x/send")] {
        let reply = api.finish(api.request(method, path)).await;
        assert!((400..500).contains(&reply.status), "{method} {path}: {}", reply.status);
        assert!(reply.body["error"]["code"].is_string(), "{method} {path}: {}", reply.text);
    }
    server.stop().await;
}
