//! Whatever a caller sends, the answer is typed and the server goes on.

use hearth_tests::{Api, Reply, Server};
use serde_json::{Value, json};

async fn raw(api: &Api, path: &str, body: impl Into<reqwest::Body>) -> Reply {
    let request = api.request("POST", path).header("content-type", "application/json");
    api.finish(request.body(body)).await
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let server = Server::start().await;
    let api = server.api();
    for body in
        ["", "{", "[]", "null", "\"text\"", "{\"agent\":\"mock\",}", "{\"agent\":\"mock\" \"prompt\":\"x\"}", "{}{}"]
    {
        for path in ["/v1/runs", "/v1/_resident"] {
            let reply = raw(&api, path, body).await;
            assert_eq!(reply.status, 400, "{path} {body:?}: {}", reply.text);
            reply.refused(400, "invalid_argument");
        }
    }
    raw(&api, "/v1/runs", b"{\"agent\":\"mock\",\"prompt\":\"\xff\xfe\"}".to_vec())
        .await
        .refused(400, "invalid_argument");
    server.stop().await;
}

#[tokio::test]
async fn wrong_types_unknown_fields_and_values_out_of_range_are_refused_by_name() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let run = |fields: Value| ("/v1/runs".to_owned(), merged(json!({ "agent": "mock", "prompt": "x" }), fields));
    let open = |fields: Value| ("/v1/_resident".to_owned(), merged(json!({ "agent": "mock", "prompt": "x" }), fields));
    let send = |fields: Value| (format!("/v1/_resident/{id}/send"), merged(json!({ "prompt": "x" }), fields));
    let huge: Value = serde_json::from_str("100000000000000000000000000").unwrap();
    for (field, (path, body)) in [
        ("agent", run(json!({ "agent": 7 }))),
        ("agent", run(json!({ "agent": null }))),
        ("prompt", run(json!({ "prompt": ["x"] }))),
        ("prompt", run(json!({ "prompt": "" }))),
        ("colour", run(json!({ "colour": "red" }))),
        ("wait_ms", run(json!({ "wait_ms": -1 }))),
        ("wait_ms", run(json!({ "wait_ms": 1.5 }))),
        ("wait_ms", run(json!({ "wait_ms": "1" }))),
        ("wait_ms", run(json!({ "wait_ms": huge }))),
        ("interactive", run(json!({ "interactive": "yes" }))),
        ("metadata", run(json!({ "metadata": [] }))),
        ("segments", run(json!({ "segments": "x" }))),
        ("isolation", run(json!({ "isolation": "L9" }))),
        ("sandbox", run(json!({ "sandbox": "own" }))),
        ("colour", run(json!({ "sandbox": { "colour": "red" } }))),
        ("run_timeout_seconds", run(json!({ "run_timeout_seconds": -5 }))),
        ("session_id", run(json!({ "session_id": "a/b" }))),
        ("session_id", run(json!({ "session_id": "" }))),
        ("prompt", open(json!({ "prompt": "" }))),
        ("idle_ttl_seconds", open(json!({ "idle_ttl_seconds": -1 }))),
        ("idle_ttl_seconds", open(json!({ "idle_ttl_seconds": huge }))),
        ("parent_run_id", open(json!({ "parent_run_id": "a b" }))),
        ("timeout_ms", open(json!({ "timeout_ms": -1 }))),
        ("interactive", open(json!({ "interactive": true }))),
        ("prompt", send(json!({ "prompt": "" }))),
        ("prompt", send(json!({ "prompt": null }))),
        ("timeout_ms", send(json!({ "timeout_ms": true }))),
        ("colour", send(json!({ "colour": 1 }))),
    ] {
        let reply = api.post(&path, body.clone()).await;
        assert_eq!(reply.status, 400, "{path} {body}: {}", reply.text);
        let error = reply.refused(400, "invalid_argument");
        assert!(error.to_string().contains(field), "`{field}` is not named for {body}: {error}");
    }
    for (path, body) in [
        ("/v1/runs".to_owned(), json!({ "prompt": "x" })),
        ("/v1/runs".to_owned(), json!({ "agent": "mock" })),
        ("/v1/_resident".to_owned(), json!({ "agent": "mock" })),
        (format!("/v1/_resident/{id}/send"), json!({})),
        (format!("/v1/runs/{id}/input"), json!({ "mode": "queue" })),
        (format!("/v1/runs/{id}/input"), json!({ "text": "x", "mode": "shout" })),
        (format!("/v1/runs/{id}/cancel"), json!({ "turn_id": "a/b" })),
        (format!("/v1/runs/{id}/close"), json!({ "why": "x" })),
    ] {
        api.post(&path, body).await.refused(400, "invalid_argument");
    }
    assert_eq!(api.send(&id, "still here").await["output"], "still here");
    server.stop().await;
}

fn merged(mut base: Value, fields: Value) -> Value {
    base.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    base
}

#[tokio::test]
async fn ids_outside_their_form_are_refused_on_every_path() {
    let server = Server::start().await;
    let api = server.api();
    let long = "x".repeat(129);
    for id in ["a%2Fb", "a%00b", "a%20b", "%C3%A4", "a.b", long.as_str()] {
        for path in [
            format!("/v1/runs/{id}"),
            format!("/v1/runs/{id}/stream"),
            format!("/v1/_resident/{id}"),
            format!("/v1/sessions/{id}/transcript"),
        ] {
            let reply = api.get(&path).await;
            assert_eq!(reply.status, 400, "{path}: {}", reply.text);
            reply.refused(400, "invalid_argument");
        }
        api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": "x" })).await.refused(400, "invalid_argument");
        api.post(&format!("/v1/runs/{id}/close"), json!({})).await.refused(400, "invalid_argument");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_it_is_taken() {
    let server = Server::start().await;
    let api = server.api();
    let limit = 16 * 1024 * 1024;
    let frame = json!({ "agent": "mock", "prompt": "" }).to_string().len();
    let body = |size: usize| json!({ "agent": "mock", "prompt": "x".repeat(size - frame) }).to_string();
    let reply = raw(&api, "/v1/runs", body(limit)).await;
    assert_eq!(reply.status, 200, "{:.300}", reply.text);
    raw(&api, "/v1/runs", body(limit + 1)).await.refused(413, "payload_too_large");
    let stream = futures::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])));
    raw(&api, "/v1/runs", reqwest::Body::wrap_stream(stream)).await.refused(413, "payload_too_large");
    assert_eq!(api.run("mock", "still here").await["output"], "still here");
    server.stop().await;
}

#[tokio::test]
async fn json_nests_at_most_128_deep() {
    let server = Server::start().await;
    let api = server.api();
    let nested = |depth: usize| {
        format!(
            "{{\"agent\":\"mock\",\"prompt\":\"x\",\"metadata\":{{\"m\":{}1{}}}}}",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    raw(&api, "/v1/runs", nested(120)).await.ok();
    for depth in [127, 2_000, 100_000] {
        let reply = raw(&api, "/v1/runs", nested(depth)).await;
        assert_eq!(reply.status, 400, "{depth}: {}", reply.text);
        reply.refused(400, "invalid_argument");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_long_time_out_does_not_overflow() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    for timeout in [u64::from(u32::MAX), 9_007_199_254_740_991, u64::MAX] {
        let body = json!({ "prompt": "x", "timeout_ms": timeout });
        let reply = api.post(&format!("/v1/_resident/{id}/send"), body).await;
        assert!(reply.status == 200 || reply.status == 400, "{timeout}: {} {}", reply.status, reply.text);
    }
    assert_eq!(api.send(&id, "still here").await["output"], "still here");
    server.stop().await;
}

#[tokio::test]
async fn odd_but_legal_text_comes_back_as_it_was() {
    let server = Server::start().await;
    let api = server.api();
    for text in
        ["\0", "ä€😀\u{202e}", "line\nline\r\n", "\"quotes\\", "{\"not\":\"mock\"}", "{", " ", "data: x\n\nevent: done"]
    {
        assert_eq!(api.run("mock", text).await["output"], text, "{text:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_mock_prompt_with_unknown_or_wrong_fields_says_so() {
    let server = Server::start().await;
    let api = server.api();
    for turn in [json!({ "colour": "red" }), json!({ "latency_ms": -1 }), json!({ "chunks": "many" })] {
        let run = api.run("mock", &hearth_tests::mock(turn.clone())).await;
        assert_eq!(run["state"], "failed", "{turn}: {run}");
        assert!(run["error"]["message"].is_string(), "{run}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_no_definition_may_have_is_refused_at_an_open_too() {
    let server = Server::start().await;
    let api = server.api();
    for sandbox in [
        json!({ "workspace": "" }),
        json!({ "workspace": "../up" }),
        json!({ "image": " " }),
        json!({ "network": "all" }),
        json!({ "limits": { "tmpfs_mb": 0 } }),
        json!({ "limits": { "mem_mb": 0 } }),
        json!({ "limits": { "cpu": 0 } }),
    ] {
        for path in ["/v1/runs", "/v1/_resident"] {
            let body = json!({ "agent": "mock", "prompt": "x", "sandbox": sandbox });
            let error = api.post(path, body).await.refused(400, "invalid_argument");
            assert!(error["message"].as_str().unwrap().contains("sandbox"), "{error}");
        }
    }
    assert!(api.residents("").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_program_that_cannot_be_read_is_refused_when_its_agent_is_made() {
    let server = Server::start().await;
    let api = server.api();
    let agent = |code: &str| json!({ "name": "made", "description": "d", "system_prompt": "", "tools": [], "skills": [], "code": code });
    let error =
        api.post("/v1/agents", agent("function run(input) { return input +; }")).await.refused(400, "invalid_argument");
    assert!(error["message"].as_str().unwrap().contains("code"), "{error}");
    let deep = format!("function run(input) {{ return {}1{} }}", "(".repeat(100_000), ")".repeat(100_000));
    api.post("/v1/agents", agent(&deep)).await.refused(400, "invalid_argument");
    assert!(api.post("/v1/agents", agent("function run(input) { return input }")).await.status < 300);
    assert_eq!(api.run("made", "said").await["output"], "said");
    server.stop().await;
}
