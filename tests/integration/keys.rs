//! Idempotency keys: once per key, on every POST, across restarts.

use futures::future::join_all;
use hearth_tests::{Api, Options, Server, eventually, mock};
use serde_json::{Value, json};

/// Every POST of runs and residents with a body that is accepted, and one that differs.
async fn posts(api: &Api) -> Vec<(String, Value, Value)> {
    let parent = api.open("mock", "parent").await;
    let child = api.open_below(&parent, "mock", "child").await;
    let session = api.run("mock", "talk").await["session_id"].as_str().unwrap().to_owned();
    let closing = [api.open("mock", "x").await, api.open("mock", "y").await];
    let ended = api.open("mock", "z").await;
    api.post(&format!("/v1/_resident/{ended}/close"), json!({})).await.ok();
    let reason = |text: &str| json!({ "reason": text });
    vec![
        ("/v1/runs".to_owned(), json!({ "agent": "mock", "prompt": "a" }), json!({ "agent": "mock", "prompt": "b" })),
        (format!("/v1/runs/{parent}/input"), json!({ "text": "a" }), json!({ "text": "b" })),
        (format!("/v1/runs/{parent}/cancel"), reason("a"), reason("b")),
        (format!("/v1/runs/{}/close", closing[0]), reason("a"), reason("b")),
        (
            format!("/v1/sessions/{session}/messages"),
            json!({ "prompt": "a", "agent": "mock" }),
            json!({ "prompt": "b", "agent": "mock" }),
        ),
        (
            "/v1/_resident".to_owned(),
            json!({ "agent": "mock", "prompt": "a", "parent_run_id": parent }),
            json!({ "agent": "mock", "prompt": "b", "parent_run_id": parent }),
        ),
        (format!("/v1/_resident/{child}/send"), json!({ "prompt": "a" }), json!({ "prompt": "b" })),
        (format!("/v1/_resident/{child}/cancel"), reason("a"), reason("b")),
        (format!("/v1/_resident/{}/close", closing[1]), reason("a"), reason("b")),
        (format!("/v1/_resident/{ended}/cancel"), reason("a"), reason("b")),
        (format!("/v1/_resident/{ended}/close"), reason("a"), reason("b")),
        ("/v1/_sandboxes/close_run".to_owned(), json!({ "root_run_id": parent }), json!({ "root_run_id": closing[0] })),
    ]
}

#[tokio::test]
async fn a_repeat_returns_the_first_result_and_another_body_is_refused_also_after_a_crash() {
    let mut server = Server::start().await;
    let api = server.api();
    let posts = posts(&api).await;
    let mut firsts = Vec::new();
    for (path, body, other) in &posts {
        let first = api.post_with_key(path, "key-1", body.clone()).await;
        assert!(matches!(first.status, 200 | 202) && !first.is_replay(), "{path}: {} {}", first.status, first.text);
        let again = api.post_with_key(path, "key-1", body.clone()).await;
        assert!(again.is_replay(), "{path}: no replay header; {}", again.text);
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{path}");
        api.post_with_key(path, "key-1", other.clone()).await.refused(409, "conflict");
        firsts.push(first);
    }
    server.crash().await;
    for ((path, body, other), first) in posts.iter().zip(&firsts) {
        let again = api.post_with_key(path, "key-1", body.clone()).await;
        assert!(again.is_replay(), "{path} after the crash: no replay header; {}", again.text);
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{path} after the crash");
        api.post_with_key(path, "key-1", other.clone()).await.refused(409, "conflict");
    }
    server.stop().await;
}

#[tokio::test]
async fn of_two_bodies_at_once_under_one_key_one_is_carried_out() {
    let server = Server::start().await;
    let api = server.api();
    for key in ["race-1", "race-2", "race-3"] {
        for (path, body, other) in posts(&api).await {
            let answers = join_all([body, other].map(|body| api.post_with_key(&path, key, body))).await;
            let told: Vec<_> = answers.iter().map(|answer| (answer.status, &answer.text)).collect();
            let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 409).collect();
            assert_eq!(refused.len(), 1, "{path}: {told:?}");
            assert_eq!(refused[0].body["error"]["code"], "conflict", "{path}: {told:?}");
            assert!(answers.iter().any(|answer| matches!(answer.status, 200 | 202)), "{path}: {told:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn repeats_at_once_have_one_effect() {
    let server = Server::start().await;
    let api = server.api();
    let parent = api.open("mock", "parent").await;
    let child = api.open_below(&parent, "mock", "child").await;
    let posts = [
        ("/v1/runs".to_owned(), json!({ "agent": "mock", "prompt": "a" }), "run_id"),
        (
            "/v1/_resident".to_owned(),
            json!({ "agent": "mock", "prompt": "a", "parent_run_id": parent }),
            "child_run_id",
        ),
        (format!("/v1/_resident/{child}/send"), json!({ "prompt": "a" }), "turn_id"),
        (format!("/v1/runs/{child}/input"), json!({ "text": "a" }), "turn_id"),
    ];
    for (path, body, id) in posts {
        let runs = || async {
            let page = api.get("/v1/runs?limit=500").await.ok();
            page["runs"].as_array().unwrap().len()
        };
        let (runs_before, turns_before) = (runs().await, turns(&api, &child).await);
        let replies = join_all((0..20).map(|_| api.post_with_key(&path, "at-once", body.clone()))).await;
        let ids: Vec<&Value> = replies.iter().map(|reply| &reply.body[id]).collect();
        assert!(ids.iter().all(|found| found.is_string() && **found == *ids[0]), "{path}: {ids:?}");
        assert_eq!(replies.iter().filter(|reply| !reply.is_replay()).count(), 1, "{path}: one is the first");
        let made = (runs().await - runs_before, turns(&api, &child).await - turns_before);
        let expected = if id == "turn_id" { (0, 1) } else { (1, 0) };
        eventually("the turn has ended", async || (api.poll(&child).await["state"] != "running").then_some(())).await;
        assert_eq!(made, expected, "{path}: runs and turns");
    }
    server.stop().await;
}

/// Turns that a resident has started.
async fn turns(api: &Api, id: &str) -> u64 {
    let rows = api.residents("").await;
    let row = rows.into_iter().find(|row| row["child_run_id"] == id).expect("the resident is listed");
    row["turns"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_repeat_joins_the_turn_that_still_runs_and_waits_by_its_own_time() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let path = format!("/v1/_resident/{id}/send");
    let prompt = mock(json!({ "latency_ms": 900, "output": "once" }));
    let short = api.post_with_key(&path, "k", json!({ "prompt": prompt, "timeout_ms": 1 })).await;
    assert_eq!(short.body["state"], "running");
    let long = api.post_with_key(&path, "k", json!({ "prompt": prompt })).await;
    assert!(long.is_replay(), "{}", long.text);
    let long = long.ok();
    assert_eq!((&long["turn_id"], long["output"].as_str()), (&short.body["turn_id"], Some("once")));
    assert_eq!(turns(&api, &id).await, 2);

    let body = |wait: u64| json!({ "agent": "mock", "prompt": prompt, "wait_ms": wait });
    let short = api.post_with_key("/v1/runs", "k", body(1)).await;
    assert_eq!(short.status, 202);
    let long = api.post_with_key("/v1/runs", "k", body(0)).await;
    assert_eq!((long.status, &long.body["run_id"]), (200, &short.body["run_id"]));
    server.stop().await;
}

#[tokio::test]
async fn the_order_of_fields_and_white_space_do_not_make_another_body() {
    let server = Server::start().await;
    let api = server.api();
    let send = |text: &'static str| {
        let request = api.request("POST", "/v1/runs").header("idempotency-key", "k");
        api.finish(request.header("content-type", "application/json").body(text))
    };
    let first = send(r#"{"agent":"mock","prompt":"a"}"#).await;
    let again = send("{ \"prompt\": \"\\u0061\",\n \"agent\": \"mock\" }").await;
    assert!(again.is_replay(), "{}", again.text);
    assert_eq!(again.body["run_id"], first.body["run_id"]);
    server.stop().await;
}

#[tokio::test]
async fn a_key_counts_for_its_path_and_its_caller_only() {
    let server = hearth_tests::Options::default()
        .token("token-of-ann-0123456789abcdef", "acme", "ann", "member")
        .token("token-of-bob-0123456789abcdef", "acme", "bob", "member")
        .token("token-of-eve-0123456789abcdef", "other", "eve", "operator")
        .start()
        .await;
    let api = server.api();
    let mut ids = Vec::new();
    for token in ["ann", "bob", "eve"] {
        let api = api.with_token(&format!("token-of-{token}-0123456789abcdef"));
        for path in ["/v1/runs", "/v1/_resident"] {
            let reply = api.post_with_key(path, "same", json!({ "agent": "mock", "prompt": token })).await;
            assert!(!reply.is_replay(), "{token} {path}: {}", reply.text);
            ids.push(reply.ok()["run_id"].as_str().unwrap().to_owned());
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    server.stop().await;
}

#[tokio::test]
async fn what_was_refused_is_not_recorded() {
    let server = Server::start().await;
    let api = server.api();
    api.post_with_key("/v1/runs", "k", json!({ "agent": "nobody", "prompt": "a" })).await.refused(404, "not_found");
    api.post_with_key("/v1/runs", "k", json!({ "agent": "mock", "promt": "a" })).await.refused(400, "invalid_argument");
    let reply = api.post_with_key("/v1/runs", "k", json!({ "agent": "mock", "prompt": "a" })).await;
    assert!(!reply.is_replay());
    assert_eq!(reply.ok()["output"], "a");

    // A full cap refuses; once there is room, the same key is taken.
    let parent = api.open("mock", "parent").await;
    let mut last = String::new();
    for _ in 0..8 {
        last = api.open_below(&parent, "mock", "child").await;
    }
    let body = json!({ "agent": "mock", "prompt": "a", "parent_run_id": parent });
    api.post_with_key("/v1/_resident", "k", body.clone()).await.refused(429, "resident_limit");
    api.close(&last).await;
    let reply = api.post_with_key("/v1/_resident", "k", body).await;
    assert!(!reply.is_replay());
    reply.ok();
    server.stop().await;
}

#[tokio::test]
async fn the_last_1024_keys_of_a_run_count() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let path = format!("/v1/_resident/{id}/send");
    let mut first = Value::Null;
    for number in 0..1_024 {
        let reply = api.post_with_key(&path, &format!("k{number}"), json!({ "prompt": "a" })).await.ok();
        if number == 0 {
            first = reply;
        }
    }
    let again = api.post_with_key(&path, "k0", json!({ "prompt": "a" })).await;
    assert!(again.is_replay(), "{}", again.text);
    assert_eq!(again.body["turn_id"], first["turn_id"]);
    assert_eq!(turns(&api, &id).await, 1_025);
    server.stop().await;
}

#[tokio::test]
async fn a_key_has_a_form() {
    let server = Server::start().await;
    let api = server.api();
    let body = json!({ "agent": "mock", "prompt": "a" });
    api.post_with_key("/v1/runs", &"k".repeat(129), body.clone()).await.refused(400, "invalid_argument");
    api.post_with_key("/v1/runs", &"k".repeat(128), body).await.ok();
    server.stop().await;
}

#[tokio::test]
async fn the_close_of_a_sandbox_session_is_one_per_key_too() {
    let mut server = Options::default().variable("SANDBOX_DRIVER", "local").start().await;
    let api = server.api();
    let prompt = json!({ "commands": ["true"], "keep_open": true }).to_string();
    let id = api.open("dev/exec", &prompt).await;
    let output: Value = serde_json::from_str(api.poll(&id).await["output"].as_str().unwrap()).unwrap();
    let session = output["session_id"].as_str().unwrap();
    let path = format!("/v1/_sandboxes/{session}/close");
    let first = api.post_with_key(&path, "k", json!({})).await;
    assert!(!first.is_replay());
    assert_eq!(first.body, json!({ "session_id": session, "state": "closed" }));
    server.crash().await;
    let again = api.post_with_key(&path, "k", json!({})).await;
    assert!(again.is_replay() && again.body == first.body, "{}", again.text);
    server.stop().await;
}
